"""Scripted environments whose every number is chosen by the test."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

import saute

KINDS: dict[str, spaces.Space] = {
    "float32": spaces.Box(-1.0, 1.0, (3,), np.float32),
    "float64": spaces.Box(-1.0, 1.0, (2,), np.float64),
    "int": spaces.Box(-5, 5, (2,), np.int64),
    "uint8": spaces.Box(0, 255, (4,), np.uint8),
    "dict": spaces.Dict({"position": spaces.Box(-1.0, 1.0, (2,), np.float32), "gear": spaces.Discrete(3)}),
    "image": spaces.Box(0, 255, (36, 36, 3), np.uint8),
    "discrete": spaces.Discrete(7),
    "tuple": spaces.Tuple((spaces.Discrete(2), spaces.Box(-1.0, 1.0, (2,), np.float32))),
}


class Scripted(gym.Env):
    """Plays the given costs and rewards, ends by termination or time-out, and observes a random point of its space."""

    metadata = {"render_modes": []}

    def __init__(
        self,
        costs: Any = (1.0,),
        rewards: Any = (1.0,),
        length: int = 5,
        ends: str = "truncated",
        key: str = "cost",
        space: spaces.Space | None = None,
        lengths: tuple[int, ...] = (),
    ):
        self.observation_space = copy.deepcopy(KINDS["float32"] if space is None else space)
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.costs, self.rewards, self.ends, self.key = costs, rewards, ends, key
        self.lengths = lengths or (length,)
        self.render_mode = None
        self.episode = -1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        gym.Env.reset(self, seed=seed)
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        self.time = 0
        self.episode += 1
        self.reset_options = options
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        cost, reward = copy.copy(self.costs[self.time % len(self.costs)]), self.rewards[self.time % len(self.rewards)]
        self.time += 1
        over = self.time >= self.lengths[self.episode % len(self.lengths)]
        ended = over and self.ends == "terminated"
        return (
            self.observation_space.sample(),
            reward,
            ended,
            over and not ended,
            {} if self.key == "" else _nested(self.key, cost),
        )


def _nested(key: str, value: Any) -> dict[str, Any]:
    parent, _, rest = key.partition(".")
    return {parent: _nested(rest, value) if rest else value}


class SixTuple(Scripted):
    """The same with the cost as the third of six values."""

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = Scripted.step(self, action)
        return obs, reward, info.pop("cost"), terminated, truncated, info


gym.register("toys/Scripted-v0", entry_point=Scripted)


def play(env: gym.Env, seed: int | None = None, options: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
    """One episode: the reset and then every step."""
    history: list[tuple[Any, ...]] = [env.reset(seed=seed, options=options)]
    over = False
    while not over:
        history.append(env.step(np.zeros(1, np.float32)))
        over = history[-1][2] or history[-1][3]
    return history


def sauted(budget: Any, *args: Any, env: dict[str, Any] | None = None, **kwargs: Any) -> saute.SauteWrapper:
    """A sautéed scripted environment."""
    return saute.SauteWrapper(Scripted(**(env or {})), budget, *args, **kwargs)
