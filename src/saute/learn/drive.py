"""The only step and the only reset of training: one body for JAX-native environments, one for Gymnasium's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from saute.core.native import Sauted
from saute.core.protocol import Env, Episodes, Step, Transition
from saute.envs.from_gym import HostEnvs

__all__ = ["Stream", "advance", "advance_host", "begin", "begin_host", "collect", "collect_host", "task_reward"]

Act = Callable[[Any, PRNGKeyArray], tuple[Any, Any]]
"""(observations, key) → (actions, extras), for a batch of environments."""


class Stream(NamedTuple):
    """Where a batch of environments is: states, observations, and the sums of the running episodes."""

    state: Any
    obs: Float[Any, "env obs"]
    totals: Episodes


def begin(env: Env, key: PRNGKeyArray, num_envs: int) -> Stream:
    """Fresh episodes."""
    keys = jax.random.split(key, num_envs)
    state, obs = jax.vmap(env.reset)(keys)
    action = jnp.asarray(np.zeros((num_envs, *(env.action_space.shape or ())), env.action_space.dtype))
    cost = jax.eval_shape(lambda: jax.vmap(env.step)(state, action, keys).cost)
    return Stream(state, obs, _zeros(num_envs, jnp.zeros(cost.shape, cost.dtype)))


def advance(
    env: Env, stream: Stream, action: Any, step_key: PRNGKeyArray, reset_key: PRNGKeyArray
) -> tuple[Stream, Step, Episodes]:
    """One step of all; an episode that ends is followed by the next one, but `Step` still has its own last observation."""
    num_envs = len(stream.obs)
    step = jax.vmap(env.step)(stream.state, action, jax.random.split(step_key, num_envs))
    totals = _add(stream.totals, step, task_reward(step))

    def restarted() -> tuple[Any, Any]:
        fresh = jax.vmap(env.reset)(jax.random.split(reset_key, num_envs))
        return jax.tree.map(lambda new, old: _select(totals.ended, new, old), fresh, (step.state, step.obs))

    # Most steps end no episode, and drawing starts that nobody needs would take longer than the physics.
    state, obs = jax.lax.cond(totals.ended.any(), restarted, lambda: (step.state, step.obs))
    return Stream(state, obs, _clear(totals)), step, totals


def collect(env: Env, act: Act, key: PRNGKeyArray, num_envs: int, steps: int) -> tuple[Transition, Episodes]:
    """Steps × environments of fresh episodes, as one `lax.scan`."""
    start, key = jax.random.split(key)

    def one(stream: Stream, key: PRNGKeyArray) -> tuple[Stream, tuple[Transition, Episodes]]:
        act_key, step_key, reset_key = jax.random.split(key, 3)
        action, extras = act(stream.obs, act_key)
        following, step, totals = advance(env, stream, action, step_key, reset_key)
        moved = Transition(stream.obs, action, step.reward, step.cost, step.obs, step.terminated, step.truncated, extras)
        return following, (moved, totals)

    return jax.lax.scan(one, begin(env, start, num_envs), jax.random.split(key, steps))[1]


def collect_host(envs: HostEnvs, act: Act, key: PRNGKeyArray, steps: int) -> tuple[Transition, Episodes]:
    """The same from Gymnasium environments, which we reset ourselves, after the transition has been recorded.

    Several keys are those of several seeds side by side, each of which has an equal part of the environments, in turn; `act` is
    given the observations of all and a key each.
    """
    start, act_keys = _host_keys(key, steps)
    stream, rows = begin_host(envs, start), []
    for act_key in act_keys:
        action, extras = act(stream.obs, act_key)
        following, step, totals = advance_host(envs, stream, action)
        moved = Transition(stream.obs, action, step.reward, step.cost, step.obs, step.terminated, step.truncated, extras)
        rows.append(jax.tree.map(np.asarray, (moved, totals)))
        stream = following
    return jax.tree.map(lambda *column: np.stack(column), *rows)


@functools.partial(jax.jit, static_argnames="steps")
def _host_keys(key: PRNGKeyArray, steps: int) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """The key of the first reset and those of all actions, drawn as in `collect`; steps come first, then seeds."""
    if key.ndim:
        start, keys = jax.vmap(lambda one: _host_keys(one, steps))(key)
        return start, keys.T
    start, key = jax.random.split(key)
    return start, jax.vmap(lambda step_key: jax.random.split(step_key, 3)[0])(jax.random.split(key, steps))


def begin_host(envs: HostEnvs, key: PRNGKeyArray) -> Stream:
    """Fresh episodes of Gymnasium environments, seeded by the key, or by several for equal parts of them."""
    firsts = [int(jax.random.randint(one, (), 0, 2**31 - 1)) for one in key.reshape(-1)]
    obs = envs.reset(
        firsts[0] if len(firsts) == 1 else [first + i for first in firsts for i in range(envs.num_envs // len(firsts))]
    )
    totals = _zeros(envs.num_envs, np.zeros((envs.num_envs, *envs.cost_shape), np.float32))
    return Stream(envs.state, obs, jax.tree.map(np.asarray, totals))


def advance_host(envs: HostEnvs, stream: Stream, action: Any) -> tuple[Stream, Step, Episodes]:
    """One step of all, and fresh episodes where one has ended, as in `advance`."""
    step, earned = envs.step(np.asarray(action))
    totals = _add(stream.totals, step, earned)
    if not totals.ended.any():
        return Stream(step.state, step.obs, totals), step, totals
    obs = envs.restart(totals.ended)
    return Stream(envs.state, obs, jax.tree.map(np.asarray, _clear(totals))), step, totals


def _zeros(num_envs: int, cost: Any) -> Episodes:
    return Episodes(jnp.zeros(num_envs, bool), jnp.zeros(num_envs, cost.dtype), cost, jnp.zeros(num_envs, jnp.int32))


def _add(totals: Episodes, step: Step, earned: Any) -> Episodes:
    return Episodes(
        ended=step.terminated | step.truncated,
        task_return=totals.task_return + earned,
        cost=totals.cost + step.cost,
        length=totals.length + 1,
    )


def _clear(totals: Episodes) -> Episodes:
    """Begin counting anew where an episode has ended."""
    return jax.tree.map(lambda total: _select(totals.ended, jnp.zeros_like(total), total), totals)


def _select(mask: Any, new: Any, old: Any) -> Any:
    return jnp.where(mask.reshape(-1, *(1,) * (jnp.ndim(new) - 1)), new, old)


def task_reward(step: Step) -> Any:
    """The reward before shaping."""
    return step.state.task_reward if isinstance(step.state, Sauted) else step.reward
