"""Environments of Brax and of MuJoCo Playground for our learners, in one compiled program with them."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, PyTree

from saute.core.cost import CostSource
from saute.envs.foreign import ForeignEnv, Moved, adapted, pick

__all__ = ["from_brax"]

HORIZON = 1000
"""Steps of an episode in Brax, which has this number in its training wrappers and not in its environments."""
REFUSED = ("AutoResetWrapper", "EpisodeWrapper", "EvalWrapper", "VmapWrapper")


def from_brax(env: Any, *, cost: CostSource = "cost", horizon: int | None = None, obs: str | None = None) -> ForeignEnv:
    """An environment of Brax or of MuJoCo Playground as an `Env`, for `saute.saute` and `saute.train`.

    `cost` is a key of the state's metrics or info (dotted for nested ones), several of them for several constraints, or a JAX
    function of (obs, action, next_obs, info), where info is both together. An episode terminates where the environment is
    `done`, and is truncated after `horizon` steps: by default those of Playground's configuration, or 1000. Observations that
    are a dictionary are flattened in the order of their keys; `obs` names the entry to use alone.
    """
    _check_bare(env)

    def begin(key: Array) -> tuple[PyTree, PyTree]:
        state = env.reset(key)
        return state, state.obs

    def advance(state: PyTree, action: Array, key: Array) -> Moved:
        # A copy of its dictionaries, because some environments write into the info that they are given.
        after = env.step(jax.tree.map(lambda leaf: leaf, state), action)
        return Moved(after, after.obs, after.reward, after.done, {**after.metrics, **after.info})

    action_space = spaces.Box(-1.0, 1.0, (int(env.action_size),), np.float32)
    name = type(env.unwrapped).__name__
    limit = _horizon(env) if horizon is None else horizon
    return adapted(name, begin, advance, cost, limit, action_space, lambda seen: seen if obs is None else _entry(seen, obs))


def _entry(seen: object, key: str) -> Any:
    return pick(seen, key, "no observation {key!r}; this environment's are: {known}")


def _check_bare(env: object) -> None:
    for method in ("reset", "step", "action_size"):
        if not hasattr(env, method):
            raise TypeError(f"{env!r} is no environment of Brax or Playground: it has no {method}; see brax.envs.base.Env")
    layer = env
    while layer is not None:
        kind = type(layer).__name__
        if kind.endswith(REFUSED):
            raise ValueError(
                f"{kind} batches, limits or resets episodes, which training does itself; pass the bare environment, as from "
                "brax.envs.get_environment(…), mujoco_playground.registry.load(…) or env.unwrapped, and horizon=… steps"
            )
        layer = vars(layer).get("env")


def _horizon(env: Any) -> int:
    return int(getattr(getattr(env.unwrapped, "_config", None), "episode_length", HORIZON))
