"""`saute plot`: pictures of training and of trained policies, from run folders."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from saute.cli.options import shown_as
from saute.cli.output import writing
from saute.cli.trajectories import field_of, panels
from saute.cli.trials import asked_budget, common_budget, reported, trials
from saute.core.errors import UserError
from saute.evidence.plots import FORMATS, Group, box_plot, cost_distribution, save, training_curves
from saute.evidence.trajectories import trajectory_plot
from saute.runs.evaluate import TEST_SEED
from saute.runs.folder import names_of, read_config, read_metrics
from saute.runs.outcomes import Budget, Elsewhere
from saute.runs.pretrained import place_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Plot", "plot"]


@dataclasses.dataclass(frozen=True)
class Plot:
    """Draw run folders: box plots of returns and costs, training curves, the distribution of costs, or trajectories."""

    kind: Annotated[Literal["box", "curves", "costs", "trajectories"], shown_as("{box,curves,costs,trajectories}")]
    """box: returns and costs of fresh episodes; curves: training; costs: the distribution of the costs of fresh episodes;
    trajectories: fresh episodes over the cost field, by epoch where training kept policies (saute train --snapshots 4)."""
    runs: Annotated[tuple[pathlib.Path, ...], shown_as("RUN [RUN ...]", "required")]
    """Run folders, or pretrained:NAME, to draw side by side."""
    out: Annotated[pathlib.Path | None, shown_as("FILE", "default: KIND.png in the run folder; here, if there are several")] = (
        None
    )
    """File to write; .png, .svg or .pdf decides the format."""
    episodes: Annotated[int | None, shown_as("N", "default: 100; for trajectories 4")] = None
    """Fresh episodes per seed."""
    budget: Annotated[tuple[float, ...], shown_as("NUMBER ...", "default: the run's own")] = ()
    """Budget to test at, in the units of the cost; one number per constraint."""
    seed: Annotated[int, shown_as("N")] = TEST_SEED
    """Seed of the evaluation."""
    trust: bool = False
    """Import the modules that the run folder names, whose code then runs; by default only those that you name are imported."""


def plot(options: Plot) -> None:
    names = names_of(options.runs)
    if options.out is not None and options.out.suffix.lower() not in FORMATS:
        raise UserError(f"--out {options.out} has to end in .png, .svg or .pdf, which decides the format")
    asked = asked_budget(options.budget)
    budget, task = common_budget(options.runs, asked), read_config(options.runs[0]).experiment.env
    with reported(options.runs[0]):
        if options.kind == "curves":
            figure = _curves(names, budget, task)
        elif options.kind == "trajectories":
            if budget is None:
                raise UserError(f"{options.runs[0]} has no budget; pass --budget, in the units of its cost")
            plane, field = field_of(task)
            drawn = panels(names, plane, 4 if options.episodes is None else options.episodes, options.seed, budget)
            figure = trajectory_plot(drawn, field, task)
        else:
            draw = {"box": box_plot, "costs": cost_distribution}[options.kind]
            count = 100 if options.episodes is None else options.episodes
            tested = trials(options.runs, count, options.seed, asked, Elsewhere(trusted=options.trust))
            figure = draw({one.name: Group(one.returns, one.costs, one.violated) for one in tested}, budget, task)
    out = options.out or (place_of(options.runs[0]) if len(names) == 1 else pathlib.Path()) / f"{options.kind}.png"
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        save(figure, out)
    print(f"wrote {out}")


def _curves(names: Mapping[pathlib.Path, str], budget: Budget | None, task: str) -> Figure:
    metrics = {name: read_metrics(run) for run, name in names.items()}
    steps = {name: read_config(run).settings.steps_per_epoch for run, name in names.items()}
    return training_curves(metrics, budget, steps_per_epoch=steps, subject=task)
