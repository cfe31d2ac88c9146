"""The paper's pictures from plain arrays: arrays in, a matplotlib `Figure` out, no global state; `save` writes it."""

from __future__ import annotations

import itertools
import pathlib
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from saute.core.files import replacing
from saute.evidence.stats import as_seeds, by_constraint

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["FORMATS", "box_plot", "cost_distribution", "panels", "save", "styles", "training_curves"]

Groups = Mapping[str, tuple[ArrayLike, ArrayLike]]
"""Name → (returns, costs) of the same episodes, as (episodes,), (seeds, episodes) or one array per seed.

Costs of m constraints have a last axis more, (seeds, episodes, m) or one (episodes, m) array per seed.
"""
Budget = float | Sequence[float]
"""One number, or one per constraint."""
Metrics = Sequence[Sequence[Mapping[str, float | None]]]
"""Epochs → seeds → numbers by name; NaN or None where no episode ended."""
Line = str | tuple[int, tuple[int, ...]]
Content = TypeVar("Content")

PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
"""Okabe & Ito (2008): told apart by everyone; the styles tell them apart in print without colours."""
LINES: tuple[Line, ...] = ("-", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (9, 2)))
"""Plain dashes are the budget's."""
HATCHES = ("", "//", "..", "xx", "\\\\", "--", "oo")
FORMATS = (".png", ".svg", ".pdf")
CURVES = {
    "task_return": "mean task return",
    "cost": "mean cost",
    "worst_cost": "largest cost",
    "cost_rate": "cost rate",
}
"""Metric → panel: what the paper shows of training."""


def box_plot(groups: Groups, budget: Budget | None = None) -> Figure:
    """Returns and costs: quartiles, whiskers to the last episode within 1.5 interquartile ranges, outliers, mean as a dot.

    Each of several constraints has a panel of its own, with its budget.
    """
    costs = _costs(groups, budget)
    returns = [np.concatenate(as_seeds(pair[0], f"task return of {group}")) for group, pair in groups.items()]
    figure, axes = panels(1 + len(costs), max(3.2, 0.8 * len(groups)))
    shown = {"task return": returns} | {f"episode {name}": list(paid.values()) for name, (paid, _) in costs.items()}
    for axis, (name, data) in zip(axes, shown.items(), strict=True):
        drawn = axis.boxplot(
            data,
            whis=1.5,
            widths=0.6,
            patch_artist=True,
            showmeans=True,
            meanprops={"marker": "o", "markerfacecolor": "black", "markeredgecolor": "white", "markersize": 5},
            flierprops={"marker": ".", "markersize": 3, "markeredgecolor": "#555555"},
            medianprops={"color": "black", "linewidth": 1.4},
        )
        for box, colour, hatch in zip(drawn["boxes"], itertools.cycle(PALETTE), itertools.cycle(HATCHES), strict=False):
            box.set(facecolor=colour, alpha=0.75, hatch=hatch)
        crowded = max(map(len, groups)) * len(groups) > 30
        turned: dict[str, Any] = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if crowded else {}
        axis.set_xticks(range(1, len(groups) + 1), [textwrap.fill(name, 18) for name in groups], **turned)
        axis.set_ylabel(name)
    for axis, (_, limit) in zip(axes[1:], costs.values(), strict=True):
        _budget_line(axis, limit)
    return figure


def training_curves(
    runs: Mapping[str, Metrics], budget: Budget | None = None, *, steps_per_epoch: Mapping[str, int] | None = None
) -> Figure:
    """Mean return, mean cost, largest cost and cost rate of every epoch: the mean over seeds, in a band from least to greatest.

    The cost rate is the cumulative training cost per step times the horizon (Ray et al. 2019); a panel whose metric is missing
    in one of the runs is left out. A seed without a number in an epoch does not count there, and a curve has a gap where none
    has one. Given the steps of an epoch, of each run, its curves are over the steps of a seed. Each of several constraints has
    panels of its own, with its budget.
    """
    from matplotlib.ticker import EngFormatter

    curves = _curves(budget)
    tables = {name: {metric: _table(epochs, metric, name) for metric in curves} for name, epochs in _filled(runs).items()}
    shown = [metric for metric in curves if all(table[metric] is not None for table in tables.values())]
    if not shown:
        raise ValueError(f"the runs share none of the metrics {', '.join(curves)}; pass what training wrote to metrics.jsonl")
    figure, axes = panels(len(shown), 3.2)
    for axis, metric in zip(axes, shown, strict=True):
        for (name, table), (colour, line) in zip(tables.items(), styles(), strict=False):
            _curve(axis, name, table[metric], 1 if steps_per_epoch is None else steps_per_epoch[name], colour, line)
        axis.set(xlabel="epoch" if steps_per_epoch is None else "steps of each seed", ylabel=curves[metric][0])
        if steps_per_epoch is not None:
            axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        _budget_line(axis, curves[metric][1])
    _legend(figure, axes[-1])
    return figure


def cost_distribution(groups: Groups, budget: Budget | None = None) -> Figure:
    """Costs of all episodes of each group, as a histogram and as the share of episodes that kept a cost or less.

    Each of several constraints has two panels of its own, with its budget.
    """
    constraints = _costs(groups, budget)
    figure, axes = panels(2 * len(constraints), 4.0)
    for i, (name, (costs, limit)) in enumerate(constraints.items()):
        _distribution(axes[2 * i], axes[2 * i + 1], f"episode {name}", costs, limit)
    _legend(figure, axes[-1])
    return figure


def _distribution(left: Axes, right: Axes, label: str, costs: Mapping[str, np.ndarray], budget: float | None) -> None:
    """The histogram and the share of episodes, of one constraint."""
    bins = np.histogram_bin_edges(np.concatenate([*costs.values()]), 30)
    for (name, paid), (colour, line) in zip(costs.items(), styles(), strict=False):
        share = np.full(paid.size, 1 / paid.size)
        left.hist(paid, list(bins), weights=share, histtype="step", color=colour, linestyle=line, linewidth=1.4)
        right.ecdf(paid, color=colour, linestyle=line, label=name)
    left.set(xlabel=label, ylabel="share of episodes")
    right.set(xlabel=label, ylabel="share of episodes at or below", ylim=(0.0, 1.02))
    for axis in (left, right):
        _budget_line(axis, budget, vertical=True)


def save(figure: Figure, path: str | pathlib.Path) -> pathlib.Path:
    """Write a figure as its suffix says; the file appears whole or not at all, and equal figures give equal files."""
    import matplotlib

    path = pathlib.Path(path)
    kind = path.suffix.lower()
    if kind not in FORMATS:
        raise ValueError(f"{path} has to end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}, which decides the format")
    undated = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}[kind]
    with replacing(path) as partial, matplotlib.rc_context({"svg.hashsalt": "saute"}):
        figure.savefig(partial, format=kind[1:], dpi=150, metadata=undated)
    return path


def panels(count: int, width: float) -> tuple[Figure, Sequence[Axes]]:
    """An empty figure with panels side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(count * width, 3.4 if count > 1 else 4.0), layout="constrained")
    axes = figure.subplots(1, count, squeeze=False)[0]
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", color="#dddddd", linewidth=0.6)
        axis.set_axisbelow(True)
    return figure, axes


def styles() -> Iterator[tuple[str, Line]]:
    """Colours and line styles, in pairs that do not come again soon."""
    return zip(itertools.cycle(PALETTE), itertools.cycle(LINES), strict=False)


def _costs(groups: Groups, budget: Budget | None) -> dict[str, tuple[dict[str, np.ndarray], float | None]]:
    """Costs of every group and the budget, by constraint: "cost", or "cost 0", "cost 1" and so on."""
    limits = list(budget) if isinstance(budget, Sequence) else None
    several = {name: by_constraint(pair[1], None if limits is None else len(limits)) for name, pair in _filled(groups).items()}

    def together(seeds: Any, name: str) -> np.ndarray:
        return np.concatenate(as_seeds(seeds, f"episode cost of {name}"))

    if not isinstance(budget, Sequence) and all(one is None for one in several.values()):
        return {"cost": ({name: together(pair[1], name) for name, pair in groups.items()}, budget)}
    each = {name: one or [] for name, one in several.items()}
    counts = {name: max(1, len(one)) for name, one in each.items()}
    count = next(iter(counts.values())) if limits is None else len(limits)
    if (budget is not None and limits is None) or any(len(one) != count for one in each.values()):
        raise ValueError(f"budget={budget} and costs of {counts} constraints do not fit; pass one budget per constraint")
    return {
        f"cost {i}": ({name: together(one[i], name) for name, one in each.items()}, None if limits is None else limits[i])
        for i in range(count)
    }


def _curves(budget: Budget | None) -> dict[str, tuple[str, float | None]]:
    """Metric → (panel, budget); those of several constraints are numbered."""
    if not isinstance(budget, Sequence):
        return {metric: (label, None if metric == "task_return" else budget) for metric, label in CURVES.items()}
    numbered = {
        f"{metric}_{i}": (f"{label}, constraint {i}", limit)
        for i, limit in enumerate(budget)
        for metric, label in CURVES.items()
        if metric != "task_return"
    }
    return {"task_return": (CURVES["task_return"], None), **numbered}


def _curve(axis: Axes, name: str, values: np.ma.MaskedArray | None, steps: int, colour: str, line: Line) -> None:
    if values is None:
        return
    epochs, seeds = values.shape
    x = steps * np.arange(1, epochs + 1)
    label = f"{name} (mean and min–max of {seeds} seeds)" if seeds > 1 else f"{name} (1 seed)"
    mean, least, greatest = (of_seeds.filled(np.nan) for of_seeds in (values.mean(1), values.min(1), values.max(1)))
    axis.plot(x, mean, color=colour, linestyle=line, label=label)
    axis.fill_between(x, least, greatest, color=colour, alpha=0.2, linewidth=0)


def _budget_line(axis: Axes, budget: float | None, vertical: bool = False) -> None:
    if budget is not None:
        draw = axis.axvline if vertical else axis.axhline
        draw(budget, color="black", linestyle="--", linewidth=1.0, label="budget", zorder=2.5)


def _legend(figure: Figure, axis: Axes) -> None:
    columns = 2 * len(figure.axes) if len(figure.axes) < 4 else 3
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=columns, frameon=False, fontsize="small")


def _filled(named: Mapping[str, Content]) -> Mapping[str, Content]:
    if not named:
        raise ValueError("there is nothing to draw; pass at least one named group")
    return named


def _table(epochs: Metrics, metric: str, name: str) -> np.ma.MaskedArray | None:
    """Numbers (epoch, seed), masked where there is none, or None if some epoch lacks the metric."""
    if len(epochs) == 0:
        raise ValueError(f"{name} has no epochs; train it first")
    uneven = [epoch for epoch, seeds in enumerate(epochs) if len(seeds) != len(epochs[0]) or not seeds]
    if uneven:
        have, want = len(epochs[uneven[0]]), len(epochs[0])
        raise ValueError(
            f"{name}: epoch {uneven[0]} has {have} seeds, the first has {want}; pass the same ≥ 1 seeds throughout"
        )
    if not all(metric in seed for seeds in epochs for seed in seeds):
        return None
    return np.ma.masked_invalid(np.array([[seed[metric] for seed in seeds] for seeds in epochs], np.float64))
