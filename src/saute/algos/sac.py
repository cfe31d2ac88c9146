"""Soft actor-critic with automatic temperature (Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications")."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from saute import budget as B
from saute.core.options import Options
from saute.core.protocol import Env, Episodes, Step
from saute.learn import constraint as constraints
from saute.learn.constraint import Constraint
from saute.learn.drive import Stream, advance, begin, task_reward
from saute.learn.nets import MLP, init_mlp, mlp
from saute.learn.replay import Batch, Replay, Rows, add, create, relabel, sample, sauted
from saute.learn.squashed import SquashedGaussian, squashed_for

__all__ = ["Sac", "SacLearner", "SacSettings", "SoftActorCritic", "sac"]


@dataclasses.dataclass(frozen=True)
class SacSettings:
    """Settings of the paper's soft actor-critic (Sootla et al. 2022, table 2)."""

    hidden: tuple[int, ...] = (256, 256)
    steps_per_epoch: int = 200
    """Environment steps of an epoch, all environments together; an epoch begins with fresh episodes."""
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

    def updates(self, num_envs: int) -> int:
        """Updates after every step of all environments."""
        return max(1, round(self.updates_per_step * num_envs))


class SacLearner(NamedTuple):
    """Everything that training changes; the parts of the cost critic are empty without a constraint."""

    policy: MLP
    critics: tuple[MLP, MLP]
    target_critics: tuple[MLP, MLP]
    cost_critic: Any
    target_cost_critic: Any
    log_temperature: Float[Array, ""]
    policy_optimiser: Any
    critics_optimiser: Any
    cost_critic_optimiser: Any
    temperature_optimiser: Any
    constraint: Any
    replay: Replay
    steps: Int[Array, ""]


@dataclasses.dataclass(frozen=True)
class Sac:
    """Soft actor-critic with its settings and its constraint, not yet bound to an environment's spaces."""

    name: str
    settings: SacSettings
    constraint: Constraint
    limit: float | None = None

    def bind(self, observation_space: Any, action_space: Any, options: Options | None = None) -> SoftActorCritic:
        """For an environment's spaces, and its Sauté options if it is sautéed."""
        if self.settings.relabel and options is None:
            raise ValueError("relabel=True redraws remaining budgets, but the environment has none; sauté it first")
        if self.settings.relabel and options is not None and options.terminate:
            raise ValueError("relabel=True needs what follows a violation, which terminate=True hides; use one of them")
        if self.constraint.active and self.limit is None:
            raise ValueError("a constraint needs the limit of an episode's cost: sac(lagrangian(1.0), limit=30.0)")
        return SoftActorCritic(self, squashed_for(observation_space, action_space, self.settings.hidden), options)


@dataclasses.dataclass(frozen=True)
class SoftActorCritic:
    """`init` and `epoch` for an environment's spaces; `update` never sees the environment."""

    algorithm: Sac
    policy: SquashedGaussian
    options: Options | None

    def init(self, key: PRNGKeyArray) -> SacLearner:
        settings, constrained = self.algorithm.settings, self.algorithm.constraint.active
        policy_key, *critic_keys, cost_key = jax.random.split(key, 4)
        sizes = (self.policy.observations + self.policy.actions, *settings.hidden, 1)
        policy = self.policy.init(policy_key)
        first, second = (init_mlp(k, sizes) for k in critic_keys)
        cost_critic = init_mlp(cost_key, sizes) if constrained else ()
        log_temperature = jnp.zeros(())
        adam = optax.adam(settings.rate)
        return SacLearner(
            policy,
            (first, second),
            (first, second),
            cost_critic,
            cost_critic,
            log_temperature,
            adam.init(policy),
            adam.init((first, second)),
            adam.init(cost_critic),
            optax.adam(settings.temperature_rate).init(log_temperature),
            self.algorithm.constraint.init(),
            create(self._example(), settings.replay),
            jnp.zeros((), jnp.int32),
        )

    def epoch(
        self, env: Env, learner: SacLearner, key: PRNGKeyArray
    ) -> tuple[SacLearner, dict[str, Float[Array, ""]], Episodes]:
        """Fresh episodes with updates after every step, as one `lax.scan`."""
        settings, unit = self.algorithm.settings, self.unit_cost(env)

        def one(carry: tuple[SacLearner, Stream], key: PRNGKeyArray) -> tuple[tuple[SacLearner, Stream], tuple[Any, Any]]:
            learner, stream = carry
            act_key, step_key, reset_key, learn_key = jax.random.split(key, 4)
            action = self.explore(learner, stream.obs, act_key)
            following, step, episodes = advance(env, stream, self.policy.scale(action), step_key, reset_key)
            learner, metrics = self.learn(learner, self.rows(stream, action, step), learn_key, unit)
            return (learner, following), (metrics, episodes)

        start_key, key = jax.random.split(key)
        carry = (learner, begin(env, start_key, settings.num_envs))
        keys = jax.random.split(key, settings.steps_per_epoch // settings.num_envs)
        (learner, _), (metrics, episodes) = jax.lax.scan(one, carry, keys)
        return learner, jax.tree.map(jnp.mean, metrics), episodes

    def unit_cost(self, env: Any) -> float:
        """The discounted cost that the constraint calls 1: d(1 − γᵀ)/((1 − γ)T)."""
        limit = self.algorithm.limit if self.algorithm.constraint.active else None
        if getattr(env, "options", None) is not self.options:
            raise ValueError("the environment's Sauté options are not those that bind was given; pass env.options to bind")
        if limit is not None and env.horizon is None:
            raise ValueError(
                f"a limit of {limit:g} per episode needs the length T of an episode; register it with max_episode_steps=T"
            )
        return 1.0 if limit is None else B.rescale(limit, self.algorithm.settings.cost_discount, env.horizon)

    def learn(
        self, learner: SacLearner, rows: Rows, key: PRNGKeyArray, unit_cost: float = 1.0
    ) -> tuple[SacLearner, dict[str, Float[Array, ""]]]:
        """Remember a step of all environments, then update as often as it is due."""
        num_envs = len(rows.terminated)
        learner = learner._replace(replay=add(learner.replay, rows), steps=learner.steps + num_envs)
        return self._updates(learner, key, unit_cost, self.algorithm.settings.updates(num_envs))

    def exported(self, learner: SacLearner) -> Any:
        """Parameters of the policy."""
        return learner.policy

    def vital(self, learner: SacLearner) -> Any:
        """What must be finite."""
        return learner.policy, learner.critics, learner.cost_critic, learner.log_temperature

    def update(
        self, learner: SacLearner, batch: Batch, key: PRNGKeyArray, unit_cost: float = 1.0
    ) -> tuple[SacLearner, dict[str, Float[Array, ""]]]:
        """One step of the critics, the policy, the multiplier, the temperature and the target critics, in this order."""
        settings, constrained = self.algorithm.settings, self.algorithm.constraint.active
        adam, scale = optax.adam(settings.rate), settings.value_scale
        next_key, policy_key = jax.random.split(key)
        α = jnp.exp(learner.log_temperature)

        next_action, next_log_prob = self._draw(learner.policy, batch.next_obs, next_key)
        next_value = scale * smaller(learner.target_critics, batch.next_obs, next_action) - α * next_log_prob
        target = td_target(batch.reward, batch.terminated, next_value, settings.discount)
        critic_loss, gradient = jax.value_and_grad(critics_loss)(learner.critics, batch.obs, batch.action, target / scale)
        critics, critics_optimiser = _step(adam, gradient, learner.critics_optimiser, learner.critics)

        cost_critic, cost_optimiser = learner.cost_critic, learner.cost_critic_optimiser
        if constrained:
            next_cost = action_value(learner.target_cost_critic, batch.next_obs, next_action)
            cost_target = td_target(batch.cost / unit_cost, batch.terminated, next_cost, settings.cost_discount)
            gradient = jax.grad(critics_loss)((cost_critic,), batch.obs, batch.action, cost_target)[0]
            cost_critic, cost_optimiser = _step(adam, gradient, cost_optimiser, cost_critic)

        def policy_loss(parameters: MLP) -> tuple[Array, tuple[Any, ...]]:
            """E α log π − min Q + β Q_c, where the multiplier β holds Q_c ≤ 1."""
            action, log_prob = self._draw(parameters, batch.obs, policy_key)
            value = scale * smaller(critics, batch.obs, action)
            cost_value = action_value(cost_critic, batch.obs, action) if constrained else jnp.zeros_like(value)
            seen, known = jax.lax.stop_gradient(cost_value), jnp.ones(cost_value.shape, bool)
            constraint, β = self.algorithm.constraint.update(learner.constraint, seen, known)
            loss = jnp.mean(α * log_prob - value + β * cost_value)
            return loss, (constraint, β, log_prob.mean(), value.mean(), cost_value.mean())

        gradient, (constraint, β, log_prob, value, cost_value) = jax.grad(policy_loss, has_aux=True)(learner.policy)
        policy, policy_optimiser = _step(adam, gradient, learner.policy_optimiser, learner.policy)
        log_temperature, temperature_optimiser = _step(
            optax.adam(settings.temperature_rate),
            temperature_gradient(log_prob, -self.policy.actions),
            learner.temperature_optimiser,
            learner.log_temperature,
        )
        metrics = {
            "critic_loss": critic_loss,
            "value": value,
            "cost_value": cost_value,
            "entropy": -log_prob,
            "temperature": α,
            "multiplier": β,
        }
        return learner._replace(
            policy=policy,
            critics=critics,
            target_critics=average(learner.target_critics, critics, settings.averaging),
            cost_critic=cost_critic,
            target_cost_critic=average(learner.target_cost_critic, cost_critic, settings.averaging),
            log_temperature=log_temperature,
            policy_optimiser=policy_optimiser,
            critics_optimiser=critics_optimiser,
            cost_critic_optimiser=cost_optimiser,
            temperature_optimiser=temperature_optimiser,
            constraint=constraint,
        ), metrics

    def _draw(self, parameters: MLP, obs: Array, key: PRNGKeyArray) -> tuple[Array, Array]:
        """Actions in (−1, 1) and log π of them."""
        dist = self.policy.distribution(parameters, obs)
        u = self.policy.unsquashed(dist, key)
        return jnp.tanh(u), self.policy.log_prob(dist, u)

    def explore(self, learner: SacLearner, obs: Array, key: PRNGKeyArray) -> Array:
        """Uniform actions at first, then the policy's."""
        drawn = self._draw(learner.policy, obs, key)[0]
        uniform = jax.random.uniform(key, drawn.shape, minval=-1.0, maxval=1.0)
        return jnp.where(learner.steps < self.algorithm.settings.random_steps, uniform, drawn)

    def _updates(
        self, learner: SacLearner, key: PRNGKeyArray, unit_cost: float, updates: int
    ) -> tuple[SacLearner, dict[str, Array]]:
        settings, replay = self.algorithm.settings, learner.replay

        def one(learner: SacLearner, key: PRNGKeyArray) -> tuple[SacLearner, dict[str, Array]]:
            draw_key, budget_key, key = jax.random.split(key, 3)
            rows = sample(replay, draw_key, settings.batch)
            if self.options is not None and settings.relabel:
                half, most = settings.batch // 2, self.options.high
                fresh = relabel(rows, budget_key, self.options, -settings.overdraft * most, most)
                rows = jax.tree.map(lambda own, other: jnp.concatenate([own[:half], other[half:]]), rows, fresh)
            return self.update(learner, sauted(rows, self.options), key, unit_cost)

        def learned(learner: SacLearner) -> tuple[SacLearner, dict[str, Array]]:
            learner, metrics = jax.lax.scan(one, learner, jax.random.split(key, updates))
            return learner, jax.tree.map(jnp.mean, metrics)

        def unchanged(learner: SacLearner) -> tuple[SacLearner, dict[str, Array]]:
            return learner, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), jax.eval_shape(learned, learner)[1])

        # The replay is only read here: it stays outside, so that no branch and no loop hands it on.
        apart = learner._replace(replay=None)  # type: ignore[arg-type]
        apart, metrics = jax.lax.cond(learner.steps > settings.random_steps, learned, unchanged, apart)
        return apart._replace(replay=replay), metrics

    def rows(self, stream: Stream, action: Array, step: Step) -> Rows:
        """A step as the replay keeps it: without z in the observations, and with the reward before shaping."""
        size = self._bare_size
        none = jnp.zeros((len(action), 0))
        before, after = (none, none) if self.options is None else (stream.state.remaining, step.state.remaining)
        reward = task_reward(step)
        return Rows(stream.obs[:, :size], before, action, reward, step.cost, step.obs[:, :size], after, step.terminated)

    @property
    def _bare_size(self) -> int:
        augmented = self.options is not None and self.options.augment
        return self.policy.observations - (self.options.constraints if augmented and self.options is not None else 0)

    def _example(self) -> Rows:
        obs, scalar = jnp.zeros(self._bare_size), jnp.zeros(())
        cost = scalar if self.options is None else jnp.zeros(self.options.budget_shape)
        remaining = jnp.zeros(0) if self.options is None else cost
        return Rows(obs, remaining, jnp.zeros(self.policy.actions), scalar, cost, obs, remaining, jnp.zeros((), bool))


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


def average(target: Any, net: Any, τ: float) -> Any:
    """θ̄ ← (1 − τ)θ̄ + τθ."""
    return jax.tree.map(lambda old, new: (1 - τ) * old + τ * new, target, net)


def _step(optimiser: Any, gradient: Any, state: Any, parameters: Any) -> tuple[Any, Any]:
    updates, state = optimiser.update(gradient, state)
    return optax.apply_updates(parameters, updates), state


def sac(constraint: Constraint | None = None, settings: SacSettings | None = None, limit: float | None = None) -> Sac:
    """SAC; a constraint sees the discounted cost in units of d(1 − γᵀ)/((1 − γ)T), so that its own limit is 1.

    It sees it at every update, for which `lagrangian(1.0, through_softplus=True)` is made.
    """
    return Sac("sac", settings or SacSettings(), constraint or constraints.none(), limit)
