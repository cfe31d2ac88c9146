"""What sautéing costs: steps/s of Pendulum-v1, bare, in an identity wrapper and sautéed; one environment and 64.

    python benchmarks/bench_wrapper.py

To reach: one environment ≥ 0.85 of bare, a vector of 64 ≥ 0.95 of bare.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from timing import rates, report

import saute


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
        return gym.make("Pendulum-v1")

    sauted = saute.SauteWrapper(bare(), 30.0, cost=lambda obs, action, next_obs, info: 0.5)
    return rates(
        {
            "bare": stepping(bare(), action, 3000),
            "identity wrapper": stepping(Identity(bare()), action, 3000),
            "sautéed": stepping(sauted, action, 3000),
        }
    )


def vector(n: int = 64) -> dict[str, float]:
    actions = np.zeros((n, 1), np.float32)

    def bare() -> gym.vector.VectorEnv:
        return gym.make_vec("Pendulum-v1", num_envs=n)

    sauted = saute.SauteVectorWrapper(bare(), 30.0, cost=lambda obs, action, next_obs, info: np.full(n, 0.5))
    return rates(
        {
            "bare": stepping(bare(), actions, 100, n),
            "identity wrapper": stepping(IdentityVector(bare()), actions, 100, n),
            "sautéed": stepping(sauted, actions, 100, n),
        }
    )


if __name__ == "__main__":
    report("Pendulum-v1, one environment", one(), "bare")
    report("Pendulum-v1, vector of 64", vector(), "bare")
