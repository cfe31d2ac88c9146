"""Soft actor-critic with automatic temperature (Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications")."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from saute import budget as B
from saute.core.options import Options
from saute.core.protocol import Spec, Transition
from saute.learn.agent import Acted, Metrics, unchanged
from saute.learn.constraint import Constraint, Free
from saute.learn.nets import MLP, Normaliser, SquashedGaussian, init_mlp, mlp, squashed_for
from saute.learn.replay import Batch, Replay, add, create, relabel_half, row_like, sample, sauted, stored
from saute.learn.statistics import Statistics, check_discount, inputs_of, nothing, return_scale, updated

__all__ = ["Sac", "SacAgent", "SacSettings", "SacState", "sac"]


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
    """Whether the nets see observations with the mean and deviation of all so far taken out; never those of z or pictures."""
    scale_rewards: bool = False
    """Whether the learner sees rewards divided by the running size of discounted returns; what is reported is not. Leave
    value_scale at 1 then."""

    def updates(self, num_envs: int) -> int:
        """Updates after every step of all environments."""
        return max(1, round(self.updates_per_step * num_envs))


Draw = Callable[[PRNGKeyArray, PRNGKeyArray], Batch]
"""(key of the rows, key of their budgets) → a batch."""


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
        unit = 1.0
        if constraint.limit is not None:
            if options is not None and options.several:
                raise ValueError("sac holds one cost below its limit, but the environment has several; sauté them instead")
            if spec.horizon is None:
                raise ValueError(
                    f"a limit of {constraint.limit:g} per episode needs the length T of an episode; register the environment "
                    "with max_episode_steps=T"
                )
            unit = B.rescale(constraint.limit, self.settings.cost_discount, spec.horizon)
            constraint = dataclasses.replace(constraint, limit=1.0)  # type: ignore[type-var]
        check_discount(self.settings.scale_rewards, self.settings.discount)
        policy = squashed_for(spec.observation_space, spec.action_space, self.settings.hidden)
        pixels = 0 if spec.image is None else math.prod(spec.image)
        return SacAgent(self.settings, constraint, policy, options, unit, pixels)


@dataclasses.dataclass(frozen=True)
class SacAgent:
    """A learner from every step: it remembers it, then updates as often as it is due."""

    settings: SacSettings
    constraint: Constraint
    """Of the discounted cost in units of `unit_cost`, so that its limit is 1."""
    policy: SquashedGaussian
    options: Options | None
    unit_cost: float = 1.0
    """What a cost of d/T per step comes to: d(1 − γᵀ)/((1 − γ)T)."""
    pixels: int = 0
    """How many of the first observations are those of a picture, which are never normalised."""

    prepare = begin = learn = staticmethod(unchanged)

    @property
    def constrained(self) -> bool:
        return self.constraint.limit is not None

    def init(self, key: PRNGKeyArray) -> SacState:
        settings = self.settings
        policy_key, *critic_keys, cost_key = jax.random.split(key, 4)
        sizes = (self.policy.observations + self.policy.actions, *settings.hidden, 1)
        policy = self.policy.init(policy_key)
        first, second = (init_mlp(k, sizes) for k in critic_keys)
        cost_critic = init_mlp(cost_key, sizes) if self.constrained else ()
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
            replay=create(row_like(self.bare_observations, self.policy.actions, self.options), settings.replay),
            steps=jnp.zeros((), jnp.int32),
            observed=nothing(self.bare_observations - self.pixels) if settings.running_normaliser else (),
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
        """Uniform actions at first, then the policy's; what is noted is the action in (−1, 1)."""
        drawn = self.draw(state.policy, self.seen(state, obs), key)[0]
        uniform = jax.random.uniform(key, drawn.shape, minval=-1.0, maxval=1.0)
        unit = jnp.where(state.steps < self.settings.random_steps, uniform, drawn)
        return Acted(self.policy.scale(unit), extras=unit)

    def observe(self, state: SacState, rows: Transition, key: PRNGKeyArray) -> tuple[SacState, Metrics]:
        """Remember a step of all environments, then update as often as it is due."""
        settings, count = self.settings, len(rows.terminated)
        state = self.remembered(state, rows)
        replay = state.replay
        assert replay is not None

        def batch(draw_key: PRNGKeyArray, budget_key: PRNGKeyArray) -> Batch:
            drawn = sample(replay, draw_key, settings.batch)
            if self.options is not None and settings.relabel:
                drawn = relabel_half(drawn, budget_key, self.options, settings.overdraft)
            return sauted(drawn, self.options)

        # The replay is only read here: it stays outside, so that no branch and no loop hands it on.
        apart, metrics = self.updated(
            state.steps > settings.random_steps, state._replace(replay=None), batch, key, settings.updates(count)
        )
        return apart._replace(replay=replay), metrics

    def remembered(self, state: SacState, rows: Transition) -> SacState:
        """With a step of all environments in the replay, and in the running statistics."""
        assert state.replay is not None
        kept = add(state.replay, stored(rows, rows.extras, self.options))
        met = rows.obs[:, self.pixels : self.bare_observations]
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
        return inputs_of(observed, self.pixels, self.policy.observations - self.bare_observations)

    def updated(
        self, due: Bool[Array, ""], state: SacState, batch: Draw, key: PRNGKeyArray, updates: int
    ) -> tuple[SacState, Metrics]:
        """So many updates, each with a batch of its own, if they are due; if not, there are no numbers."""

        def one(state: SacState, key: PRNGKeyArray) -> tuple[SacState, Metrics]:
            draw_key, budget_key, key = jax.random.split(key, 3)
            return self.update(state, batch(draw_key, budget_key), key)

        def learned(state: SacState) -> tuple[SacState, Metrics]:
            state, metrics = jax.lax.scan(one, state, jax.random.split(key, updates))
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

    def update(self, state: SacState, batch: Batch, key: PRNGKeyArray) -> tuple[SacState, Metrics]:
        """One step of the critics, the policy, the multiplier, the temperature and the target critics, in this order."""
        settings, adam = self.settings, optax.adam(self.settings.rate)
        next_key, policy_key = jax.random.split(key)
        σ = return_scale(state.rewards, settings.discount) if state.rewards else 1.0
        obs, next_obs = self.seen(state, batch.obs), self.seen(state, batch.next_obs)
        batch = batch._replace(obs=obs, next_obs=next_obs, reward=batch.reward / σ)
        critic_loss, critics, critics_optimiser, cost_critic, cost_optimiser = self._critics(state, batch, next_key)
        loss = self._policy_loss(state, critics, cost_critic, batch, policy_key)
        gradient, (constraint, β, log_prob, value, cost_value) = jax.grad(loss, has_aux=True)(state.policy)
        policy, policy_optimiser = _step(adam, gradient, state.policy_optimiser, state.policy)
        log_temperature, temperature_optimiser = _step(
            optax.adam(settings.temperature_rate),
            temperature_gradient(log_prob, -self.policy.actions),
            state.temperature_optimiser,
            state.log_temperature,
        )
        metrics = {"critic_loss": critic_loss, "value": σ * value, "entropy": -log_prob}
        metrics |= {"temperature": jnp.exp(state.log_temperature), "multiplier": β}
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
        ), metrics | ({"cost_value": cost_value} if self.constrained else {})

    def _critics(self, state: SacState, batch: Batch, key: PRNGKeyArray) -> tuple[Array, Any, PyTree, PyTree, PyTree]:
        """The loss of the critics, then these and the cost critic, each after one step and with its optimiser."""
        settings, adam, scale = self.settings, optax.adam(self.settings.rate), self.settings.value_scale
        α = jnp.exp(state.log_temperature)
        next_action, next_log_prob = self.draw(state.policy, batch.next_obs, key)
        next_value = scale * smaller(state.target_critics, batch.next_obs, next_action) - α * next_log_prob
        target = td_target(batch.reward, batch.terminated, next_value, settings.discount)
        loss, gradient = jax.value_and_grad(critics_loss)(state.critics, batch.obs, batch.action, target / scale)
        critics, optimiser = _step(adam, gradient, state.critics_optimiser, state.critics)
        if not self.constrained:
            return loss, critics, optimiser, state.cost_critic, state.cost_critic_optimiser
        next_cost = action_value(state.target_cost_critic, batch.next_obs, next_action)
        cost_target = td_target(batch.cost / self.unit_cost, batch.terminated, next_cost, settings.cost_discount)
        gradient = jax.grad(critics_loss)((state.cost_critic,), batch.obs, batch.action, cost_target)[0]
        return loss, critics, optimiser, *_step(adam, gradient, state.cost_critic_optimiser, state.cost_critic)

    def _policy_loss(
        self, state: SacState, critics: tuple[MLP, MLP], cost_critic: PyTree, batch: Batch, key: PRNGKeyArray
    ) -> Callable[[MLP], tuple[Array, tuple[Any, ...]]]:
        """parameters ↦ E α log π − min Q + β Q_c, where the multiplier β holds Q_c ≤ 1; and what it is made of."""

        def loss(parameters: MLP) -> tuple[Array, tuple[Any, ...]]:
            action, log_prob = self.draw(parameters, batch.obs, key)
            value = self.settings.value_scale * smaller(critics, batch.obs, action)
            cost_value = action_value(cost_critic, batch.obs, action) if self.constrained else jnp.zeros_like(value)
            seen, known = jax.lax.stop_gradient(cost_value), jnp.ones(cost_value.shape, bool)
            constraint, β = self.constraint.update(state.constraint, seen, known)
            total = jnp.mean(jnp.exp(state.log_temperature) * log_prob - value + β * cost_value)
            return total, (constraint, β, log_prob.mean(), value.mean(), cost_value.mean())

        return loss

    def draw(self, parameters: MLP, obs: Array, key: PRNGKeyArray) -> tuple[Array, Array]:
        """Actions in (−1, 1) and log π of them."""
        dist = self.policy.distribution(parameters, obs)
        u = self.policy.unsquashed(dist, key)
        return jnp.tanh(u), self.policy.log_prob(dist, u)


def td_target(
    reward: Float[Array, " row"], terminated: Bool[Array, " row"], next_value: Float[Array, " row"], discount: float
) -> Float[Array, " row"]:
    """y = r + γ V(s'), where terminals have no V but time-outs do."""
    return jax.lax.stop_gradient(reward + discount * jnp.where(terminated, 0.0, next_value))


def action_value(net: MLP, obs: Float[Array, "row obs"], action: Float[Array, "row action"]) -> Float[Array, " row"]:
    """Q(s, a)."""
    return mlp(net, jnp.concatenate([obs, action], axis=1), jax.nn.relu)[:, 0]


def smaller(critics: tuple[MLP, MLP], obs: Float[Array, "row obs"], action: Float[Array, "row action"]) -> Float[Array, " row"]:
    """min(Q₁, Q₂)(s, a)."""
    return jnp.minimum(*(action_value(net, obs, action) for net in critics))


def critics_loss(critics: tuple[MLP, ...], obs: Array, action: Array, target: Float[Array, " row"]) -> Float[Array, ""]:
    """Σ E(Qᵢ(s, a) − y)²."""
    return sum((jnp.mean((action_value(net, obs, action) - target) ** 2) for net in critics), jnp.zeros(()))


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
