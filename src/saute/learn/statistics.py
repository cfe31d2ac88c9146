"""Running statistics of what training meets, and the scales that learners take from them, of observations and of rewards."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from saute.core.sums import Sum, add
from saute.learn.nets import Normaliser

__all__ = ["Statistics", "check_discount", "inputs_of", "nothing", "return_scale", "updated"]

RESOLUTION = 1e-6
"""A deviation below this multiple of 1 + |mean| is only rounding, and is not scaled up to 1."""


class Statistics(NamedTuple):
    """Number, mean and variance of all rows; with what rounding lost, or in a long training they would stop to move."""

    number: Float[Array, ""]
    mean: Sum
    variance: Sum


def nothing(*shape: int) -> Statistics:
    """No row so far, of this shape."""
    zero = jnp.zeros(shape)
    return Statistics(jnp.zeros(()), Sum(zero, zero), Sum(zero, zero))


def updated(known: Statistics, rows: Float[Array, "*batch_and_shape"]) -> Statistics:
    """The statistics with n more rows, of any leading axes (Chan, Golub & LeVeque 1979).

    N' = N + n,    m' = m + δ n/N',    v' = v + (vₙ − v + δ² N/N') n/N',    δ = mₙ − m.

    Rows are taken relative to the mean so far, or to the first of them: a large offset costs no digits.
    """
    shape = known.mean.total.shape
    flat = rows.reshape(math.prod(rows.shape[: rows.ndim - len(shape)]), *shape)
    centre = Sum(jnp.where(known.number == 0, flat[0], known.mean.total), known.mean.lost)
    apart = (flat - centre.total) + centre.lost
    δ, number = apart.mean(0), known.number + len(flat)
    share, spread = len(flat) / number, jnp.mean((apart - δ) ** 2, axis=0)
    moved = share * (spread - known.variance.total + δ**2 * (1.0 - share))
    return Statistics(number, add(centre, share * δ), add(known.variance, moved))


def inputs_of(known: Statistics, pixels: int = 0, budgets: int = 0) -> Normaliser:
    """Mean 0 and deviation 1 for each input that varies; the first `pixels` and the last `budgets` inputs stay as they are.

    Nothing is clipped, so that the first layer of an exported policy can absorb it: an input that is 1 in a share p of all
    steps, and else 0, is seen as 1/√p.
    """
    mean, deviation = known.mean.total, jnp.sqrt(jnp.maximum(known.variance.total, 0.0))
    varies = deviation > RESOLUTION * (1.0 + jnp.abs(mean))
    scale = jnp.where(varies, 1.0 / jnp.where(varies, deviation, 1.0), 1.0)
    return Normaliser(jnp.pad(mean, (pixels, budgets)), jnp.pad(scale, (pixels, budgets), constant_values=1.0))


def return_scale(rewards: Statistics, discount: float) -> Float[Array, ""]:
    """σ = √(r̄²/(1 − γ)² + s²/(1 − γ²)), the size of a discounted return, for rewards of mean r̄ and deviation s.

    That is exactly the root mean square of Σ γᵏ r_k if the rewards are independent, and needs no running return of each
    environment (as in Engstrom et al. 2020), which a replay with other budgets would not have. 1, as long as all were 0.
    """
    mean, variance = rewards.mean.total, jnp.maximum(rewards.variance.total, 0.0)
    σ = jnp.sqrt((mean / (1.0 - discount)) ** 2 + variance / (1.0 - discount**2))
    return jnp.where(σ > 0.0, σ, 1.0)


def check_discount(scale_rewards: bool, discount: float) -> None:
    """Refuse to scale by returns that have no bound."""
    if scale_rewards and not discount < 1.0:
        raise ValueError(
            f"scale_rewards=True divides by the size of discounted returns, which has no bound for discount={discount:g}; use "
            "a discount below 1, or scale_rewards=False"
        )
