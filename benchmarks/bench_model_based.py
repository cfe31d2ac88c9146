"""Seconds of a PETS plan, of 5000 planned steps, and of MBPO, against the times that a user accepts.

    python benchmarks/bench_model_based.py

To reach on two cores: a plan ≤ 0.1 s; 5000 planned steps of one seed, with the fits between them, ≤ 10 min; MBPO with its
default settings, five seeds, ≤ 30 min. Later epochs take as long as early ones, so a few are timed and multiplied.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import saute
from saute.core.machine import cores
from saute.core.protocol import spec_of
from saute.learn.drive import drive
from saute.runs.build import algorithm_of, configured
from saute.runs.config import Experiment

SEEDS, CORES = 5, cores()


def seconds(work: Callable[[], Any], turns: int) -> float:
    """The median time of some turns, after one turn that compiles."""
    taken = []
    for _ in range(turns + 1):
        begin = time.perf_counter()
        jax.block_until_ready(work())
        taken.append(time.perf_counter() - begin)
    return sorted(taken[1:])[turns // 2]


def line(what: str, ours: float, limit: float) -> None:
    print(f"  {what:<52} {ours:>9.3f} s   limit {limit:>7.1f} s   ratio {ours / limit:.3f}")


def plans(agent: Any, parameters: Any, count: int) -> float:
    plan = jax.jit(lambda parameters, obs: agent.policy.decide(parameters, agent.memory(count), obs)[0])
    obs = jnp.tile(jnp.array([-1.0, 0.0, 0.0, 1.0]), (count, 1))
    return seconds(lambda: plan(parameters, obs), 9)


def epoch(agent: Any, env: Any, warm: int, seeds: int) -> float:
    """Seconds of an epoch of some seeds at once, after `warm` epochs, which include the random steps."""
    body, keys = drive(agent, env, env.options), [jax.random.key(i) for i in range(seeds)]
    trainings = body.first(keys)
    for _ in range(warm):
        trainings = [training for training, _ in body.epoch(trainings, keys)]
    return seconds(lambda: [training for training, _ in body.epoch(trainings, keys)], 3)


if __name__ == "__main__":
    env = saute.saute(saute.envs.pendulum(), budget=30.0)
    planned, imagined = (configured(Experiment("pendulum", algo=algo, preset="fast")) for algo in ("pets", "mbpo"))
    agent = algorithm_of(planned).agent(spec_of(env))
    model = agent.export(jax.jit(agent.init)(jax.random.key(0)))
    print("PETS on the pendulum")
    line("one plan", plans(agent, model, 1), 0.1)
    line("25 plans at once, as in an evaluation", plans(agent, model, 25), 25 * 0.1)
    steps = planned.settings.steps_per_epoch
    line("5000 planned steps of one seed", 5000 / steps * epoch(agent, env, 2, 1), 600.0)
    print("MBPO on the pendulum")
    rounds = -(-SEEDS // CORES)
    once = epoch(algorithm_of(imagined).agent(spec_of(env)), env, 3, min(CORES, SEEDS))
    line(f"{imagined.epochs} epochs of five seeds", imagined.epochs * rounds * once, 1800.0)
