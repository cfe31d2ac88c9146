"""Tasks with two costs whose best return is known."""

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


@dataclasses.dataclass(frozen=True)
class TwoArms:
    """Five pulls: arm A pays 2 and costs 1 of the first budget, arm B pays 1 and costs 1 of the second, and one may rest.

    Actions are 0 to rest, 1 for A and 2 for B, or if continuous, those between −⅓ and ⅓, above and below.
    """

    continuous: bool = False
    horizon: int = 5
    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)

    @property
    def action_space(self) -> spaces.Space[Any]:
        return spaces.Box(-1.0, 1.0, (1,), np.float32) if self.continuous else spaces.Discrete(3)

    def reset(self, key: Any) -> tuple[Any, Any]:
        return jnp.zeros((), jnp.int32), jnp.zeros(1)

    def step(self, state: Any, action: Any, key: Any) -> Step:
        time = state + 1
        pulled = (action[0] > 1 / 3, action[0] < -1 / 3) if self.continuous else (action == 1, action == 2)
        cost = jnp.stack(pulled).astype(jnp.float32)
        obs, end = jnp.full(1, time / self.horizon), time >= self.horizon
        return Step(time, obs, cost @ jnp.asarray(PAYS), cost, jnp.zeros((), bool), end)


def best(budgets: tuple[float, float], horizon: int = 5) -> float:
    """The largest return within both budgets, by trying all 3⁵ episodes."""
    episodes = itertools.product(range(3), repeat=horizon)
    pulls = ((one.count(1), one.count(2)) for one in episodes)
    return max(PAYS[0] * a + PAYS[1] * b for a, b in pulls if a <= budgets[0] and b <= budgets[1])
