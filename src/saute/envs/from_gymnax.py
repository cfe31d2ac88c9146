"""Environments of gymnax for our learners, in one compiled program with them."""

from __future__ import annotations

from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, PyTree

from saute.core.cost import CostSource
from saute.envs.foreign import ForeignEnv, Moved, adapted

__all__ = ["from_gymnax"]

LIMIT = "max_steps_in_episode"
NEVER = 2**31 - 1


def from_gymnax(env: Any, params: Any = None, *, cost: CostSource = "cost", horizon: int | None = None) -> ForeignEnv:
    """An environment of gymnax as an `Env`, for `saute.saute` and `saute.train`: `from_gymnax(*gymnax.make(name), cost=…)`.

    `cost` is a key of the info (dotted for nested ones), several of them for several constraints, or a JAX function of (obs,
    action, next_obs, info). An episode is truncated after `horizon` steps, by default those of the parameters, and terminated
    by whatever else ends it, never by time. Observations and actions that are no vectors, like pictures, are flattened.
    """
    _check_bare(env)
    params = env.default_params if params is None else params
    limited = hasattr(params, LIMIT)
    if horizon is None and not limited:
        raise ValueError(f"the parameters {params!r} have no {LIMIT}; pass horizon=, the steps after which an episode ends")
    horizon = int(getattr(params, LIMIT)) if horizon is None else horizon
    # The environment's own limit is ours where it is observed, and never comes where it would end an episode.
    timed, timeless = (params.replace(**{LIMIT: steps}) if limited else params for steps in (horizon, NEVER))
    space = env.action_space(params)

    def begin(key: Array) -> tuple[PyTree, PyTree]:
        obs, state = env.reset_env(key, timed)
        return state, obs

    def advance(state: PyTree, action: Array, key: Array) -> Moved:
        action = jnp.reshape(action, space.shape)
        obs, after, reward, _, info = env.step_env(key, state, action, timed)
        # The same step once more, for what ends it: compiled, what both have in common is computed once.
        terminated = env.step_env(key, state, action, timeless)[3]
        return Moved(after, obs, reward, terminated, info)

    return adapted(str(getattr(env, "name", type(env).__name__)), begin, advance, cost, horizon, _actions(space))


def _check_bare(env: object) -> None:
    for method in ("reset_env", "step_env", "action_space"):
        if not hasattr(env, method):
            raise TypeError(f"{env!r} is no environment of gymnax: it has no {method}; pass *gymnax.make(…)")
    if "_env" in vars(env):
        raise ValueError(
            f"{type(env).__name__} wraps the steps that reset themselves, which training does not use; pass the environment "
            "inside. Observations are flattened and episodes are counted here"
        )


def _actions(space: Any) -> spaces.Space[Any]:
    """The action space for Gymnasium: Discrete as it is, Box as a vector."""
    if hasattr(space, "n"):
        return spaces.Discrete(int(space.n))
    if not hasattr(space, "low") or not np.issubdtype(space.dtype, np.floating):
        raise ValueError(f"actions {space!r} are neither a Box of floats nor Discrete; learners know only these")
    low, high = (np.broadcast_to(np.asarray(bound, np.float32), space.shape).ravel() for bound in (space.low, space.high))
    return spaces.Box(low, high, (prod(space.shape),), np.float32)
