"""`saute certify` and `saute plot`: what trained policies prove and how they look, from run folders to files."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple

from saute.cli.main import UserError
from saute.evidence.certificate import Certificate
from saute.evidence.certificate import certify as certify_costs
from saute.evidence.plots import FORMATS, box_plot, cost_distribution, save, training_curves
from saute.evidence.stats import Interval, difference, probability_of_improvement
from saute.runs.checkpoint import write_atomically
from saute.runs.config import Experiment
from saute.runs.evaluate import Outcome
from saute.runs.folder import keep_outcomes, names_of, outcomes_of, read_experiment, read_metrics
from saute.runs.pretrained import place_of

__all__ = ["Certify", "Plot", "certify", "plot"]

Runs = tuple[pathlib.Path, ...]


def _as(metavar: str, hint: str | None = None) -> Any:
    """How the help shows an option; tyro asks when it reads the annotations, so that this module does without it."""
    import tyro

    return tyro.conf.arg(metavar=metavar, help_behavior_hint=None if hint is None else f"({hint})")


@dataclasses.dataclass(frozen=True)
class Certify:
    """Say what fresh episodes of trained policies prove about their budget, and compare several runs with the first."""

    runs: Annotated[Runs, _as("RUN [RUN ...]", "required")]
    """Run folders, or pretrained:NAME."""
    episodes: Annotated[int, _as("N")] = 10_000
    """Episodes per seed."""
    out: Annotated[pathlib.Path | None, _as("FOLDER", "default: the run folder")] = None
    """Folder for the certificate; for several runs, one folder in it for each, and their comparison."""
    budget: Annotated[float | None, _as("NUMBER", "default: the run's own")] = None
    """Budget to test at, in the units of the cost."""
    confidence: Annotated[float, _as("SHARE")] = 0.95
    """Confidence of every bound and interval."""
    seed: Annotated[int, _as("N")] = 1_000_000
    """Seed of the evaluation."""


@dataclasses.dataclass(frozen=True)
class Plot:
    """Draw run folders: box plots of returns and costs, training curves, or the distribution of costs."""

    kind: Annotated[Literal["box", "curves", "costs"], _as("{box,curves,costs}")]
    """box: returns and costs of fresh episodes; curves: training; costs: distribution of the costs of fresh episodes."""
    runs: Annotated[Runs, _as("RUN [RUN ...]", "required")]
    """Run folders, or pretrained:NAME, drawn side by side."""
    out: Annotated[pathlib.Path | None, _as("FILE", "default: KIND.png in the run folder; here, if there are several")] = None
    """File to write; .png, .svg or .pdf decides the format."""
    episodes: Annotated[int, _as("N")] = 100
    """Fresh episodes per seed."""
    budget: Annotated[float | None, _as("NUMBER", "default: the run's own")] = None
    """Budget to test at, in the units of the cost."""
    seed: Annotated[int, _as("N")] = 1_000_000
    """Seed of the evaluation."""


class Trial(NamedTuple):
    """A run, by the name it is shown under, and its evaluated episodes."""

    name: str
    experiment: Experiment
    outcomes: list[Outcome]

    @property
    def returns(self) -> list[Any]:
        return [outcome.task_return for outcome in self.outcomes]

    @property
    def costs(self) -> list[Any]:
        return [outcome.cost for outcome in self.outcomes]


class Comparison(NamedTuple):
    """A run against the first one."""

    name: str
    against: str
    difference: Interval
    improvement: Interval


def certify(options: Certify) -> None:
    names = names_of(options.runs)
    budget = _common_budget(options.runs, options.budget)
    if not 0.0 < options.confidence < 1.0:
        raise UserError(f"--confidence {options.confidence} is outside (0, 1); use a share, for example 0.95")
    tested, comparisons = [], []
    for run, name in names.items():
        one = Trial(name, *outcomes_of(run, options.episodes, options.seed, options.budget))
        with _reported(run):
            certificate = certify_costs(one.costs, budget, returns=one.returns, confidence=options.confidence)
        folder = place_of(run) if options.out is None else options.out if len(names) == 1 else options.out / name
        with _writing(folder):
            _write(folder, one, certificate, options.seed)
        print(f"{name}\n\n{certificate.text()}\n\nwrote {folder / 'certificate.md'}\n")
        tested.append(one)
    for other in tested[1:]:
        comparisons.append(_compare(other, tested[0], options.confidence))
    if comparisons:
        print(_comparison_text(comparisons, options.confidence))
        if options.out is not None:
            with _writing(options.out):
                _write_comparison(options.out, tested, comparisons, budget, options.confidence)
            print(f"\nwrote {options.out / 'comparison.md'}")


def plot(options: Plot) -> None:
    names = names_of(options.runs)
    if options.out is not None and options.out.suffix.lower() not in FORMATS:
        raise UserError(f"--out {options.out} has to end in .png, .svg or .pdf, which decides the format")
    budget = _common_budget(options.runs, options.budget, needed=False)
    if options.kind == "curves":
        metrics = {name: read_metrics(run) for run, name in names.items()}
        steps = {name: read_experiment(run).steps_per_epoch for run, name in names.items()}
        with _reported(options.runs[0]):
            figure = training_curves(metrics, budget, steps_per_epoch=steps)
    else:
        draw = {"box": box_plot, "costs": cost_distribution}[options.kind]
        groups = {}
        for run, name in names.items():
            tested = Trial(name, *outcomes_of(run, options.episodes, options.seed, options.budget))
            groups[name] = (tested.returns, tested.costs)
        with _reported(options.runs[0]):
            figure = draw(groups, budget)
    out = options.out or (place_of(options.runs[0]) if len(names) == 1 else pathlib.Path()) / f"{options.kind}.png"
    with _writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        save(figure, out)
    print(f"wrote {out}")


def _common_budget(runs: Runs, budget: float | None, needed: bool = True) -> Any:
    """The budget that all runs share; those of other tasks or budgets do not belong into one comparison."""
    experiments = [read_experiment(run) for run in runs]
    for run, experiment in zip(runs, experiments, strict=True):
        if experiment.env != experiments[0].env:
            raise UserError(f"{run} is of {experiment.env}, {runs[0]} of {experiments[0].env}; compare runs of one task")
        if budget is None and experiment.budget != experiments[0].budget:
            raise UserError(
                f"{run} has budget {experiment.budget}, {runs[0]} has {experiments[0].budget}; test both at one with --budget"
            )
    common = experiments[0].budget if budget is None else budget
    if common is None and needed:
        raise UserError(f"{runs[0]} has no budget; pass --budget, in the units of the cost of {experiments[0].env}")
    return common


def _compare(one: Trial, first: Trial, confidence: float) -> Comparison:
    return Comparison(
        one.name,
        first.name,
        difference(one.returns, first.returns, confidence=confidence),
        probability_of_improvement(one.returns, first.returns, confidence=confidence),
    )


def _comparison_rows(comparisons: list[Comparison]) -> list[list[str]]:
    rows = [["run", "against", "difference of return, IQM", "P(better return)"]]
    for one in comparisons:
        rows.append([one.name, one.against, *("{:.3f} [{:.3f}, {:.3f}]".format(*part) for part in one[2:])])
    return rows


def _comparison_text(comparisons: list[Comparison], confidence: float) -> str:
    rows = _comparison_rows(comparisons)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, "", _comparison_note(confidence)])


def _comparison_note(confidence: float) -> str:
    return (
        f"Intervals are {100 * confidence:g} % bootstrap intervals over seeds and their episodes. P(better return) is that of "
        "a random episode of the run against one of the other, ties counting half."
    )


def _write(folder: pathlib.Path, tested: Trial, certificate: Certificate, seed: int) -> None:
    """The certificate for people and for machines, its pictures, and the episodes that it rests on."""
    folder.mkdir(parents=True, exist_ok=True)
    keep_outcomes(folder, tested.outcomes)
    groups = {f"seed {i}": (one.task_return, one.cost) for i, one in enumerate(tested.outcomes)}
    save(box_plot(groups, certificate.budget), folder / "certificate-box.png")
    save(cost_distribution(groups, certificate.budget), folder / "certificate-costs.png")
    content = certificate.json(run=tested.name, experiment=tested.experiment.as_json(), evaluation_seed=seed)
    write_atomically(folder / "certificate.json", content.encode())
    write_atomically(folder / "certificate.md", _page(tested, certificate, seed).encode())


def _page(tested: Trial, certificate: Certificate, seed: int) -> str:
    it = tested.experiment
    return "\n\n".join(
        [
            f"# Safety certificate: {tested.name}",
            f"**{certificate.statement}.**",
            f"Task {it.env}, method {it.method}, optimiser {it.algo}, {it.seeds} seed(s) of {it.epochs} epochs; budget "
            f"{certificate.budget:g} per episode. Deterministic policies, on starts from seed {seed} that training never saw.",
            f"```text\n{certificate.table()}\n```",
            "![Returns and costs of every seed](certificate-box.png)",
            "![Distribution of the costs of every seed](certificate-costs.png)",
            "\n".join(f"- {note}" for note in certificate.notes),
            "The numbers are in `certificate.json`, every episode in `episodes/`.\n",
        ]
    )


def _write_comparison(
    folder: pathlib.Path, tested: list[Trial], comparisons: list[Comparison], budget: float, confidence: float
) -> None:
    groups = {one.name: (one.returns, one.costs) for one in tested}
    save(box_plot(groups, budget), folder / "comparison-box.png")
    save(cost_distribution(groups, budget), folder / "comparison-costs.png")
    heads, *rows = _comparison_rows(comparisons)
    table = "\n".join("| " + " | ".join(row) + " |" for row in [heads, ["---"] * len(heads), *rows])
    certificates = "\n".join(f"- [{one.name}]({one.name}/certificate.md)" for one in tested)
    pictures = "![Returns and costs](comparison-box.png)\n\n![Distribution of the costs](comparison-costs.png)"
    page = ["# Comparison", table, _comparison_note(confidence), pictures, f"Certificates:\n\n{certificates}\n"]
    write_atomically(folder / "comparison.md", "\n\n".join(page).encode())


@contextlib.contextmanager
def _reported(run: pathlib.Path) -> Iterator[None]:
    """What is wrong with the numbers of a run is the user's to know."""
    try:
        yield
    except ValueError as problem:
        raise UserError(f"{run}: {problem}") from problem


@contextlib.contextmanager
def _writing(out: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise UserError(f"cannot write {out}: {problem.strerror or problem}; choose another place with --out") from problem
