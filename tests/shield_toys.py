"""A task whose least budgets are known: an action costs what it costs, and resting costs nothing."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np


class TwoPulls(gym.Env):
    """Eight steps: 1 pays 2 and costs 1 of the first budget, 2 pays 1 and costs 1 of the second, 0 rests."""

    observation_space = gym.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.time += 1
        info = {"first": float(action == 1), "second": float(action == 2)}
        return np.full(1, self.time / 8, np.float32), (0.0, 2.0, 1.0)[int(action)], False, False, info


gym.register("TwoPulls-v0", entry_point=TwoPulls, max_episode_steps=8)
