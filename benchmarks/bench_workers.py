"""Sixteen environments that compute for 5 ms in every step: in this process, and in two others; the limit is the two cores.

And how long the actions of all of them take, which is what computing them while environments step could save at most.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import gymnasium as gym
import jax
import numpy as np
from gymnasium import spaces

import saute
from saute.algos.onpolicy import OnPolicy
from saute.algos.sac import Sac
from saute.core.machine import cores
from saute.core.protocol import Spec
from saute.envs.from_gym import HostEnvs

ENVS, SECONDS, STEPS, TURNS = 16, 0.005, 20, 5


class Slow(gym.Env):
    """A simulator that takes its time."""

    observation_space, action_space = spaces.Box(-1.0, 1.0, (8,)), spaces.Box(-1.0, 1.0, (2,))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        gym.Env.reset(self, seed=seed)
        return np.zeros(8, np.float32), {}

    def step(self, action: Any) -> Any:
        end = time.process_time() + SECONDS
        while time.process_time() < end:
            pass
        return np.zeros(8, np.float32), 0.0, False, False, {"cost": 0.0}


def speed(envs: HostEnvs) -> float:
    """Steps of single environments per second."""
    envs.reset(0)
    actions = np.zeros((ENVS, 2), np.float32)
    begin = time.perf_counter()
    for _ in range(STEPS):
        envs.step(actions)
    return ENVS * STEPS / (time.perf_counter() - begin)


def acting(algorithm: OnPolicy | Sac) -> float:
    """Milliseconds that the actions of all environments take."""
    spec = Spec(Slow.observation_space, Slow.action_space, horizon=1000)
    agent, seconds = algorithm.agent(spec), list[float]()
    act, key = jax.jit(lambda state, obs: agent.act(state, (), obs, key).action), jax.random.key(0)
    state, obs = agent.init(key), np.zeros((ENVS, 8), np.float32)
    for _ in range(200):
        begin = time.perf_counter()
        np.asarray(act(state, obs))
        seconds.append(time.perf_counter() - begin)
    return 1000 * statistics.median(seconds)


def main() -> None:
    kinds = {"one process": HostEnvs(Slow, ENVS), "two workers": HostEnvs(Slow, ENVS, workers=2)}
    turns = [{name: speed(envs) for name, envs in kinds.items()} for _ in range(TURNS)]
    for name in kinds:
        print(f"{name:12} {statistics.median(turn[name] for turn in turns):7.0f} steps/s (limit {1 / SECONDS:.0f} per core)")
    ratio = statistics.median(turn["two workers"] / turn["one process"] for turn in turns)
    print(f"two workers over one process: {ratio:.2f} × on {cores()} cores")
    kinds["two workers"].envs.close()
    step = 1000 * SECONDS * ENVS / 2
    for name, took in {"ppo": acting(saute.ppo()), "sac": acting(saute.sac())}.items():
        print(f"actions of {name}: {took:.2f} ms, {took / step:.1%} of the {step:.0f} ms of a step in two workers")


if __name__ == "__main__":
    main()
