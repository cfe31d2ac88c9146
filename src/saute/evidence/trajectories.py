"""Trajectories over the cost field of a task, one panel for each policy; like the other pictures as wide as a column."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float

from saute.evidence.plots import PALETTE, SMALL, legend, sheet, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Field", "Trajectory", "trajectory_plot"]

SAFE, UNSAFE, END = PALETTE[0], "black", PALETTE[1]
HEIGHT = 1.35
"""Of a panel, in inches."""


class Field(NamedTuple):
    """What a step costs at every place of a map."""

    cost: Float[np.ndarray, "row column"]
    """The lowest row first."""
    extent: tuple[float, float, float, float]
    """Left, right, bottom and top."""
    labels: tuple[str, str]
    period: float | None = None
    """After which the first coordinate comes again, if it does."""
    goal: tuple[float, float, float] | None = None
    """Centre and radius of a goal, if there is one; then both coordinates are lengths."""


class Trajectory(NamedTuple):
    """One episode from its start to its end."""

    places: Float[np.ndarray, "step 2"]
    task_return: float
    violated: bool


@styled
def trajectory_plot(panels: Mapping[str, Sequence[Trajectory]], field: Field, subject: str = "") -> Figure:
    """The trajectories of each panel over the cost field, those that violated in another style and on top."""
    if not panels or not all(panels.values()):
        raise ValueError("there is nothing to draw; pass at least one panel with at least one trajectory")
    columns = min(2, len(panels))
    rows = math.ceil(len(panels) / columns)
    most = field.cost.max()
    caption = [
        f"Each line: an episode of the deterministic policy, from a test start (dot) to its end (square). Red: the cost of a "
        f"step there, white 0, reddest {most:.2g}. Above each panel: how many episodes violated, and their mean return.",
        "" if field.goal is None else "Green: the goal.",
    ]
    title = f"{subject}: trajectories" if subject else "Trajectories"
    figure, body, axes = sheet(title, caption, [HEIGHT if columns == 2 else 1.5 * HEIGHT] * rows, columns, lines=1)
    for axis, (name, episodes) in zip(axes.ravel(), panels.items(), strict=False):
        _panel(axis, field, most, episodes)
        violated = sum(one.violated for one in episodes)
        mean = np.mean([one.task_return for one in episodes])
        said = f"{violated} of {len(episodes)} violated, return {mean:.4g}".replace("-", "−")
        axis.set_title(f"{name}\n{said}", fontsize=SMALL, loc="left", pad=2)
    for axis in axes[-1] if len(panels) % columns == 0 else [axes[-1, 0], axes[-2, -1]]:
        axis.set_xlabel(field.labels[0])
    for axis in axes[:, 0]:
        axis.set_ylabel(field.labels[1])
    for axis in axes.ravel()[len(panels) :]:
        axis.remove()
    _legend_lines(axes[0, 0])
    legend(body, axes[0, 0])
    return figure


def _panel(axis: Axes, field: Field, most: float, episodes: Sequence[Trajectory]) -> None:
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.patches import Circle
    from matplotlib.ticker import MaxNLocator, MultipleLocator

    red = LinearSegmentedColormap.from_list("cost", ["white", "#e4604e"])
    axis.imshow(
        field.cost,
        cmap=red,
        vmin=0.0,
        vmax=most,
        extent=field.extent,
        origin="lower",
        aspect="auto" if field.goal is None else "equal",
        zorder=0,
    )
    axis.grid(visible=False)
    if field.goal is not None:
        x, y, radius = field.goal
        axis.add_patch(Circle((x, y), radius, color=PALETTE[2], alpha=0.35, linewidth=0))
    for one in sorted(episodes, key=lambda one: one.violated):
        line = _unbroken(one.places, field.period)
        colour, width = (UNSAFE, 0.9) if one.violated else (SAFE, 0.7)
        axis.plot(*line.T, color=colour, linewidth=width, alpha=0.8)
        axis.plot(*one.places[0], marker="o", markersize=2.2, color=colour, markeredgewidth=0)
        axis.plot(
            *one.places[-1], marker="s", markersize=2.2, color=END, markeredgecolor="black", markeredgewidth=0.3, zorder=3
        )
    left, right, bottom, top = field.extent
    axis.set(xlim=(left, right), ylim=(bottom, top))
    axis.xaxis.set_major_locator(MaxNLocator(4) if field.period is None else MultipleLocator(field.period / 4))
    axis.yaxis.set_major_locator(MaxNLocator(4))


def _unbroken(places: np.ndarray, period: float | None) -> np.ndarray:
    """The same places, where a line that goes on at the other side of the map reaches both sides, with a gap between."""
    if period is None:
        return places
    jumps = np.flatnonzero(abs(np.diff(places[:, 0])) > period / 2)
    before, after = places[jumps], places[jumps + 1]
    side = np.copysign(period / 2, before[:, 0])
    share = (side - before[:, 0]) / (after[:, 0] + 2 * side - before[:, 0])
    height = before[:, 1] + share * (after[:, 1] - before[:, 1])
    ends = np.stack([np.stack([x, y], -1) for x, y in ((side, height), (side * np.nan, height), (-side, height))], 1)
    return np.insert(places, np.repeat(jumps + 1, 3), ends.reshape(-1, 2), axis=0)


def _legend_lines(axis: Axes) -> None:
    """What the two kinds of lines are, also where a panel has only one of them."""
    axis.plot([], [], color=SAFE, linewidth=0.9, label="kept its budget")
    axis.plot([], [], color=UNSAFE, linewidth=0.9, label="violated it")
