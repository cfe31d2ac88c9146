"""Constraints on average: a statistic of the costs of whole episodes × a controller of the multiplier λ, with its own limit.

Several constraints have one limit, one statistic and one multiplier each; those of one are numbers, those of m arrays (m,).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, PyTree

from saute.core.protocol import Episodes

__all__ = [
    "FREE",
    "Constraint",
    "Free",
    "Lagrangian",
    "Limit",
    "Pid",
    "check_limits",
    "cvar",
    "lagrangian",
    "mean",
    "none",
    "penalise",
    "pid",
]

Limit = float | Sequence[float]
"""One number, or one per constraint, which is kept as a tuple."""
Costs = Float[Array, "..."]
"""Of episodes: (*batch,), or (*batch, m) for m constraints."""
Counted = Bool[Array, "*batch"]
Each = Float[Array, "..."]
"""A number, or (m,) with one for each constraint."""
Kept = TypeVar("Kept")


@runtime_checkable
class Constraint(Protocol):
    """Plain numbers with a pair of pure functions: `init() → state`, `update(state, costs, counted) → (state, λ)`."""

    @property
    def limit(self) -> Limit | None:
        """What the statistic is held against, in the units of an episode's cost; None if nothing is constrained."""

    def init(self) -> PyTree: ...
    def update(self, state: PyTree, costs: Costs, counted: Counted) -> tuple[PyTree, Each]: ...
    def weights(self, episodes: Episodes) -> Float[Array, "time env ..."] | None:
        """How much the cost advantage of each step counts; None counts all alike."""


def penalise(reward: Array, cost: Array, multiplier: Array) -> Array:
    """(r − Σ λᵢ lᵢ)/(1 + Σ λᵢ), for advantages and for Q-values alike."""
    if multiplier.ndim:
        return (reward - cost @ multiplier) / (1.0 + multiplier.sum())
    return (reward - multiplier * cost) / (1.0 + multiplier)


def mean(costs: Costs, counted: Counted) -> Each:
    """Average over the counted episodes; without any it is 0, which nobody may take for a measurement."""
    if costs.ndim > counted.ndim:
        return jax.vmap(lambda one: mean(one, counted), in_axes=-1)(costs)
    return jnp.sum(jnp.where(counted, costs, 0.0)) / jnp.maximum(1, counted.sum())


def cvar(costs: Costs, counted: Counted, worst: float) -> Each:
    """Mean cost of the worst ⌈αn⌉ ≥ 1 of n episodes (Tamar et al. 2015); at α = 1 that of all."""
    if costs.ndim > counted.ndim:
        return jax.vmap(lambda one: cvar(one, counted, worst), in_axes=-1)(costs)
    if worst == 1.0:
        return mean(costs, counted)
    descending = -jnp.sort(jnp.where(counted, -costs, jnp.inf).ravel())
    tail = _tail_size(worst, counted)
    chosen = (jnp.arange(descending.size) < tail) & jnp.isfinite(descending)
    return jnp.sum(jnp.where(chosen, descending, 0.0)) / tail


def tail_weights(episodes: Episodes, worst: float) -> Float[Array, "time env ..."]:
    """1/α on the steps of the worst ⌈αn⌉ ≥ 1 of n counted episodes, else 0: the gradient of CVaR (Tamar et al. 2015)."""
    costs, counted = episodes.cost, episodes.counted
    if costs.ndim > counted.ndim:
        return jax.vmap(lambda one: tail_weights(episodes._replace(cost=one), worst), in_axes=-1, out_axes=-1)(costs)
    whole = jnp.where(counted, costs, -jnp.inf)
    threshold = -jnp.sort(-whole.ravel())[_tail_size(worst, counted) - 1]
    chosen = counted & (whole >= threshold)

    def back(later: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        end, worst_end = step
        now = jnp.where(end, worst_end, later)
        return now, now

    _, inside = jax.lax.scan(back, jnp.zeros(costs.shape[1], bool), (episodes.ended, chosen), reverse=True)
    return inside * (counted.sum() / jnp.maximum(1, chosen.sum()))


def _tail_size(worst: float, counted: Counted) -> Array:
    # The small slack keeps ⌈0.01·100⌉ at 1 in float32.
    return jnp.maximum(1, jnp.ceil(worst * counted.sum() - 1e-4)).astype(int)


@dataclasses.dataclass(frozen=True)
class Free:
    """λ = 0: no constraint or, with a limit, one that the learner keeps by itself, for which it learns the costs."""

    limit: Limit | None = None

    def __post_init__(self) -> None:
        _keep_limits(self)

    def init(self) -> tuple[()]:
        return ()

    def update(self, state: tuple[()], costs: Costs, counted: Counted) -> tuple[tuple[()], Each]:
        return state, jnp.zeros(() if self.limit is None else np.shape(self.limit))

    def weights(self, episodes: Episodes) -> None:
        return None


@dataclasses.dataclass(frozen=True)
class Lagrangian:
    """Dual ascent, λ = softplus(p) with Adam on −p (J − d), or through softplus on −λ (J − d) (Ray et al. 2019).

    Adam moves p by the rate whatever the violation. On −p it runs away while the constraint is slack, by 1000 in 20,000
    updates, and has to come all the way back; on −λ the gradient vanishes with λ, and p is at −17 then. Use that if updates
    are many.
    """

    limit: Limit
    worst: float = 1.0
    """Share of the episodes, those that cost most, whose mean cost J is; 1 is the mean of all, 0.01 the CVaR of 1 %."""
    tail: bool = False
    """Whether the cost advantage counts in that share only."""
    rate: float = 5e-2
    initial: float = 1.0
    through_softplus: bool = False

    def __post_init__(self) -> None:
        _keep_limits(self)
        _check_share(self.worst)

    def init(self) -> PyTree:
        # Of the type that it has after an update too, or whatever takes it would be compiled twice.
        p = jnp.full(np.shape(self.limit), jnp.log(jnp.expm1(jnp.asarray(self.initial, float))))
        return p, optax.adam(self.rate).init(p)

    def update(self, state: PyTree, costs: Costs, counted: Counted) -> tuple[PyTree, Each]:
        p, moments = state
        slope = jax.nn.sigmoid(p) if self.through_softplus else 1.0
        step, moments = optax.adam(self.rate).update(slope * (_each(self.limit) - cvar(costs, counted, self.worst)), moments)
        state = _held(counted, (optax.apply_updates(p, step), moments), state)
        return state, jax.nn.softplus(state[0])

    def weights(self, episodes: Episodes) -> Float[Array, "time env ..."] | None:
        return tail_weights(episodes, self.worst) if self.tail else None


class PidState(NamedTuple):
    """Smoothed error, integral, and the last value of the statistic."""

    error: Each
    integral: Each
    last: Each


@dataclasses.dataclass(frozen=True)
class Pid:
    """λ = (K_p EMA(D) + I + K_d (ΔJ)⁺)⁺ with D = J − d and I ← (I + K_i D)⁺ (Stooke et al. 2020)."""

    limit: Limit
    worst: float = 1.0
    """Share of the episodes, those that cost most, whose mean cost J is."""
    proportional: float = 0.1
    integral: float = 0.01
    derivative: float = 0.0
    smoothing: float = 0.95

    def __post_init__(self) -> None:
        _keep_limits(self)
        _check_share(self.worst)

    def init(self) -> PidState:
        shape = np.shape(self.limit)
        return PidState(jnp.zeros(shape), jnp.zeros(shape), jnp.full(shape, jnp.inf))

    def update(self, state: PidState, costs: Costs, counted: Counted) -> tuple[PidState, Each]:
        value, limit = cvar(costs, counted, self.worst), _each(self.limit)
        fresh = PidState(
            error=self.smoothing * state.error + (1 - self.smoothing) * (value - limit),
            integral=jnp.maximum(0.0, state.integral + self.integral * (value - limit)),
            last=value,
        )
        rise = jnp.where(counted.any(), self.derivative * jnp.maximum(0.0, value - state.last), 0.0)
        state = _held(counted, fresh, state)
        return state, jnp.maximum(0.0, self.proportional * state.error + state.integral + rise)

    def weights(self, episodes: Episodes) -> None:
        return None


def check_limits(name: str, limit: Limit | None, cost_shape: tuple[int, ...]) -> None:
    """Refuse limits that are more or fewer than the costs of a step."""
    if limit is None or np.shape(limit) == cost_shape:
        return
    have = f"{len(limit)} limits {list(limit)}" if isinstance(limit, Sequence) else f"one limit {limit:g}"
    costs, fix = ("one cost", "one number") if cost_shape == () else (f"{cost_shape[0]} costs", f"{cost_shape[0]} in a list")
    raise ValueError(f"{name} has {have}, but a step of the environment has {costs}; give one limit per cost, here {fix}")


def _keep_limits(constraint: Free | Lagrangian | Pid) -> None:
    """Several limits as a tuple, so that a constraint stays plain numbers that never change."""
    limit = constraint.limit
    if limit is None or np.ndim(limit) == 0:
        return
    numbers = tuple(float(one) for one in np.asarray(limit, float).reshape(-1))
    if np.ndim(limit) != 1 or not numbers or not all(map(math.isfinite, numbers)):
        raise ValueError(f"limit={limit!r} must be one finite number, or a list with one for each constraint")
    object.__setattr__(constraint, "limit", numbers)


def _each(limit: Limit) -> Array | float:
    """The limits to calculate with."""
    return jnp.asarray(limit, float) if isinstance(limit, Sequence) else limit


def _held(counted: Counted, new: Kept, old: Kept) -> Kept:
    """Without a whole episode nothing is known, and a controller holds still."""
    return jax.tree.map(lambda a, b: jnp.where(counted.any(), a, b), new, old)


def _check_share(worst: float) -> None:
    if not 0.0 < worst <= 1.0:
        raise ValueError(f"worst={worst!r} must be a share of the episodes in (0, 1], for example 0.01")


FREE = Free()
none, lagrangian, pid = Free, Lagrangian, Pid
