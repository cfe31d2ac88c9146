"""Pictures of exact solutions: values by n, policies of the grid-world, the pendulum's return by budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from saute.evidence.plots import SMALL, legend, sheet, styled, styles
from saute.exact import NO_SAFE_ACTION, Solution
from saute.paper.gridworld import MOVES, Gridworld
from saute.paper.measured import Measured
from saute.paper.solved import Controlled, Penalised

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["CUTS", "budget_curve", "least_budgets", "policy_maps", "value_curves"]

CUTS = (0.5, 1.0, 2.0, 4.0)
"""Budgets whose regions are drawn."""

GROUND = {".": "#f4f4f4", "S": "#f4f4f4", "G": "#009E73", "~": "#d8b98a", "#": "#444444"}


@styled
def value_curves(rows: Sequence[Penalised]) -> Figure:
    """How −V_n rises to −V_∞ (dashed), and the probability that the optimal policy for n overspends."""
    budgets = sorted({row.budget for row in rows})
    caption = [
        "Left: expected cost −Vₙ of the optimal policy for the penalty n of an overspent step; dashed: its limit, n = ∞.",
        "Right: the probability that this policy overspends. Both are exact.",
    ]
    title = "Grid-world: the optimal policy by penalty n and budget"
    figure, body, ((left, right),) = sheet(title, caption, [1.5], 2, lines=(len(budgets) + 1) // 2)
    for budget, (colour, line) in zip(budgets, styles(), strict=False):
        finite = [row for row in rows if row.budget == budget and row.n < np.inf]
        (limit,) = (row for row in rows if row.budget == budget and row.n == np.inf)
        n = [row.n for row in finite]
        style: dict[str, Any] = {"color": colour, "linestyle": line, "marker": "o", "markersize": 2, "linewidth": 1.0}
        left.plot(n, [-row.value for row in finite], label=f"budget {budget:g}", **style)
        left.axhline(-limit.value, color=colour, linestyle="--", linewidth=0.9)
        right.plot(n, np.array([row.violation for row in finite], float), **style)
    for axis in (left, right):
        axis.set_xscale("symlog", linthresh=0.25)
        axis.xaxis.set_major_formatter("{x:g}")
        axis.set(xlabel="penalty n", xlim=(-0.02, 1.2 * max(row.n for row in rows if row.n < np.inf)))
    left.set_title("expected cost −Vₙ")
    right.set_title("P(violation)")
    legend(body, left)
    return figure


@styled
def policy_maps(world: Gridworld, solution: Solution, budgets: Sequence[int]) -> Figure:
    """The optimal first actions for some remaining budgets; a cross means that no action is safe."""
    from matplotlib.patches import Rectangle

    rows, columns = len(world.rows), len(world.rows[0])
    caption = [
        "Arrows: the optimal first action. Crosses: no action keeps the budget. Frame: start; green: goal; brown: mud, where a",
        "step costs; dark: walls.",
    ]
    figure, _, axes = sheet("Grid-world: the optimal policy by remaining budget", caption, [1.15], len(budgets))
    for axis, budget in zip(axes[0], budgets, strict=True):
        for (i, j), sign in np.ndenumerate(np.array([list(row) for row in world.rows])):
            axis.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor=GROUND[str(sign)], edgecolor="white", linewidth=0.4))
        for (i, j), action in zip(world.cells, solution.policy[0, :, budget], strict=True):
            if (i, j) == world.cells[world.goal]:
                axis.text(j, i, "G", ha="center", va="center", color="white", weight="bold", fontsize=SMALL)
            elif action == NO_SAFE_ACTION:
                axis.plot(j, i, "x", color="#D55E00", markersize=2.5)
            else:
                down, right = MOVES[action]
                tip = {"width": 0.06, "head_width": 0.32, "head_length": 0.3, "length_includes_head": True}
                axis.arrow(j - 0.35 * right, i - 0.35 * down, 0.7 * right, 0.7 * down, color="#0072B2", **tip)
        start = world.cells[world.start]
        axis.add_patch(Rectangle((start[1] - 0.46, start[0] - 0.46), 0.92, 0.92, fill=False, edgecolor="black", linewidth=0.9))
        axis.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5), aspect="equal", xticks=[], yticks=[])
        axis.set_title(f"budget {budget}")
        axis.grid(visible=False)
        axis.spines[:].set_visible(False)
    return figure


@styled
def budget_curve(rows: Sequence[Controlled], learned: Sequence[Measured]) -> Figure:
    """Returns of all grids' controllers, the dual of the finest grid, and learned policies: crosses if no test violated."""
    caption = [
        "Controllers: solutions of discretised pendulums, tested in the exact one; their dual is an estimate of the best",
        "return, no bound. Learned policies: means over all seeds and test episodes.",
    ]
    entries = 5 + len({row.grid for row in rows})
    figure, body, ((axis,),) = sheet("Pendulum: return by budget", caption, [2.2], 1, lines=entries)
    grids = [*dict.fromkeys(row.grid for row in rows)]
    for grid, (colour, line) in zip(grids, styles(), strict=False):
        kept = [row for row in rows if row.grid == grid and row.budget < np.inf]
        budgets = [row.budget for row in kept]
        name = f"controller of {grid.angles} × {grid.speeds} × {grid.levels + 1} values"
        axis.plot(
            budgets,
            [row.task_return for row in kept],
            color=colour,
            linestyle=line,
            marker="o",
            markersize=2.5,
            linewidth=1.0,
            label=name,
        )
        if grid == grids[-1]:
            axis.plot(budgets, [row.dual for row in kept], "+", color="black", markersize=5, label="dual on the finest grid")
    (free,) = (row for row in rows if row.grid == grids[-1] and row.budget == np.inf)
    axis.axhline(free.task_return, color="black", linestyle="--", linewidth=0.9, label="no budget")
    safe, unsafe = ([one for one in learned if (one.violations == 0) == clean] for clean in (True, False))
    for kind, marker, name in ((safe, "x", "learned, no violation in tests"), (unsafe, "^", "learned, with violations")):
        budgets, returns = [one.budget for one in kind], [one.task_return.mean for one in kind]
        axis.plot(budgets, returns, marker, color="black", fillstyle="none", markersize=4, label=name)
    axis.set(xlabel="budget d", ylabel="mean task return")
    legend(body, axis, columns=1)
    return figure


@styled
def least_budgets(needs: np.ndarray, max_speed: float) -> Figure:
    """b*₀ over the states of the pendulum, with the regions where some budgets are not enough."""
    caption = [
        "Colour: the least budget with which 200 steps from a state can be safe. Inside a line, so much is not enough,",
        f"whatever one does. The largest is {needs.max():.2f}: with a budget of 30 there is no such state.",
    ]
    figure, _, ((axis,),) = sheet("Pendulum: the least budget b*", caption, [2.2], 1)
    angles = np.linspace(-180.0, 180.0, len(needs) + 1)
    around, speeds = np.concatenate([needs, needs[:1]]), np.linspace(-max_speed, max_speed, needs.shape[1])
    filled = axis.pcolormesh(angles, speeds, around.T, cmap="viridis", shading="gouraud", rasterized=True)
    lines = axis.contour(angles, speeds, around.T, CUTS, colors="white", linewidths=0.8)
    axis.clabel(lines, fmt="%g", fontsize=SMALL)
    axis.set(xlabel="angle θ in degrees, 0 is upright", ylabel="speed θ̇", xticks=range(-180, 181, 60))
    axis.grid(visible=False)
    figure.colorbar(filled, ax=axis, label="b*")
    return figure
