"""Where the observed budget z goes: appended to vectors, one more key of a Dict, beside anything else."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeGuard

import numpy as np
from gymnasium import spaces

__all__ = ["KEY", "augmented_space", "augmenter", "batch_augmenter"]

KEY = "remaining_budget"

Augment = Callable[[Any, Any], Any]


def augmented_space(space: spaces.Space[Any], constraints: int) -> spaces.Space[Any]:
    """The observation space with z in it.

    z is unclipped: below zero by as much as was overspent, above one when an episode has more than the reference budget.
    """
    if _is_vector(space):
        dtype = _dtype(space)
        unbounded = np.full(constraints, np.inf, dtype)
        low, high = np.append(space.low.astype(dtype), -unbounded), np.append(space.high.astype(dtype), unbounded)
        return spaces.Box(low, high, dtype=dtype.type)
    z_space = spaces.Box(-np.inf, np.inf, (constraints,), np.float32)
    if not isinstance(space, spaces.Dict):
        return spaces.Dict({"observation": space, KEY: z_space})
    if KEY in space.spaces:
        raise ValueError(f"the observation space already has a key {KEY!r}; rename it before sautéing the environment")
    return spaces.Dict({**space.spaces, KEY: z_space})


def augmenter(space: spaces.Space[Any], shape: tuple[int, ...]) -> Augment:
    """The function (obs, z) → augmented obs; z is a number for shape (), else one number per constraint."""
    if not _is_vector(space):
        return _insert if isinstance(space, spaces.Dict) else _pair
    size = space.shape[0]
    scratch = np.empty(size + math.prod(shape), _dtype(space))
    return functools.partial(_append, scratch, size, size if shape == () else slice(size, None))


def batch_augmenter(space: spaces.Space[Any]) -> Augment:
    """The function (batch of obs, batch of z) → batch of augmented obs; z has a row per environment."""
    if _is_vector(space):
        return functools.partial(_concatenate, _dtype(space))
    return _insert if isinstance(space, spaces.Dict) else _pair


def _is_vector(space: Any) -> TypeGuard[spaces.Box]:
    return isinstance(space, spaces.Box) and len(space.shape) == 1


def _dtype(space: Any) -> np.dtype[Any]:
    return space.dtype if np.issubdtype(space.dtype, np.floating) else np.result_type(space.dtype, np.float32)


def _append(scratch: np.ndarray, size: int, place: int | slice, obs: Any, z: Any) -> np.ndarray:
    scratch[:size] = obs
    scratch[place] = z
    return scratch.copy()  # writing into warm memory and copying it takes half the time of filling a new array


def _concatenate(dtype: np.dtype[Any], obs: Any, z: Any) -> np.ndarray:
    return np.concatenate([obs, z], axis=-1, dtype=dtype)


def _insert(obs: dict[str, Any], z: Any) -> dict[str, Any]:
    return {**obs, KEY: _column(z)}


def _pair(obs: Any, z: Any) -> dict[str, Any]:
    return {"observation": obs, KEY: _column(z)}


def _column(z: Any) -> np.ndarray:
    return np.array(z, np.float32, ndmin=1)
