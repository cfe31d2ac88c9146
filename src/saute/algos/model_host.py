"""Epochs of MBPO and PETS in one of Gymnasium's environments: it steps on the host, the rest is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from saute.algos.mbpo import MbpoLearner, ModelBased
from saute.algos.pets import PetsLearner, Planning
from saute.algos.sac_host import steps_on_host, undonated, whole_episodes
from saute.core.options import Options
from saute.core.protocol import Episodes, Step
from saute.envs.from_gym import HostEnvs
from saute.learn.drive import Stream, advance_host, begin_host
from saute.learn.ensemble import Ensemble
from saute.learn.planner import Plan
from saute.learn.replay import Rows

__all__ = ["mbpo_host_epoch", "pets_host_epoch"]

HostEpoch = Callable[[Any, PRNGKeyArray], tuple[Any, dict[str, Any], Episodes]]


def mbpo_host_epoch(bound: ModelBased, envs: HostEnvs) -> HostEpoch:
    """`ModelBased.epoch` with the same keys and the same rows, as a loop over the steps."""
    agent, settings = bound.agent, bound.algorithm.settings
    unit, steps = agent.unit_cost(envs), _steps(settings.steps_per_epoch, envs, "mbpo")

    def act(learner: MbpoLearner, obs: Any, keys: Any, time: int) -> tuple[Any, Any]:
        action = agent.explore(learner.sac, obs, jax.random.split(keys[time], 5)[0])
        return action, agent.policy.scale(action)

    def learn(learner: MbpoLearner, rows: Rows, began: Any, keys: Any, time: int) -> tuple[MbpoLearner, dict[str, Any]]:
        *_, dream_key, learn_key = jax.random.split(keys[time], 5)
        return bound.learn(learner, rows, began, dream_key, learn_key, unit)

    fitting = jax.jit(bound.fitted, donate_argnums=0)
    acting, learning = jax.jit(act), jax.jit(learn, donate_argnums=0)

    def epoch(learner: MbpoLearner, key: PRNGKeyArray) -> tuple[MbpoLearner, dict[str, Any], Episodes]:
        start_key, fit_key, key = jax.random.split(key, 3)
        began = bool(learner.sac.steps >= settings.sac.random_steps)
        learner, model_metrics = fitting(undonated(learner), fit_key)
        stream, keys = begin_host(envs, start_key), jax.random.split(key, steps)

        def one(learner: MbpoLearner, stream: Stream, time: int) -> tuple[MbpoLearner, Stream, Any]:
            action, scaled = acting(learner, stream.obs, keys, time)
            following, step, totals = advance_host(envs, stream, scaled)
            _refuse_unknown_end(step, bound.ensemble, agent.options, "mbpo")
            learner, metrics = learning(learner, agent.rows(stream, action, step), began, keys, time)
            return learner, following, (metrics, totals)

        learner, _, (metrics, episodes) = steps_on_host(one, learner, stream, steps)
        return learner, {**jax.tree.map(np.mean, metrics), **model_metrics}, episodes

    return epoch


def pets_host_epoch(bound: Planning, envs: HostEnvs) -> HostEpoch:
    """`Planning.epoch` with the same keys and the same rows, as a loop over the steps."""
    settings = bound.algorithm.settings
    bound.refuse_other_options(envs)
    blocks = _steps(settings.steps_per_epoch, envs, "pets") // settings.fit_every

    def decide(learner: PetsLearner, plan: Plan, obs: Any, keys: Any, time: int) -> tuple[Any, Plan]:
        return bound.decide(learner, obs, plan, jax.random.split(keys[time], 3)[0])

    fitting, deciding = jax.jit(bound.fitted, donate_argnums=0), jax.jit(decide)
    remembering = jax.jit(bound.remember, donate_argnums=0)

    def epoch(learner: PetsLearner, key: PRNGKeyArray) -> tuple[PetsLearner, dict[str, Any], Episodes]:
        start_key, key = jax.random.split(key)
        stream, plan, learner = begin_host(envs, start_key), bound.no_plan(), undonated(learner)
        history = []
        for block_key in jax.random.split(key, blocks):
            fit_key, step_key = jax.random.split(block_key)
            learner, metrics = fitting(learner, fit_key)
            keys = jax.random.split(step_key, settings.fit_every)

            def one(carry: tuple[Any, Plan], stream: Stream, time: int, keys: Any = keys) -> tuple[Any, Stream, Any]:
                action, plan = deciding(*carry, stream.obs, keys, time)
                following, step, totals = advance_host(envs, stream, action)
                _refuse_unknown_end(step, bound.policy.ensemble, bound.policy.options, "pets")
                return remembering(carry[0], plan, bound.rows(stream, action, step), totals.ended), following, totals

            (learner, plan), stream, episodes = steps_on_host(one, (learner, plan), stream, settings.fit_every)
            history.append((jax.tree.map(np.asarray, metrics), episodes))
        metrics, episodes = jax.tree.map(lambda *column: np.stack(column), *history)
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), episodes)
        return learner, jax.tree.map(np.mean, metrics), flat

    return epoch


def _steps(steps_per_epoch: int, envs: HostEnvs, name: str) -> int:
    if envs.num_envs != 1:
        raise ValueError(f"{name} steps one environment, so as to learn after every step, not {envs.num_envs}; use num_envs=1")
    return whole_episodes(steps_per_epoch, envs)


def _refuse_unknown_end(step: Step, ensemble: Ensemble, options: Options | None, name: str) -> None:
    """A model that was never told when episodes end would imagine them to go on, and plan for what never comes.

    Imagination knows the end that `terminate=True` puts to a violated episode, unless it predicts the budget.
    """
    ended = np.asarray(step.terminated)
    if options is not None and options.terminate and not ensemble.learned_budget:
        ended = ended & ~np.asarray(step.state.violated)
    if ensemble.known.terminated is None and ended.any():
        raise ValueError(
            f"the environment terminated an episode, but a learned model only knows that they end by time; pass"
            f" saute.{name}(known=Known(terminated=…)) in Python, or use sac"
        )
