"""How much time sautéing takes: steps/s of Pendulum-v1 bare, in an identity wrapper, and sautéed; one environment and 64.

One environment has its cost in `info["cost"]`, or from a function of the transition, whose own time is part of the wrapper's.

    python benchmarks/bench_wrapper.py

To reach: one environment ≥ 0.87 of bare with `info["cost"]`, ≥ 0.85 with a function; a vector of 64 ≥ 0.95 of bare.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control import PendulumEnv
from timing import rates, report

import saute


class Pendulum(PendulumEnv):
    """Gymnasium's pendulum with a cost in its info."""

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = PendulumEnv.step(self, action)
        info["cost"] = 0.5
        return obs, reward, terminated, truncated, info


gym.register("bench/Pendulum-v1", entry_point=Pendulum, max_episode_steps=200)


def tilt(obs: np.ndarray, action: np.ndarray, next_obs: np.ndarray, info: dict[str, Any]) -> float:
    """1 for a pendulum that leans to the right, else 0."""
    return 1.0 if next_obs[1] > 0 else 0.0


class Identity(gym.Wrapper):
    def step(self, action: Any) -> Any:
        return self.env.step(action)


class IdentityVector(gym.vector.VectorWrapper):
    def step(self, actions: Any) -> Any:
        return self.env.step(actions)


def stepping(env: Any, action: np.ndarray, steps: int, num_envs: int = 1) -> Callable[[], int]:
    env.reset(seed=0)

    def work() -> int:
        for _ in range(steps):
            _, _, terminated, truncated, _ = env.step(action)
            if num_envs == 1 and (terminated or truncated):
                env.reset()
        return steps * num_envs

    return work


def one() -> dict[str, float]:
    action = np.zeros(1, np.float32)

    def bare() -> gym.Env:
        return gym.make("bench/Pendulum-v1")

    return rates(
        {
            "bare": stepping(bare(), action, 1000),
            "identity wrapper": stepping(Identity(bare()), action, 1000),
            'sautéed, info["cost"]': stepping(saute.SauteWrapper(bare(), 200.0), action, 1000),
            "sautéed, cost function": stepping(saute.SauteWrapper(bare(), 200.0, cost=tilt), action, 1000),
        },
        turns=201,
    )


def vector(n: int = 64) -> dict[str, float]:
    actions = np.zeros((n, 1), np.float32)

    def bare() -> gym.vector.VectorEnv:
        return gym.make_vec("bench/Pendulum-v1", num_envs=n)

    sauted = saute.SauteVectorWrapper(bare(), 200.0)
    return rates(
        {
            "bare": stepping(bare(), actions, 25, n),
            "identity wrapper": stepping(IdentityVector(bare()), actions, 25, n),
            "sautéed": stepping(sauted, actions, 25, n),
        },
        turns=201,
    )


if __name__ == "__main__":
    report("Pendulum-v1, one environment", one(), "bare", "identity wrapper")
    report("Pendulum-v1, vector of 64", vector(), "bare", "identity wrapper")
