"""Constraints on average: a statistic of the episodes' costs × a controller of the multiplier λ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

__all__ = ["Constraint", "Statistic", "cvar", "lagrangian", "mean", "none", "penalise", "pid", "tail_weights"]

Statistic = Callable[[Float[Array, "..."], Bool[Array, "..."]], Float[Array, ""]]
"""(costs, mask of whole episodes) → the number that is held against the limit."""


Weigh = Callable[[Float[Array, "step env"], Bool[Array, "step env"]], Float[Array, "step env"]]
"""(costs so far, whether an episode ends here) → the weight of every step."""


class Constraint(NamedTuple):
    """A pair of pure functions: `init() → state`, `update(state, costs, ended) → (state, λ)`."""

    init: Callable[[], Any]
    update: Callable[[Any, Float[Array, ...], Bool[Array, ...]], tuple[Any, Float[Array, ""]]]
    statistic: Statistic
    active: bool = True
    weigh: Weigh | None = None
    """How much the cost advantage of each step counts; None counts all alike."""


def penalise(reward: Any, cost: Any, multiplier: Any) -> Any:
    """(r − λ l)/(1 + λ), for advantages and for Q-values alike."""
    return (reward - multiplier * cost) / (1.0 + multiplier)


def mean(costs: Float[Array, ...], ended: Bool[Array, ...]) -> Float[Array, ""]:
    """Average cost of the whole episodes."""
    return jnp.sum(jnp.where(ended, costs, 0.0)) / jnp.maximum(1, ended.sum())


def cvar(worst: float = 0.01) -> Statistic:
    """Mean cost of the worst ⌈αn⌉ ≥ 1 of n episodes (Tamar et al. 2015)."""
    if not 0.0 < worst <= 1.0:
        raise ValueError(f"cvar's worst={worst!r} must be a share in (0, 1], for example 0.01")

    def statistic(costs: Float[Array, ...], ended: Bool[Array, ...]) -> Float[Array, ""]:
        descending = -jnp.sort(jnp.where(ended, -costs, jnp.inf).ravel())
        tail = _tail_size(worst, ended)
        chosen = (jnp.arange(descending.size) < tail) & jnp.isfinite(descending)
        return jnp.sum(jnp.where(chosen, descending, 0.0)) / tail

    return statistic


def tail_weights(worst: float = 0.01) -> Weigh:
    """1/α on the steps of the worst ⌈αn⌉ ≥ 1 of n episodes, else 0: the gradient of CVaR (Tamar et al. 2015)."""
    if not 0.0 < worst <= 1.0:
        raise ValueError(f"tail_weights' worst={worst!r} must be a share in (0, 1], for example 0.01")

    def weigh(costs: Float[Array, "step env"], ended: Bool[Array, "step env"]) -> Float[Array, "step env"]:
        whole = jnp.where(ended, costs, -jnp.inf)
        tail = _tail_size(worst, ended)
        threshold = -jnp.sort(-whole.ravel())[tail - 1]
        chosen = ended & (whole >= threshold)

        def back(later: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
            end, worst_end = step
            now = jnp.where(end, worst_end, later)
            return now, now

        _, inside = jax.lax.scan(back, jnp.zeros(ended.shape[1], bool), (ended, chosen), reverse=True)
        return inside * (ended.sum() / jnp.maximum(1, chosen.sum()))

    return weigh


def _tail_size(worst: float, ended: Bool[Array, ...]) -> Array:
    # The small slack keeps ⌈0.01·100⌉ at 1 in float32.
    return jnp.maximum(1, jnp.ceil(worst * ended.sum() - 1e-4)).astype(int)


def none() -> Constraint:
    """No constraint: λ = 0."""
    return Constraint(lambda: (), lambda state, costs, ended: (state, jnp.zeros(())), mean, active=False)


def lagrangian(
    limit: float,
    statistic: Statistic = mean,
    rate: float = 5e-2,
    initial: float = 1.0,
    weigh: Weigh | None = None,
    through_softplus: bool = False,
) -> Constraint:
    """Dual ascent, λ = softplus(p) with Adam on −p (J − d), or through softplus on −λ (J − d) (Ray et al. 2019).

    Adam moves p by the rate whatever the violation. On −p it runs away while the constraint is slack, by 1000 in 20,000
    updates, and has to come all the way back; on −λ the gradient vanishes with λ, and p is at −17 then. Use that if updates
    are many.
    """
    optimiser = optax.adam(rate)

    def init() -> Any:
        p = jnp.log(jnp.expm1(jnp.asarray(initial)))
        return p, optimiser.init(p)

    def update(state: Any, costs: Any, ended: Any) -> tuple[Any, Any]:
        p, moments = state
        slope = jax.nn.sigmoid(p) if through_softplus else 1.0
        step, moments = optimiser.update(slope * (limit - statistic(costs, ended)), moments)
        fresh = (optax.apply_updates(p, step), moments)
        # Without a whole episode nothing is known, and the multiplier stays.
        state = jax.tree.map(lambda new, old: jnp.where(ended.any(), new, old), fresh, state)
        return state, jax.nn.softplus(state[0])

    return Constraint(init, update, statistic, weigh=weigh)


class PidState(NamedTuple):
    """Smoothed error, integral, and the last value of the statistic."""

    error: Float[Array, ""]
    integral: Float[Array, ""]
    last: Float[Array, ""]


def pid(
    limit: float,
    statistic: Statistic = mean,
    proportional: float = 0.1,
    integral: float = 0.01,
    derivative: float = 0.0,
    smoothing: float = 0.95,
) -> Constraint:
    """λ = (K_p EMA(D) + I + K_d (ΔJ)⁺)⁺ with D = J − d and I ← (I + K_i D)⁺ (Stooke et al. 2020)."""

    def init() -> PidState:
        return PidState(jnp.zeros(()), jnp.zeros(()), jnp.full((), jnp.inf))

    def update(state: PidState, costs: Any, ended: Any) -> tuple[PidState, Any]:
        value = statistic(costs, ended)
        fresh = PidState(
            error=smoothing * state.error + (1 - smoothing) * (value - limit),
            integral=jnp.maximum(0.0, state.integral + integral * (value - limit)),
            last=value,
        )
        rise = jnp.maximum(0.0, value - state.last)
        new = jax.tree.map(lambda a, b: jnp.where(ended.any(), a, b), fresh, state)
        slope = jnp.where(ended.any(), derivative * rise, 0.0)
        return new, jnp.maximum(0.0, proportional * new.error + new.integral + slope)

    return Constraint(init, update, statistic)
