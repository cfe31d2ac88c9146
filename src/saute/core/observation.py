"""Put the observed budget z into the observation: at the end of a vector, as a new key of a Dict, beside anything else."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

__all__ = ["KEY", "augmented_space", "augmenter", "batch_augmenter", "kept"]

KEY = "remaining_budget"

Augment = Callable[[Any, Any], Any]


def augmented_space(space: spaces.Space[Any], constraints: int) -> spaces.Space[Any]:
    """The observation space, extended by z.

    z is not clipped: it is below 0 after overspending, and above 1 if an episode has more than the reference budget.
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
    return _Appender(space.shape[0], shape, _dtype(space)).append


def batch_augmenter(space: spaces.Space[Any]) -> Augment:
    """The function (batch of obs, batch of z) → batch of augmented obs; z has a row per environment."""
    if _is_vector(space):
        return functools.partial(_concatenate, _dtype(space))
    return _insert if isinstance(space, spaces.Dict) else _pair


def kept(obs: Any) -> Any:
    """A copy that stays as it is, even if the environment writes into its arrays again."""
    if type(obs) is np.ndarray and not obs.dtype.hasobject:  # the usual case, ten times as fast as `deepcopy`
        return obs.copy()
    return copy.deepcopy(obs)


def _is_vector(space: spaces.Space[Any]) -> TypeGuard[spaces.Box]:
    return isinstance(space, spaces.Box) and len(space.shape) == 1


def _dtype(space: spaces.Box) -> np.dtype[Any]:
    return space.dtype if np.issubdtype(space.dtype, np.floating) else np.result_type(space.dtype, np.float32)


class _Appender:
    """Appends z to vectors; to write into memory that is kept, and copy it, takes half the time of filling a new array."""

    def __init__(self, size: int, shape: tuple[int, ...], dtype: np.dtype[Any]):
        self._arguments = size, shape, dtype
        self._both = np.empty(size + math.prod(shape), dtype)
        self._obs = self._both[:size]
        self._place = slice(size, None) if shape else size

    def append(self, obs: npt.ArrayLike, z: npt.ArrayLike) -> np.ndarray:
        self._obs[...] = obs
        self._both[self._place] = z
        return self._both.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        return _Appender, self._arguments


def _concatenate(dtype: np.dtype[Any], obs: np.ndarray, z: np.ndarray) -> np.ndarray:
    return np.concatenate([obs, z], axis=-1, dtype=dtype)


def _insert(obs: Mapping[str, Any], z: npt.ArrayLike) -> dict[str, Any]:
    return {**obs, KEY: _column(z)}


def _pair(obs: object, z: npt.ArrayLike) -> dict[str, Any]:
    return {"observation": obs, KEY: _column(z)}


def _column(z: npt.ArrayLike) -> np.ndarray:
    return np.array(z, np.float32, ndmin=1)
