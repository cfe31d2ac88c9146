"""A task with two costs whose best return is known."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from saute.core.protocol import Step

PAYS = (2.0, 1.0)


@dataclasses.dataclass(frozen=True)
class TwoSlopes:
    """Two numbers (a, b) per step pay 2a + b and cost (a⁺, b⁺), for five steps; the observation is the time."""

    horizon: int = 5
    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = spaces.Box(-2.0, 2.0, (2,), np.float32)

    def reset(self, key: Any) -> tuple[Any, Any]:
        return jnp.zeros((), jnp.int32), jnp.zeros(1)

    def step(self, state: Any, action: Any, key: Any) -> Step:
        time, pulls = state + 1, jnp.clip(action, -2.0, 2.0)
        end = time >= self.horizon
        obs = jnp.full(1, time / self.horizon)
        return Step(time, obs, pulls @ jnp.asarray(PAYS), jnp.maximum(pulls, 0.0), jnp.zeros((), bool), end)


def best(budgets: tuple[float, float], horizon: int = 5) -> float:
    """The largest return of five steps with 0, ½ or 1 of either number, by trying all that keep both budgets."""
    levels = [sum(one) for one in itertools.product((0.0, 0.5, 1.0), repeat=horizon)]
    return max(PAYS[0] * a + PAYS[1] * b for a in levels for b in levels if a <= budgets[0] and b <= budgets[1])
