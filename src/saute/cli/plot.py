"""`saute plot`: pictures of training and of trained policies, from run folders."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Annotated, Literal

from saute.cli.options import shown_as
from saute.cli.output import writing
from saute.cli.trials import asked_budget, common_budget, reported, trials
from saute.core.errors import UserError
from saute.evidence.plots import FORMATS, Group, box_plot, cost_distribution, save, training_curves
from saute.runs.evaluate import TEST_SEED
from saute.runs.folder import names_of, read_config, read_metrics
from saute.runs.outcomes import Elsewhere
from saute.runs.pretrained import place_of

__all__ = ["Plot", "plot"]


@dataclasses.dataclass(frozen=True)
class Plot:
    """Draw run folders: box plots of returns and costs, training curves, or the distribution of costs."""

    kind: Annotated[Literal["box", "curves", "costs"], shown_as("{box,curves,costs}")]
    """box: returns and costs of fresh episodes; curves: training; costs: the distribution of the costs of fresh episodes."""
    runs: Annotated[tuple[pathlib.Path, ...], shown_as("RUN [RUN ...]", "required")]
    """Run folders, or pretrained:NAME, to draw side by side."""
    out: Annotated[pathlib.Path | None, shown_as("FILE", "default: KIND.png in the run folder; here, if there are several")] = (
        None
    )
    """File to write; .png, .svg or .pdf decides the format."""
    episodes: Annotated[int, shown_as("N")] = 100
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
    if options.kind == "curves":
        metrics = {name: read_metrics(run) for run, name in names.items()}
        steps = {name: read_config(run).settings.steps_per_epoch for run, name in names.items()}
        with reported(options.runs[0]):
            figure = training_curves(metrics, budget, steps_per_epoch=steps, subject=task)
    else:
        draw = {"box": box_plot, "costs": cost_distribution}[options.kind]
        tested = trials(options.runs, options.episodes, options.seed, asked, Elsewhere(trusted=options.trust))
        groups = {one.name: Group(one.returns, one.costs, one.violated) for one in tested}
        with reported(options.runs[0]):
            figure = draw(groups, budget, task)
    out = options.out or (place_of(options.runs[0]) if len(names) == 1 else pathlib.Path()) / f"{options.kind}.png"
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        save(figure, out)
    print(f"wrote {out}")
