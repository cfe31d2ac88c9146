"""Steps/s of the field's benchmark: Gymnasium's own loop, bare `mujoco.rollout` on all cores with 100 robots, and ours.

    python benchmarks/bench_tasks.py

"ours" is `gym.make_vec` with 100 robots that begin anew when they fall, and for PointGoal1 what training runs, as in
`bench_envs.py`; its random robots reach a goal now and then, so goals that move on are part of it. On two cores: robots
are to reach 2.2 × Gymnasium's loop, PointGoal1 500,000 steps/s.

Then training with the fast preset, five seeds: steps/s with all that PPO learns, against the 1900 that OmniSafe's documentation
names for 20 environments on a workstation with a GPU, and how much of the time is MuJoCo's. To reach: ≥ 8 ×, or ≥ 70 %.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import jax
import numpy as np
from bench_envs import CORES, bare_rollout, one_loop, ours
from timing import rates, report

import saute
from saute.core.protocol import spec_of
from saute.envs.engine import MujocoEngine
from saute.learn.drive import drive
from saute.runs.build import algorithm_of, configured, environment_of
from saute.runs.config import Experiment

ROBOTS = ("HalfCheetah", "Hopper", "Walker2d", "Swimmer", "Ant", "Humanoid")
PUBLISHED = 1900.0
"""Steps/s of OmniSafe's PPO-Lag, as its documentation says."""


def batch(robot: str, n: int = 100, steps: int = 5) -> Callable[[], int]:
    envs = gym.make_vec(f"saute/{robot}Velocity-v0", num_envs=n)
    envs.reset(seed=0)
    actions = envs.action_space.sample()

    def work() -> int:
        for _ in range(steps):
            envs.step(actions)
        return steps * n

    return work


def robot(name: str) -> None:
    without = {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0.0} if name in ("Ant", "Humanoid") else {}
    loop, rollout = f"Gymnasium's {name}-v5", f"mujoco.rollout, {CORES} threads, 100 envs"
    task = saute.envs.make_task(saute.envs.task_named(f"saute/{name}Velocity-v0") or "")
    contenders = {loop: one_loop(f"{name}-v5", 500, **without), rollout: bare_rollout(task), "ours": batch(name)}
    report(name, rates(contenders, turns=7), loop, rollout)


def navigation() -> None:
    work, seconds = ours(saute.envs.point_goal1())
    report(f"PointGoal1 without its vase (compiled in {seconds:.1f} s)", rates({"ours": work}, turns=7))


class Clock:
    """How long MuJoCo takes, all in all."""

    def __init__(self) -> None:
        self.seconds, advance = 0.0, MujocoEngine.advance

        def timed(engine: MujocoEngine, x: np.ndarray, action: np.ndarray) -> Any:
            begin = time.perf_counter()
            result = advance(engine, x, action)
            self.seconds += time.perf_counter() - begin
            return result

        MujocoEngine.advance = timed  # type: ignore[method-assign]


def training(name: str, clock: Clock, epochs: int = 3) -> None:
    """Epochs after the first one, in which everything is compiled."""
    config = configured(Experiment(name, "ppo", preset="fast"))
    env = environment_of(config)
    body = drive(algorithm_of(config).agent(spec_of(env)), env)
    keys = list(jax.random.split(jax.random.key(0), config.experiment.seeds))
    seeds = [seed for seed, _ in body.epoch(body.first(keys), keys)]
    clock.seconds, begin = 0.0, time.perf_counter()
    for _ in range(epochs):
        seeds = [seed for seed, _ in jax.block_until_ready(body.epoch(seeds, keys))]
    seconds = time.perf_counter() - begin
    rate = epochs * config.experiment.seeds * config.settings.steps_per_epoch / seconds
    share = f"   {100 * clock.seconds / seconds:.0f} % of the time in MuJoCo" if clock.seconds else ""
    print(f"training {name:<33} {rate:>13,.0f} steps/s   {rate / PUBLISHED:9.3f} × OmniSafe's published rate{share}")


if __name__ == "__main__":
    for each in ROBOTS:
        robot(each)
    navigation()
    stopwatch = Clock()
    for each in ("half_cheetah_velocity", "hopper_velocity", "point_goal1"):
        training(each, stopwatch)
