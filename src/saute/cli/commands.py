"""`saute train`, `saute resume` and `saute evaluate`: run folders from names, and what their policies do."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Annotated, Any

import numpy as np
import tyro

from saute.cli.main import UserError
from saute.evidence.stats import upper_bound
from saute.runs.checkpoint import CheckpointError
from saute.runs.config import Experiment, algorithm_of, environment_of, selection_of
from saute.runs.evaluate import Outcome
from saute.runs.folder import keep_outcomes, names_of, outcomes_of, read_experiment, source_of
from saute.runs.loop import TrainingError
from saute.runs.loop import train as run_training
from saute.runs.presets import Preset
from saute.runs.pretrained import place_of
from saute.runs.progress import progress
from saute.runs.report import logger, versions

__all__ = ["Evaluate", "Resume", "Train", "evaluate_runs", "resume", "run_experiment", "train"]


@dataclasses.dataclass(frozen=True)
class Train(Experiment):
    """Train several seeds of a method and keep everything in a run folder."""

    learner: tyro.conf.Suppress[Preset | None] = None
    out: pathlib.Path | None = None
    """Run folder; by default runs/ENV-METHOD-ALGO."""
    log: tuple[str, ...] = ()
    """tensorboard, wandb: log there as well; metrics.jsonl is always written."""


@dataclasses.dataclass(frozen=True)
class Resume:
    """Continue a run folder where its newest whole checkpoint stands, bit for bit."""

    run: pathlib.Path
    """Run folder."""
    epochs: int | None = None
    """Train up to this epoch instead of the one that was planned."""
    log: tuple[str, ...] = ()
    """tensorboard, wandb: log there as well."""


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """Evaluate the deterministic policies of run folders on starts that training never saw."""

    runs: Annotated[tuple[pathlib.Path, ...], tyro.conf.arg(metavar="RUN [RUN ...]")]
    """Run folders, or pretrained:NAME."""
    episodes: int = 100
    """Episodes per seed."""
    out: pathlib.Path | None = None
    """Folder for the numbers of every episode, by default the run folder; for several runs, one folder in it for each."""
    budget: tuple[float, ...] = ()
    """Budgets to test at; by default the run's own."""
    seed: int = 1_000_000
    """Seed of the evaluation."""


def train(options: Train) -> None:
    fields = {field.name: getattr(options, field.name) for field in dataclasses.fields(Experiment)}
    experiment = _checked(Experiment(**fields))
    name = f"{experiment.env.split(':')[-1]}-{experiment.method}-{experiment.algo}".replace("/", "-")
    out = options.out or pathlib.Path("runs", name)
    if (out / "config.json").exists() and read_experiment(out).as_json() != experiment.as_json():
        raise UserError(f"{out} holds a run with other settings; choose another --out, or continue it with saute resume {out}")
    run_experiment(experiment, out, options.log)
    print(f"wrote {out}; evaluate it with saute evaluate {out}, draw its training with saute plot curves {out}")


def resume(options: Resume) -> None:
    experiment = read_experiment(options.run)
    if source_of(options.run) != options.run:
        raise UserError(f"{options.run} has no checkpoint to continue from; train it anew with saute train {experiment.env}")
    epochs = experiment.epochs if options.epochs is None else options.epochs
    run_experiment(_checked(dataclasses.replace(experiment, epochs=epochs)), options.run, options.log)
    print(f"finished {options.run} at epoch {epochs}; evaluate it with saute evaluate {options.run}")


def evaluate_runs(options: Evaluate) -> None:
    print(f"{'run':<30} {'budget':>6} {'seed':>4} {'task return':>15} {'cost':>7} {'worst':>7}  violations")
    places = []
    for run, name in names_of(options.runs).items():
        place = place_of(run) if options.out is None else options.out if len(options.runs) == 1 else options.out / name
        places.append(str(place))
        for budget in options.budget or (None,):
            experiment, outcomes = outcomes_of(run, options.episodes, options.seed, budget)
            try:
                keep_outcomes(place if budget is None else place / f"budget-{budget:g}", outcomes)
            except OSError as problem:
                raise UserError(f"cannot write the episodes to {place} ({problem.strerror}); pass --out") from problem
            pooled = Outcome(*map(np.concatenate, zip(*outcomes, strict=True)))
            for seed, outcome in [*((str(i), one) for i, one in enumerate(outcomes)), ("all", pooled)]:
                print(_row(str(run), seed, outcome, experiment.budget))
    print(f"wrote every episode to {', '.join(places)}")


def _row(run: str, seed: str, outcome: Outcome, budget: float | None) -> str:
    returns, costs = outcome.task_return, outcome.cost
    text, shown = "no budget", "–"
    if budget is not None:
        k, n = int((costs > budget).sum()), len(costs)
        text, shown = f"{k} of {n}, so ≤ {100 * upper_bound(k, n):.3f} % at 95 %", f"{budget:g}"
    name = run if len(run) <= 30 else "…" + run[-29:]
    numbers = f"{returns.mean():8.2f} ± {returns.std():4.2f} {costs.mean():7.2f} {costs.max():7.2f}"
    return f"{name:<30} {shown:>6} {seed:>4} {numbers}  {text}"


def run_experiment(experiment: Experiment, out: pathlib.Path, logs: tuple[str, ...] = ()) -> None:
    """Train a complete experiment in a folder, from where it stands."""
    try:
        algorithm, env = algorithm_of(experiment), environment_of(experiment)
        out.mkdir(parents=True, exist_ok=True)
        files = {"config.json": _lines(experiment.as_json()), "versions.json": _lines(versions())}
        epochs, steps = experiment.epochs or 1, algorithm.settings.steps_per_epoch
        with progress(epochs, steps * experiment.seeds) as show, logger(logs, out, experiment.as_json()) as log:
            run_training(
                algorithm,
                env,
                seeds=experiment.seeds,
                epochs=epochs,
                seed=experiment.seed,
                budget=experiment.budget,
                selection=selection_of(experiment),
                out=out,
                files=files,
                report=lambda epoch, metrics: (show(epoch, metrics), log(epoch, metrics))[0],
            )
    except (TrainingError, CheckpointError, ValueError) as problem:
        raise UserError(str(problem)) from problem
    except OSError as problem:
        raise UserError(f"cannot write to {out} ({problem.strerror}); nothing already written is lost") from problem
    except KeyboardInterrupt:
        print(f"stopped; continue with saute resume {out}")
        raise


def _lines(values: dict[str, Any]) -> bytes:
    return (json.dumps(values, indent=2) + "\n").encode()


def _checked(experiment: Experiment) -> Experiment:
    try:
        for name in ("seeds", "epochs"):
            number = getattr(experiment, name)
            if number is not None and number < 1:
                raise ValueError(f"--{name} {number} must be at least 1")
        return experiment.checked()
    except ValueError as problem:
        raise UserError(str(problem)) from problem
