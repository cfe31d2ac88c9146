"""Advantages and targets of the value functions, for episodes that terminate or only run out of time."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

__all__ = ["advantages"]


def advantages(
    reward: Float[Array, "time env"],
    value: Float[Array, "time env"],
    next_value: Float[Array, "time env"],
    terminated: Bool[Array, "time env"],
    ended: Bool[Array, "time env"],
    discount: float,
    trace: float,
) -> tuple[Float[Array, "time env"], Float[Array, "time env"]]:
    """Generalised advantages and bootstrapped returns (Schulman et al. 2016).

    δ_t = r_t + γ V(s'_t) [not terminated] − V(s_t),    A_t = δ_t + γλ A_{t+1} [not ended],    G_t = V(s_t) + A_t at λ = 1.

    s'_t is the next observation of the same episode. So a time-out, or the end of the data, bootstraps with the remaining
    budget that the episode really had; a terminal state has no future.
    """
    δ = reward + discount * jnp.where(terminated, 0.0, next_value) - value

    def accumulate(decay: float) -> Float[Array, "time env"]:
        def back(later: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
            δ, ended = now
            total = δ + jnp.where(ended, 0.0, decay * later)
            return total, total

        return jax.lax.scan(back, jnp.zeros_like(δ[0]), (δ, ended), reverse=True)[1]

    return accumulate(discount * trace), value + accumulate(discount)
