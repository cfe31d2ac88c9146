"""Masks over the first axes of arrays, in NumPy and JAX alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    import jax

__all__ = ["along"]

Mask = TypeVar("Mask", np.ndarray, "jax.Array")


def along(mask: Mask, like: np.ndarray | jax.Array) -> Mask:
    """A mask of the first axes of `like` with as many axes as that, (n, 1, …, 1), so that it chooses whole rows of it."""
    return mask.reshape(*mask.shape, *(1,) * (like.ndim - mask.ndim))
