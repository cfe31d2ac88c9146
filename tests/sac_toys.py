"""JAX-native environments with known answers, for learners that replay."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from saute.protocol import Step


@dataclasses.dataclass(frozen=True)
class Slope:
    """One number a per step pays a and costs a⁺, and the observation is the time: sautéed, the best return is the budget."""

    horizon: int = 10
    terminal: bool = False
    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, key: Any) -> tuple[Any, Any]:
        return jnp.zeros((), jnp.int32), jnp.zeros(1)

    def step(self, state: Any, action: Any, key: Any) -> Step:
        a, time = jnp.clip(action[0], -1.0, 1.0), state + 1
        over, never = time >= self.horizon, jnp.zeros((), bool)
        terminated, truncated = (over, never) if self.terminal else (never, over)
        return Step(time, jnp.full(1, time / self.horizon), a, jnp.maximum(a, 0.0), terminated, truncated)


@dataclasses.dataclass(frozen=True)
class TwoCosts:
    """A random walk of the action, with one cost for either side."""

    horizon: int = 20
    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, key: Any) -> tuple[Any, Any]:
        return jnp.zeros(2), jnp.zeros(1)

    def step(self, state: Any, action: Any, key: Any) -> Step:
        x, time = state[0] + action[0], state[1] + 1
        cost = jnp.stack([jnp.maximum(x, 0.0), jnp.maximum(-x, 0.0)])
        return Step(jnp.stack([x, time]), x[None], jnp.cos(x), cost, jnp.abs(x) > 3, time >= self.horizon)
