"""Tasks whose episodes and costs do not depend on the actions, so that every statistic of training is known."""

from __future__ import annotations

import dataclasses
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from saute.core.protocol import Step

OBS, ACTION = spaces.Box(-np.inf, np.inf, (1,), np.float32), spaces.Box(-1.0, 1.0, (1,), np.float32)
LONG, SHORT, FALLS, COST = 200, 40, 0.55, 0.5
MEAN_COST = COST * (FALLS * SHORT + (1 - FALLS) * LONG)
"""56.0."""


@dataclasses.dataclass(frozen=True)
class Standing:
    """45 % of the episodes stand for 200 steps, 55 % fall after 40; each step costs ½."""

    horizon: int = LONG
    observation_space, action_space = OBS, ACTION

    def reset(self, key: Any) -> tuple[Any, Any]:
        length = jnp.where(jax.random.uniform(key) < FALLS, SHORT, LONG)
        return (jnp.zeros((), jnp.int32), length), jnp.zeros(1)

    def step(self, state: Any, action: Any, key: Any) -> Step:
        time, length = state[0] + 1, state[1]
        over, falls = time >= length, length == SHORT
        return Step((time, length), jnp.zeros(1), jnp.ones(()), jnp.full((), COST), over & falls, over & ~falls)


class StandingVector(VectorEnv):
    """The same for Gymnasium, many at once."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}
    horizon = LONG

    def __init__(self, num_envs: int, horizon: int | None = LONG):
        self.num_envs, self.env = num_envs, type("Limits", (), {"horizon": horizon})
        self.single_observation_space, self.single_action_space = OBS, ACTION
        self.observation_space, self.action_space = batch_space(OBS, num_envs), batch_space(ACTION, num_envs)
        self.time, self.length = np.zeros(num_envs, int), np.zeros(num_envs, int)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        drawn = np.where(self.rng.uniform(size=self.num_envs) < FALLS, SHORT, LONG)
        self.length, self.time = np.where(mask, drawn, self.length), np.where(mask, 0, self.time)
        return np.zeros((self.num_envs, 1), np.float32), {}

    def step(self, actions: Any) -> Any:
        self.time = self.time + 1
        over, falls = self.time >= self.length, self.length == SHORT
        cost = np.full(self.num_envs, COST)
        return np.zeros((self.num_envs, 1), np.float32), np.ones(self.num_envs), over & falls, over & ~falls, {"cost": cost}


@dataclasses.dataclass(frozen=True)
class Toll:
    """Every step pays 1 and costs the given toll, or one for each constraint; an episode has so many steps."""

    tolls: tuple[float, ...] = (1.0,)
    horizon: int = 10
    observation_space, action_space = OBS, ACTION

    def reset(self, key: Any) -> tuple[Any, Any]:
        return jnp.zeros((), jnp.int32), jnp.zeros(1)

    def step(self, state: Any, action: Any, key: Any) -> Step:
        time, cost = state + 1, jnp.asarray(self.tolls if len(self.tolls) > 1 else self.tolls[0], jnp.float32)
        return Step(time, jnp.full(1, time / self.horizon), jnp.ones(()), cost, jnp.zeros((), bool), time >= self.horizon)


class HostToll(gym.Env):
    """The same for Gymnasium; without a limit it never ends."""

    observation_space, action_space = OBS, ACTION

    def __init__(self, tolls: tuple[float, ...] = (1.0,), limit: int | None = 10):
        self.tolls, self.limit = tolls, limit
        if limit is not None:
            self.horizon = limit

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        gym.Env.reset(self, seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        several = len(self.tolls) > 1
        info = {"costs": np.array(self.tolls)} if several else {"cost": self.tolls[0]}
        over = self.limit is not None and self.time >= self.limit
        return np.full(1, self.time / (self.limit or 100), np.float32), 1.0, False, over, info


class Fast(gym.Wrapper):
    """A cost of 1 for every step of the half-cheetah that is faster than 0.1 m/s, or that is slower than that."""

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated, truncated, {**info, "cost": float(abs(info["x_velocity"]) > 0.1)}


gym.register("counting/Cheetah-v0", entry_point=lambda: Fast(gym.make("HalfCheetah-v5")))
gym.register("counting/Endless-v0", entry_point=lambda: HostToll(limit=None))
gym.register("counting/Toll-v0", entry_point=HostToll, max_episode_steps=10)
