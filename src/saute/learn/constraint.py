"""Constraints on average: a statistic of the costs of whole episodes × a controller of the multiplier λ, with its own limit."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PyTree

from saute.core.protocol import Episodes

__all__ = ["FREE", "Constraint", "Free", "Lagrangian", "Pid", "cvar", "lagrangian", "mean", "none", "penalise", "pid"]

Costs = Float[Array, "*batch"]
Counted = Bool[Array, "*batch"]
Kept = TypeVar("Kept")


@runtime_checkable
class Constraint(Protocol):
    """Plain numbers with a pair of pure functions: `init() → state`, `update(state, costs, counted) → (state, λ)`."""

    @property
    def limit(self) -> float | None:
        """What the statistic is held against, in the units of an episode's cost; None if nothing is constrained."""

    def init(self) -> PyTree: ...
    def update(self, state: PyTree, costs: Costs, counted: Counted) -> tuple[PyTree, Float[Array, ""]]: ...
    def weights(self, episodes: Episodes) -> Float[Array, "time env"] | None:
        """How much the cost advantage of each step counts; None counts all alike."""


def penalise(reward: Array, cost: Array, multiplier: Array) -> Array:
    """(r − λ l)/(1 + λ), for advantages and for Q-values alike."""
    return (reward - multiplier * cost) / (1.0 + multiplier)


def mean(costs: Costs, counted: Counted) -> Float[Array, ""]:
    """Average over the counted episodes; without any it is 0, which nobody may take for a measurement."""
    return jnp.sum(jnp.where(counted, costs, 0.0)) / jnp.maximum(1, counted.sum())


def cvar(costs: Costs, counted: Counted, worst: float) -> Float[Array, ""]:
    """Mean cost of the worst ⌈αn⌉ ≥ 1 of n episodes (Tamar et al. 2015); at α = 1 that of all."""
    if worst == 1.0:
        return mean(costs, counted)
    descending = -jnp.sort(jnp.where(counted, -costs, jnp.inf).ravel())
    tail = _tail_size(worst, counted)
    chosen = (jnp.arange(descending.size) < tail) & jnp.isfinite(descending)
    return jnp.sum(jnp.where(chosen, descending, 0.0)) / tail


def tail_weights(episodes: Episodes, worst: float) -> Float[Array, "time env"]:
    """1/α on the steps of the worst ⌈αn⌉ ≥ 1 of n counted episodes, else 0: the gradient of CVaR (Tamar et al. 2015)."""
    costs, counted = episodes.cost, episodes.counted
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

    limit: float | None = None

    def init(self) -> tuple[()]:
        return ()

    def update(self, state: tuple[()], costs: Float[Array, ...], counted: Counted) -> tuple[tuple[()], Float[Array, ""]]:
        return state, jnp.zeros(())

    def weights(self, episodes: Episodes) -> None:
        return None


@dataclasses.dataclass(frozen=True)
class Lagrangian:
    """Dual ascent, λ = softplus(p) with Adam on −p (J − d), or through softplus on −λ (J − d) (Ray et al. 2019).

    Adam moves p by the rate whatever the violation. On −p it runs away while the constraint is slack, by 1000 in 20,000
    updates, and has to come all the way back; on −λ the gradient vanishes with λ, and p is at −17 then. Use that if updates
    are many.
    """

    limit: float
    worst: float = 1.0
    """Share of the episodes, those that cost most, whose mean cost J is; 1 is the mean of all, 0.01 the CVaR of 1 %."""
    tail: bool = False
    """Whether the cost advantage counts in that share only."""
    rate: float = 5e-2
    initial: float = 1.0
    through_softplus: bool = False

    def __post_init__(self) -> None:
        _check_share(self.worst)

    def init(self) -> PyTree:
        # Of the type that it has after an update too, or whatever takes it would be compiled twice.
        p = jnp.log(jnp.expm1(jnp.asarray(self.initial, float)))
        return p, optax.adam(self.rate).init(p)

    def update(self, state: PyTree, costs: Costs, counted: Counted) -> tuple[PyTree, Float[Array, ""]]:
        p, moments = state
        slope = jax.nn.sigmoid(p) if self.through_softplus else 1.0
        step, moments = optax.adam(self.rate).update(slope * (self.limit - cvar(costs, counted, self.worst)), moments)
        state = _held(counted, (optax.apply_updates(p, step), moments), state)
        return state, jax.nn.softplus(state[0])

    def weights(self, episodes: Episodes) -> Float[Array, "time env"] | None:
        return tail_weights(episodes, self.worst) if self.tail else None


class PidState(NamedTuple):
    """Smoothed error, integral, and the last value of the statistic."""

    error: Float[Array, ""]
    integral: Float[Array, ""]
    last: Float[Array, ""]


@dataclasses.dataclass(frozen=True)
class Pid:
    """λ = (K_p EMA(D) + I + K_d (ΔJ)⁺)⁺ with D = J − d and I ← (I + K_i D)⁺ (Stooke et al. 2020)."""

    limit: float
    worst: float = 1.0
    """Share of the episodes, those that cost most, whose mean cost J is."""
    proportional: float = 0.1
    integral: float = 0.01
    derivative: float = 0.0
    smoothing: float = 0.95

    def __post_init__(self) -> None:
        _check_share(self.worst)

    def init(self) -> PidState:
        return PidState(jnp.zeros(()), jnp.zeros(()), jnp.full((), jnp.inf))

    def update(self, state: PidState, costs: Costs, counted: Counted) -> tuple[PidState, Float[Array, ""]]:
        value = cvar(costs, counted, self.worst)
        fresh = PidState(
            error=self.smoothing * state.error + (1 - self.smoothing) * (value - self.limit),
            integral=jnp.maximum(0.0, state.integral + self.integral * (value - self.limit)),
            last=value,
        )
        rise = jnp.where(counted.any(), self.derivative * jnp.maximum(0.0, value - state.last), 0.0)
        state = _held(counted, fresh, state)
        return state, jnp.maximum(0.0, self.proportional * state.error + state.integral + rise)

    def weights(self, episodes: Episodes) -> None:
        return None


FREE = Free()
none, lagrangian, pid = Free, Lagrangian, Pid


def _held(counted: Counted, new: Kept, old: Kept) -> Kept:
    """Without a whole episode nothing is known, and a controller holds still."""
    return jax.tree.map(lambda a, b: jnp.where(counted.any(), a, b), new, old)


def _check_share(worst: float) -> None:
    if not 0.0 < worst <= 1.0:
        raise ValueError(f"worst={worst!r} must be a share of the episodes in (0, 1], for example 0.01")
