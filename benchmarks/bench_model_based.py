"""Seconds of a PETS plan, of 5000 planned steps, and of MBPO, against the times that a user would accept.

    python benchmarks/bench_model_based.py

To reach on two cores: a plan ≤ 0.1 s; 5000 planned steps of one seed, with the fits between them, ≤ 10 min; MBPO with its
default settings, five seeds, ≤ 30 min. Later epochs take as long as early ones, so a few are timed and multiplied.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp

import saute
from saute.algos.mbpo import mbpo
from saute.algos.pets import pets
from saute.runs.presets import preset_of

SEEDS, CORES = 5, len(os.sched_getaffinity(0))


def seconds(work: Callable[[], Any], turns: int) -> float:
    """The median of some turns, after one that compiles."""
    taken = []
    for _ in range(turns + 1):
        begin = time.perf_counter()
        jax.block_until_ready(work())
        taken.append(time.perf_counter() - begin)
    return sorted(taken[1:])[turns // 2]


def line(what: str, ours: float, limit: float) -> None:
    print(f"  {what:<52} {ours:>9.3f} s   limit {limit:>7.1f} s   ratio {ours / limit:.3f}")


def plans(bound: Any, parameters: Any, count: int) -> float:
    plan = jax.jit(lambda parameters, obs: bound.policy.mode(bound.policy.distribution(parameters, obs)))
    obs = jnp.tile(jnp.array([-1.0, 0.0, 0.0, 1.0]), (count, 1))
    return seconds(lambda: plan(parameters, obs), 9)


def epoch(bound: Any, env: Any, warm: int, threads: int) -> float:
    """An epoch of every thread at once, after the warm ones that fill the replay beyond its random steps."""
    run = jax.jit(lambda learner, key: bound.epoch(env, learner, key))
    learner = jax.jit(bound.init)(jax.random.key(0))
    for i in range(warm):
        learner = run(learner, jax.random.key(i))[0]
    with ThreadPoolExecutor(threads) as pool:

        def work() -> Any:
            return list(pool.map(lambda i: jax.block_until_ready(run(learner, jax.random.key(i))), range(threads)))

        return seconds(work, 3)


if __name__ == "__main__":
    env = saute.saute(saute.envs.pendulum(), budget=30.0)
    spaces = (env.observation_space, env.action_space, env.options)
    planned = preset_of("fast", "pendulum", "pets", "saute")
    bound = pets(planned.settings).bind(*spaces)
    learner = jax.jit(bound.init)(jax.random.key(0))
    print("PETS on the pendulum")
    line("one plan", plans(bound, learner.model, 1), 0.1)
    line("25 plans at once, as in an evaluation", plans(bound, learner.model, 25), 25 * 0.1)
    steps = planned.settings.steps_per_epoch
    line("5000 planned steps of one seed", 5000 / steps * epoch(bound, env, 2, 1), 600.0)
    print("MBPO on the pendulum")
    imagined = preset_of("fast", "pendulum", "mbpo", "saute")
    rounds = -(-SEEDS // CORES)
    once = epoch(mbpo(imagined.settings).bind(*spaces), env, 3, min(CORES, SEEDS))
    line(f"{imagined.epochs} epochs of five seeds", imagined.epochs * rounds * once, 1800.0)
