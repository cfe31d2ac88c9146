"""Trains what a figure or table of the paper needs, tests it, and writes its numbers and pictures."""

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
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import Literal, NamedTuple

from saute.evidence.plots import box_plot, save, training_curves
from saute.paper.durations import expected_seconds
from saute.paper.figures import ARTIFACTS, Row
from saute.paper.measured import late_epochs, measure
from saute.paper.page import read
from saute.paper.theory import theory
from saute.runs.build import configured
from saute.runs.checkpoint import write_atomically
from saute.runs.config import Config
from saute.runs.folder import read_metrics
from saute.runs.loop import run as run_training
from saute.runs.outcomes import outcomes_of

__all__ = ["THEORY", "Need", "Scale", "finished", "folder_of", "make", "make_theory", "needed", "scaled", "train_missing"]

Scale = Literal["smoke", "laptop", "paper"]
THEORY = "theory"
"""The one artifact that is solved and not trained."""


class Need(NamedTuple):
    """A run of a figure or table."""

    title: str
    config: Config


def scaled(row: Row, scale: Scale) -> Config:
    """The configuration of a row at a scale."""
    asked = row.experiment
    if scale == "smoke":
        asked = dataclasses.replace(asked, preset="paper", epochs=1, seeds=1)
    elif scale == "laptop":
        asked = dataclasses.replace(asked, preset=row.presets.get(scale, "fast"))
    else:
        asked = dataclasses.replace(asked, preset="paper", epochs=row.paper_epochs)
    return configured(asked, row.changes.get(scale))


def folder_of(config: Config, runs: pathlib.Path) -> pathlib.Path:
    """Equal settings have the same folder, whatever the name of their preset, so that figures share their runs."""
    numbers, asked = config.as_json(), config.experiment
    del numbers["preset"]
    digest = hashlib.sha256(json.dumps(numbers, sort_keys=True).encode()).hexdigest()[:10]
    return runs / f"{asked.env}-{asked.method}-{asked.algo}-{digest}"


def episodes_of(row: Row, asked: int) -> int:
    """Test episodes per seed, fewer than asked for if the method is slow to test."""
    return asked if row.most_episodes is None else min(asked, row.most_episodes)


def finished(run: pathlib.Path) -> bool:
    """Whether a run has come to its end: as many whole lines of metrics as epochs, and the policies."""
    try:
        epochs = json.loads((run / "config.json").read_text())["epochs"]
        done = (run / "metrics.jsonl").read_text().count("\n")
    except (OSError, ValueError, KeyError):
        return False
    return done == epochs and (run / "policy.safetensors").exists()


def seconds_of(run: pathlib.Path) -> int | None:
    """How long a run took; None where nobody knows, since it was interrupted or trained elsewhere."""
    file = run / "seconds.json"
    return json.loads(file.read_text()) if file.exists() else None


def needed(names: Iterable[str], scale: Scale, runs: pathlib.Path) -> dict[pathlib.Path, Need]:
    """Every run of some artifacts, once, by its folder."""
    found: dict[pathlib.Path, Need] = {}
    for name in names:
        for row in ARTIFACTS[name].rows:
            config = scaled(row, scale)
            found.setdefault(folder_of(config, runs), Need(f"{name}: {row.label}", config))
    return found


def train_missing(names: Iterable[str], scale: Scale, runs: pathlib.Path, jobs: int = 1) -> None:
    """Train every run of some artifacts that is not finished, as many at once as there are jobs."""
    missing = {run: need for run, need in needed(names, scale, runs).items() if not finished(run)}
    if jobs == 1:
        for run, need in missing.items():
            _train(run, need)
        return
    # Fresh processes, because XLA's threads do not survive a fork.
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), end_with_parent) as pool:
        for future in [pool.submit(_train_quietly, run, missing[run]) for run in longest_first(missing)]:
            future.result()


def longest_first(missing: dict[pathlib.Path, Need]) -> list[pathlib.Path]:
    """The order in which none is left to run alone at the end."""
    return sorted(missing, key=lambda run: expected_seconds(missing[run].config) or 0.0, reverse=True)


def end_with_parent() -> None:
    """Lets a worker die with the process that began it, however that ends; what it trains goes on from its checkpoint."""

    def watch() -> None:
        multiprocessing.parent_process().join()  # type: ignore[union-attr]
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _train(run: pathlib.Path, need: Need) -> None:
    # In one piece, so that lines of several processes do not mix.
    print(
        f"training {need.title} ({need.config.epochs} epochs of {need.config.experiment.seeds} seeds) …\n", end="", flush=True
    )
    begin, continued = time.monotonic(), (run / "config.json").exists()
    run_training(need.config, run)
    # How long an interrupted run took is not known.
    seconds = None if continued else round(time.monotonic() - begin)
    write_atomically(run / "seconds.json", json.dumps(seconds).encode())


def _train_quietly(run: pathlib.Path, need: Need) -> None:
    """Without a progress bar, of which a terminal shows one at a time."""
    with contextlib.redirect_stderr(io.StringIO()):
        _train(run, need)


def make(name: str, scale: Scale, runs: pathlib.Path, out: pathlib.Path, episodes: int, seed: int) -> bool:
    """Test the finished runs of an artifact, and write its numbers and pictures; False if none is finished."""
    artifact = ARTIFACTS[name]
    groups, curves, steps, rows = {}, {}, {}, []
    for row in artifact.rows:
        config = scaled(row, scale)
        run = folder_of(config, runs)
        if not finished(run):
            continue
        _, outcomes = outcomes_of(run, episodes_of(row, episodes), seed, row.budget)
        groups[row.label] = ([one.task_return for one in outcomes], [one.cost for one in outcomes])
        curves[row.label], steps[row.label] = read_metrics(run), config.settings.steps_per_epoch
        late, epochs = late_epochs(curves[row.label]), config.epochs
        rows.append(measure(row.label, row.budget, outcomes, run=run.name, epochs=epochs, seconds=seconds_of(run), late=late))
    if not rows:
        return False
    place = out / scale / name
    place.mkdir(parents=True, exist_ok=True)
    budgets = {row.budget for row in artifact.rows}
    budget = budgets.pop() if len(budgets) == 1 else None
    save(box_plot(groups, budget), place / "box.png")
    save(training_curves(curves, budget, steps_per_epoch=steps), place / "curves.png")
    content = json.dumps([row.as_json() for row in rows], indent=1, ensure_ascii=False)
    write_atomically(place / "numbers.json", f"{content}\n".encode())
    return True


def make_theory(scale: Scale, out: pathlib.Path) -> str:
    """What is solved instead of trained; learned policies are those that other artifacts have tested."""
    pendulum = [name for name, artifact in ARTIFACTS.items() if artifact.rows[0].experiment.env == "pendulum"]
    learned = [row for name in pendulum for row in read(out, scale, name).values()]
    return theory(out / scale / THEORY, scale, learned)
