"""The words that tasks are written in: each takes JAX's numbers, in compiled code, and Python's floats, on the host.

One environment alone is stepped fastest with plain floats: nothing is compiled, and no array is made for a single number. A
vector is an array in JAX and a tuple on the host; randomness comes from a key in JAX and from a generator on the host.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

__all__ = [
    "Scalar",
    "Source",
    "Truth",
    "Vector",
    "accepted",
    "arctan2",
    "clip",
    "entry",
    "hypot",
    "joined",
    "maximum",
    "minimum",
    "never",
    "normal",
    "repeated",
    "sign",
    "split",
    "sqrt",
    "uniform",
    "vector",
    "where",
    "whole",
    "zero_like",
]

Scalar = Float[Array, ""]
Vector = Float[Array, " _"]
Truth = Bool[Array, ""]
Source = PRNGKeyArray
if not TYPE_CHECKING:  # the types of the host; mypy follows those of JAX, which the formulas are written for
    Scalar, Vector, Truth, Source = Scalar | float, Vector | tuple[float, ...], Truth | bool, Source | np.random.Generator


def clip(x: Any, low: float, high: float) -> Any:
    """min(max(x, low), high), for numbers and for vectors."""
    if isinstance(x, float):
        return low if x < low else high if x > high else x
    return tuple([clip(part, low, high) for part in x]) if isinstance(x, tuple) else jnp.clip(x, low, high)


def maximum(a: float, b: Scalar) -> Scalar:
    """The greater of a constant and a number."""
    return max(a, b) if isinstance(b, float) else jnp.maximum(a, b)


def minimum(a: Any, b: Any) -> Any:
    """The lesser of two numbers, or of the entries of two arrays."""
    return min(a, b) if isinstance(a, float) else jnp.minimum(a, b)


def where(condition: Truth, a: Any, b: Any) -> Any:
    """a where the condition holds, else b; both are computed."""
    return (a if condition else b) if isinstance(condition, bool) else jnp.where(condition, a, b)


def sign(x: Scalar) -> Scalar:
    """−1, 0 or 1."""
    return (math.copysign(1.0, x) if x else 0.0) if isinstance(x, float) else jnp.sign(x)


def whole(x: Scalar) -> Scalar:
    """The nearest whole number, the even one of two."""
    return float(round(x)) if isinstance(x, float) else jnp.round(x)


def sqrt(x: Scalar) -> Scalar:
    return math.sqrt(x) if isinstance(x, float) else jnp.sqrt(x)


def hypot(x: Scalar, y: Scalar) -> Scalar:
    """√(x² + y²)."""
    return math.hypot(x, y) if isinstance(x, float) else jnp.hypot(x, y)


def arctan2(y: Scalar, x: Scalar) -> Scalar:
    """The angle of the point (x, y)."""
    return math.atan2(y, x) if isinstance(x, float) else jnp.arctan2(y, x)


def zero_like(x: Scalar) -> Scalar:
    """0 in the precision of x."""
    return 0.0 if isinstance(x, float) else jnp.zeros_like(x)


def never(x: Vector) -> Truth:
    """False, for a task that ends by time alone."""
    return False if isinstance(x, tuple) else jnp.zeros((), bool)


def vector(first: Any, *rest: Any) -> Any:
    """A vector of numbers, or a matrix of rows; what the first one is decides, so it must be no constant."""
    return (first, *rest) if isinstance(first, float | tuple) else jnp.stack([first, *rest])


def joined(first: Vector, *rest: Vector) -> Vector:
    """One vector after another."""
    return sum(rest, first) if isinstance(first, tuple) else jnp.concatenate([first, *rest])


def entry(table: np.ndarray, index: Scalar) -> Any:
    """The row of a constant table whose number is the whole part of the index."""
    if isinstance(index, float):
        return table[int(index)].tolist()
    return jnp.asarray(table, index.dtype)[index.astype(int)]


def repeated(times: int, change: Callable[[Any], Any], x: Any) -> Any:
    """change(change(… x)); x is a vector, or a tuple of tuples of numbers."""
    if not _is_plain(x):
        return jax.lax.fori_loop(0, times, lambda _, x: change(x), x)
    for _ in range(times):
        x = change(x)
    return x


def split(source: Source) -> tuple[Source, Source]:
    """Two sources of randomness: of a key two new ones, of a generator the same twice."""
    if isinstance(source, np.random.Generator):
        return source, source
    first, second = jax.random.split(source)
    return first, second


def uniform(source: Source, size: int, low: float = 0.0, high: float = 1.0) -> Any:
    """Independent numbers from U(low, high)."""
    if isinstance(source, np.random.Generator):
        return tuple(source.uniform(low, high, size).tolist())
    return jax.random.uniform(source, (size,), minval=low, maxval=high)


def normal(source: Source, size: int, scale: float) -> Any:
    """Independent numbers from N(0, scale²)."""
    if isinstance(source, np.random.Generator):
        return tuple(source.normal(0.0, scale, size).tolist())
    return scale * jax.random.normal(source, (size,))


def accepted(source: Source, propose: Callable[[Source], Vector], admissible: Callable[[Vector], Truth]) -> Vector:
    """The first of the proposals that is admissible."""
    if isinstance(source, np.random.Generator):
        while not admissible(proposal := propose(source)):
            pass
        return proposal

    def again(draw: tuple[Array, Array]) -> tuple[Array, Any]:
        return draw[0] + 1, propose(jax.random.fold_in(source, draw[0]))

    first = jax.tree.map(lambda leaf: jnp.full(leaf.shape, jnp.nan, leaf.dtype), jax.eval_shape(propose, source))
    return jax.lax.while_loop(lambda draw: ~admissible(draw[1]), again, (jnp.zeros((), jnp.uint32), first))[1]


def _is_plain(x: Any) -> bool:
    """Whether the first number in nested tuples is a float."""
    while isinstance(x, tuple):
        x = x[0]
    return isinstance(x, float)
