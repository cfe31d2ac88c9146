"""Rows of figures and tables without an experiment."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from saute.paper.measured import Course, Measured, measure
from saute.runs.evaluate import Outcome


def row(label: str = "it", violations: int = 0, value: float = 100.0, cost: float = 10.0, std: float = 1.0) -> Measured:
    """Five seeds of 100 episodes around a return and a cost; so many of them, in the last seed first, cost 31 of 30."""
    noise = np.random.default_rng(0).permutation(np.linspace(-np.sqrt(3), np.sqrt(3), 500))
    returns, costs = value + noise, cost + std * noise
    if violations:
        costs[-violations:] = 31.0
    halves = (part.reshape(5, 100) for part in (returns, costs))
    seeds = [Outcome(task, paid, np.full(100, 200), paid, paid > 30.0) for task, paid in zip(*halves, strict=True)]
    return measure(label, 30.0, seeds)


def of_seeds(
    label: str = "it",
    value: float = 100.0,
    cost: float = 10.0,
    bad: Sequence[int] = (0, 0, 0, 0, 0),
    std: float = 1.0,
    apart: float = 0.1,
    outliers: float = 0.0,
    sway: float = 1.0,
    safe_after: Sequence[int | None] = (100,) * 5,
) -> Measured:
    """A row of one seed of 1000 episodes for each number of violations; everything else differs by `apart` between them."""
    noise = (apart * (np.arange(len(bad)) - (len(bad) - 1) / 2)).tolist()
    whole = row(label)
    seeds = tuple(
        whole.seeds[0]._replace(
            episodes=1000, violations=k, task_return=value + e, cost=cost + e, worst=cost + 1, cost_std=std + 0.1 * e,
            median=value + e, outliers=outliers + 0.001 * e, return_std=std + 0.1 * e,
        )
        for k, e in zip(bad, noise, strict=True)
    )  # fmt: skip
    courses = tuple(Course(sway + 0.1 * e, True, after) for e, after in zip(noise, safe_after, strict=False))
    spent, earned = whole.cost._replace(mean=cost, largest=cost + 1), whole.task_return._replace(mean=value)
    return whole._replace(seeds=seeds, courses=courses, cost=spent, task_return=earned)
