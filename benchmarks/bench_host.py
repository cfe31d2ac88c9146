"""The host collector on the Car, acting with policies, against the bare batched simulator driven by ready-made actions.

    python benchmarks/bench_host.py

To reach: ≥ 0.7 × the bare simulator. Then five seeds side by side, as `saute train car` collects, against one after the other.
"""

from __future__ import annotations

from collections.abc import Callable

import gymnasium as gym
import jax
import numpy as np
from gymnasium.vector import AutoresetMode
from timing import rates, report

from saute.algos.onpolicy_host import host_collector
from saute.runs.config import Experiment, algorithm_of, environment_of

SEEDS, EACH, STEPS = 5, 20, 40


def bare() -> Callable[[], int]:
    envs = gym.make_vec("saute/StaticCarGoal-v0", num_envs=SEEDS * EACH, autoreset_mode=AutoresetMode.DISABLED)
    actions = np.random.default_rng(0).uniform(-1, 1, (STEPS, SEEDS * EACH, 2))

    def work() -> int:
        envs.reset(seed=0)
        for action in actions:
            _, _, terminated, truncated, _ = envs.step(action)
            if (terminated | truncated).any():
                envs.reset(options={"reset_mask": terminated | truncated})
        return SEEDS * EACH * STEPS

    return work


def ours(side_by_side: bool) -> Callable[[], int]:
    experiment = Experiment("car", seeds=SEEDS, envs=EACH, preset="fast").checked()
    host = environment_of(experiment, num_envs=None if side_by_side else EACH)
    bound = algorithm_of(experiment).bind(host.observation_space, host.action_space)
    collected, keys = host_collector(bound, host), [jax.random.key(seed) for seed in range(SEEDS)]
    learners = [bound.init(key) for key in keys]

    def work() -> int:
        collected(learners, keys, STEPS)
        return SEEDS * EACH * STEPS

    return work


if __name__ == "__main__":
    contenders = {"side by side": ours(True), "one after the other": ours(False), "bare simulator": bare()}
    report("Collecting on the Car, five seeds", rates(contenders, turns=7), "bare simulator", "one after the other")
