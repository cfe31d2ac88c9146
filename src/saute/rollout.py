"""The only step and the only reset of training: one body for JAX-native environments, one for Gymnasium's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from saute.host import HostEnvs
from saute.protocol import Env, Episodes, Step, Transition
from saute.transform import Sauted

__all__ = ["collect", "collect_host"]

Act = Callable[[Any, PRNGKeyArray], tuple[Any, Any]]
"""(observations, key) → (actions, extras), for a batch of environments."""


def collect(env: Env, act: Act, key: PRNGKeyArray, num_envs: int, steps: int) -> tuple[Transition, Episodes]:
    """Steps × environments of fresh episodes, as one `lax.scan`; an episode that ends is followed by the next one."""
    start, key = jax.random.split(key)
    state, obs = jax.vmap(env.reset)(jax.random.split(start, num_envs))

    def one(carry: tuple[Any, ...], key: PRNGKeyArray) -> tuple[tuple[Any, ...], tuple[Transition, Episodes]]:
        state, obs, totals = carry
        act_key, env_key, reset_key = jax.random.split(key, 3)
        action, extras = act(obs, act_key)
        step = jax.vmap(env.step)(state, action, jax.random.split(env_key, num_envs))
        transition = Transition(obs, action, step.reward, step.cost, step.obs, step.terminated, step.truncated, extras)
        totals = _add(totals, step, _task_reward(step))

        def restarted() -> tuple[Any, Any]:
            fresh = jax.vmap(env.reset)(jax.random.split(reset_key, num_envs))
            return jax.tree.map(lambda new, old: _select(totals.ended, new, old), fresh, (step.state, step.obs))

        # Most steps end no episode, and drawing starts that nobody needs would take longer than the physics.
        state, obs = jax.lax.cond(totals.ended.any(), restarted, lambda: (step.state, step.obs))
        return (state, obs, _clear(totals)), (transition, totals)

    cost = jax.eval_shape(lambda: jax.vmap(env.step)(state, act(obs, key)[0], jax.random.split(key, num_envs)).cost)
    totals = _zeros(num_envs, jnp.zeros(cost.shape, cost.dtype))
    return jax.lax.scan(one, (state, obs, totals), jax.random.split(key, steps))[1]


def collect_host(envs: HostEnvs, act: Act, key: PRNGKeyArray, steps: int) -> tuple[Transition, Episodes]:
    """The same from Gymnasium environments, which we reset ourselves, after the transition has been recorded."""
    start, key = jax.random.split(key)
    obs = envs.reset(int(jax.random.randint(start, (), 0, 2**31 - 1)))
    totals = None
    rows = []
    for step_key in jax.random.split(key, steps):
        act_key, _, _ = jax.random.split(step_key, 3)
        action, extras = act(obs, act_key)
        step, task_reward = envs.step(np.asarray(action))
        totals = _add(_zeros(envs.num_envs, np.zeros_like(step.cost)) if totals is None else totals, step, task_reward)
        transition = Transition(obs, action, step.reward, step.cost, step.obs, step.terminated, step.truncated, extras)
        rows.append(jax.tree.map(np.asarray, (transition, totals)))
        ended = np.asarray(totals.ended)
        obs = envs.restart(ended) if ended.any() else step.obs
        totals = _clear(totals)
    return jax.tree.map(lambda *column: np.stack(column), *rows)


def _zeros(num_envs: int, cost: Any) -> Episodes:
    return Episodes(jnp.zeros(num_envs, bool), jnp.zeros(num_envs, cost.dtype), cost, jnp.zeros(num_envs, jnp.int32))


def _add(totals: Episodes, step: Step, task_reward: Any) -> Episodes:
    return Episodes(
        ended=step.terminated | step.truncated,
        task_return=totals.task_return + task_reward,
        cost=totals.cost + step.cost,
        length=totals.length + 1,
    )


def _clear(totals: Episodes) -> Episodes:
    """Begin counting anew where an episode has ended."""
    return jax.tree.map(lambda total: _select(totals.ended, jnp.zeros_like(total), total), totals)


def _select(mask: Any, new: Any, old: Any) -> Any:
    return jnp.where(mask.reshape(-1, *(1,) * (jnp.ndim(new) - 1)), new, old)


def _task_reward(step: Step) -> Any:
    return step.state.task_reward if isinstance(step.state, Sauted) else step.reward
