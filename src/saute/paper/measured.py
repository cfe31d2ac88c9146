"""The numbers of one row's test episodes, which the page shows and by which claims are judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from saute.evidence.stats import bootstrap, iqm, upper_bound
from saute.runs.evaluate import Outcome

__all__ = ["Course", "Late", "Made", "Measured", "Seed", "Spread", "courses_of", "late_epochs", "measure"]

WHISKERS = 1.5
"""Interquartile ranges up to which an episode is no outlier of the box plot."""


class Spread(NamedTuple):
    """Many numbers, one per episode: their mean with its 95 % bootstrap interval over seeds, and their distribution."""

    mean: float
    low: float
    high: float
    std: float
    q05: float
    median: float
    q90: float
    q95: float
    q99: float
    largest: float
    iqm: float | None = None
    """The interquartile mean; None in numbers of former versions, as all that is None below."""


class Seed(NamedTuple):
    """The episodes of one seed; return and cost are means."""

    episodes: int
    violations: int
    task_return: float
    cost: float
    worst: float
    cost_std: float | None = None
    median: float | None = None
    """Of the returns."""
    outliers: float | None = None
    """The share of episodes whose costs are outliers of the box plot of all seeds."""
    return_std: float | None = None


class Course(NamedTuple):
    """The training of one seed."""

    sway: float | None
    """Standard deviation of the mean cost of the epochs, in the second half of training; None if no episode ended in it."""
    tested: bool = False
    """Whether policies were tested on the way."""
    safe_after: int | None = None
    """Whole episodes of training after which no episode of these tests violated; None if one of the last test did."""


class Made(NamedTuple):
    """Where the numbers of a row come from."""

    date: str
    commit: str
    """Of the code that tested the policies."""
    seeds: tuple[int, ...]
    """The first and the last seed of the tests."""

    @property
    def told(self) -> str:
        return f"{self.date}, {self.commit}, seeds from {self.seeds[0]:,}"


class Late(NamedTuple):
    """Means over all whole episodes of the second half of training, where policies still explore."""

    share: float
    """The share of violating episodes."""
    cost: float


class Measured(NamedTuple):
    """All test episodes of a row, and the budget at which they were tested."""

    label: str
    budget: float
    task_return: Spread
    cost: Spread
    seeds: tuple[Seed, ...]
    run: str
    """The name of the run folder, which is different for different settings."""
    epochs: int
    seconds: int | None
    """How long training took; None if that is not known, because it was interrupted."""
    late: Late | None = None
    """The second half of training; None if it is not known."""
    courses: tuple[Course, ...] | None = None
    """The training of every seed."""
    made: Made | None = None

    @property
    def episodes(self) -> int:
        return sum(seed.episodes for seed in self.seeds)

    @property
    def violations(self) -> int:
        return sum(seed.violations for seed in self.seeds)

    @property
    def share(self) -> float:
        return self.violations / self.episodes

    @property
    def seen(self) -> str:
        """k of n episodes violated, and the bound that this proves."""
        bound = upper_bound(self.violations, self.episodes)
        return f"{self.violations} of {self.episodes}, so ≤ {100 * bound:.3g} % at 95 %"

    def as_json(self) -> dict[str, Any]:
        """Plain values, from which `rebuilt` makes the same `Measured`."""
        nested = {"task_return": self.task_return._asdict(), "cost": self.cost._asdict()}
        parts = {name: one and one._asdict() for name, one in (("late", self.late), ("made", self.made))}
        courses = None if self.courses is None else [course._asdict() for course in self.courses]
        seeds = [seed._asdict() for seed in self.seeds]
        return {**self._asdict(), **nested, "seeds": seeds, **parts, "courses": courses}


def measure(
    label: str,
    budget: float,
    outcomes: Sequence[Outcome],
    *,
    run: str = "",
    epochs: int = 0,
    seconds: int | None = None,
    late: Late | None = None,
    courses: Sequence[Course] | None = None,
    made: Made | None = None,
) -> Measured:
    """The numbers of evaluated episodes; there is one outcome per seed."""
    low, high = _whiskers(np.concatenate([one.cost for one in outcomes]))
    return Measured(
        label,
        budget,
        _spread([one.task_return for one in outcomes]),
        _spread([one.cost for one in outcomes]),
        tuple(_seed(one, low, high) for one in outcomes),
        run,
        epochs,
        seconds,
        late,
        None if courses is None else tuple(courses),
        made,
    )


def late_epochs(curves: Sequence[Sequence[Mapping[str, float | None]]]) -> Late | None:
    """The second half of training, from its metrics by epoch and seed; None if no episode ended in it."""
    late = [seed for epoch in curves[len(curves) // 2 :] for seed in epoch]
    numbers = np.array([[seed.get(name) for name in ("episodes", "violation_rate", "cost")] for seed in late], float).reshape(
        -1, 3
    )
    numbers = numbers[np.isfinite(numbers).all(1) & (numbers[:, 0] > 0)]
    return Late(*map(float, np.average(numbers[:, 1:], axis=0, weights=numbers[:, 0]))) if len(numbers) else None


def courses_of(curves: Sequence[Sequence[Mapping[str, float | None]]]) -> tuple[Course, ...]:
    """The training of every seed, from its metrics by epoch and seed."""
    return tuple(_course(seed) for seed in zip(*curves, strict=True))


def _course(epochs: Sequence[Mapping[str, float | None]]) -> Course:
    def column(name: str) -> np.ndarray:
        return np.array([epoch.get(name) for epoch in epochs], float)

    costs, violations, ended = column("cost"), column("evaluated_violations"), np.nan_to_num(column("episodes")).cumsum()
    late = costs[len(costs) // 2 :]
    late = late[np.isfinite(late)]
    tests = np.flatnonzero(np.isfinite(violations))
    unsafe = np.flatnonzero(violations[tests] > 0)
    first = unsafe[-1] + 1 if len(unsafe) else 0
    safe = None if first == len(tests) else int(ended[tests[first]])
    return Course(round(float(late.std()), 4) if len(late) else None, len(tests) > 0, safe)


def _spread(values: list[np.ndarray]) -> Spread:
    every, interval = np.concatenate(values), bootstrap(values, lambda drawn: float(drawn.mean()))
    quantiles = np.quantile(every, [0.05, 0.5, 0.9, 0.95, 0.99])
    return Spread(*(round(float(number), 4) for number in (*interval, every.std(), *quantiles, every.max(), iqm(every))))


def _seed(one: Outcome, low: float, high: float) -> Seed:
    """The numbers of a seed; costs beyond these ends are outliers."""
    assert one.violated is not None
    outliers = ((one.cost < low) | (one.cost > high)).mean()
    middle, spread = np.median(one.task_return), one.task_return.std()
    numbers = (one.task_return.mean(), one.cost.mean(), one.cost.max(), one.cost.std(), middle, outliers, spread)
    return Seed(len(one.cost), int(one.violated.sum()), *(round(float(number), 4) for number in numbers))


def _whiskers(costs: np.ndarray) -> tuple[float, float]:
    """Where the outliers of a box plot begin (Tukey 1977)."""
    low, high = np.quantile(costs, [0.25, 0.75])
    return low - WHISKERS * (high - low), high + WHISKERS * (high - low)
