"""Theorem 2 of the paper, solved: values of the grid-world and of the pendulum, by penalty and by budget."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from saute.envs.safe_pendulum import Pendulum
from saute.exact import solve, violation_probability
from saute.paper.exact_pendulum import Grid, dual_values, plan, roll_out, starts, value_at
from saute.paper.gridworld import Gridworld

__all__ = ["Controlled", "Penalised", "best_return", "penalised", "pendulum_penalties", "pendulum_returns"]

PENALTIES = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0, np.inf)
MUD_BUDGETS = (0, 1, 2, 3, 4)
HORIZON = 40
"""Steps of an episode in the grid-world; the way without mud takes less than 18 on average."""
BUDGETS = (5.0, 10.0, 20.0, 30.0, 40.0)
PRICES = (0.0, 0.01, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.1, 0.2, 0.4, 1.0, 2.0, 4.0)


class Penalised(NamedTuple):
    """The optimum of the Sauté MDP with the unsafe reward −n: V_n at the start, and how often its policy overspends."""

    n: float
    budget: float
    value: float
    violation: float | None


class Controlled(NamedTuple):
    """The pendulum at one budget: V₀ and the dual on a grid, and the controller's episodes in the true dynamics."""

    grid: Grid
    budget: float
    value: float
    dual: float
    task_return: float
    cost: float
    worst: float
    violations: int


def penalised(world: Gridworld) -> list[Penalised]:
    """V_n of the grid-world at its start, for every n and budget."""
    rows = []
    for n in PENALTIES:
        solution = solve(world.mdp, max(MUD_BUDGETS), HORIZON, -n)
        for budget in MUD_BUDGETS:
            risk = violation_probability(world.mdp, solution, world.start, budget)
            rows.append(Penalised(n, budget, float(solution.value[0, world.start, budget]), risk))
    return rows


def pendulum_returns(grid: Grid, episodes: int) -> list[Controlled]:
    """The controller of a grid at every budget, and at last without a budget."""
    task = Pendulum(mode="test")
    x = starts(task, episodes)
    sauted, free = plan(task, grid, max(BUDGETS)), plan(task, grid._replace(levels=0), 1.0)
    budgets = (*BUDGETS, np.inf)
    duals = [*dual_values(task, grid, PRICES, x, BUDGETS), value_at(task, free, x, np.inf).mean()]
    rows = []
    for budget, dual in zip(budgets, duals, strict=True):
        used = sauted if budget < np.inf else free
        seen = roll_out(task, used, x, budget)
        value, earned = value_at(task, used, x, budget).mean(), seen.task_return.mean()
        paid, worst, violations = seen.cost.mean(), seen.cost.max(), int((seen.cost > budget).sum())
        rows.append(Controlled(grid, budget, float(value), float(dual), float(earned), float(paid), float(worst), violations))
    return rows


def pendulum_penalties(grid: Grid, episodes: int) -> list[Penalised]:
    """V_n of the pendulum on a grid, at the task's own budget."""
    task = Pendulum(mode="test")
    x = starts(task, episodes)
    values = {n: value_at(task, plan(task, grid, max(BUDGETS), -n), x, task.budget).mean() for n in (0.0, 1.0, 10.0, 100.0)}
    return [Penalised(n, task.budget, float(value), None) for n, value in values.items()]


def best_return(rows: Iterable[Controlled], budget: float) -> float:
    """The highest mean return that a controller earned in the true dynamics without a single violation."""
    return max(row.task_return for row in rows if row.budget == budget and row.violations == 0)
