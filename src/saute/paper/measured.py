"""The numbers of one row's test episodes, which the page shows and by which claims are judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from saute.evidence.stats import bootstrap, upper_bound
from saute.runs.evaluate import Outcome

__all__ = ["Late", "Measured", "Seed", "Spread", "late_epochs", "measure"]


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


class Seed(NamedTuple):
    """The episodes of one seed; return and cost are means."""

    episodes: int
    violations: int
    task_return: float
    cost: float
    worst: float


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
        late = self.late and self.late._asdict()
        return {**self._asdict(), **nested, "seeds": [seed._asdict() for seed in self.seeds], "late": late}


def measure(
    label: str,
    budget: float,
    outcomes: Sequence[Outcome],
    *,
    run: str = "",
    epochs: int = 0,
    seconds: int | None = None,
    late: Late | None = None,
) -> Measured:
    """The numbers of evaluated episodes; there is one outcome per seed."""
    return Measured(
        label,
        budget,
        _spread([one.task_return for one in outcomes]),
        _spread([one.cost for one in outcomes]),
        tuple(map(_seed, outcomes)),
        run,
        epochs,
        seconds,
        late,
    )


def late_epochs(curves: Sequence[Sequence[Mapping[str, float | None]]]) -> Late | None:
    """The second half of training, from its metrics by epoch and seed; None if no episode ended in it."""
    late = [seed for epoch in curves[len(curves) // 2 :] for seed in epoch]
    numbers = np.array([[seed.get(name) for name in ("episodes", "violation_rate", "cost")] for seed in late], float).reshape(
        -1, 3
    )
    numbers = numbers[np.isfinite(numbers).all(1) & (numbers[:, 0] > 0)]
    return Late(*map(float, np.average(numbers[:, 1:], axis=0, weights=numbers[:, 0]))) if len(numbers) else None


def _spread(values: list[np.ndarray]) -> Spread:
    every, interval = np.concatenate(values), bootstrap(values, lambda drawn: float(drawn.mean()))
    quantiles = np.quantile(every, [0.05, 0.5, 0.9, 0.95, 0.99])
    return Spread(*(round(float(number), 4) for number in (*interval, every.std(), *quantiles, every.max())))


def _seed(one: Outcome) -> Seed:
    assert one.violated is not None
    means = (one.task_return.mean(), one.cost.mean(), one.cost.max())
    return Seed(len(one.cost), int(one.violated.sum()), *(round(float(number), 4) for number in means))
