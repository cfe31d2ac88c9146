"""Environment steps/s of training: ours with five seeds against Stable-Baselines3, with the paper's settings on the pendulum.

    python benchmarks/bench_train.py

All with 4000 steps per epoch, full batches, 80 iterations, networks of 64×64. To reach on two cores: ≥ 16 × sb3-contrib's TRPO
and ≥ 14 × SB3's PPO. Also printed: the share of the machine's matrix speed (products of the value net's shapes alone), `vmap`
over seeds instead of threads, and the memory of five seeds.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import torch
from sb3_contrib import TRPO
from stable_baselines3 import PPO
from timing import rates, report

import saute
from saute.algos.onpolicy import fit
from saute.core.machine import cores
from saute.core.protocol import spec_of
from saute.learn.drive import drive, rollout, window_of
from saute.learn.stream import begin

SEEDS, STEPS = 5, 4000
CORES = cores()


def threads(algorithm: Any, env: Any) -> Callable[[], int]:
    body = drive(algorithm.agent(spec_of(env)), env, env.options)
    keys = [jax.random.key(i) for i in range(SEEDS)]
    trainings = body.first(keys)

    def work() -> int:
        body.epoch(trainings, keys)
        return SEEDS * STEPS

    return work


def batched(algorithm: Any, env: Any) -> Callable[[], int]:
    """The same, with the seeds as a batch axis of one compiled program."""
    agent = algorithm.agent(spec_of(env))
    window = window_of(agent.settings, env)
    play, keys = rollout(agent, env, window, env.options), jax.random.split(jax.random.key(0), SEEDS)
    states = jax.vmap(agent.init)(keys)

    def epoch(state: Any, key: Any) -> Any:
        start_key, steps_key, learn_key = jax.random.split(key, 3)
        stream = begin(env, start_key, window.num_envs, agent.memory(window.num_envs), env.options)
        state, _, (rows, episodes, _) = play(state, stream, jax.random.split(steps_key, window.steps))
        return agent.learn(state, rows, episodes, learn_key)

    run = jax.jit(jax.vmap(epoch)).lower(states, keys).compile()

    def work() -> int:
        jax.block_until_ready(run(states, keys))
        return SEEDS * STEPS

    return work


def peer(model: Any) -> Callable[[], int]:
    def work() -> int:
        model.learn(STEPS, reset_num_timesteps=False)
        return STEPS

    return work


def peers() -> dict[str, Callable[[], int]]:
    env = saute.SauteWrapper(gym.make("saute/SafePendulum-v0"), budget=30.0)
    net = {"net_arch": [64, 64]}
    common = {"n_steps": STEPS, "batch_size": STEPS, "device": "cpu", "policy_kwargs": net}
    return {
        "sb3-contrib TRPO": peer(TRPO("MlpPolicy", env, n_critic_updates=80, **common)),
        "SB3 PPO": peer(PPO("MlpPolicy", env, n_epochs=80, **common)),
    }


def value_fit() -> tuple[float, float]:
    """Gflop/s of one core: in the fit of the value net, and in matrix products of the same shapes alone."""
    settings = saute.trpo().settings
    agent = saute.trpo().agent(spec_of(saute.saute(saute.envs.pendulum())))
    state = agent.init(jax.random.key(0))
    obs, target = jax.random.normal(jax.random.key(1), (1, STEPS, 4)), jnp.zeros((1, STEPS))
    fitted = jax.jit(lambda net, optimiser: fit(net, optimiser, obs, target, settings))
    flops = 80 * 2 * STEPS * (3 * 64 * 64 + 2 * (4 * 64 + 64) + 64 * 1)
    a, b = (jax.random.normal(jax.random.key(i), shape) for i, shape in enumerate([(STEPS, 64), (64, 64)]))

    def products(a: Any, b: Any) -> Any:
        def one(carry: Any, _: Any) -> tuple[Any, None]:
            c, gradient = carry
            return (c @ b * 0.1, gradient + c.T @ c), None

        return jax.lax.scan(one, (a, jnp.zeros((64, 64))), length=120)[0]

    multiply = jax.jit(products)
    return (
        flops / _fastest(lambda: fitted(state.value, state.value_optimiser)) / 1e9,
        240 * 2 * STEPS * 64 * 64 / _fastest(lambda: multiply(a, b)) / 1e9,
    )


def _fastest(work: Callable[[], Any], turns: int = 10) -> float:
    jax.block_until_ready(work())
    seconds = []
    for _ in range(turns):
        begin = time.perf_counter()
        jax.block_until_ready(work())
        seconds.append(time.perf_counter() - begin)
    return float(np.min(seconds))


def main() -> None:
    torch.set_num_threads(CORES)
    env = saute.saute(saute.envs.pendulum())
    contenders = {"ours, TRPO": threads(saute.trpo(), env), "ours, PPO": threads(saute.ppo(), env)}
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    contenders |= {"ours, TRPO, vmap over seeds": batched(saute.trpo(), env), **peers()}
    results = rates(contenders, turns=3)
    report(f"Training with the paper's settings, {SEEDS} seeds", results, "sb3-contrib TRPO", "SB3 PPO")
    fitting, limit = value_fit()
    print(
        f"Value fit: {fitting:.1f} Gflop/s on one core, matrix products of its shapes alone {limit:.1f}: {fitting / limit:.0%}"
    )
    print(f"Memory with {SEEDS} seeds compiled, before the others were made: {memory:.2f} GiB")


if __name__ == "__main__":
    main()
