"""Masks over the first axes of arrays, in NumPy and JAX alike, and over the environments of a vector in its infos."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    import jax

__all__ = ["along", "masked"]

Mask = TypeVar("Mask", np.ndarray, "jax.Array")


def along(mask: Mask, like: np.ndarray | jax.Array) -> Mask:
    """The mask with as many axes as `like`, (n, 1, …, 1), so that `where` chooses whole rows of `like`."""
    return mask.reshape(*mask.shape, *(1,) * (like.ndim - mask.ndim))


def masked(info: dict[str, Any], mask: np.ndarray, **values: np.ndarray) -> dict[str, Any]:
    """Add entries to the info of a vector environment, all with the same mask of the environments that they are about."""
    for key, value in values.items():
        info[key], info[f"_{key}"] = value, mask
    return info
