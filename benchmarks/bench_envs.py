"""Steps/s of every task: Gymnasium's own loop, bare `mujoco.rollout` on all cores with 100 environments, and ours.

    python benchmarks/bench_envs.py

"ours" is what training runs: `saute.learn.drive.rollout` with random actions and resets, compiled, float32, a thread per core.
To reach on two cores: pendulum ≥ 300 × Gymnasium's loop, double pendulum and reacher ≥ 100 ×, Point ≥ 20 × mujoco.rollout,
Car ≥ 0.8 × mujoco.rollout and ≥ 8 × a Python loop with sensors; compilation ≤ 10 s per task.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import gymnasium as gym
import jax
import mujoco
import numpy as np
from mujoco.rollout import Rollout
from timing import rates, report

import saute
from saute.core.machine import cores
from saute.learn.agent import Acted, unchanged
from saute.learn.drive import Window, rollout
from saute.learn.stream import begin

CORES = cores()
POOL = ThreadPoolExecutor(CORES)
ENVS, STEPS = 4096, 200


def gymnasium_loop(name: str, steps: int = 2000) -> Callable[[], int]:
    env = gym.make(name)
    env.reset(seed=0)
    actions = [env.action_space.sample() for _ in range(steps)]

    def work() -> int:
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        return steps

    return work


def starts(task: Any, n: int) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(jax.vmap(task.start)(jax.random.split(jax.random.key(0), n)))


def bare_rollout(task: Any, n: int = 100, repeats: int = 5) -> Callable[[], int]:
    model = task.model()
    pool, data = Rollout(nthread=CORES), [mujoco.MjData(model) for _ in range(CORES)]
    x = np.concatenate([np.zeros((n, 1)), starts(task, n)], axis=1)
    control = np.random.default_rng(0).uniform(-1, 1, (n, 1, model.nu))
    states = np.empty((n, task.substeps, x.shape[1]))
    sensors = np.empty((n, task.substeps, model.nsensordata))

    def work() -> int:
        for _ in range(repeats):
            # It continues from the last state, as ours does: a robot at rest is faster to simulate than one that drives.
            pool.rollout(model, data, x, control, state=states, sensordata=sensors)
            x[:] = states[:, -1]
        return repeats * n

    return work


def python_loop(task: Any, steps: int = 200) -> Callable[[], int]:
    model = task.model()
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = np.split(starts(task, 1)[0], [model.nq])
    controls = np.random.default_rng(0).uniform(-1, 1, (steps, model.nu))

    def work() -> int:
        for control in controls:
            data.ctrl[:] = control
            for _ in range(task.substeps):
                mujoco.mj_step(model, data)
            mujoco.mj_forward(model, data)
            data.sensordata.copy()
        return steps

    return work


class Random(NamedTuple):
    """An agent that acts at random and learns nothing."""

    actions: int

    observe = staticmethod(unchanged)

    def memory(self, count: int) -> tuple[()]:
        return ()

    def act(self, state: Any, memory: tuple[()], obs: Any, key: Any) -> Acted:
        return Acted(jax.random.uniform(key, (len(obs), self.actions), minval=-1.0))


def ours(env: Any) -> tuple[Callable[[], int], float]:
    """The compiled driver on every core, and how long it took to compile."""
    agent: Any = Random(env.action_space.shape[0])
    play = rollout(agent, env, Window(ENVS // CORES, STEPS, True))

    def collected(key: Any) -> Any:
        start_key, key = jax.random.split(key)
        return play((), begin(env, start_key, ENVS // CORES), jax.random.split(key, STEPS))[2]

    first = time.perf_counter()
    run = jax.jit(collected).lower(jax.random.key(0)).compile()
    seconds = time.perf_counter() - first

    def work() -> int:
        keys = [jax.random.key(i) for i in range(CORES)]
        list(POOL.map(lambda key: jax.block_until_ready(run(key)), keys))
        return ENVS * STEPS

    return work, seconds


def car_batch(n: int = 100, steps: int = 5) -> Callable[[], int]:
    envs = gym.make_vec("saute/StaticCarGoal-v0", num_envs=n)
    envs.reset(seed=0)
    actions = np.random.default_rng(0).uniform(-1, 1, (n, 2))

    def work() -> int:
        for _ in range(steps):
            envs.step(actions)
        return steps * n

    return work


def native(name: str, peer: str | None) -> None:
    env = getattr(saute.envs, name)()
    work, seconds = ours(env)
    contenders = {"ours": work}
    if peer is not None:
        contenders = {f"Gymnasium's {peer}": gymnasium_loop(peer), **contenders}
    if hasattr(env.task, "model"):
        contenders = {f"mujoco.rollout, {CORES} threads, 100 envs": bare_rollout(env.task), **contenders}
    results = rates(contenders, turns=7)
    report(f"{name} (compiled in {seconds:.1f} s)", results, f"Gymnasium's {peer}" if peer else next(iter(results)))


def car() -> None:
    task = saute.envs.make_task("car")
    rollout = f"mujoco.rollout, {CORES} threads, 100 envs"
    loop = "Python loop with sensors"
    contenders = {rollout: bare_rollout(task), loop: python_loop(task), "ours": car_batch()}
    report("car", rates(contenders, turns=15), rollout, loop)


if __name__ == "__main__":
    native("pendulum", "Pendulum-v1")
    native("double_pendulum", "InvertedDoublePendulum-v5")
    native("reacher", "Reacher-v5")
    native("point", None)
    car()
