"""What PPO, TRPO and CPO share: advantages, the constraint's multiplier, value fits; they differ in `improve` only."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from saute.core.protocol import Episodes, Transition
from saute.learn.constraint import Constraint, mean, penalise
from saute.learn.nets import Categorical, Gaussian, Normaliser, init_mlp, mlp, policy_for
from saute.learn.returns import advantages

__all__ = ["Algorithm", "Data", "Improve", "Learner", "OnPolicy", "Settings"]


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the paper's on-policy learners (Sootla et al. 2022, table 1; 4000 steps per epoch as in its experiments)."""

    hidden: tuple[int, ...] = (64, 64)
    steps_per_epoch: int = 4000
    discount: float = 0.99
    trace: float = 0.97
    cost_discount: float = 0.99
    cost_trace: float = 0.97
    value_rate: float = 1e-3
    value_iterations: int = 80
    value_scale: float = 1.0
    """V(s) = scale · MLP(s): returns near 1/(1 − γ) are fitted in far fewer iterations if the net need not grow to them."""
    target_kl: float = 0.01
    kl_epochs: int | None = None
    """Epochs in which the trust region shrinks, δ_k = δ max(.1, 1 − k/K): large steps find the way, small ones keep it."""
    normalise: bool = False
    """Whether the nets see observations with the mean and deviation of those before training taken out; never those of z."""
    minibatches: int = 1
    """Value fits and PPO's steps use k parts of the data in turn, Fisher products the first; 1, all of it, as in the paper."""


class Data(NamedTuple):
    """A batch as `improve` sees it, all steps of all environments in one row each, the rows in minibatches."""

    obs: Float[Array, "minibatch row obs"]
    action: Array
    old: Any
    advantage: Float[Array, "minibatch row"]
    cost_advantage: Float[Array, "minibatch row"]
    objective: Float[Array, "minibatch row"]
    """Advantage that is to be maximised: the reward's, less λ times the cost's."""
    excess: Float[Array, ""]
    """How far the mean cost of an episode is above the limit, per step."""
    target_kl: Float[Array, ""] | float
    """δ of this epoch."""


Policy = Gaussian | Categorical
Improve = Callable[[Policy, Any, Any, Data], tuple[Any, Any, dict[str, Array]]]
"""(policy, parameters, optimiser state, data) → (parameters, optimiser state, metrics)."""


class Learner(NamedTuple):
    """Everything that training changes."""

    policy: Any
    value: Any
    cost_value: Any
    policy_optimiser: Any
    value_optimiser: Any
    cost_value_optimiser: Any
    constraint: Any
    normaliser: Normaliser | tuple[()] = ()
    epoch: Int[Array, ""] | int = 0


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """An optimiser of the policy with its settings and its constraint, not yet bound to an environment's spaces."""

    name: str
    settings: Settings
    constraint: Constraint
    improve: Improve
    init_optimiser: Callable[[Any], Any]
    limit: float | None = None

    def bind(self, observation_space: Any, action_space: Any, options: Any = None) -> OnPolicy:
        """For an environment's spaces; whether it is sautéed makes no difference."""
        return OnPolicy(self, policy_for(observation_space, action_space, self.settings.hidden))


@dataclasses.dataclass(frozen=True)
class OnPolicy:
    """`init`, `act` and `learn` for an environment's spaces; `learn` never sees the environment."""

    algorithm: Algorithm
    policy: Policy

    def init(self, key: PRNGKeyArray) -> Learner:
        policy_key, value_key, cost_key = jax.random.split(key, 3)
        sizes = (self.policy.observations, *self.algorithm.settings.hidden, 1)
        parameters, value, cost_value = self.policy.init(policy_key), init_mlp(value_key, sizes), init_mlp(cost_key, sizes)
        adam = optax.adam(self.algorithm.settings.value_rate)
        return Learner(
            parameters,
            value,
            cost_value,
            self.algorithm.init_optimiser(parameters),
            adam.init(value),
            adam.init(cost_value),
            self.algorithm.constraint.init(),
            epoch=jnp.zeros((), jnp.int32),
        )

    def act(self, learner: Learner, obs: Array, key: PRNGKeyArray) -> tuple[Array, tuple[()]]:
        """Actions drawn from the policy."""
        return self.policy.sample(self.policy.distribution(learner.policy, _seen(learner, obs)), key), ()

    def exported(self, learner: Learner) -> Any:
        """Parameters of the policy for plain observations."""
        return self.policy.absorb(learner.policy, learner.normaliser) if learner.normaliser else learner.policy

    def vital(self, learner: Learner) -> Any:
        """What must be finite."""
        return learner.policy, learner.value, learner.cost_value

    def learn(self, learner: Learner, batch: Transition, episodes: Episodes) -> tuple[Learner, dict[str, Array]]:
        """One epoch: the multiplier from whole episodes, then the policy, then both value functions."""
        settings, limit = self.algorithm.settings, self.algorithm.limit
        constrained = self.algorithm.constraint.active or limit is not None
        constraint, multiplier = self.algorithm.constraint.update(learner.constraint, episodes.cost, episodes.ended)
        ended = batch.terminated | batch.truncated
        batch = batch._replace(obs=_seen(learner, batch.obs), next_obs=_seen(learner, batch.next_obs))

        def estimate(net: Any, signal: Array, discount: float, trace: float) -> tuple[Array, Array]:
            value, next_value = (settings.value_scale * mlp(net, obs)[..., 0] for obs in (batch.obs, batch.next_obs))
            return advantages(signal, value, next_value, batch.terminated, ended, discount, trace)

        advantage, target = estimate(learner.value, batch.reward, settings.discount, settings.trace)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        cost_advantage, cost_target = jnp.zeros_like(advantage), jnp.zeros_like(advantage)
        if constrained:
            cost_advantage, cost_target = estimate(learner.cost_value, batch.cost, settings.cost_discount, settings.cost_trace)
            if self.algorithm.constraint.weigh is not None:
                cost_advantage = cost_advantage * self.algorithm.constraint.weigh(episodes.cost, episodes.ended)
            cost_advantage = cost_advantage - cost_advantage.mean()

        rows = interleave((batch.obs, batch.action, advantage, cost_advantage, target, cost_target), settings.minibatches)
        obs, action, advantage, cost_advantage, target, cost_target = rows
        mean_length = mean(episodes.length.astype(obs.dtype), episodes.ended)
        data = Data(
            obs=obs,
            action=action,
            old=jax.lax.stop_gradient(self.policy.distribution(learner.policy, obs)),
            advantage=advantage,
            cost_advantage=cost_advantage,
            objective=penalise(advantage, cost_advantage, multiplier),
            excess=(mean(episodes.cost, episodes.ended) - (limit or 0.0)) / jnp.maximum(1.0, mean_length),
            target_kl=settings.target_kl * _shrunk(learner.epoch, settings.kl_epochs),
        )
        policy, policy_optimiser, metrics = self.algorithm.improve(self.policy, learner.policy, learner.policy_optimiser, data)
        value, value_optimiser = fit(learner.value, learner.value_optimiser, obs, target, settings)
        cost_value, cost_value_optimiser = learner.cost_value, learner.cost_value_optimiser
        if constrained:
            cost_value, cost_value_optimiser = fit(cost_value, cost_value_optimiser, obs, cost_target, settings)
        nets = (policy, value, cost_value, policy_optimiser, value_optimiser, cost_value_optimiser)
        learner = Learner(*nets, constraint, learner.normaliser, learner.epoch + 1)
        return learner, {**metrics, "multiplier": multiplier}


def _shrunk(epoch: Any, epochs: int | None) -> Any:
    return 1.0 if epochs is None else jnp.maximum(0.1, 1.0 - epoch / epochs)


def _seen(learner: Learner, obs: Array) -> Array:
    return learner.normaliser(obs) if learner.normaliser else obs


def interleave(tree: Any, minibatches: int) -> Any:
    """(step, env, …) → (minibatch, row, …): step t of environment e goes to minibatch (e − t) mod k, so each sees all times.

    There are at most as many minibatches as environments; of those that do not fill the last row, other ones are left out at
    every step.
    """

    def split(leaf: Array) -> Array:
        steps, envs = leaf.shape[:2]
        parts = min(minibatches, envs)
        turned = (jnp.arange(envs) + jnp.arange(steps)[:, None]) % envs
        rows = leaf[jnp.arange(steps)[:, None], turned] if parts > 1 else leaf
        rows = rows[:, : envs // parts * parts].reshape(steps, -1, parts, *leaf.shape[2:])
        return jnp.moveaxis(rows, 2, 0).reshape(parts, -1, *leaf.shape[2:])

    return jax.tree.map(split, tree)


def fit(net: Any, optimiser_state: Any, obs: Array, target: Array, settings: Settings) -> tuple[Any, Any]:
    """Adam on E(V(s) − G)², one minibatch after the other."""
    adam = optax.adam(settings.value_rate)

    def loss(net: Any, i: Array) -> Array:
        return jnp.mean((mlp(net, obs[i])[..., 0] - target[i] / settings.value_scale) ** 2)

    def iterate(carry: tuple[Any, Any], i: Array) -> tuple[tuple[Any, Any], None]:
        net, state = carry
        updates, state = adam.update(jax.grad(loss)(net, i), state)
        return (optax.apply_updates(net, updates), state), None

    turns = jnp.arange(settings.value_iterations) % len(obs)
    return jax.lax.scan(iterate, (net, optimiser_state), turns)[0]
