"""Updates/s of soft actor-critic on the pendulum: Stable-Baselines3's, ours, and what the matrix products alone allow.

    python benchmarks/bench_sac.py

Every update comes with a step of the environment, as in training. An update has 16 products of batch × hidden × hidden: eight
forward (two of the policy, two of the target critics, four of the critics), five back to the inputs, three for the weights.
To reach on two cores: at 64×64 and batch 256, 6 × Stable-Baselines3; at 256×256 and batch 1024, not less than it; one seed
alone ≥ 0.6 and ≥ 0.85 of the products. The peer steps Gymnasium's own Pendulum-v1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from timing import rates, report

import saute
from saute.algos.sac import SacSettings, sac
from saute.core.machine import cores
from saute.core.protocol import spec_of
from saute.learn.drive import drive

CORES = cores()


def theirs(hidden: int, batch: int, steps: int) -> Callable[[], int]:
    from stable_baselines3 import SAC

    net = {"net_arch": [hidden, hidden]}
    model = SAC("MlpPolicy", "Pendulum-v1", policy_kwargs=net, batch_size=batch, learning_starts=100, device="cpu", seed=0)
    model.learn(200)

    def work() -> int:
        model.learn(steps, reset_num_timesteps=False)
        return steps

    return work


def ours(hidden: int, batch: int, steps: int, seeds: int) -> Callable[[], int]:
    env = saute.saute(saute.envs.pendulum())
    # A replay as in all presets; one of a million rows is copied in every epoch, which takes another 20 µs per update.
    settings = SacSettings((hidden, hidden), steps_per_epoch=steps, random_steps=0, batch=batch, replay=60_000)
    body = drive(sac(settings=settings).agent(spec_of(env)), env)
    keys = [jax.random.key(i) for i in range(seeds)]
    trainings = body.first(keys)

    def work() -> int:
        trainings[:] = [training for training, _ in body.epoch(trainings, keys)]
        return steps * seeds

    return work


def products(hidden: int, batch: int, updates: int) -> Callable[[], int]:
    random = np.random.default_rng(0)
    x, weight = random.normal(size=(batch, hidden)).astype(np.float32), np.eye(hidden, dtype=np.float32)
    out, gradient = np.empty_like(x), np.empty_like(weight)

    def work() -> int:
        for _ in range(updates):
            for _ in range(13):
                np.matmul(x, weight, out=out)
            for _ in range(3):
                np.matmul(x.T, out, out=gradient)
        return updates

    return work


def compare(hidden: int, batch: int, steps: int, turns: int) -> None:
    peer, limit = "Stable-Baselines3", "matrix products alone, NumPy"
    contenders: dict[str, Any] = {
        peer: theirs(hidden, batch, steps),
        limit: products(hidden, batch, steps),
        "ours, one seed": ours(hidden, batch, steps, 1),
        f"ours, {CORES} seeds at once": ours(hidden, batch, steps, CORES),
    }
    report(f"SAC, {hidden}×{hidden}, batch {batch}", rates(contenders, turns), peer, limit, unit="updates/s")


if __name__ == "__main__":
    compare(64, 256, steps=200, turns=7)
    compare(256, 1024, steps=20, turns=5)
