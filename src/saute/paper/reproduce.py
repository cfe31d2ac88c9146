"""Train the runs of a figure or table of the paper, test them, and write numbers and pictures."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import multiprocessing
import pathlib
import signal
import sys
import threading
import time
from collections.abc import Iterable
from multiprocessing.connection import wait
from typing import Any, Literal, NamedTuple, cast

from saute.core.files import CheckpointError, read_json, read_sealed, read_text, unsealed, write_sealed
from saute.core.progress import Meter, progress
from saute.core.stopping import guarded, leave, send
from saute.core.typed import rebuilt
from saute.evidence.plots import Group, box_plot, save, training_curves
from saute.paper.durations import expected_seconds
from saute.paper.figures import ARTIFACTS, Row, artifact_of
from saute.paper.measured import late_epochs, measure
from saute.paper.page import read
from saute.paper.theory import theory
from saute.runs.build import configured
from saute.runs.checkpoint import load
from saute.runs.config import Config
from saute.runs.folder import TrainingError, read_metrics
from saute.runs.loop import run as run_training
from saute.runs.outcomes import outcomes_of

__all__ = ["THEORY", "Need", "Scale", "finished", "folder_of", "make", "make_theory", "needed", "scaled", "train_missing"]

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
        asked = dataclasses.replace(asked, preset=row.presets.get(scale, "fast"))
    else:
        asked = dataclasses.replace(asked, preset="paper", epochs=row.paper_epochs)
    return configured(asked, row.changes.get(scale))


def folder_of(config: Config, runs: pathlib.Path) -> pathlib.Path:
    """The folder of a run: equal settings share one, whatever their preset is called, so that figures share runs."""
    numbers, asked = config.as_json(), config.experiment
    del numbers["preset"]
    digest = hashlib.sha256(json.dumps(numbers, sort_keys=True).encode()).hexdigest()[:10]
    return runs / f"{asked.env}-{asked.method}-{asked.algo}-{digest}"


def episodes_of(row: Row, asked: int) -> int:
    """Test episodes per seed: as many as asked for, but fewer if the method is slow to test."""
    return asked if row.most_episodes is None else min(asked, row.most_episodes)


def finished(run: pathlib.Path) -> bool:
    """Whether a run is complete: one whole line of metrics per epoch, and the policies of the last one."""
    try:
        epochs = read_sealed(run / "config.json", former=True).get("epochs")
        done = read_text(run / "metrics.jsonl").count("\n")
        return done == epochs == load(run / "policy.safetensors")[1]["epochs"]
    except (OSError, CheckpointError, KeyError):
        return False


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


def train_missing(names: Iterable[str], scale: Scale, runs: pathlib.Path, jobs: int = 1) -> None:
    """Train every run that some figures and tables need and that is not finished, `jobs` of them at once."""
    missing = {run: need for run, need in needed(names, scale, runs).items() if not finished(run)}
    if jobs == 1:
        for run, need in missing.items():
            _announce(need)
            _train(run, need)
        return
    with progress(Meter("runs", len(missing))) as meter:
        _train_together(missing, jobs, meter)


def _train_together(missing: dict[pathlib.Path, Need], jobs: int, meter: Meter) -> None:
    """Train runs in processes of their own; when one fails, or the user stops, the others end too and can go on later."""
    # Fresh processes, because XLA's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    waiting, running = longest_first(missing), dict[int, tuple[Any, Any, Need]]()
    meter.begin()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                run = waiting.pop(0)
                told, tell = context.Pipe(duplex=False)
                process = context.Process(target=_train_quietly, args=(run, missing[run], tell))
                _announce(missing[run])
                process.start()
                tell.close()
                running[process.sentinel] = process, told, missing[run]
            for sentinel in wait(list(running)):
                process, told, need = running.pop(cast(int, sentinel))
                process.join()
                meter.tell(meter.done + 1)
                if process.exitcode:
                    raise TrainingError(f"{need.title} failed: {_reason(process, told)}; what is trained so far is kept")
    finally:
        for process, _, _ in running.values():
            process.terminate()
        for process, _, _ in running.values():
            process.join()


def _reason(process: Any, told: Any) -> str:
    """What a process that failed said, or how it ended if it could not say anything."""
    with contextlib.suppress(EOFError):
        return told.recv()
    return f"its process ended with code {process.exitcode} (was it killed, or out of memory?)"


def longest_first(missing: dict[pathlib.Path, Need]) -> list[pathlib.Path]:
    """The runs by expected time, so that no long one runs alone at the end."""
    return sorted(missing, key=lambda run: expected_seconds(missing[run].config) or 0.0, reverse=True)


def end_with_parent() -> None:
    """Stop a worker when the process that started it ends, in whatever way; its run is saved first."""

    def watch() -> None:
        multiprocessing.parent_process().join()  # type: ignore[union-attr]
        send(signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
    guarded().__enter__()  # as long as the worker lives


def _announce(need: Need) -> None:
    print(f"training {need.title} ({need.config.epochs} epochs of {need.config.experiment.seeds} seeds) …", flush=True)


def _train(run: pathlib.Path, need: Need) -> None:
    begin, continued = time.monotonic(), (run / "config.json").exists()
    run_training(need.config, run)
    # A continued run took longer than we can know.
    seconds = None if continued else round(time.monotonic() - begin)
    write_sealed(run / "seconds.json", {"seconds": seconds})


def _train_quietly(run: pathlib.Path, need: Need, tell: Any) -> None:
    """Train without a progress bar, because a terminal can show only one at a time; an error is told to the parent."""
    end_with_parent()
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            _train(run, need)
        except KeyboardInterrupt:
            leave()
        except Exception as problem:
            tell.send(f"{type(problem).__name__}: {problem}")
            sys.exit(1)


def make(name: str, scale: Scale, runs: pathlib.Path, out: pathlib.Path, episodes: int, seed: int) -> bool:
    """Test the finished runs of a figure or table, and write numbers and pictures; False if no run is finished."""
    artifact = artifact_of(name)
    groups, curves, steps, rows = {}, {}, {}, []
    for row in artifact.rows:
        config = scaled(row, scale)
        run = folder_of(config, runs)
        if not finished(run):
            continue
        _, outcomes = outcomes_of(run, episodes_of(row, episodes), seed, row.budget)
        flags = [one.violated for one in outcomes if one.violated is not None]
        groups[row.label] = Group([one.task_return for one in outcomes], [one.cost for one in outcomes], flags or None)
        curves[row.label], steps[row.label] = read_metrics(run), config.settings.steps_per_epoch
        late, epochs = late_epochs(curves[row.label]), config.epochs
        rows.append(measure(row.label, row.budget, outcomes, run=run.name, epochs=epochs, seconds=seconds_of(run), late=late))
    if not rows:
        return False
    place = out / scale / name
    place.mkdir(parents=True, exist_ok=True)
    budgets = {row.budget for row in artifact.rows}
    budget = budgets.pop() if len(budgets) == 1 else None
    save(box_plot(groups, budget, artifact.title), place / "box.png")
    save(training_curves(curves, budget, steps_per_epoch=steps, subject=artifact.title), place / "curves.png")
    write_sealed(place / "numbers.json", {"rows": [row.as_json() for row in rows]})
    return True


def make_theory(scale: Scale, out: pathlib.Path) -> str:
    """Solve theorem 2, and compare with it the policies of the pendulum that have been tested for figures and tables."""
    pendulum = [name for name, artifact in ARTIFACTS.items() if artifact.rows[0].experiment.env == "pendulum"]
    learned = [row for name in pendulum for row in read(out, scale, name).values()]
    with progress(Meter("", 0, "solving theorem 2")):
        return theory(out / scale / THEORY, scale, learned)
