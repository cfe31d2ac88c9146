"""An epoch of one seed as a plain function of JAX, which benchmarks count or compile in ways of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from saute.core.protocol import spec_of
from saute.learn.drive import rollout, window_of
from saute.learn.stream import begin


def of(algorithm: Any, env: Any) -> tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]:
    """key → the state of a learner, and (state, key) → the state after an epoch that begins with new episodes."""
    agent = algorithm.agent(spec_of(env))
    window = window_of(agent.settings, env)
    play = rollout(agent, env, window, env.options)

    def epoch(state: Any, key: Any) -> Any:
        begin_key, start_key, steps_key, learn_key = jax.random.split(key, 4)
        state, _ = agent.begin(state, begin_key)
        stream = begin(env, start_key, window.num_envs, agent.memory(window.num_envs), env.options)
        state, _, (rows, episodes, _) = play(state, stream, jax.random.split(steps_key, window.steps))
        return agent.learn(state, rows, episodes, learn_key)

    return agent.init, epoch
