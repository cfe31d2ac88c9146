"""A policy on whole episodes that training never saw: the true reward, the true cost, the length."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from saute.envs.from_gym import HostEnvs
from saute.learn.drive import collect

__all__ = ["Outcome", "evaluate", "evaluator"]


LONGEST = 100_000
"""Steps after which an episode of a host environment counts as endless."""


class Outcome(NamedTuple):
    """One entry per evaluated episode; the return is the task's own, never the shaped one."""

    task_return: np.ndarray
    cost: np.ndarray
    length: np.ndarray


def evaluate(net: Any, parameters: Any, env: Any, episodes: int, seed: int = 1_000_000) -> Outcome:
    """Episodes of the deterministic policy, all at once; of host environments, one each."""
    return evaluator(net, env, episodes)(parameters, seed)


def evaluator(net: Any, env: Any, episodes: int) -> Callable[[Any, int], Outcome]:
    """(parameters, seed) → Outcome, compiled once for many policies."""
    if isinstance(env, HostEnvs):
        act = jax.jit(lambda parameters, obs: net.mode(net.distribution(parameters, obs)))
        return lambda parameters, seed: _on_host(functools.partial(act, parameters), env, seed)
    run = jax.jit(lambda parameters, key: _first_episodes(net, parameters, env, episodes, key))
    return lambda parameters, seed: Outcome(*map(np.asarray, run(parameters, jax.random.key(seed))))


def _on_host(act: Callable[[Any], Any], envs: HostEnvs, seed: int) -> Outcome:
    """One episode of each environment; those that end early start another, which does not count."""
    obs, running = envs.reset(seed), np.ones(envs.num_envs, bool)
    task_return, cost, length = np.zeros(envs.num_envs), np.zeros(envs.num_envs), np.zeros(envs.num_envs, int)
    for _ in range(LONGEST):
        step, task_reward = envs.step(np.asarray(act(obs)))
        task_return += running * task_reward
        cost += running * step.cost
        length += running
        ended = step.terminated | step.truncated
        running &= ~ended
        if not running.any():
            return Outcome(task_return, cost, length)
        obs = envs.restart(ended) if ended.any() else step.obs
    raise ValueError(f"{running.sum()} episodes have not ended after {LONGEST} steps; give the environment a TimeLimit")


def _first_episodes(net: Any, parameters: Any, env: Any, episodes: int, key: Any) -> tuple[Any, Any, Any]:
    def act(obs: Any, _: Any) -> tuple[Any, Any]:
        return net.mode(net.distribution(parameters, obs)), ()

    _, totals = collect(env, act, key, episodes, env.horizon)
    first = jnp.argmax(totals.ended, axis=0)
    pick = jnp.arange(episodes)
    return totals.task_return[first, pick], totals.cost[first, pick], totals.length[first, pick]
