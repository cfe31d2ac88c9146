"""Tiny tasks with known answers, in NumPy, to check that a learner keeps its budget."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

__all__ = ["TwoArms"]


class TwoArms(gym.Env):
    """Two arms: the greedy one earns 1 and costs 1, the other earns ½ and costs nothing.

    Without a budget the best return of T steps is T, at a cost of T. With a whole budget d ≤ T it is d + (T − d)/2: pull the
    greedy arm exactly d times. The observation is the fraction of the T steps that has passed.
    """

    metadata = {"render_modes": []}

    def __init__(self, horizon: int = 20, discrete: bool = False, render_mode: str | None = None):
        self.horizon = horizon
        self.render_mode = render_mode
        self.observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
        self.action_space = spaces.Discrete(2) if discrete else spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        gym.Env.reset(self, seed=seed)
        self._time = 0
        return self._observe(), {}

    def step(self, action: npt.ArrayLike) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        greedy = bool(np.asarray(action).reshape(()) > 0)
        self._time += 1
        return self._observe(), 1.0 if greedy else 0.5, False, self._time >= self.horizon, {"cost": float(greedy)}

    def _observe(self) -> np.ndarray:
        return np.array([min(1.0, self._time / self.horizon)], np.float32)
