"""Simmer: training begins with small budgets and works up to the full one (Sootla et al., NeurIPS 2022).

Episodes of epoch k begin with d_k ≤ d, so z₀ = d_k/d; what z means never changes. After each epoch a controller chooses d_{k+1}
from o, the highest cost of an episode in epoch k. Sizes are fractions of d. For d = 35 they are the paper's on the pendulum:
budgets from 15 to 35, moves of at most 5.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray, PyTree

from saute.learn.agent import named
from saute.learn.drive import Drive, Training

__all__ = ["PiSchedule", "QSchedule", "Schedule", "pi_schedule", "q_schedule", "simmered"]

Budget = Float[Any, "*constraint"]
"""A number, or one for each constraint."""
KEY = 0x51333E5
"""Folded into the key of an epoch for its schedule, so that training draws the same random numbers with and without one."""
REWARDS = np.array([[-1.0, 0.5, 2.0], [-1.0, 1.0, 0.5], [2.0, -1.0, -1.0]])
"""Of the moves −1, 0, +1: where the cost is below the budget, near it, and above it."""


@runtime_checkable
class Schedule(Protocol):
    """Plain numbers with two pure functions, for one constraint or for each of several."""

    def init(self, full: Budget) -> tuple[PyTree, Budget]:
        """The state before training, and the budget of the first epoch."""

    def update(self, state: PyTree, worst: Budget, full: Budget, key: PRNGKeyArray) -> tuple[PyTree, Budget]:
        """The state after an epoch whose worst episode cost so much, and the budget of the next epoch."""


class PiState(NamedTuple):
    """How many epochs are done, the last filtered errors (newest last), and the last correction, asked for and made."""

    epochs: Int[Any, ""]
    errors: Budget
    asked: Budget
    made: Budget


@dataclasses.dataclass(frozen=True)
class PiSchedule:
    """d' = clip(r + clip(a, ±step d), low d, d) with a PI controller that is told when it is clipped.

    The reference r climbs from first·d to d in equal steps. With the error e = τ (r − o) + (1 − τ) e₋ and the correction
    u = d' − r that was made,  a = K_p e + K_i Σ e + K_aw (u₋ − a₋).
    """

    low: float = 3 / 7
    """The smallest budget, as a part of the full one."""
    first: float = 4 / 7
    """The reference in the first epoch, as a part of the full budget."""
    levels: int = 6
    """Levels of the reference, the first and the full budget included."""
    every: int | None = None
    """Epochs from one level to the next; by default all levels last equally long."""
    step: float = 1 / 7
    """The largest correction of the reference, as a part of the full budget."""
    proportional: float = 0.1
    """K_p."""
    integral: float = 0.01
    """K_i."""
    antiwindup: float = 0.04
    """K_aw."""
    window: int | None = None
    """How many of the last errors are summed up; by default an eighth of all epochs, 100 of the paper's 800."""
    smoothing: float = 0.5
    """τ: the weight of the newest error."""

    def __post_init__(self) -> None:
        _check_parts(self, "low", "first", "step", "smoothing")
        _check_counts(self, levels=2, every=1, window=1)
        for name in ("proportional", "integral", "antiwindup"):
            if not 0.0 <= getattr(self, name) < np.inf:
                raise ValueError(f"{name}={getattr(self, name)} of the budget schedule must be a finite number ≥ 0")

    def planned(self, epochs: int) -> PiSchedule:
        """The same with everything filled in for a training of so many epochs."""
        every = self.every or max(1, epochs // self.levels)
        return dataclasses.replace(self, every=every, window=self.window or max(1, round(epochs / 8)))

    def reference(self, epoch: int, full: Budget) -> Budget:
        """r in an epoch, the first of which is 0."""
        assert self.every is not None
        share = min(epoch // self.every, self.levels - 1) / (self.levels - 1)
        return (self.first + (1.0 - self.first) * share) * full

    def init(self, full: Budget) -> tuple[PiState, Budget]:
        assert self.window is not None
        zero = np.zeros(np.shape(full))
        return PiState(np.int64(0), np.zeros((self.window, *zero.shape)), zero, zero), self.reference(0, full)

    def update(self, state: PiState, worst: Budget, full: Budget, key: PRNGKeyArray) -> tuple[PiState, Budget]:
        epochs = state.epochs + 1
        r = self.reference(int(epochs), full)
        error = self.smoothing * (r - worst) + (1.0 - self.smoothing) * state.errors[-1]
        errors = np.concatenate([state.errors[1:], np.asarray(error)[None]])
        asked = self.proportional * error + self.integral * errors.sum(0) + self.antiwindup * (state.made - state.asked)
        most = self.step * full
        budget = np.clip(r + np.clip(asked, -most, most), self.low * full, full)
        return PiState(np.int64(epochs), errors, np.asarray(asked), np.asarray(budget - r)), budget


class QState(NamedTuple):
    """Which of its budgets each constraint has, its filtered cost, NaN before the first, and the values of the moves."""

    place: Int[Any, " constraint"]
    cost: Float[Any, " constraint"]
    values: Float[Any, "constraint budget move"]


@dataclasses.dataclass(frozen=True)
class QSchedule:
    """Q-learning over budgets from low·d to d: a move −1, 0 or +1 earns what its direction deserves.

    With D = filtered cost − budget and the threshold θ, the moves (−1, 0, +1) earn (−1, ½, 2) if D ≤ −θ, (2, −1, −1) if D ≥ θ,
    else (−1, 1, ½);  Q(s, a) ← (1 − α) Q(s, a) + α (reward + γ max Q(s', ·)).
    """

    low: float = 3 / 7
    """The smallest budget, as a part of the full one."""
    budgets: int = 6
    """How many budgets there are, the smallest and the full one included."""
    threshold: float = 2 / 35
    """θ, as a part of the full budget."""
    smoothing: float = 0.5
    """Weight of the newest cost in the filtered one."""
    rate: float = 0.5
    """α."""
    discount: float = 0.99
    """γ."""
    greedy: float = 0.95
    """How often the best move is made; else any move, each with the same probability."""
    initial: float = 200.0
    """Value of every move before it is tried; 200 = 2/(1 − γ) is the most that can be earned, so that all are soon tried."""

    def __post_init__(self) -> None:
        _check_parts(self, "low", "threshold", "smoothing", "rate", "discount", "greedy")
        _check_counts(self, budgets=2)
        if not np.isfinite(self.initial):
            raise ValueError(f"initial={self.initial} of the budget schedule must be a finite number")

    def planned(self, epochs: int) -> QSchedule:
        """The same: nothing depends on how long training is."""
        return self

    def levels(self, full: Budget) -> Float[np.ndarray, "constraint budget"]:
        """All budgets of every constraint."""
        return np.reshape(full, (-1, 1)) * np.linspace(self.low, 1.0, self.budgets)

    def init(self, full: Budget) -> tuple[QState, Budget]:
        levels = self.levels(full)
        values = np.full((*levels.shape, len(REWARDS)), self.initial)
        state = QState(np.zeros(len(levels), np.int64), np.full(len(levels), np.nan), values)
        return state, levels[:, 0].reshape(np.shape(full))

    def update(self, state: QState, worst: Budget, full: Budget, key: PRNGKeyArray) -> tuple[QState, Budget]:
        levels, each, worst = self.levels(full), np.arange(len(state.place)), np.reshape(worst, -1)
        cost = np.where(np.isnan(state.cost), worst, self.smoothing * worst + (1.0 - self.smoothing) * state.cost)
        over, threshold = cost - levels[each, state.place], self.threshold * np.reshape(full, -1)
        chance, which = np.asarray(jax.random.uniform(key, (2, len(each))))
        best = state.values[each, state.place].argmax(1)
        move = np.where(chance < self.greedy, best, (which * len(REWARDS)).astype(np.int64))
        reward = REWARDS[1 + np.where(over >= threshold, 1, np.where(over <= -threshold, -1, 0)), move]
        place = np.clip(state.place + move - 1, 0, self.budgets - 1)
        values = state.values.copy()
        earned = reward + self.discount * state.values[each, place].max(1)
        values[each, state.place, move] = (1.0 - self.rate) * values[each, state.place, move] + self.rate * earned
        return QState(place, cost, values), levels[each, place].reshape(np.shape(full))


class Simmering(NamedTuple):
    """A seed, and the state of its schedule."""

    training: Training
    schedule: PyTree

    @property
    def state(self) -> PyTree:
        return self.training.state


def simmered(body: Drive, schedule: Schedule, full: Budget) -> Drive:
    """The same training, in which every seed has a schedule of its own for the budget of its episodes.

    Without a whole episode nothing is known, and a schedule holds still. Numbers of an epoch have the budget it began with.
    """
    names = list(named("worst_cost", full))

    def begun(training: Training) -> Simmering:
        return Simmering(training, schedule.init(full)[0])

    def after(seed: Simmering, one: tuple[Training, dict[str, Any]], key: PRNGKeyArray) -> tuple[Simmering, dict[str, Any]]:
        training, metrics = one
        told = {**metrics, **named("budget", np.asarray(training.budget))}
        worst = np.reshape([metrics[name] for name in names], full.shape).astype(np.float64)
        if np.isnan(worst).any():
            return Simmering(training, seed.schedule), told
        state, budget = schedule.update(seed.schedule, worst, full, jax.random.fold_in(key, KEY))
        return Simmering(training._replace(budget=np.asarray(budget, np.float32)), state), told

    def epoch(seeds: Sequence[Simmering], keys: Sequence[PRNGKeyArray]) -> list[tuple[Simmering, dict[str, Any]]]:
        trained = body.epoch([seed.training for seed in seeds], keys)
        return [after(*one) for one in zip(seeds, trained, keys, strict=True)]

    return body._replace(
        first=lambda keys: list(map(begun, body.first(keys))), epoch=epoch, export=lambda seed: body.export(seed.training)
    )


def _check_parts(schedule: PiSchedule | QSchedule, *names: str) -> None:
    for name in names:
        if not 0.0 < getattr(schedule, name) <= 1.0:
            raise ValueError(f"{name}={getattr(schedule, name)} of the budget schedule must be in (0, 1]")


def _check_counts(schedule: PiSchedule | QSchedule, **least: int) -> None:
    for name, number in least.items():
        given = getattr(schedule, name)
        if given is not None and given < number:
            raise ValueError(f"{name}={given} of the budget schedule must be at least {number}")


pi_schedule, q_schedule = PiSchedule, QSchedule
