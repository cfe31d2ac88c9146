"""Environments with known answers, for learners that replay."""

from __future__ import annotations

import dataclasses
from typing import Any

import gymnasium as gym
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from saute.core.protocol import Step
from saute.envs.from_gym import HostEnvs


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


class HostSlope(gym.Env):
    """`Slope` for Gymnasium, with the same float32 numbers."""

    observation_space, action_space = Slope.observation_space, Slope.action_space
    horizon = 10

    def __init__(self, terminal: bool = False):
        self.terminal = terminal

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        gym.Env.reset(self, seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        a = np.clip(np.float32(action[0]), -1, 1)
        self.time += 1
        over = self.time >= self.horizon
        obs = np.full(1, self.time, np.float32) / np.float32(10)
        return obs, a, over and self.terminal, over and not self.terminal, {"cost": np.maximum(a, np.float32(0))}


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


class Stop(Exception):
    """Somewhere in the middle of an epoch."""


def stop_at(call: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt the host's environments at one of their steps; those after it are made as usual."""
    step, calls = HostEnvs.step, []

    def stopping(self: HostEnvs, actions: Any) -> Any:
        calls.append(1)
        if len(calls) == call:
            raise Stop
        return step(self, actions)

    monkeypatch.setattr(HostEnvs, "step", stopping)
