"""A point mass, for learners that imagine: it pays to come to 1, and beyond 0.6 each step costs 1."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from saute.core.protocol import Step

GOAL, HAZARD = 1.0, 0.6


def reward(obs: Any, action: Any, next_obs: Any) -> Any:
    """1 at the goal, after the step."""
    return 1.0 - (next_obs[0] - GOAL) ** 2


def cost(obs: Any, action: Any, next_obs: Any) -> Any:
    return (next_obs[0] > HAZARD).astype(next_obs.dtype)


@dataclasses.dataclass(frozen=True)
class PointMass:
    """v' = v + 0.3 a, x' = x + 0.3 v', observed as (x, v); it starts at rest between −0.2 and 0.2."""

    horizon: int = 20
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Box(-2.0, 2.0, (1,), np.float32)

    def reset(self, key: Any) -> tuple[Any, Any]:
        obs = jnp.stack([jax.random.uniform(key, minval=-0.2, maxval=0.2), 0.0])
        return (obs, jnp.zeros((), jnp.int32)), obs

    def step(self, state: Any, action: Any, key: Any) -> Step:
        (x, v), time = state[0], state[1] + 1
        v = v + 0.15 * jnp.clip(action[0], -2.0, 2.0)
        obs = jnp.stack([x + 0.3 * v, v])
        moved = (state[0], action, obs)
        return Step((obs, time), obs, reward(*moved), cost(*moved), jnp.zeros((), bool), time >= self.horizon)


def compile_once(compiled_epoch: Any) -> Any:
    """The same as `compiled_epoch` on the first call, and its result again on all others: equal trainings, one compilation."""
    kept: list[Any] = []

    def once(*args: Any) -> Any:
        if not kept:
            kept.append(compiled_epoch(*args))
        return kept[0]

    return once
