"""What returns are compared in: the best of a task less that of doing nothing, so that 10 % means the same everywhere."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["UNITS", "Unit", "unit_of"]


class Unit(NamedTuple):
    """Two returns of a task."""

    best: float
    nothing: float
    """Mean return of the action 0 in validation episodes."""
    by_budget: bool = False
    """Whether the best return is for each unit of the budget."""


UNITS = {
    # The best safe return at d = 30 that was known when verdicts began; finer grids give 183.07 (docs/exact.md).
    "pendulum": Unit(182.9, 88.6),
    # The paper's own normaliser, 2 d: standing upright earns 0.936 and costs 0.5 in each step.
    "double_pendulum": Unit(2.0, 9.6, by_budget=True),
    # The largest possible return of its 50 steps.
    "reacher": Unit(-60.21, -63.72),
    # Straight to the goal; doing nothing earns nothing.
    "point": Unit(2.95, 0.0),
    "car": Unit(2.94, 0.0),
}


def unit_of(env: str, budget: float) -> float:
    """Best − do-nothing, in the returns of the task."""
    best, nothing, by_budget = UNITS[env]
    return (best * budget if by_budget else best) - nothing
