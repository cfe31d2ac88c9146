"""Theorem 2 of the paper as an experiment, and how far learned policies are from the optimum: numbers, pictures, a page."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from saute.core.files import write_atomically
from saute.core.tables import markdown
from saute.envs.safe_pendulum import Pendulum
from saute.evidence.plots import save
from saute.exact import Solution, solve
from saute.paper import solved
from saute.paper.exact_pendulum import Grid, least_budget
from saute.paper.gridworld import Gridworld, gridworld
from saute.paper.measured import Measured
from saute.paper.solved import Controlled, Penalised, best_return, penalised, pendulum_penalties, pendulum_returns
from saute.paper.theory_plots import CUTS, budget_curve, least_budgets, policy_maps, value_curves

__all__ = ["TITLE", "theory"]

TITLE = "Theorem 2 as an experiment: exact values, and the gap of learned policies"
NONE_LEARNED = "No tested policies of the pendulum were found; saute reproduce pendulum-trpo makes some."


class Sizes(NamedTuple):
    """Grids of the pendulum from coarse to fine, and the number of test episodes."""

    grids: tuple[Grid, ...]
    episodes: int


SIZES = {
    "smoke": Sizes((Grid(41, 33, 5, 20), Grid(61, 49, 5, 20)), 100),
    "laptop": Sizes((Grid(101, 81, 5, 20), Grid(201, 161, 5, 40), Grid(401, 321, 5, 80)), 1000),
}


def theory(place: pathlib.Path, scale: str, learned: Sequence[Measured]) -> str:
    """All tables as text; they are also written to the folder `place`, with their pictures."""
    sizes, world = SIZES.get(scale, SIZES["laptop"]), gridworld()
    exact = solve(world.mdp, max(solved.MUD_BUDGETS), solved.HORIZON)
    mud = penalised(world)
    swings = [row for grid in sizes.grids for row in pendulum_returns(grid, sizes.episodes)]
    coarse = pendulum_penalties(sizes.grids[0], sizes.episodes)
    gaps = [(one, best_return(swings, one.budget) - one.task_return.mean) for one in _known(learned, swings)]
    place.mkdir(parents=True, exist_ok=True)
    save(value_curves(mud), place / "values.png")
    save(policy_maps(world, exact, (0, 2, 3)), place / "policies.png")
    save(budget_curve(swings, [one for one, _ in gaps]), place / "pendulum.png")
    least = least_budget(Pendulum(), sizes.grids[-1])[0]
    save(least_budgets(least, Pendulum.max_speed), place / "least-budget.png")
    numbers = {
        "gridworld": [row._asdict() for row in mud],
        "pendulum": [{**row._asdict(), "grid": row.grid._asdict()} for row in swings],
        "pendulum by n": [row._asdict() for row in coarse],
        "largest least budget": float(least.max()),
        "gaps": [{"label": one.label, "run": one.run, "budget": one.budget, "gap": gap} for one, gap in gaps],
    }
    content = json.dumps(_finite(numbers), indent=1, ensure_ascii=False)
    write_atomically(place / "numbers.json", f"{content}\n".encode())
    text = _text(world, exact, mud, swings, coarse, gaps, sizes.episodes) + _least(least)
    write_atomically(place / "theory.md", f"# {TITLE}\n\n{text}\n".encode())
    return text


def _known(learned: Sequence[Measured], swings: Iterable[Controlled]) -> list[Measured]:
    """Every learned policy once, at the budgets for which there is a best safe return to compare it with."""
    solved = {row.budget for row in swings if row.violations == 0}
    known: dict[tuple[str, float], Measured] = {}
    for one in learned:
        if one.budget in solved:
            # Figures that share a run label it differently; the first label says most.
            known.setdefault((one.run, one.budget), one)
    return [*known.values()]


def _text(
    world: Gridworld,
    exact: Solution,
    mud: Sequence[Penalised],
    swings: Sequence[Controlled],
    coarse: Sequence[Penalised],
    gaps: Sequence[tuple[Measured, float]],
    episodes: int,
) -> str:
    dependent = [i for i, cell in enumerate(exact.policy[0]) if i != world.goal and len({*cell[cell >= 0].tolist()}) > 1]
    return "\n\n".join(
        [
            f"## Grid-world: −V_n rises to −V_∞\n\nExpected number of steps to the goal, at most {solved.HORIZON}; a step "
            "after overspending counts n. In brackets: how often the optimal policy for n overspends.",
            _penalties(mud),
            f"The optimal first action for n = ∞ depends on the remaining budget in {len(dependent)} of {len(world.cells) - 1} "
            "cells.\n\n![Values](values.png)\n\n![Policies](policies.png)",
            "## Pendulum: best return for a budget\n\nV₀ and the Lagrangian dual are values of the grid; return and cost are "
            f"those of its controller in {episodes} episodes of the true dynamics, from test starts.",
            _controlled(swings, episodes),
            "The dual bounds the return of every policy that keeps the budget, but only if the grid is fine enough: where the "
            "controller earns more than V₀ or the dual, interpolation has lost at least the difference.",
            f"V_n on the coarsest grid at budget {coarse[0].budget:g}: "
            + ", ".join(f"{row.value:.3f} (n = {row.n:g})" for row in coarse)
            + ".\n\n![Return and budget](pendulum.png)",
            "## Gap of learned policies",
            _learned(gaps) if gaps else NONE_LEARNED,
        ]
    )


def _least(needs: np.ndarray) -> str:
    shares = ", ".join(f"{100 * (needs > cut).mean():.2f} % more than {cut:g}" for cut in CUTS)
    return (
        "\n\n## Pendulum: the least budget\n\nThe least budget b* with which 200 steps can still be safe is at most "
        f"{needs.max():.2f}. Of all states of the grid need {shares}.\n\n![Least budget](least-budget.png)"
    )


def _penalties(rows: Sequence[Penalised]) -> str:
    lines = [("n", *(f"budget {budget}" for budget in solved.MUD_BUDGETS))]
    for n in solved.PENALTIES:
        of_n = [row for row in rows if row.n == n]
        lines.append((_number(n), *(f"{-row.value:.3f} ({100 * (row.violation or 0):.2f} %)" for row in of_n)))
    return markdown(lines)


def _controlled(rows: Sequence[Controlled], episodes: int) -> str:
    heads = ("angles × speeds × torques × levels", "budget", "V₀", "dual", "return", "cost: mean, worst", "violations")
    lines: list[tuple[str, ...]] = [heads]
    for row in rows:
        violations = f"{row.violations} of {episodes}" if row.budget < np.inf else "–"
        values = (f"{value:.2f}" for value in (row.value, row.dual, row.task_return))
        grid, cost = " × ".join(map(str, row.grid)), f"{row.cost:.2f}, {row.worst:.2f}"
        lines.append((grid, _number(row.budget), *values, cost, violations))
    return markdown(lines)


def _learned(gaps: Sequence[tuple[Measured, float]]) -> str:
    lines = [("method", "budget", "return [95 % interval]", "violations", "gap to the best safe return", "share of it")]
    for one, gap in gaps:
        task, best = one.task_return, one.task_return.mean + gap
        earned = f"{task.mean:.2f} [{task.low:.2f}, {task.high:.2f}]"
        lines.append((one.label, f"{one.budget:g}", earned, one.seen, f"{gap:.2f}", f"{100 * task.mean / best:.1f} %"))
    return markdown(lines)


def _number(value: float) -> str:
    return "∞" if value == np.inf else f"{value:g}"


def _finite(value: object) -> object:
    """The same value with words for ∞ and NaN, which JSON does not have."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return str(value) if isinstance(value, float) and not np.isfinite(value) else value
