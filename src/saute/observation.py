"""Where the observed budget z goes: appended to vectors, one more key of a Dict, beside anything else."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

__all__ = ["KEY", "augmentation"]

KEY = "remaining_budget"

Augment = Callable[[Any, Any], Any]


def augmentation(space: spaces.Space[Any], constraints: int) -> tuple[spaces.Space[Any], Augment]:
    """The observation space with z in it, and the function (obs, z) → augmented obs, for one or a batch of each.

    z has a last axis of one entry per constraint (a plain number will do for one constraint). It is unclipped: below
    zero by as much as was overspent, above one when an episode is given a budget larger than the reference.
    """
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        size = space.shape[0]
        dtype = space.dtype if np.issubdtype(space.dtype, np.floating) else np.result_type(space.dtype, np.float32)
        unbounded = np.full(constraints, np.inf, dtype)
        low, high = np.append(space.low.astype(dtype), -unbounded), np.append(space.high.astype(dtype), unbounded)
        return spaces.Box(low, high, dtype=dtype.type), functools.partial(_append, size, size + constraints, dtype)
    z_space = spaces.Box(-np.inf, np.inf, (constraints,), np.float32)
    if not isinstance(space, spaces.Dict):
        return spaces.Dict({"observation": space, KEY: z_space}), _pair
    if KEY in space.spaces:
        raise ValueError(f"the observation space already has a key {KEY!r}; rename it before sautéing the environment")
    return spaces.Dict({**space.spaces, KEY: z_space}), _insert


def _append(size: int, total: int, dtype: np.dtype[Any], obs: Any, z: Any) -> np.ndarray:
    if getattr(obs, "ndim", 1) > 1:
        return np.concatenate([obs, z], axis=-1, dtype=dtype)
    augmented = np.empty(total, dtype)
    augmented[:size] = obs
    augmented[size:] = z
    return augmented


def _insert(obs: dict[str, Any], z: Any) -> dict[str, Any]:
    return {**obs, KEY: _column(z)}


def _pair(obs: Any, z: Any) -> dict[str, Any]:
    return {"observation": obs, KEY: _column(z)}


def _column(z: Any) -> np.ndarray:
    return np.array(z, np.float32, ndmin=1)
