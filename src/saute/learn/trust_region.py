"""Natural gradients without forming a matrix: Fisher-vector products, conjugate gradients, a line search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

__all__ = ["conjugate_gradient", "fisher_product", "line_search", "shortened"]

Vector = Float[Array, " parameters"]


def fisher_product(divergence: Callable[[Vector], Float[Array, ""]], at: Vector, damping: float) -> Callable[[Vector], Vector]:
    """v ↦ (∇²KL + δI) v, at the parameters where the divergence is 0; δ is the damping."""
    # Linearised once, because every product is at the same parameters.
    _, curvature = jax.linearize(jax.grad(divergence), at)
    return lambda v: curvature(v) + damping * v


def conjugate_gradient(product: Callable[[Vector], Vector], b: Vector, iterations: int) -> Vector:
    """Solve A x = b for a positive definite A (Hestenes & Stiefel 1952)."""

    def iterate(_: Int[Array, ""], carry: tuple[Array, ...]) -> tuple[Array, ...]:
        x, r, p, rr = carry
        Ap = product(p)
        α = rr / jnp.maximum(p @ Ap, 1e-30)
        x, r = x + α * p, r - α * Ap
        r_next = r @ r
        return x, r, r + r_next / jnp.maximum(rr, 1e-30) * p, r_next

    return jax.lax.fori_loop(0, iterations, iterate, (jnp.zeros_like(b), b, b, b @ b))[0]


def shortened(step: Vector, divergence: Float[Array, ""], limit: Array | float) -> Vector:
    """The step, shortened to √(limit/divergence) of its length if its divergence is above the limit.

    The divergence grows with the square of the step. A minibatch shows too few directions of the curvature, so the divergence
    on all data can be many times the predicted one.
    """
    return step * jnp.sqrt(jnp.minimum(1.0, limit / jnp.maximum(divergence, 1e-12)))


def line_search(
    acceptable: Callable[[Vector], tuple[Any, Any]], at: Vector, step: Vector, shrink: float, tries: int
) -> tuple[Vector, dict[str, Float[Array, ""]]]:
    """The first of at + βʲ step, j = 0, 1, …, that is acceptable, else no step; with its divergence and the fraction βʲ.

    `acceptable` returns whether the parameters are acceptable, and their divergence.
    """

    def cond(carry: tuple[Any, ...]) -> Any:
        j, found, *_ = carry
        return (j < tries) & ~found

    def body(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        j, *_ = carry
        fraction = shrink ** j.astype(step.dtype)
        return j + 1, *acceptable(at + fraction * step), fraction

    zero = jnp.zeros((), step.dtype)
    _, found, divergence, fraction = jax.lax.while_loop(cond, body, (jnp.zeros((), jnp.int32), jnp.zeros((), bool), zero, zero))
    fraction, divergence = jnp.where(found, fraction, 0.0), jnp.where(found, divergence, 0.0)
    return at + fraction * step, {"divergence": divergence, "step_fraction": fraction}
