"""Steps/s of the host driver on the Car, with policies that act, against the bare batched simulator with fixed actions.

    python benchmarks/bench_host.py

To reach: ≥ 0.7 × the bare simulator. Five seeds side by side, as in `saute train car`, are compared with one by one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import gymnasium as gym
import jax
import numpy as np
from gymnasium.vector import AutoresetMode
from timing import rates, report

from saute.algos.onpolicy import OnPolicyAgent
from saute.core.protocol import spec_of
from saute.envs.from_gym import HostEnvs
from saute.learn.agent import unchanged
from saute.learn.drive import drive
from saute.runs.build import algorithm_of, configured, environment_of
from saute.runs.config import Experiment
from saute.runs.presets import changed

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


class Collecting(OnPolicyAgent):
    """An agent that acts as the learner does, but learns nothing."""

    learn = staticmethod(unchanged)  # type: ignore[assignment]


def ours(side_by_side: bool) -> Callable[[], int]:
    config = configured(Experiment("car", seeds=SEEDS, envs=EACH, preset="fast"))
    config = changed(config, "settings.steps_per_epoch", EACH * STEPS)
    envs = environment_of(config, num_envs=SEEDS * EACH if side_by_side else EACH)
    if side_by_side:
        envs = HostEnvs(envs.envs, seeds=SEEDS)
    # Every epoch begins with new episodes, as in training, although these epochs are shorter than an episode.
    envs.horizon = STEPS
    agent = algorithm_of(config).agent(spec_of(envs))
    body = drive(Collecting(**{field.name: getattr(agent, field.name) for field in dataclasses.fields(agent)}), envs)
    keys = [jax.random.key(seed) for seed in range(SEEDS)]
    trainings = body.first(keys)

    def work() -> int:
        body.epoch(trainings, keys)
        return SEEDS * EACH * STEPS

    return work


if __name__ == "__main__":
    contenders = {"side by side": ours(True), "one after the other": ours(False), "bare simulator": bare()}
    report("Collecting on the Car, five seeds", rates(contenders, turns=7), "bare simulator", "one after the other")
