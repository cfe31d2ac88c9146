"""Batches for PPO, TRPO and CPO from Gymnasium's environments: they step on the host, acting is compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from saute.algos.onpolicy import Learner, OnPolicy
from saute.core.protocol import Episodes, Transition
from saute.envs.from_gym import HostEnvs
from saute.learn.drive import collect_host

__all__ = ["Collector", "host_collector"]

Collected = tuple[Transition, Episodes]
Collector = Callable[..., list[Collected]]
"""(learners, their keys, steps) → what each of them meets in its environments."""


def host_collector(bound: OnPolicy, envs: HostEnvs) -> Collector:
    """The batches of an epoch, or of so many steps, of all learners, whose seeds are side by side or one after the other.

    Either way the numbers are the same: each seed's environments and actions have random streams of their own.
    """
    each = envs.num_envs // envs.seeds
    epoch = max(1, bound.algorithm.settings.steps_per_epoch // each)

    @jax.jit
    def act(learners: tuple[Learner, ...], obs: Any, keys: Any) -> Any:
        parts = zip(learners, jnp.split(obs, len(learners)), keys, strict=True)
        return jax.tree.map(lambda *rows: jnp.concatenate(rows), *(bound.act(*part) for part in parts))

    def together(learners: tuple[Learner, ...], keys: Sequence[PRNGKeyArray], steps: int) -> list[Collected]:
        batch = collect_host(envs, lambda obs, key: act(learners, obs, key), jnp.stack(keys), steps)
        parts = [slice(i * each, (i + 1) * each) for i in range(envs.seeds)]
        return [jax.tree.map(lambda rows, part=part: rows[:, part], batch) for part in parts]

    def collected(learners: Sequence[Learner], keys: Sequence[PRNGKeyArray], steps: int = epoch) -> list[Collected]:
        groups = [slice(i, i + envs.seeds) for i in range(0, len(learners), envs.seeds)]
        return [batch for group in groups for batch in together(tuple(learners[group]), keys[group], steps)]

    return collected
