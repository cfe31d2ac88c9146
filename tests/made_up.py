"""Rows of figures and tables without an experiment."""

from __future__ import annotations

import numpy as np

from saute.paper.measured import Measured, measure
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
