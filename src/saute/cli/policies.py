"""Policies to watch: random, zero, a trained one, or a function of the user."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import traceback
from collections.abc import Callable

import gymnasium as gym
import numpy as np

from saute.core.errors import UserError
from saute.core.modules import module_named
from saute.core.single import SauteWrapper
from saute.envs.flatten import flat
from saute.runs.pretrained import is_named

__all__ = ["Act", "policy_of"]

Act = Callable[[object], object]
"""A policy: observation → action."""


@dataclasses.dataclass
class Shown:
    """A trained policy, and whether its shield replaced its last action."""

    act: Act
    stepped_in: bool = False

    def __call__(self, obs: object) -> object:
        return self.act(obs)


def policy_of(name: str, shielded: bool = False) -> Callable[[gym.Env], Act]:
    """A function that makes the policy of this name for an environment, under the shield of its run if that is asked for."""
    run, _, seed = name.partition("@")
    trained = is_named(run) or pathlib.Path(run).exists()
    if shielded and not trained:
        raise UserError(f"--shield is for policies of run folders, and {name!r} is none; make a shield with saute shield RUN")
    if name == "random":
        return lambda env: lambda obs: env.action_space.sample()
    if name == "zero":
        return lambda env: _resting(env.action_space)
    if trained:
        return _trained(run, seed, shielded)
    function = _imported(name)
    return lambda env: lambda obs: _admissible(name, function, obs, env.action_space)


def _imported(name: str) -> Act:
    module, colon, path = name.partition(":")
    if not colon:
        raise UserError(
            f"unknown policy {name!r}; use random, zero, or module:function, for example policies:act, or a run folder"
        )
    try:
        function: object = module_named(module)
        for attribute in path.split("."):
            function = getattr(function, attribute)
    except Exception as error:
        raise UserError(f"policy {name!r} cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(function):
        raise UserError(f"policy {name!r} is a {type(function).__name__}, not a function from observation to action")
    return function


def _trained(run: str, seed: str, shielded: bool) -> Callable[[gym.Env], Act]:
    """The deterministic policy of a run folder; it sees the remaining budget if it was trained with it."""
    from saute.runs.policy import load_policy
    from saute.runs.shield import load_shield

    if seed and not seed.isdigit():
        raise UserError(f"seed {seed!r} of policy {run}@{seed} is not a whole number ≥ 0")
    try:
        policy, shield = load_policy(run, int(seed or 0)), load_shield(run) if shielded else None
    except ValueError as problem:
        raise UserError(str(problem)) from problem

    def load(env: gym.Env) -> Act:
        if policy.reference is not None and not isinstance(env, SauteWrapper):
            raise UserError(f"the policy of {run} needs a budget; pass --budget")

        if shield is not None:
            if not isinstance(env, SauteWrapper):
                raise UserError(f"the shield of {run} needs a budget; pass --budget")
            shield.refuse_other(policy, env.options.discount)

        seen = flat(env.observation_space)

        def act(obs: object) -> object:
            vector = seen.one(obs)
            if not isinstance(env, SauteWrapper):
                return policy(vector)
            bare = vector[: -env.options.constraints]
            action = policy(bare, None if policy.reference is None else env.remaining)
            if shield is not None:
                action, stepped_in = shield(bare, action, env.remaining)
                shown.stepped_in = bool(stepped_in)
            return action

        shown = Shown(lambda obs: _admissible(run, act, obs, env.action_space))
        return shown

    return load


def _resting(space: gym.Space) -> Act:
    """A policy that always takes the allowed action nearest to zero."""
    if isinstance(space, gym.spaces.Box):
        action: object = np.clip(np.zeros(space.shape, space.dtype), space.low, space.high)
    elif isinstance(space, gym.spaces.Discrete):
        action = space.start
    elif isinstance(space, gym.spaces.MultiDiscrete | gym.spaces.MultiBinary):
        action = np.zeros(space.shape, space.dtype)
    else:
        raise UserError(f"there is no zero action in {space}; use --policy random or module:function")
    return lambda obs: action


def _admissible(name: str, function: Act, obs: object, space: gym.Space) -> object:
    """The function's action, clipped to the bounds of a Box; an action of the wrong shape, or NaN, is refused."""
    try:
        action = function(obs)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{os.path.relpath(where.filename)}:{where.lineno}"
        raise UserError(f"policy {name!r} failed at {place}: {type(error).__name__}: {error}") from error
    checked = action[()] if isinstance(action, np.ndarray) and action.ndim == 0 else action
    if isinstance(space, gym.spaces.Box):
        # `reshape`, because NumPy's broadcasting would repeat one number for the whole action.
        with contextlib.suppress(TypeError, ValueError):
            checked = np.clip(np.asarray(action, space.dtype).reshape(space.shape), space.low, space.high)
    if (isinstance(space, gym.spaces.Box) and not isinstance(checked, np.ndarray)) or not space.contains(checked):
        raise UserError(f"policy {name!r} returned {action!r}, which is not an action; the action space is {space}")
    return checked
