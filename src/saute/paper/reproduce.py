"""`saute reproduce`: trains what a figure or table needs, tests it, and writes its numbers and pictures, and a page of all."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import multiprocessing
import os
import pathlib
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Annotated, Any, Literal

from saute.cli.commands import run_experiment
from saute.cli.main import UserError
from saute.envs import nearest
from saute.evidence.plots import box_plot, save, training_curves
from saute.paper.durations import duration, expected_seconds
from saute.paper.figures import ARTIFACTS, Row
from saute.paper.measured import late_epochs, measure
from saute.paper.page import EPISODES, page, read, table, verdicts
from saute.paper.theory import TITLE, theory
from saute.runs.checkpoint import write_atomically
from saute.runs.config import Experiment
from saute.runs.folder import outcomes_of, read_metrics

__all__ = ["Reproduce", "reproduce"]

Scale = Literal["smoke", "laptop", "paper"]
THEORY = "theory"
"""The one artifact that is solved and not trained."""
SOLVING = {"smoke": 20, "laptop": 300, "paper": 300}
"""Seconds that this takes."""


def _as(metavar: str) -> Any:
    """How the help shows an option; tyro asks when it reads the annotations, so that this module does without it."""
    import tyro

    return tyro.conf.arg(metavar=metavar)


def _positional() -> Any:
    import tyro

    return tyro.conf.Positional


@dataclasses.dataclass(frozen=True)
class Reproduce:
    """Reproduce figures and tables of the paper; what was trained already is not trained again."""

    names: Annotated[tuple[str, ...], _positional()] = ()
    """Figures and tables, or all; page writes the page of all that has been reproduced, and trains nothing; none lists them."""
    scale: Scale = "laptop"
    """smoke: one epoch, to see that all works; laptop: the fast presets, shorter where many are compared; paper: the paper's
    settings and epochs."""
    episodes: Annotated[int, _as("N")] = EPISODES
    """Test episodes per seed; planners get 25 at most."""
    runs: Annotated[pathlib.Path, _as("FOLDER")] = pathlib.Path("runs/reproduce")
    """Where runs are kept, each in a folder named after its settings."""
    out: Annotated[pathlib.Path, _as("FOLDER")] = pathlib.Path("results")
    """Where numbers and pictures go."""
    page: Annotated[pathlib.Path, _as("FILE")] = pathlib.Path("docs/reproduction.md")
    """Where the page goes."""
    train: bool = True
    """Whether to train what has not been trained; otherwise only rows whose runs are finished are tested."""
    jobs: Annotated[int, _as("N")] = 1
    """How many trainings run at once, each in its own process, before anything is tested; one alone keeps two cores
    busy."""
    list: bool = False
    """List name, number of runs, expected time, state and content of every figure and table."""


def reproduce(options: Reproduce) -> None:
    if options.list or not options.names:
        print(_listing(options))
        return
    if options.names == ("page",):
        _write_page(options)
        return
    for option, number in (("episodes", options.episodes), ("jobs", options.jobs)):
        if number < 1:
            raise UserError(f"--{option} {number} must be at least 1")
    try:
        every = [*ARTIFACTS, THEORY]
        # Solving takes minutes too, so that all without training leaves it out.
        whole = every if options.train else [*ARTIFACTS]
        names = whole if options.names == ("all",) else [nearest(n, every, "artifact") for n in options.names]
    except ValueError as problem:
        raise UserError(f"{problem}; saute reproduce lists them") from problem
    if options.train and options.jobs > 1:
        _train_together([name for name in names if name != THEORY], options)
    for name in names:
        if name == THEORY:
            _make_theory(options)
        else:
            _make(name, options)
    print(f"wrote {options.out / options.scale}; saute reproduce page --scale {options.scale} writes a page of all of it")


def scaled(row: Row, scale: Scale) -> Experiment:
    """The experiment of a row with the settings of a scale."""
    experiment = dataclasses.replace(row.experiment, learner=row.learners.get(scale))
    if scale == "smoke":
        experiment = dataclasses.replace(experiment, preset="paper", epochs=1, seeds=1)
    else:
        preset, epochs = ("fast", None) if scale == "laptop" else ("paper", row.paper_epochs)
        experiment = dataclasses.replace(experiment, preset=preset, epochs=epochs)
    return experiment.checked()


def folder_of(experiment: Experiment, runs: pathlib.Path) -> pathlib.Path:
    """Equal settings have the same folder, so that figures share their runs."""
    digest = hashlib.sha256(json.dumps(experiment.as_json(), sort_keys=True).encode()).hexdigest()[:10]
    return runs / f"{experiment.env}-{experiment.method}-{experiment.algo}-{digest}"


def episodes_of(row: Row, asked: int) -> int:
    """Test episodes per seed, fewer than asked for if the method is slow to test."""
    return asked if row.most_episodes is None else min(asked, row.most_episodes)


def finished(run: pathlib.Path) -> bool:
    return (run / "seconds.json").exists()


def _make(name: str, options: Reproduce) -> None:
    artifact = ARTIFACTS[name]
    if options.train:
        for run, one in _missing([name], options).items():
            _finish(run, *one)
    groups, curves, steps, rows = {}, {}, {}, []
    for row in artifact.rows:
        experiment = scaled(row, options.scale)
        run = folder_of(experiment, options.runs)
        if not finished(run):
            continue
        _, outcomes = outcomes_of(run, episodes_of(row, options.episodes), 1_000_000, row.budget)
        groups[row.label] = ([one.task_return for one in outcomes], [one.cost for one in outcomes])
        curves[row.label], steps[row.label] = read_metrics(run), experiment.steps_per_epoch
        seconds, epochs = json.loads((run / "seconds.json").read_text()), experiment.epochs or 0
        late = late_epochs(curves[row.label])
        rows.append(measure(row.label, row.budget, outcomes, run=run.name, epochs=epochs, seconds=seconds, late=late))
    if not rows:
        print(f"{name}: nothing is trained yet")
        return
    place = options.out / options.scale / name
    place.mkdir(parents=True, exist_ok=True)
    budgets = {row.budget for row in artifact.rows}
    budget = budgets.pop() if len(budgets) == 1 else None
    save(box_plot(groups, budget), place / "box.png")
    save(training_curves(curves, budget, steps_per_epoch=steps), place / "curves.png")
    content = json.dumps([row.as_json() for row in rows], indent=1, ensure_ascii=False)
    write_atomically(place / "numbers.json", f"{content}\n".encode())
    known = {other: read(options.out, options.scale, other) for other in ARTIFACTS}
    print(table(artifact, known[name]))
    for sentence, verdict in verdicts(name, known):
        print(f"{verdict.word}: {sentence} ({verdict.reason})")


def _missing(names: Sequence[str], options: Reproduce) -> dict[pathlib.Path, tuple[str, Experiment]]:
    """Every run of some artifacts that is not finished, and what to say when it begins."""
    missing: dict[pathlib.Path, tuple[str, Experiment]] = {}
    for name in names:
        for row in ARTIFACTS[name].rows:
            experiment = scaled(row, options.scale)
            run = folder_of(experiment, options.runs)
            if not finished(run):
                missing.setdefault(run, (f"{name}: training {row.label}", experiment))
    return missing


def _train_together(names: Sequence[str], options: Reproduce) -> None:
    """As many trainings at once as there are jobs, the longest first, so that none is left to run alone at the end."""
    missing = _missing(names, options)
    longest = sorted(missing, key=lambda run: expected_seconds(missing[run][1]) or 0.0, reverse=True)
    # Fresh processes, because XLA's threads do not survive a fork.
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn"), end_with_parent) as pool:
        for future in [pool.submit(_finish_quietly, run, *missing[run]) for run in longest]:
            future.result()


def end_with_parent() -> None:
    """Lets a worker die with the process that began it, however that ends; what it trains goes on from its checkpoint."""

    def watch() -> None:
        multiprocessing.parent_process().join()  # type: ignore[union-attr]
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _finish(run: pathlib.Path, what: str, experiment: Experiment) -> None:
    print(f"{what} ({experiment.epochs} epochs of {experiment.seeds} seeds) …", flush=True)
    begin, continued = time.monotonic(), (run / "config.json").exists()
    run_experiment(experiment, run)
    # How long an interrupted run took is not known.
    seconds = None if continued else round(time.monotonic() - begin)
    write_atomically(run / "seconds.json", json.dumps(seconds).encode())


def _finish_quietly(run: pathlib.Path, what: str, experiment: Experiment) -> None:
    """Without a progress bar, of which a terminal shows one at a time."""
    with contextlib.redirect_stderr(io.StringIO()):
        _finish(run, what, experiment)


def _make_theory(options: Reproduce) -> None:
    """What is solved instead of trained; learned policies are those that other artifacts have tested."""
    pendulum = [name for name, artifact in ARTIFACTS.items() if artifact.rows[0].experiment.env == "pendulum"]
    learned = [row for name in pendulum for row in read(options.out, options.scale, name).values()]
    print(theory(options.out / options.scale / THEORY, options.scale, learned))


def _write_page(options: Reproduce) -> None:
    content = page(options.out, options.scale, options.page)
    try:
        options.page.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(options.page, content.encode())
    except OSError as problem:
        raise UserError(f"cannot write {options.page} ({problem.strerror}); choose another place with --page") from problem
    print(f"wrote {options.page}")


def _listing(options: Reproduce) -> str:
    lines = [f"{'name':<26} {'runs':>4} {'time':>8}  {'state':<16} content"]
    distinct: dict[pathlib.Path, Experiment] = {}
    for name, artifact in ARTIFACTS.items():
        runs = {folder_of(one, options.runs): one for one in (scaled(row, options.scale) for row in artifact.rows)}
        distinct |= runs
        ready = sum(map(finished, runs))
        tested = len(read(options.out, options.scale, name))
        state = "not begun" if not ready + tested else f"{ready} of {len(runs)} trained"
        if tested:
            state = "reproduced" if tested == len(artifact.rows) else f"{tested} of {len(artifact.rows)} rows"
        times = [_seconds(run, experiment) for run, experiment in runs.items()]
        time = "?" if None in times else duration(sum(filter(None, times)))
        lines.append(f"{name:<26} {len(runs):>4} {time:>8}  {state:<16} {artifact.title}")
    solved = "reproduced" if (options.out / options.scale / THEORY / "numbers.json").exists() else "not begun"
    lines.append(f"{THEORY:<26} {0:>4} {duration(SOLVING[options.scale]):>8}  {solved:<16} {TITLE}")
    lines += ["", "Times are those of training on two cores, measured (also beside another training) or expected of slow ones."]
    alone = sum(expected_seconds(one) or 0.0 for one in distinct.values())
    together = f"One after another, the {len(distinct)} different runs are expected to take {duration(alone)}"
    return "\n".join([*lines, f"{together}; those that several share are trained once."])


def _seconds(run: pathlib.Path, experiment: Experiment) -> float | None:
    """How long a run took, or else about how long it will take."""
    took = json.loads((run / "seconds.json").read_text()) if finished(run) else None
    return expected_seconds(experiment) if took is None else took
