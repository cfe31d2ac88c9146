"""The paper's pictures from plain arrays: arrays in, a matplotlib `Figure` out, no global state; `save` writes it.

Every picture is as wide as a column of a paper, has a title, and says below what is drawn.
"""

from __future__ import annotations

import functools
import itertools
import math
import pathlib
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike

from saute.core.files import replacing
from saute.core.text import one_line
from saute.evidence.stats import as_seeds, by_constraint

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

__all__ = [
    "FORMATS",
    "SMALL",
    "Group",
    "Groups",
    "box_plot",
    "by_seed",
    "cost_distribution",
    "legend",
    "panels",
    "save",
    "sheet",
    "styled",
    "styles",
    "training_curves",
]


class Group(NamedTuple):
    """Episodes of one method or seed, as (episodes,), (seeds, episodes) or one array per seed.

    Costs of m constraints have a last axis more, (seeds, episodes, m) or one (episodes, m) array per seed.
    """

    returns: ArrayLike
    costs: ArrayLike
    violated: ArrayLike | None = None
    """Which episodes overspent their budget, shaped as the costs; None if those did that cost more than the budget."""


Groups = Mapping[str, Group]
Budget = float | Sequence[float]
"""One number, or one per constraint."""
Epochs = Sequence[Sequence[Mapping[str, float | None]]]
"""Epochs → seeds → numbers by name; NaN or None where no episode ended."""
Line = str | tuple[int, tuple[int, ...]]
Content = TypeVar("Content")
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

COLUMN = 3.3
"""Width in inches of every picture."""
TEXT, SMALL = 7.0, 6.0
"""Sizes of letters, in points."""
BESIDE = 20
"""Letters of a run's name of which two fit beside each other in a legend, with their numbers of seeds."""
STYLE: Any = {
    "font.size": TEXT,
    "axes.titlesize": TEXT,
    "axes.labelsize": TEXT,
    "axes.linewidth": 0.6,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "hatch.linewidth": 0.4,
    "svg.hashsalt": "saute",
    "text.parse_math": False,  # a dollar sign in the name of a run is a dollar sign
}
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
"""Okabe & Ito (2008): told apart by everyone; the styles tell them apart in print without colours."""
LINES: tuple[Line, ...] = ("-", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (9, 2)))
"""Plain dashes are the budget's."""
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "----", "oooo")
FORMATS = (".png", ".svg", ".pdf")
CURVES = {
    "task_return": "mean task return",
    "cost": "mean cost",
    "worst_cost": "largest cost",
    "cost_rate": "cost rate",
}
"""Metric → panel: what the paper shows of training."""
TESTED = {
    "evaluated_return": "mean return of tests",
    "evaluated_cost": "mean cost of tests",
    "evaluated_worst_cost": "largest cost of tests",
    "cost_rate": "cost rate",
}
"""The same where policies were tested on the way, as the paper's were."""
SHORT = 25
"""Epochs up to which every one of them gets a marker."""
SUMS = "Returns and costs are sums over an episode, in the task's own units."
BOXES = (
    "Boxes: quartiles; line: median; black dot: mean; whiskers: to the last episode within 1.5 interquartile ranges; small "
    "dots: those beyond."
)
EPOCHS = "Each epoch: means and the largest cost over the episodes that ended in it."
TESTS = "Means and the largest cost over test-like episodes of the deterministic policy as it stood."
RATE = "Cost rate: cost of the whole training so far per step, times the steps of an episode."


def styled(draw: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The same function, whose figures have letters and lines for the width of a column."""

    @functools.wraps(draw)
    def drawn(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        import matplotlib

        with matplotlib.rc_context(STYLE):
            return draw(*args, **kwargs)

    return drawn


@styled
def box_plot(groups: Groups, budget: Budget | None = None, subject: str = "") -> Figure:
    """Returns and costs: quartiles, whiskers to the last episode within 1.5 interquartile ranges, outliers, mean as a dot.

    Each of several constraints has a panel of its own, with its budget; beside every box of costs stands how many of the
    episodes violated.
    """
    costs = _costs(groups, budget)
    returns = [np.concatenate(as_seeds(group[0], f"task return of {name}")) for name, group in groups.items()]
    shown = {"task return": returns} | {f"episode {name}": list(paid.costs.values()) for name, paid in costs.items()}
    counted = any(paid.violations is not None for paid in costs.values())
    caption = [SUMS, BOXES, _budget_words(budget), "k of n: so many of the episodes violated it." if counted else ""]
    rows = math.ceil(len(shown) / 2)
    names = [textwrap.wrap(_cut(name, 40), 14) for name in groups]
    height = 0.5 + len(groups) * max(0.27, *(0.14 * len(name) for name in names))
    figure, _, axes = sheet(_titled(subject, "return and cost of an episode"), caption, [height] * rows, 2)
    for axis, (label, data) in zip(axes.ravel(), shown.items(), strict=False):
        _boxes(axis, data)
        axis.set_xlabel(label)
        axis.set_yticks(range(1, len(groups) + 1), ["\n".join(name) for name in names], fontsize=TEXT)
    for axis in axes[:, 1]:
        axis.tick_params(labelleft=False)
    for axis, paid in zip(axes.ravel()[1:], costs.values(), strict=False):
        _budget_line(axis, paid.budget, vertical=True)
        for row, told in enumerate(paid.violations or (), start=1):
            axis.text(1.03, row, told, transform=axis.get_yaxis_transform(), va="center", fontsize=SMALL)
    for axis in axes.ravel()[len(shown) :]:
        axis.remove()
    return figure


def _boxes(axis: Axes, data: list[np.ndarray]) -> None:
    """Horizontal boxes, the first one on top."""
    drawn = axis.boxplot(
        data,
        orientation="horizontal",
        whis=1.5,
        widths=0.62,
        patch_artist=True,
        showmeans=True,
        boxprops={"linewidth": 0.7},
        whiskerprops={"linewidth": 0.7},
        capprops={"linewidth": 0.7},
        meanprops={"marker": "o", "markerfacecolor": "black", "markeredgecolor": "white", "markersize": 3.5},
        flierprops={"marker": ".", "markersize": 2, "markeredgecolor": "#555555", "markeredgewidth": 0.4},
        medianprops={"color": "black", "linewidth": 1.4},
    )
    for box, colour, hatch in zip(drawn["boxes"], itertools.cycle(PALETTE), itertools.cycle(HATCHES), strict=False):
        box.set(facecolor=colour, alpha=0.75, hatch=hatch)
    axis.invert_yaxis()
    axis.grid(visible=False, axis="y")
    axis.grid(axis="x", color="#dddddd", linewidth=0.5)


@styled
def training_curves(
    runs: Mapping[str, Epochs],
    budget: Budget | None = None,
    *,
    steps_per_epoch: Mapping[str, int] | None = None,
    subject: str = "",
) -> Figure:
    """Mean return, mean cost, largest cost and cost rate of every epoch: the mean over seeds, in a band from least to greatest.

    Where all runs were tested on the way, return and costs are of these tests, at the epochs that have them.

    The cost rate is the cumulative training cost per step times the horizon (Ray et al. 2019); a panel whose metric is missing
    in one of the runs is left out. A seed without a number in an epoch does not count there, and a curve has a gap where none
    has one. Given the steps of an epoch, of each run, its curves are over the steps of a seed. Each of several constraints has
    panels of its own, with its budget.
    """
    from matplotlib.ticker import EngFormatter

    labels = TESTED if all(_was_tested(epochs) for epochs in _filled(runs).values()) else CURVES
    curves = panels(budget, labels)
    tables = {name: {metric: by_seed(epochs, metric, name) for metric in curves} for name, epochs in _filled(runs).items()}
    shown = [metric for metric in curves if all(table[metric] is not None for table in tables.values())]
    if not shown:
        raise ValueError(f"the runs share none of the metrics {', '.join(curves)}; pass what training wrote to metrics.jsonl")
    caption = [
        f"{EPOCHS if labels is CURVES else TESTS} Lines: mean of the seeds; bands: from the least to the greatest seed.",
        RATE if any(metric.startswith("cost_rate") for metric in shown) else "",
        SUMS,
        _budget_words(budget) if len(shown) > 1 or shown[0] != "task_return" else "",
    ]
    columns, rows = (1, 1) if len(shown) == 1 else (2, math.ceil(len(shown) / 2))
    entries, beside = len(runs) + (budget is not None), 1 if any(len(name) > BESIDE for name in runs) else 2
    figure, body, axes = sheet(_titled(subject, "training"), caption, [1.25] * rows, columns, lines=math.ceil(entries / beside))
    for axis, metric in zip(axes.ravel(), shown, strict=False):
        for (name, table), (colour, line) in zip(tables.items(), styles(), strict=False):
            steps = 1 if steps_per_epoch is None else steps_per_epoch[name]
            _curve(axis, name, table[metric], steps, colour, line, metric.startswith("evaluated"))
        axis.set_title(curves[metric][0])
        if steps_per_epoch is not None:
            axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        _budget_line(axis, curves[metric][1])
    for axis in axes[-1] if len(shown) % columns == 0 else [*axes[-1], axes[-2, -1]]:
        axis.set_xlabel("epoch" if steps_per_epoch is None else "steps of each seed")
    for axis in axes.ravel()[len(shown) :]:
        axis.remove()
    legend(body, axes.ravel()[len(shown) - 1], beside)
    return figure


@styled
def cost_distribution(groups: Groups, budget: Budget | None = None, subject: str = "") -> Figure:
    """Costs of all episodes: a histogram of each group, and below them the share of episodes that kept a cost or less.

    Each of several constraints has a column of its own, with its budget.
    """
    constraints = _costs(groups, budget)
    caption = [
        "Histograms: share of the episodes in 30 bins, which all groups have in common. Below: share of the episodes that cost "
        "so much or less.",
        _budget_words(budget),
        SUMS,
    ]
    heights = [*[0.5] * len(groups), 1.2]
    entries = len(groups) + (budget is not None)
    title = _titled(subject, "cost of an episode")
    figure, body, axes = sheet(title, caption, heights, len(constraints), lines=math.ceil(entries / 2))
    for column, (name, paid) in zip(axes.T, constraints.items(), strict=True):
        _distribution(column, f"episode {name}", paid, len(constraints))
    legend(body, axes[-1, -1])
    return figure


def _distribution(axes: np.ndarray, label: str, paid: Paid, columns: int) -> None:
    """The histograms and the share of episodes, of one constraint, one above the other over the same costs."""
    bins = np.histogram_bin_edges(np.concatenate([*paid.costs.values()]), 30)
    told = paid.violations or [""] * len(paid.costs)
    cumulative = axes[-1]
    for axis, (name, costs), violations, (colour, line) in zip(axes, paid.costs.items(), told, styles(), strict=False):
        share = np.full(costs.size, 1 / costs.size)
        axis.hist(costs, list(bins), weights=share, histtype="stepfilled", color=colour, alpha=0.75)
        said = f": {violations} violated" if violations else ""
        axis.set_title(_cut(name, 56 // columns - len(said)) + said, loc="left", pad=2)
        axis.sharex(cumulative)
        axis.tick_params(labelbottom=False)
        cumulative.ecdf(costs, color=colour, linestyle=line, linewidth=1.1, label=name)
    cumulative.set(xlabel=label, ylim=(0.0, 1.02))
    cumulative.set_title("at this cost or below", loc="left", pad=2)
    for axis in axes:
        _budget_line(axis, paid.budget, vertical=True)


def save(figure: Figure, path: str | pathlib.Path) -> pathlib.Path:
    """Write a figure as its suffix says; the file appears whole or not at all, and equal figures give equal files."""
    import matplotlib

    path = pathlib.Path(path)
    kind = path.suffix.lower()
    if kind not in FORMATS:
        raise ValueError(f"{path} has to end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}, which decides the format")
    undated = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}[kind]
    with replacing(path) as partial, matplotlib.rc_context(STYLE):
        figure.savefig(partial, format=kind[1:], dpi=300, metadata=undated)
    return path


def sheet(
    title: str, caption: Sequence[str], heights: Sequence[float], columns: int, lines: int = 0
) -> tuple[Figure, SubFigure, np.ndarray]:
    """An empty figure with a title, rows of panels of these heights, room for so many lines of a legend, and a caption."""
    from matplotlib.figure import Figure

    heading, text = textwrap.wrap(title, 52), textwrap.wrap(" ".join(filter(None, caption)), 76)
    upper, lower = sum(heights) + 0.17 * len(heading) + 0.15 * lines, 0.05 + 0.105 * len(text)
    figure = Figure(figsize=(COLUMN, upper + lower), layout="constrained")
    body, foot = cast("np.ndarray", figure.subfigures(2, 1, height_ratios=[upper, lower], hspace=0.0))
    body.suptitle("\n".join(heading), fontsize=TEXT + 0.5, fontweight="bold")
    foot.text(0.015, 1.0, "\n".join(text), va="top", fontsize=SMALL, color="#333333", linespacing=1.15)
    axes = body.subplots(len(heights), columns, squeeze=False, height_ratios=heights)
    for axis in axes.ravel():
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", color="#dddddd", linewidth=0.5)
        axis.set_axisbelow(True)
    return figure, body, axes


def styles() -> Iterator[tuple[str, Line]]:
    """Colours and line styles, in pairs that do not come again soon."""
    return zip(itertools.cycle(PALETTE), itertools.cycle(LINES), strict=False)


class Paid(NamedTuple):
    """Costs of one constraint by group, its budget, and what is said of the violations of each group, if they are known."""

    costs: dict[str, np.ndarray]
    budget: float | None
    violations: list[str] | None


def _costs(groups: Groups, budget: Budget | None) -> dict[str, Paid]:
    """What was paid by constraint: "cost", or "cost 0", "cost 1" and so on."""
    limits = list(budget) if isinstance(budget, Sequence) else None
    amount = None if limits is None else len(limits)
    several = {name: by_constraint(group[1], amount) for name, group in _filled(groups).items()}

    def paid(one: Mapping[str, Any], flags: Mapping[str, Any], limit: float | None) -> Paid:
        costs = {name: np.concatenate(as_seeds(seeds, f"episode cost of {name}")) for name, seeds in one.items()}
        return Paid(costs, limit, _violations(costs, flags, limit))

    flags = {name: Group(*group).violated for name, group in groups.items()}
    if not isinstance(budget, Sequence) and all(one is None for one in several.values()):
        return {"cost": paid({name: group[1] for name, group in groups.items()}, flags, budget)}
    each = {name: one or [] for name, one in several.items()}
    counts = {name: max(1, len(one)) for name, one in each.items()}
    count = next(iter(counts.values())) if limits is None else len(limits)
    if (budget is not None and limits is None) or any(len(one) != count for one in each.values()):
        raise ValueError(f"budget={budget} and costs of {counts} constraints do not fit; pass one budget per constraint")
    unknown: list[Any] = [None] * count
    flagged = {name: by_constraint(one, amount) or unknown for name, one in flags.items()}
    return {
        f"cost {i}": paid(
            {name: one[i] for name, one in each.items()},
            {name: one[i] for name, one in flagged.items()},
            None if limits is None else limits[i],
        )
        for i in range(count)
    }


def _violations(costs: Mapping[str, np.ndarray], flags: Mapping[str, Any], limit: float | None) -> list[str] | None:
    """How many episodes of each group violated: what their own budgets said, or else those that cost more than the limit."""
    known = {
        name: None if flags[name] is None else np.concatenate([np.atleast_1d(one) for one in flags[name]]) for name in costs
    }
    if limit is None and any(one is None for one in known.values()):
        return None
    violated = {name: np.asarray(paid > limit if known[name] is None else known[name]) for name, paid in costs.items()}
    return [f"{int(one.sum()):,} of {one.size:,}" for one in violated.values()]


def _budget_words(budget: Budget | None) -> str:
    if budget is None:
        return ""
    several = isinstance(budget, Sequence)
    numbers = ", ".join(f"{one:g}" for one in np.atleast_1d(budget))
    return f"Dashed: the budget{'s' if several else ''} {numbers}{' of the constraints' if several else ''}."


def _titled(subject: str, what: str) -> str:
    return f"{one_line(subject)}: {what}" if subject else what.capitalize()


def _was_tested(epochs: Epochs) -> bool:
    numbers = (seed.get("evaluated_return") for seeds in epochs for seed in seeds)
    return any(number is not None and not math.isnan(number) for number in numbers)


def panels(budget: Budget | None, labels: Mapping[str, str] = CURVES) -> dict[str, tuple[str, float | None]]:
    """Metric → (panel, budget); those of several constraints are numbered."""
    first, *others = labels
    if not isinstance(budget, Sequence):
        return {first: (labels[first], None)} | {metric: (labels[metric], budget) for metric in others}
    numbered = {
        f"{metric}_{i}": (f"{label}, constraint {i}", limit)
        for i, limit in enumerate(budget)
        for metric, label in labels.items()
        if metric != first
    }
    return {first: (labels[first], None), **numbered}


def _curve(axis: Axes, name: str, values: np.ma.MaskedArray | None, steps: int, colour: str, line: Line, sparse: bool) -> None:
    """One run; where its numbers are sparse, epochs without any are no gaps."""
    if values is None:
        return
    x = steps * np.arange(1, len(values) + 1)
    if sparse:
        has = ~np.ma.getmaskarray(values).all(1)
        x, values = x[has], values[has]
    epochs, seeds = values.shape
    label = f"{name} ({seeds} seed{'s' if seeds > 1 else ''})"
    mean, least, greatest = (of_seeds.filled(np.nan) for of_seeds in (values.mean(1), values.min(1), values.max(1)))
    alone = np.isnan(np.concatenate([[np.nan], mean[:-1]])) & np.isnan(np.concatenate([mean[1:], [np.nan]]))
    marked = np.arange(epochs) if epochs <= SHORT else np.flatnonzero(alone)
    marks: dict[str, Any] = {"marker": "o", "markersize": 2.5, "markevery": marked.tolist()} if marked.size else {}
    axis.plot(x, mean, color=colour, linestyle=line, linewidth=1.1, label=label, **marks)
    axis.fill_between(x, least, greatest, color=colour, alpha=0.2, linewidth=0)


def _budget_line(axis: Axes, budget: float | None, vertical: bool = False) -> None:
    if budget is not None:
        draw = axis.axvline if vertical else axis.axhline
        draw(budget, color="black", linestyle="--", linewidth=0.9, label="budget", zorder=2.5)


def legend(body: SubFigure, axis: Axes, columns: int = 2) -> None:
    """What the lines of a panel are, below all panels."""
    handles, labels = axis.get_legend_handles_labels()
    cut = [_cut(label, 60 // columns) for label in labels]
    body.legend(handles, cut, loc="outside lower center", ncols=columns, frameon=False, fontsize=SMALL, handlelength=2.2)


def _cut(name: str, room: int) -> str:
    """A name that is too long without its beginning, since the ends of runs' names tell them apart."""
    name = one_line(name)
    return name if len(name) <= room else "…" + name[len(name) - max(room - 1, 1) :]


def _filled(named: Mapping[str, Content]) -> Mapping[str, Content]:
    if not named:
        raise ValueError("there is nothing to draw; pass at least one named group")
    return named


def by_seed(epochs: Epochs, metric: str, name: str) -> np.ma.MaskedArray | None:
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
