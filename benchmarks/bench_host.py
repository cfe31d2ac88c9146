"""The host collector on the Car, acting with a policy, against the bare batched simulator driven by ready-made actions.

    python benchmarks/bench_host.py

To reach: ≥ 0.7 × the bare simulator.
"""

from __future__ import annotations

from collections.abc import Callable

import gymnasium as gym
import jax
import numpy as np
from gymnasium.vector import AutoresetMode
from timing import rates, report

import saute
from saute.host import HostEnvs
from saute.rollout import collect_host

ENVS, STEPS = 50, 40


def bare() -> Callable[[], int]:
    envs = gym.make_vec("saute/StaticCarGoal-v0", num_envs=ENVS, autoreset_mode=AutoresetMode.DISABLED)
    actions = np.random.default_rng(0).uniform(-1, 1, (STEPS, ENVS, 2))

    def work() -> int:
        envs.reset(seed=0)
        for action in actions:
            _, _, terminated, truncated, _ = envs.step(action)
            if (terminated | truncated).any():
                envs.reset(options={"reset_mask": terminated | truncated})
        return ENVS * STEPS

    return work


def ours() -> Callable[[], int]:
    envs = gym.make_vec("saute/StaticCarGoal-v0", num_envs=ENVS, autoreset_mode=AutoresetMode.DISABLED)
    host = HostEnvs(saute.SauteVectorWrapper(envs, budget=20.0, unsafe_reward=-1.0))
    bound = saute.trpo().bind(host.observation_space, host.action_space)
    learner, act = bound.init(jax.random.key(0)), jax.jit(bound.act)

    def work() -> int:
        collect_host(host, lambda obs, key: act(learner, obs, key), jax.random.key(0), STEPS)
        return ENVS * STEPS

    return work


if __name__ == "__main__":
    report("Collecting on the Car", rates({"ours": ours(), "bare simulator": bare()}, turns=7), "bare simulator")
