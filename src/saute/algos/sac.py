"""Soft actor-critic with automatic temperature (Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications").

For discrete actions it is that of Christodoulou 2019; the difference between the two is in `learn/soft.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from saute import budget as B
from saute.core.encoder import Image, pixels_of
from saute.core.machine import memory
from saute.core.options import Options
from saute.core.protocol import Spec, Transition
from saute.learn.agent import Acted, Metrics, named, unchanged
from saute.learn.constraint import Constraint, Free, check_limits
from saute.learn.nets import MLP, Categorical, Normaliser, SquashedGaussian
from saute.learn.replay import Batch, Replay, add, create, lots, picked, relabel_half, row_like, sauted, stored
from saute.learn.soft import Drawn, Enumerated, Weighed, weighing
from saute.learn.statistics import Statistics, check_discount, inputs_of, nothing, return_scale, updated

__all__ = ["Luck", "Sac", "SacAgent", "SacSettings", "SacState", "sac"]


@dataclasses.dataclass(frozen=True)
class SacSettings:
    """Settings of the paper's soft actor-critic (Sootla et al. 2022, table 2)."""

    hidden: tuple[int, ...] = (256, 256)
    steps_per_epoch: int = 200
    """Environment steps of an epoch, all environments together."""
    num_envs: int = 1
    """JAX-native environments side by side; a vector of Gymnasium's has its own number."""
    updates_per_step: float = 1.0
    random_steps: int = 1000
    """Steps with uniform actions, before the first update."""
    batch: int = 1024
    replay: int = 1_000_000
    rate: float = 5e-4
    temperature_rate: float = 5e-2
    discount: float = 0.99
    cost_discount: float = 0.99
    averaging: float = 0.005
    """τ of the target critics."""
    value_scale: float = 1.0
    """Q(s, a) = scale · MLP(s, a): values near 1/(1 − γ) are fitted in far fewer updates if the net need not grow to them."""
    relabel: bool = False
    """Whether half of each batch gets fresh remaining budgets, w ~ U[−overdraft, 1] · (largest budget)."""
    overdraft: float = 0.1
    running_normaliser: bool = False
    """Whether observations are normalised by the mean and standard deviation of all so far; z and pictures never are."""
    scale_rewards: bool = False
    """Whether the learner sees rewards divided by the size of discounted returns so far; reported ones are not divided. Leave
    value_scale at 1 then."""

    def updates(self, num_envs: int) -> int:
        """Updates after every step of all environments."""
        return max(1, round(self.updates_per_step * num_envs))


class Luck(NamedTuple):
    """The random numbers of an update; many updates have theirs one after the other."""

    rows: PyTree
    """Which rows the batch has."""
    budgets: PRNGKeyArray
    """Of the fresh ones among their remaining budgets."""
    noise: tuple[PyTree, PyTree]
    """Of the actions at the end of each row, and at its beginning."""


Draw = Callable[[PyTree, PRNGKeyArray], Batch]
"""(rows, key of their budgets) → a batch."""


class SacState(NamedTuple):
    """Everything that training changes; the parts of the cost critic are empty without a constraint."""

    policy: MLP
    critics: tuple[MLP, MLP]
    target_critics: tuple[MLP, MLP]
    cost_critic: PyTree
    target_cost_critic: PyTree
    log_temperature: Float[Array, ""]
    policy_optimiser: PyTree
    critics_optimiser: PyTree
    cost_critic_optimiser: PyTree
    temperature_optimiser: PyTree
    constraint: PyTree
    replay: Replay | None
    """With observations and rewards as they came; they are normalised when they are used."""
    steps: Int[Array, ""]
    observed: Statistics | tuple[()] = ()
    """Of all observations so far, if the nets see them normalised."""
    rewards: Statistics | tuple[()] = ()


@dataclasses.dataclass(frozen=True)
class Sac:
    """Soft actor-critic with its settings and its constraint."""

    settings: SacSettings
    constraint: Constraint
    name: str = "sac"

    def agent(self, spec: Spec) -> SacAgent:
        """The learner for an environment's spaces, the length of its episodes, and its Sauté options if it is sautéed."""
        options, constraint = spec.options, self.constraint
        if self.settings.relabel and options is None:
            raise ValueError("relabel=True redraws remaining budgets, but the environment has none; sauté it first")
        if self.settings.relabel and options is not None and options.terminate:
            raise ValueError("relabel=True needs what follows a violation, which terminate=True hides; use one of them")
        check_limits(self.name, constraint.limit, spec.cost_shape)
        unit: float | tuple[float, ...] = 1.0
        if constraint.limit is not None:
            limits = constraint.limit if isinstance(constraint.limit, Sequence) else (constraint.limit,)
            if spec.horizon is None:
                raise ValueError(
                    f"a limit of {' and '.join(f'{one:g}' for one in limits)} per episode needs the length T of an episode; "
                    "register the environment with max_episode_steps=T"
                )
            units = tuple(B.rescale(one, self.settings.cost_discount, spec.horizon) for one in limits)
            unit, one = (units, (1.0,) * len(units)) if isinstance(constraint.limit, Sequence) else (units[0], 1.0)
            constraint = dataclasses.replace(constraint, limit=one)  # type: ignore[type-var]
        check_discount(self.settings.scale_rewards, self.settings.discount)
        _check_memory(spec.image, self.settings.replay)
        chosen = weighing(spec.observation_space, spec.action_space, self.settings.hidden, spec.image)
        return SacAgent(self.settings, constraint, chosen, options, unit, spec.cost_shape)


@dataclasses.dataclass(frozen=True)
class SacAgent:
    """A learner that stores every step, then makes as many updates as are due."""

    settings: SacSettings
    constraint: Constraint
    """Of the discounted cost in units of `unit_cost`, so that its limit is 1."""
    weighing: Drawn | Enumerated
    """The policy and the critics, for a vector of actions or for discrete ones."""
    options: Options | None
    unit_cost: float | tuple[float, ...] = 1.0
    """What a cost of d/T per step comes to: d(1 − γᵀ)/((1 − γ)T); one for each of several constraints."""
    cost_shape: tuple[int, ...] = ()

    prepare = begin = learn = staticmethod(unchanged)

    @property
    def policy(self) -> SquashedGaussian | Categorical:
        return self.weighing.policy

    @property
    def constrained(self) -> bool:
        return self.constraint.limit is not None

    @property
    def several(self) -> bool:
        """Whether there are several constraints, so that the cost critics are stacked along the first axis."""
        return isinstance(self.constraint.limit, Sequence)

    def init(self, key: PRNGKeyArray) -> SacState:
        settings = self.settings
        policy_key, *critic_keys, cost_key = jax.random.split(key, 4)
        policy = self.policy.init(policy_key)
        first, second = map(self.weighing.init_critic, critic_keys)
        cost_critic: PyTree = self.weighing.init_critic(cost_key) if self.constrained and not self.several else ()
        if self.several:
            cost_critic = jax.vmap(self.weighing.init_critic)(jax.random.split(cost_key, *self.cost_shape))
        log_temperature = jnp.zeros(())
        adam = optax.adam(settings.rate)
        return SacState(
            policy=policy,
            critics=(first, second),
            target_critics=(first, second),
            cost_critic=cost_critic,
            target_cost_critic=cost_critic,
            log_temperature=log_temperature,
            policy_optimiser=adam.init(policy),
            critics_optimiser=adam.init((first, second)),
            cost_critic_optimiser=adam.init(cost_critic),
            temperature_optimiser=optax.adam(settings.temperature_rate).init(log_temperature),
            constraint=self.constraint.init(),
            replay=create(
                row_like(self.bare_observations, self.weighing.blank, self.options, self.cost_shape, self.policy.image),
                settings.replay,
            ),
            steps=jnp.zeros((), jnp.int32),
            observed=nothing(self.bare_observations - pixels_of(self.policy.image)) if settings.running_normaliser else (),
            rewards=nothing() if settings.scale_rewards else (),
        )

    @property
    def bare_observations(self) -> int:
        """Observations of the environment without its remaining budgets."""
        shown = self.options is not None and self.options.augment
        return self.policy.observations - (self.options.constraints if shown and self.options is not None else 0)

    def memory(self, count: int) -> tuple[()]:
        return ()

    def act(self, state: SacState, memory: tuple[()], obs: Float[Array, "env obs"], key: PRNGKeyArray) -> Acted:
        """Uniform actions at first, then the policy's; what is noted of a vector is the action in (−1, 1)."""
        unit = jax.lax.cond(
            state.steps < self.settings.random_steps,
            lambda: self.weighing.uniform(key, len(obs)),
            lambda: self.weighing.sample(state.policy, self.seen(state, obs), key),
        )
        return Acted(self.weighing.scale(unit), extras=unit)

    def noted(self, action: Shaped[Array, "env ..."]) -> Any:
        """The actions in (−1, 1), if they are vectors."""
        return self.weighing.unscaled(action)

    def luck(self, key: PRNGKeyArray, count: int) -> Luck:
        return self.lucks(key, self.settings.updates(count), lambda key: lots(key, self.settings.batch))

    def lucks(self, key: PRNGKeyArray, updates: int, rows: Callable[[PRNGKeyArray], PyTree]) -> Luck:
        """Of so many updates, with batches whose rows are drawn like that."""

        def one(key: PRNGKeyArray) -> Luck:
            draw_key, budget_key, key = jax.random.split(key, 3)
            return Luck(rows(draw_key), budget_key, self.noise(key, self.settings.batch))

        return jax.vmap(one)(jax.random.split(key, updates))

    def noise(self, key: PRNGKeyArray, count: int) -> tuple[PyTree, PyTree]:
        """Of an update with so many rows."""
        next_key, key = jax.random.split(key)
        return self.weighing.noise(next_key, count), self.weighing.noise(key, count)

    def observe(self, state: SacState, rows: Transition, luck: Luck) -> tuple[SacState, Metrics]:
        """Store a step of all environments, then make as many updates as are due."""
        settings = self.settings
        state = self.remembered(state, rows)
        replay = state.replay
        assert replay is not None

        def batch(rows: PyTree, budget_key: PRNGKeyArray) -> Batch:
            drawn = picked(replay, rows)
            if self.options is not None and settings.relabel:
                drawn = relabel_half(drawn, budget_key, self.options, settings.overdraft)
            return sauted(drawn, self.options)

        # The replay is only read here; it stays outside the branch and the loop, which would copy it.
        apart, metrics = self.updated(state.steps > settings.random_steps, state._replace(replay=None), batch, luck)
        return apart._replace(replay=replay), metrics

    def remembered(self, state: SacState, rows: Transition) -> SacState:
        """The state after a step of all environments was added to the replay and to the running statistics."""
        assert state.replay is not None
        kept = add(state.replay, stored(rows, rows.extras, self.options, self.policy.image))
        met = rows.obs[:, pixels_of(self.policy.image) : self.bare_observations]
        return state._replace(
            replay=kept,
            steps=state.steps + len(rows.terminated),
            observed=updated(state.observed, met) if state.observed else (),
            rewards=updated(state.rewards, rows.reward) if state.rewards else (),
        )

    def seen(self, state: SacState, obs: Float[Array, "*batch obs"]) -> Float[Array, "*batch obs"]:
        """Observations as the nets see them."""
        return self._inputs(state.observed)(obs) if state.observed else obs

    def _inputs(self, observed: Statistics) -> Normaliser:
        return inputs_of(observed, pixels_of(self.policy.image), self.policy.observations - self.bare_observations)

    def updated(self, due: Bool[Array, ""], state: SacState, batch: Draw, luck: Luck) -> tuple[SacState, Metrics]:
        """One update for each luck, with a batch of its own, if they are due; if they are not, all metrics are NaN."""

        def one(state: SacState, luck: Luck) -> tuple[SacState, Metrics]:
            return self.update(state, batch(luck.rows, luck.budgets), luck.noise)

        def learned(state: SacState) -> tuple[SacState, Metrics]:
            state, metrics = jax.lax.scan(one, state, luck)
            return state, jax.tree.map(jnp.mean, metrics)

        def waited(state: SacState) -> tuple[SacState, Metrics]:
            return state, jax.tree.map(lambda leaf: jnp.full(leaf.shape, jnp.nan), jax.eval_shape(learned, state)[1])

        return jax.lax.cond(due, learned, waited, state)

    def export(self, state: SacState) -> MLP:
        """Parameters of the policy for plain observations."""
        return self.policy.absorb(state.policy, self._inputs(state.observed)) if state.observed else state.policy

    def vital(self, state: SacState) -> PyTree:
        return state.policy, state.critics, state.cost_critic, state.log_temperature, state.observed, state.rewards

    def objection(self, metrics: dict[str, float]) -> str | None:
        return None

    def update(self, state: SacState, batch: Batch, noise: tuple[PyTree, PyTree]) -> tuple[SacState, Metrics]:
        """One step of the critics, the policy, the multiplier, the temperature and the target critics, in this order."""
        settings, adam = self.settings, optax.adam(self.settings.rate)
        σ = return_scale(state.rewards, settings.discount) if state.rewards else 1.0
        obs, next_obs = self.seen(state, batch.obs), self.seen(state, batch.next_obs)
        batch = batch._replace(obs=obs, next_obs=next_obs, reward=batch.reward / σ)
        critic_loss, critics, critics_optimiser, cost_critic, cost_optimiser = self._critics(state, batch, noise[0])
        loss = self._policy_loss(state, critics, cost_critic, batch, noise[1])
        gradient, (constraint, β, log_prob, chased, value, cost_value) = jax.grad(loss, has_aux=True)(state.policy)
        policy, policy_optimiser = _step(adam, gradient, state.policy_optimiser, state.policy)
        log_temperature, temperature_optimiser = _step(
            optax.adam(settings.temperature_rate),
            temperature_gradient(chased, self.weighing.target_entropy),
            state.temperature_optimiser,
            state.log_temperature,
        )
        metrics = {"critic_loss": critic_loss, "value": σ * value, "entropy": -log_prob}
        metrics |= {"temperature": jnp.exp(state.log_temperature), **named("multiplier", β)}
        return state._replace(
            policy=policy,
            critics=critics,
            target_critics=average(state.target_critics, critics, settings.averaging),
            cost_critic=cost_critic,
            target_cost_critic=average(state.target_cost_critic, cost_critic, settings.averaging),
            log_temperature=log_temperature,
            policy_optimiser=policy_optimiser,
            critics_optimiser=critics_optimiser,
            cost_critic_optimiser=cost_optimiser,
            temperature_optimiser=temperature_optimiser,
            constraint=constraint,
        ), metrics | (named("cost_value", cost_value) if self.constrained else {})

    def _critics(self, state: SacState, batch: Batch, noise: PyTree) -> tuple[Array, Any, PyTree, PyTree, PyTree]:
        """The loss of the critics, then these and the cost critics, each after one step and with its optimiser."""
        settings, adam, scale = self.settings, optax.adam(self.settings.rate), self.settings.value_scale
        α, of = jnp.exp(state.log_temperature), self.weighing
        weighed = of.weighed(state.policy, batch.next_obs, noise)
        next_values = scale * self.smaller(state.target_critics, batch.next_obs, weighed) - α * weighed.log_prob
        next_value = of.mean(weighed, next_values)
        target = td_target(batch.reward, batch.terminated, next_value, settings.discount)
        loss, gradient = jax.value_and_grad(self.critics_loss)(state.critics, batch, target / scale)
        critics, optimiser = _step(adam, gradient, state.critics_optimiser, state.critics)
        if not self.constrained:
            return loss, critics, optimiser, state.cost_critic, state.cost_critic_optimiser

        def cost_gradient(critic: PyTree, target_critic: PyTree, cost: Array) -> PyTree:
            next_cost = of.mean(weighed, of.values(target_critic, batch.next_obs, weighed))
            cost_target = td_target(cost, batch.terminated, next_cost, settings.cost_discount)
            return jax.grad(self.critics_loss)((critic,), batch, cost_target)[0]

        each = jax.vmap(cost_gradient, in_axes=(0, 0, -1)) if self.several else cost_gradient
        gradient = each(state.cost_critic, state.target_cost_critic, batch.cost / jnp.asarray(self.unit_cost))
        return loss, critics, optimiser, *_step(adam, gradient, state.cost_critic_optimiser, state.cost_critic)

    def _policy_loss(
        self, state: SacState, critics: tuple[MLP, MLP], cost_critic: PyTree, batch: Batch, noise: PyTree
    ) -> Callable[[MLP], tuple[Array, tuple[Any, ...]]]:
        """parameters ↦ E[α log π − min Q + Σ β Q_c], where each multiplier β holds its Q_c ≤ 1; and the parts of this sum."""
        of = self.weighing

        def loss(parameters: MLP) -> tuple[Array, tuple[Any, ...]]:
            weighed = of.weighed(parameters, batch.obs, noise)
            value = self.settings.value_scale * self.smaller(critics, batch.obs, weighed)
            log_prob, count = of.mean(weighed, weighed.log_prob), len(batch.terminated)
            cost_values, seen = (
                self._cost_values(cost_critic, batch.obs, weighed) if self.constrained else (0.0, jnp.zeros(count))
            )
            constraint, β = self.constraint.update(state.constraint, jax.lax.stop_gradient(seen), jnp.ones(count, bool))
            penalty = jnp.tensordot(β, cost_values, 1) if self.several else β * cost_values
            α = jnp.exp(state.log_temperature)
            total = jnp.mean(of.mean(weighed, α * weighed.log_prob - value + penalty))
            chased = of.chased(weighed, value - penalty, α).mean()
            return total, (constraint, β, log_prob.mean(), chased, of.mean(weighed, value).mean(), seen.mean(0))

        return loss

    def _cost_values(self, critic: PyTree, obs: Array, weighed: Weighed) -> tuple[Array, Float[Array, "row ..."]]:
        """Q_c of the weighed actions, of several constraints one after the other; and its mean for each row."""
        of = self.weighing
        if not self.several:
            values = of.values(critic, obs, weighed)
            return values, of.mean(weighed, values)
        each = jax.vmap(lambda net: of.values(net, obs, weighed))(critic)
        return each, jax.vmap(lambda values: of.mean(weighed, values), out_axes=-1)(each)

    def smaller(self, critics: tuple[MLP, MLP], obs: Float[Array, "row obs"], weighed: Weighed) -> Float[Array, "row ..."]:
        """min(Q₁, Q₂)(s, a)."""
        return jnp.minimum(*(self.weighing.values(net, obs, weighed) for net in critics))

    def critics_loss(self, critics: tuple[MLP, ...], batch: Batch, target: Float[Array, " row"]) -> Float[Array, ""]:
        """Σ E(Qᵢ(s, a) − y)²."""
        values = (self.weighing.value(net, batch.obs, batch.action) for net in critics)
        return sum((jnp.mean((value - target) ** 2) for value in values), jnp.zeros(()))


def _check_memory(image: Image, rows: int) -> None:
    """Refuse a replay that is too large for the memory: a row has two pictures, each with one byte per pixel."""
    needed, most = 2 * pixels_of(image) * rows, memory()
    if needed > most:
        fitting = int(most / 2 / (2 * pixels_of(image)))
        raise ValueError(
            f"replay={rows:,} pictures {image} would take {needed / 1e9:.0f} GB, but there are {most / 1e9:.0f} GB of memory; "
            f"set it to {fitting:,} or less"
        )


def td_target(
    reward: Float[Array, " row"], terminated: Bool[Array, " row"], next_value: Float[Array, " row"], discount: float
) -> Float[Array, " row"]:
    """y = r + γ V(s'), where terminals have no V but time-outs do."""
    return jax.lax.stop_gradient(reward + discount * jnp.where(terminated, 0.0, next_value))


def temperature_gradient(log_prob: Float[Array, ""], target_entropy: float) -> Float[Array, ""]:
    """Gradient in log α of −log α · E(log π + H̄)."""
    return -(log_prob + target_entropy)


def average(target: PyTree, net: PyTree, τ: float) -> PyTree:
    """θ̄ ← (1 − τ)θ̄ + τθ."""
    return jax.tree.map(lambda old, new: (1 - τ) * old + τ * new, target, net)


def _step(
    optimiser: optax.GradientTransformation, gradient: PyTree, state: PyTree, parameters: PyTree
) -> tuple[PyTree, PyTree]:
    updates, state = optimiser.update(gradient, state)
    return optax.apply_updates(parameters, updates), state


def sac(constraint: Constraint | None = None, settings: SacSettings | None = None) -> Sac:
    """SAC; a constraint, at every update, sees the discounted cost that a cost of limit/T per step would have as its limit.

    `lagrangian(30.0, through_softplus=True)` is made for so many updates.
    """
    return Sac(settings or SacSettings(), constraint or Free())
