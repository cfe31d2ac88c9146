"""`saute reproduce theory`: theorem 2 of the paper where it can be solved, and the gap of learned policies to the optimum."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from saute.envs.safe_pendulum import Pendulum
from saute.evidence.plots import save
from saute.exact import Solution, solve, violation_probability
from saute.paper.exact_pendulum import Grid, dual_values, plan, roll_out, starts, value_at
from saute.paper.gridworld import Gridworld, gridworld
from saute.paper.measured import Evidence
from saute.paper.theory_plots import budget_curve, policy_maps, value_curves
from saute.runs.checkpoint import write_atomically

__all__ = ["TITLE", "Controlled", "Penalised", "Sizes", "penalised", "pendulum_returns", "theory"]

TITLE = "Theorem 2 as an experiment: exact values, and the gap of learned policies"
PENALTIES = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0, np.inf)
MUD_BUDGETS = (0, 1, 2, 3, 4)
HORIZON = 40
"""Steps in the grid-world, of which the way without mud takes less than 18 on average."""
BUDGETS = (5.0, 10.0, 20.0, 30.0, 40.0)
PRICES = (0.0, 0.01, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.1, 0.2, 0.4, 1.0, 2.0, 4.0)


class Sizes(NamedTuple):
    """Grids of the pendulum from coarse to fine, and test episodes."""

    grids: tuple[Grid, ...]
    episodes: int


SIZES = {
    "smoke": Sizes((Grid(41, 33, 5, 20), Grid(61, 49, 5, 20)), 100),
    "laptop": Sizes((Grid(101, 81, 5, 20), Grid(201, 161, 5, 40), Grid(401, 321, 5, 80)), 1000),
}


class Penalised(NamedTuple):
    """Optimum of the Sauté MDP with the unsafe reward −n: V_n at the start, and how often its policy overspends."""

    n: float
    budget: float
    value: float
    violation: float | None


class Controlled(NamedTuple):
    """One budget of the pendulum: V₀ and the dual on a grid, and the controller's episodes in the true dynamics."""

    grid: Grid
    budget: float
    value: float
    dual: float
    task_return: float
    cost: float
    worst: float
    violations: int


def theory(place: pathlib.Path, scale: str, learned: Sequence[Evidence]) -> str:
    """All tables as text; they are written to the folder too, with their pictures."""
    sizes, world = SIZES.get(scale, SIZES["laptop"]), gridworld()
    exact = solve(world.mdp, max(MUD_BUDGETS), HORIZON)
    mud = penalised(world)
    swings = [row for grid in sizes.grids for row in pendulum_returns(grid, sizes.episodes)]
    coarse = pendulum_penalties(sizes.grids[0], sizes.episodes)
    gaps = [(one, best_return(swings, one.budget) - one.task_return.mean) for one in _known(learned, swings)]
    place.mkdir(parents=True, exist_ok=True)
    save(value_curves(mud), place / "values.png")
    save(policy_maps(world, exact, (0, 2, 3)), place / "policies.png")
    save(budget_curve(swings, [one for one, _ in gaps]), place / "pendulum.png")
    numbers = {
        "gridworld": [row._asdict() for row in mud],
        "pendulum": [{**row._asdict(), "grid": row.grid._asdict()} for row in swings],
        "pendulum by n": [row._asdict() for row in coarse],
        "gaps": [{"label": one.label, "run": one.run, "budget": one.budget, "gap": gap} for one, gap in gaps],
    }
    content = json.dumps(_finite(numbers), indent=1, ensure_ascii=False)
    write_atomically(place / "numbers.json", f"{content}\n".encode())
    text = _text(world, exact, mud, swings, coarse, gaps, sizes.episodes)
    write_atomically(place / "theory.md", f"# {TITLE}\n\n{text}\n".encode())
    return text


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
    """The controller of a grid at every budget, and last the one that has no budget to keep."""
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
    """V_n of the pendulum on a grid, for the budget of the task."""
    task = Pendulum(mode="test")
    x = starts(task, episodes)
    values = {n: value_at(task, plan(task, grid, max(BUDGETS), -n), x, task.budget).mean() for n in (0.0, 1.0, 10.0, 100.0)}
    return [Penalised(n, task.budget, float(value), None) for n, value in values.items()]


def best_return(rows: Iterable[Controlled], budget: float) -> float:
    """The greatest mean return that a controller earned in the true dynamics without breaking the budget once."""
    return max(row.task_return for row in rows if row.budget == budget and row.violations == 0)


def _known(learned: Sequence[Evidence], swings: Iterable[Controlled]) -> list[Evidence]:
    """Every learned policy once, at the budgets for which there is an optimum to hold it against."""
    solved = {row.budget for row in swings if row.violations == 0}
    known: dict[tuple[str, float], Evidence] = {}
    for one in learned:
        if one.budget in solved:
            # Figures that share a run name it differently; the first name says most.
            known.setdefault((one.run, one.budget), one)
    return [*known.values()]


def _text(
    world: Gridworld,
    exact: Solution,
    mud: Sequence[Penalised],
    swings: Sequence[Controlled],
    coarse: Sequence[Penalised],
    gaps: Sequence[tuple[Evidence, float]],
    episodes: int,
) -> str:
    dependent = [i for i, cell in enumerate(exact.policy[0]) if i != world.goal and len({*cell[cell >= 0].tolist()}) > 1]
    learned = (
        _learned(gaps) if gaps else "No tested policies of the pendulum were found; saute reproduce pendulum-trpo makes some."
    )
    return "\n\n".join(
        [
            f"## Grid-world: −V_n rises to −V_∞\n\nExpected number of steps to the goal, {HORIZON} at most, each overspent one "
            "counting n; in brackets how often the optimal policy of n overspends.",
            _penalties(mud),
            f"The optimal first action of n = ∞ depends on the remaining budget in {len(dependent)} of {len(world.cells) - 1} "
            "cells.\n\n![Values](values.png)\n\n![Policies](policies.png)",
            "## Pendulum: best return for a budget\n\nV₀ and the Lagrangian dual are those of the grid; return and cost are "
            f"those of its controller in {episodes} episodes of the true dynamics, from test starts.",
            _table(
                ("angles × speeds × torques × levels", "budget", "V₀", "dual", "return", "cost: mean, worst", "violations"),
                [
                    (
                        " × ".join(map(str, row.grid)),
                        _number(row.budget),
                        f"{row.value:.2f}",
                        f"{row.dual:.2f}",
                        f"{row.task_return:.2f}",
                        f"{row.cost:.2f}, {row.worst:.2f}",
                        f"{row.violations} of {episodes}" if row.budget < np.inf else "–",
                    )
                    for row in swings
                ],
            ),
            "The dual bounds the return of every policy that keeps the budget only as far as the grid is fine enough: where "
            "the controller earns more than V₀ or the dual, interpolation has lost at least the difference.",
            f"V_n on the coarsest grid at budget {coarse[0].budget:g}: "
            + ", ".join(f"{row.value:.3f} (n = {row.n:g})" for row in coarse)
            + ".\n\n![Return and budget](pendulum.png)",
            "## Gap of learned policies",
            learned,
        ]
    )


def _penalties(rows: Sequence[Penalised]) -> str:
    lines = []
    for n in PENALTIES:
        of_n = [row for row in rows if row.n == n]
        lines.append((_number(n), *(f"{-row.value:.3f} ({100 * (row.violation or 0):.2f} %)" for row in of_n)))
    return _table(("n", *(f"budget {budget}" for budget in MUD_BUDGETS)), lines)


def _learned(gaps: Sequence[tuple[Evidence, float]]) -> str:
    heads = ("method", "budget", "return [95 % interval]", "violations", "gap to the best safe return", "share of it")
    lines = []
    for one, gap in gaps:
        task, best = one.task_return, one.task_return.mean + gap
        earned = f"{task.mean:.2f} [{task.low:.2f}, {task.high:.2f}]"
        lines.append((one.label, f"{one.budget:g}", earned, one.seen, f"{gap:.2f}", f"{100 * task.mean / best:.1f} %"))
    return _table(heads, lines)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in (heads, ("---",) * len(heads), *rows))


def _number(value: float) -> str:
    return "∞" if value == np.inf else f"{value:g}"


def _finite(value: object) -> object:
    """JSON has no ∞; it is written as a word."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return str(value) if isinstance(value, float) and not np.isfinite(value) else value
