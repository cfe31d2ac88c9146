"""Train the runs of a figure or table of the paper, test them, and write numbers and pictures."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from saute.core.files import read_json, unsealed, write_sealed
from saute.core.progress import Meter, progress
from saute.core.typed import rebuilt
from saute.evidence.plots import Group, box_plot, save, training_curves
from saute.paper.durations import expected_seconds
from saute.paper.figures import ARTIFACTS, Row, artifact_of, seeds_at_laptop
from saute.paper.measured import Measured, courses_of, late_epochs, measure
from saute.paper.opened import Opened, looked_at, open_next
from saute.paper.page import AGAIN, read
from saute.paper.theory import theory
from saute.runs.build import configured
from saute.runs.config import Config
from saute.runs.crew import Crew, Job, done_in_turn, trained
from saute.runs.folder import Metrics, TrainingError, finished, folder_of, read_config, read_metrics
from saute.runs.outcomes import outcomes_of
from saute.runs.presets import changed

__all__ = ["THEORY", "Need", "Scale", "complete", "make", "make_theory", "needed", "scaled", "timed", "train_missing"]

Scale = Literal["smoke", "laptop", "paper"]
THEORY = "theory"
"""The name of the one result that is solved instead of trained."""


class Need(NamedTuple):
    """A run that a figure or table needs."""

    title: str
    config: Config


def scaled(row: Row, scale: Scale) -> Config:
    """The configuration of a row at a scale."""
    asked = row.experiment
    if scale == "smoke":
        asked = dataclasses.replace(asked, preset="paper", epochs=1, seeds=1)
    elif scale == "laptop":
        asked = dataclasses.replace(asked, preset=row.presets.get(scale, "fast"), seeds=seeds_at_laptop(asked))
    else:
        asked = dataclasses.replace(asked, preset="paper", epochs=row.paper_epochs)
    config = configured(asked, row.changes.get(scale))
    return config if scale == "smoke" else changed(config, "experiment.evaluate_every", _every(config))


def _every(config: Config) -> int | None:
    """Epochs from one test on the way to the next: a hundred tests, ten where the task is slow; none where the policy plans, or
    where tests of a robot would take as long as its training."""
    asked = config.experiment
    if asked.algo == "pets" or asked.env.endswith("_velocity"):
        return None
    return max(1, config.epochs // (10 if asked.env == "car" else 100))


def episodes_of(row: Row, asked: int) -> int:
    """Test episodes per seed: as many as asked for, but fewer if the method is slow to test."""
    return asked if row.most_episodes is None else min(asked, row.most_episodes)


def complete(run: pathlib.Path) -> bool:
    """Whether a run is finished, and of the settings that its folder is named after."""
    return finished(run) and folder_of(read_config(run), run.parent) == run


def seconds_of(run: pathlib.Path) -> int | None:
    """How long a run took; None if that is not known, because it was interrupted or trained elsewhere, or the file is odd."""
    try:
        stored = read_json(run / "seconds.json")
        return rebuilt(int | None, unsealed(stored, run)["seconds"] if isinstance(stored, dict) else stored)
    except (OSError, KeyError, ValueError):
        return None


def needed(names: Iterable[str], scale: Scale, runs: pathlib.Path) -> dict[pathlib.Path, Need]:
    """Every run that some figures and tables need, once, by its folder."""
    found: dict[pathlib.Path, Need] = {}
    for name in names:
        for row in artifact_of(name).rows:
            config = scaled(row, scale)
            found.setdefault(folder_of(config, runs), Need(f"{name}: {row.label}", config))
    return found


def train_missing(
    names: Iterable[str], scale: Scale, runs: pathlib.Path, crew: Crew | None = None, keep_going: bool = False
) -> None:
    """Train every run that some figures and tables need and that is not finished: one after another, or several by a crew.

    When one of several fails, the others end too and can go on later, unless they are to go on at once.
    """
    missing = {run: need for run, need in needed(names, scale, runs).items() if not complete(run)}
    if crew is not None:
        with progress(Meter("runs", len(missing))) as meter:
            _train_together(missing, crew, meter, keep_going)
        return
    for run, need in missing.items():
        _announce(need)
        for note in timed(need.config, run):
            print("note:", note, file=sys.stderr)


def _train_together(missing: dict[pathlib.Path, Need], crew: Crew, meter: Meter, keep_going: bool) -> None:
    meter.begin()
    failed = list[str]()
    for run in missing:
        _announce(missing[run])
    jobs = [Job(missing[run].title, missing[run].config, run, timed) for run in longest_first(missing)]
    for job, result in done_in_turn(crew, jobs):
        meter.tell(meter.done + 1)
        if not isinstance(result, BaseException):
            continue
        failed.append(f"{job.title} failed: {result}")
        if not keep_going:
            break
        print("error:", failed[-1], file=sys.stderr)
    if failed:
        raise TrainingError(f"{'; '.join(failed)}; what is trained so far is kept")


def longest_first(missing: dict[pathlib.Path, Need]) -> list[pathlib.Path]:
    """The runs by expected time, so that no long one runs alone at the end."""
    return sorted(missing, key=lambda run: expected_seconds(missing[run].config) or 0.0, reverse=True)


def _announce(need: Need) -> None:
    print(f"training {need.title} ({need.config.epochs} epochs of {need.config.experiment.seeds} seeds) …", flush=True)


def timed(config: Config, run: pathlib.Path) -> list[str]:
    """Train a run to its end, and keep how long that took."""
    begin, continued = time.monotonic(), (run / "config.json").exists()
    notes = trained(config, run)
    # A continued run took longer than we can know.
    seconds = None if continued else round(time.monotonic() - begin)
    write_sealed(run / "seconds.json", {"seconds": seconds})
    return notes


class Shown(NamedTuple):
    """A row whose run is finished: its episodes, its training, and the numbers of both."""

    group: Group
    curves: list[list[Metrics]]
    steps: int
    numbers: Measured


def make(name: str, scale: Scale, runs: pathlib.Path, out: pathlib.Path, episodes: int, reserved: bool = False) -> bool:
    """Test the finished runs of a figure or table, and write numbers and pictures; False if no run is finished.

    Rows whose runs are not there keep the numbers that they have; pictures of the others alone have names of their own.
    Reserved tests open a block of seeds that no other result has had.
    """
    artifact = artifact_of(name)
    found = [(row, run) for row in artifact.rows if complete(run := folder_of(scaled(row, scale), runs))]
    if not found:
        return False
    seeds = max(scaled(row, scale).experiment.seeds for row, _ in found) * episodes
    block = open_next(out, f"{scale} {name}, {episodes} episodes per seed", seeds) if reserved else looked_at()
    shown = {row.label: _shown(row, scale, run, episodes, block) for row, run in found}
    place = out / scale / name
    place.mkdir(parents=True, exist_ok=True)
    kept = read(out, scale, name)
    budgets = {row.budget for row in artifact.rows}
    budget = budgets.pop() if len(budgets) == 1 else None
    again = "" if kept.keys() <= shown.keys() else AGAIN
    groups = {label: one.group for label, one in shown.items()}
    save(box_plot(groups, budget, artifact.title), place / f"{again}box.png")
    trained = shared_trainings({label: one.numbers.run for label, one in shown.items()})
    curves, steps = ({both: getattr(shown[label], part) for label, both in trained.items()} for part in ("curves", "steps"))
    save(training_curves(curves, budget, steps_per_epoch=steps, subject=artifact.title), place / f"{again}curves.png")
    known = kept | {label: one.numbers for label, one in shown.items()}
    rows = [known[row.label] for row in artifact.rows if row.label in known]
    write_sealed(place / "numbers.json", {"rows": [row.as_json() for row in rows]})
    return True


def shared_trainings(runs: Mapping[str, str | None]) -> dict[str, str]:
    """Of rows by label with their runs, the first one of each run, and what all rows of that run are called together.

    Example:
        >>> shared_trainings({"Ant, at 10": "ant", "Ant, at 25": "ant", "Hopper": "hopper"})
        {'Ant, at 10': 'Ant, at 10/25', 'Hopper': 'Hopper'}
    """
    found = dict[str | None, list[str]]()
    for label, run in runs.items():
        found.setdefault(run, []).append(label)

    def together(labels: list[str]) -> str:
        words = [label.split() for label in labels]
        same = sum(
            1 for _ in itertools.takewhile(lambda ones: len(set(ones)) == 1, zip(*(own[:-1] for own in words), strict=False))
        )
        return " ".join([*words[0][:same], "/".join(" ".join(own[same:]) for own in words)])

    return {labels[0]: together(labels) for labels in found.values()}


def _shown(row: Row, scale: Scale, run: pathlib.Path, episodes: int, block: Opened) -> Shown:
    config, episodes = scaled(row, scale), episodes_of(row, episodes)
    _, outcomes = outcomes_of(run, episodes, block.first, row.budget)
    flags = [one.violated for one in outcomes if one.violated is not None]
    group = Group([one.task_return for one in outcomes], [one.cost for one in outcomes], flags or None)
    curves = read_metrics(run)
    numbers = measure(
        row.label,
        row.budget,
        outcomes,
        run=run.name,
        epochs=config.epochs,
        seconds=seconds_of(run),
        late=late_epochs(curves),
        courses=courses_of(curves),
        made=block.made(block.first + len(outcomes) * episodes - 1),
    )
    return Shown(group, curves, config.settings.steps_per_epoch, numbers)


def make_theory(scale: Scale, out: pathlib.Path) -> str:
    """Solve theorem 2, and compare with it the policies of the pendulum that have been tested for figures and tables."""
    pendulum = [name for name, artifact in ARTIFACTS.items() if artifact.rows[0].experiment.env == "pendulum"]
    learned = [row for name in pendulum for row in read(out, scale, name).values()]
    with progress(Meter("", 0, "solving theorem 2")):
        return theory(out / scale / THEORY, scale, learned)
