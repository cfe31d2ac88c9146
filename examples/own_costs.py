"""Environments with costs of their own, to look at and to train in: a speed limit, a cost function, a Dict, two costs.

In this folder: saute check own_costs:Velocity-v0
"""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class VelocityLimit(gym.Wrapper):
    """HalfCheetah whose step costs 1 above 0.5 m/s."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, float(reward), terminated, truncated, info | {"cost": info["x_velocity"] > 0.5}


def upright_speed(obs: Any, action: Any, next_obs: Any, info: Any) -> float:
    """Of Gymnasium's pendulum: its speed in the upper half."""
    return abs(float(next_obs[2])) if next_obs[0] > 0.0 else 0.0


class Warehouse(gym.Env):
    """A cart on a line carries goods to 1; noise and wear are its costs, its sensors a dictionary."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict(
            {"position": spaces.Box(-2.0, 2.0, (1,), np.float32), "gear": spaces.Discrete(3), "ends": spaces.MultiBinary(2)}
        )
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x = float(self.np_random.uniform(-0.5, 0.5))
        return self._observe(0.0), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        force = float(np.clip(action[0], -1.0, 1.0))
        self.x = float(np.clip(self.x + 0.1 * force, -2.0, 2.0))
        costs = {"noise": abs(force), "wear": int(abs(self.x) > 1.5)}
        return self._observe(force), -abs(1.0 - self.x), self.x <= -1.9, False, {"costs": costs}

    def _observe(self, force: float) -> dict[str, Any]:
        ends = np.array([self.x > 1.0, self.x < -1.0], np.int8)
        return {"position": np.array([self.x], np.float32), "gear": np.int64(round(force) + 1), "ends": ends}


def velocity(**options: Any) -> gym.Env:
    from gymnasium.envs.mujoco.half_cheetah_v5 import HalfCheetahEnv

    return VelocityLimit(HalfCheetahEnv(**options))


gym.register("Velocity-v0", entry_point=velocity, max_episode_steps=1000)
gym.register("Warehouse-v0", entry_point=Warehouse, max_episode_steps=100)
