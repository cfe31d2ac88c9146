"""Environment steps/s of training: ours with five seeds against Stable-Baselines3, with the paper's settings on the pendulum.

    python benchmarks/bench_train.py

All with 4000 steps per epoch, full batches, 80 iterations, networks of 64×64. The peers step Gymnasium's own Pendulum-v1, plain
NumPy without costs or budgets. To reach on two cores: ≥ 18 × sb3-contrib's TRPO and ≥ 15 × SB3's PPO, or 85 % of the limit: the
matrix products and tanh of these fits alone, on all cores. PPO stops once its policy has moved far enough, so ours makes fewer
of its 80 iterations; the peer is also shown with such a stop. Also printed: `vmap` over seeds instead of threads and the
memory of five seeds.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import epochs
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import torch
from sb3_contrib import TRPO
from stable_baselines3 import PPO
from timing import rates, report

import saute
from saute.core.machine import cores
from saute.core.protocol import spec_of
from saute.learn.drive import drive

SEEDS, STEPS = 5, 4000
CORES = cores()


class Threads:
    """Epochs of five seeds, as `saute train` makes them."""

    def __init__(self, algorithm: Any, env: Any):
        self.body = drive(algorithm.agent(spec_of(env)), env, env.options)
        self.keys = [jax.random.key(i) for i in range(SEEDS)]
        self.trainings = self.body.first(self.keys)
        self.iterations = 0.0
        """Of PPO's policy, in the mean of the seeds."""

    def __call__(self) -> int:
        done = self.body.epoch(self.trainings, self.keys)
        self.iterations = float(np.mean([metrics.get("policy_iterations", 0) for _, metrics in done]))
        return SEEDS * STEPS


def batched(algorithm: Any, env: Any) -> Callable[[], int]:
    """The same, with the seeds as a batch axis of one compiled program."""
    init, epoch = epochs.of(algorithm, env)
    keys = jax.random.split(jax.random.key(0), SEEDS)
    states = jax.vmap(init)(keys)
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
    env = gym.make("Pendulum-v1")
    net = {"net_arch": [64, 64]}
    common = {"n_steps": STEPS, "batch_size": STEPS, "device": "cpu", "policy_kwargs": net}
    return {
        "sb3-contrib TRPO": peer(TRPO("MlpPolicy", env, n_critic_updates=80, **common)),
        "SB3 PPO": peer(PPO("MlpPolicy", env, n_epochs=80, **common)),
        "SB3 PPO, stops at a divergence": peer(PPO("MlpPolicy", env, n_epochs=80, target_kl=0.008, **common)),
    }


def limit(passes: Callable[[], float], linear: float) -> Callable[[], int]:
    """The fits of an epoch of all seeds as products and tanh alone, on all cores: what no training can be faster than.

    A pass is a forward and a backward pass of all rows through a net: three products of each hidden layer and two tanh; those
    through a linearised net have no tanh.
    """
    inputs, first, second, last = (
        jax.random.normal(jax.random.key(i), shape) * 0.1 for i, shape in enumerate([(STEPS, 4), (4, 64), (64, 64), (64, 1)])
    )

    def products(count: Any) -> Any:
        def one(_: Any, carry: Any) -> Any:
            first, second, last = carry
            h1 = inputs @ first
            h2 = h1 @ second
            d2 = (h2 @ last) @ last.T
            d1 = d2 @ second.T
            return first + 1e-9 * (inputs.T @ d1), second + 1e-9 * (h1.T @ d2), last + 1e-9 * (h2.T @ (h2 @ last))

        return jax.lax.fori_loop(0, count, one, (first, second, last))

    def curves(count: Any) -> Any:
        return jax.lax.fori_loop(0, 2 * count, lambda _, x: jnp.tanh(x), jnp.ones((STEPS, 64)) * 0.5)

    multiply, bend = jax.jit(products), jax.jit(curves)
    threads = ThreadPoolExecutor(CORES)

    def work() -> int:
        count = passes()

        def one(_: int) -> None:
            jax.block_until_ready((multiply(round(count + linear)), bend(round(count))))

        list(threads.map(one, range(CORES)))
        return CORES * STEPS

    return work


def main() -> None:
    torch.set_num_threads(CORES)
    env = saute.saute(saute.envs.pendulum())
    trpo, ppo = Threads(saute.trpo(), env), Threads(saute.ppo(), env)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    contenders: dict[str, Callable[[], int]] = {"ours, TRPO": trpo, "ours, PPO": ppo}
    # TRPO: 80 passes for the values, a gradient and a try of the line search; 12 products with the Fisher matrix.
    contenders |= {"limit of TRPO": limit(lambda: 82, 12), "limit of PPO": limit(lambda: 80 + ppo.iterations, 0)}
    contenders |= {"ours, TRPO, vmap over seeds": batched(saute.trpo(), env), **peers()}
    results = rates(contenders, turns=5)
    report(
        f"Training with the paper's settings, {SEEDS} seeds of the sautéed pendulum; peers step Gymnasium's Pendulum-v1",
        results, "sb3-contrib TRPO", "SB3 PPO", "limit of TRPO", "limit of PPO",
    )  # fmt: skip
    print(f"PPO's policy made {ppo.iterations:.0f} of 80 iterations. Memory with {SEEDS} seeds compiled: {memory:.2f} GiB")


if __name__ == "__main__":
    main()
