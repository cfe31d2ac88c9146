"""The policy of soft actor-critic: a Gaussian, squashed by tanh into the bounds of the actions."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Float, PRNGKeyArray

from saute.learn.nets import MLP, init_mlp, mlp

__all__ = ["SquashedGaussian", "squashed_for"]

LOG_STD = (-20.0, 2.0)


@dataclasses.dataclass(frozen=True)
class SquashedGaussian:
    """a = centre + half · tanh(u), u ~ N(μ(s), diag σ(s)²); one net gives μ and log σ, which is kept in [−20, 2]."""

    observations: int
    low: tuple[float, ...]
    high: tuple[float, ...]
    hidden: tuple[int, ...] = (256, 256)

    @property
    def actions(self) -> int:
        return len(self.low)

    def init(self, key: PRNGKeyArray) -> MLP:
        return init_mlp(key, (self.observations, *self.hidden, 2 * self.actions))

    def distribution(self, parameters: MLP, obs: Array) -> tuple[Array, Array]:
        """What `mode`, `sample` and `log_prob` work on: means and log σ before squashing."""
        mean, log_std = jnp.split(mlp(parameters, obs, jax.nn.relu), 2, axis=-1)
        return mean, jnp.clip(log_std, *LOG_STD)

    def mode(self, dist: Any) -> Array:
        return self.scale(jnp.tanh(dist[0]))

    def sample(self, dist: Any, key: PRNGKeyArray) -> Array:
        return self.scale(jnp.tanh(self.unsquashed(dist, key)))

    def unsquashed(self, dist: Any, key: PRNGKeyArray) -> Array:
        """u = μ + σε, differentiable in μ and σ."""
        mean, log_std = dist
        return mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape, mean.dtype)

    def log_prob(self, dist: Any, u: Float[Array, "*batch action"]) -> Float[Array, "*batch"]:
        """log π(tanh u) = Σ log N(u; μ, σ) − log(1 − tanh² u), with log(1 − tanh² u) = 2(log 2 − u − softplus(−2u)).

        That is the density in units of half the action range, (−1, 1) (Haarnoja et al. 2018, appendix C).
        """
        mean, log_std = dist
        gauss = -0.5 * ((u - mean) * jnp.exp(-log_std)) ** 2 - log_std - 0.5 * math.log(2 * math.pi)
        return jnp.sum(gauss - 2.0 * (math.log(2.0) - u - jax.nn.softplus(-2.0 * u)), axis=-1)

    def scale(self, unit: Float[Array, "*batch action"]) -> Float[Array, "*batch action"]:
        """From (−1, 1) to the bounds of the actions."""
        low, high = jnp.asarray(self.low), jnp.asarray(self.high)
        return (high + low) / 2 + (high - low) / 2 * unit


def squashed_for(observation_space: Any, action_space: Any, hidden: tuple[int, ...] = (256, 256)) -> SquashedGaussian:
    """The squashed policy that fits the spaces: vectors, the actions bounded."""
    if not isinstance(observation_space, spaces.Box) or len(observation_space.shape) != 1:
        raise ValueError(f"observations {observation_space} are not a vector; flatten them with FlattenObservation first")
    if not isinstance(action_space, spaces.Box) or len(action_space.shape) != 1:
        raise ValueError(f"actions {action_space} are not a vector; soft actor-critic needs continuous ones, use ppo or trpo")
    if not (np.isfinite(action_space.low).all() and np.isfinite(action_space.high).all()):
        raise ValueError(f"actions {action_space} are unbounded; bound them with RescaleAction first")
    low, high = (tuple(map(float, end)) for end in (action_space.low, action_space.high))
    return SquashedGaussian(observation_space.shape[0], low, high, hidden)
