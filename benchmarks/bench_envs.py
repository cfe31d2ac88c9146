"""Steps/s of every task: Gymnasium's own loop, bare `mujoco.rollout` on all cores with 100 environments, and ours.

    python benchmarks/bench_envs.py

First one environment of `gym.make` alone, which computes the same formulas with Python's floats: how long its first step takes,
what is compiled for it, its steps/s beside Gymnasium's own environment, its resets/s with a seed. To reach: ≥ 1.0 × Gymnasium's
loop, ≥ 10,000 resets/s, nothing compiled.

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


def one_loop(name: str, steps: int = 2000, **chosen: Any) -> Callable[[], int]:
    env = gym.make(name, **chosen)
    env.reset(seed=0)
    actions = [env.action_space.sample() for _ in range(steps)]

    def work() -> int:
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        return steps

    return work


def resetting(name: str, resets: int = 500) -> Callable[[], int]:
    env = gym.make(name)

    def work() -> int:
        for seed in range(resets):
            env.reset(seed=seed)
        return resets

    return work


def first_steps() -> None:
    """How long the first step of an environment takes from `gym.make` on, and how many programs JAX compiles for it."""
    compiled: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, _, **__: compiled.append(event) if event.endswith("backend_compile_duration") else None
    )
    print("from gym.make to the first step")
    for name in ("SafePendulum", "SafeDoublePendulum", "SafeReacher", "StaticPointGoal"):
        begin = time.perf_counter()
        env = gym.make(f"saute/{name}-v0")
        env.reset(seed=0)
        env.step(env.action_space.sample())
        print(f"  {name:<40} {1e3 * (time.perf_counter() - begin):>10.1f} ms, {len(compiled)} programs compiled")
    print()


def one_environment(name: str, peer: str | None) -> None:
    """One environment alone: steps/s with random actions, then resets/s with a seed."""
    made = {f"saute/{name}-v0": f"saute/{name}-v0"} | ({f"Gymnasium's {peer}": peer} if peer else {})
    reference = [f"Gymnasium's {peer}"] if peer else []
    report(f"{name}, one environment", rates({who: one_loop(env) for who, env in made.items()}), *reference)
    report(f"{name}, reset(seed=k)", rates({who: resetting(env) for who, env in made.items()}), *reference, unit="resets/s")


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
        contenders = {f"Gymnasium's {peer}": one_loop(peer), **contenders}
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
    first_steps()
    one_environment("SafePendulum", "Pendulum-v1")
    one_environment("SafeDoublePendulum", "InvertedDoublePendulum-v5")
    one_environment("SafeReacher", "Reacher-v5")
    one_environment("StaticPointGoal", None)
    native("pendulum", "Pendulum-v1")
    native("double_pendulum", "InvertedDoublePendulum-v5")
    native("reacher", "Reacher-v5")
    native("point", None)
    car()
