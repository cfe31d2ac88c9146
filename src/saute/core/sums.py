"""Sums of many small terms that do not drift, for NumPy and JAX arrays alike."""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxtyping import Float

__all__ = ["Sum", "add"]


class Sum(NamedTuple):
    """A running total, and by how much rounding has made it too large."""

    total: Float[Any, "*shape"]
    lost: Float[Any, "*shape"]


def add(running: Sum, term: Float[Any, "*shape"]) -> Sum:
    """total + term with the rounding error carried along: t = s + (x − c), c' = (t − s) − (x − c) (Kahan 1965)."""
    due = term - running.lost
    total = running.total + due
    return Sum(total, (total - running.total) - due)
