"""An epoch of soft actor-critic in Gymnasium's environments: they step on the host, acting and learning are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from saute.algos.sac import SacLearner, SoftActorCritic
from saute.core.protocol import Episodes
from saute.envs.from_gym import HostEnvs
from saute.learn.drive import Stream, advance_host, begin_host
from saute.learn.replay import Rows

__all__ = ["host_epoch", "steps_on_host", "undonated", "whole_episodes"]


def host_epoch(
    bound: SoftActorCritic, envs: HostEnvs
) -> Callable[[SacLearner, PRNGKeyArray], tuple[SacLearner, dict[str, Any], Episodes]]:
    """`SoftActorCritic.epoch` with the same keys and the same rows, as a loop over the steps of all environments."""
    unit, steps = bound.unit_cost(envs), whole_episodes(bound.algorithm.settings.steps_per_epoch, envs)

    def act(learner: SacLearner, obs: Any, keys: Any, time: int) -> tuple[Any, Any]:
        action = bound.explore(learner, obs, jax.random.split(keys[time], 4)[0])
        return action, bound.policy.scale(action)

    def learn(learner: SacLearner, rows: Rows, keys: Any, time: int) -> tuple[SacLearner, dict[str, Any]]:
        return bound.learn(learner, rows, jax.random.split(keys[time], 4)[3], unit)

    # A donated replay is written in place.
    acting, learning = jax.jit(act), jax.jit(learn, donate_argnums=0)

    def epoch(learner: SacLearner, key: PRNGKeyArray) -> tuple[SacLearner, dict[str, Any], Episodes]:
        start_key, key = jax.random.split(key)
        stream, keys = begin_host(envs, start_key), jax.random.split(key, steps)

        def one(learner: SacLearner, stream: Stream, time: int) -> tuple[SacLearner, Stream, Any]:
            action, scaled = acting(learner, stream.obs, keys, time)
            following, step, totals = advance_host(envs, stream, scaled)
            learner, metrics = learning(learner, bound.rows(stream, action, step), keys, time)
            return learner, following, (metrics, totals)

        learner, _, (metrics, episodes) = steps_on_host(one, undonated(learner), stream, steps)
        return learner, jax.tree.map(np.mean, metrics), episodes

    return epoch


def steps_on_host(
    one: Callable[[Any, Stream, int], tuple[Any, Stream, Any]], carry: Any, stream: Stream, steps: int
) -> tuple[Any, Stream, Any]:
    """`lax.scan` for steps that are not compiled."""
    history = []
    for time in range(steps):
        carry, stream, seen = one(carry, stream, time)
        history.append(jax.tree.map(np.asarray, seen))
    return carry, stream, jax.tree.map(lambda *column: np.stack(column), *history)


def undonated(learner: Any) -> Any:
    """A copy to be donated: if the epoch is interrupted, the learner that came in will be saved."""
    return jax.tree.map(jnp.array, learner)


def whole_episodes(steps_per_epoch: int, envs: HostEnvs) -> int:
    """Steps of each environment in an epoch, which begins with fresh episodes and so must be long enough to end them."""
    steps = steps_per_epoch // envs.num_envs
    longest = envs.horizon or 1
    if steps < longest:
        raise ValueError(
            f"{steps_per_epoch} steps per epoch are {steps} in each of {envs.num_envs} environments, so that episodes of "
            f"{longest} never end; set steps_per_epoch to at least {longest * envs.num_envs}, or take fewer environments"
        )
    return steps
