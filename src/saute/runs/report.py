"""How a training tells how it goes: a progress bar, TensorBoard, Weights & Biases; and the versions that made it."""

from __future__ import annotations

import contextlib
import importlib.metadata
import math
import os
import pathlib
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from saute.core.files import folder_in, refuse_link
from saute.core.names import nearest
from saute.runs.config import Config

__all__ = ["LOGGERS", "describe", "logger", "progress", "reporting", "versions"]

Metrics = list[dict[str, float]]
Log = Callable[[int, Metrics], None]
"""(epoch, numbers of every seed) → None."""
PACKAGES = ("saute", "gymnasium", "jax", "jaxlib", "mujoco", "numpy", "optax", "scipy")


def versions() -> dict[str, Any]:
    """What a run was made with."""
    packages = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {"python": platform.python_version(), "system": platform.system(), "cores": os.cpu_count(), **packages}


@contextlib.contextmanager
def reporting(config: Config, out: pathlib.Path, logs: tuple[str, ...]) -> Iterator[Log]:
    """A bar on the terminal, and all named loggers."""
    steps = config.settings.steps_per_epoch * config.experiment.seeds
    with progress(config.epochs, steps, config.experiment.budget) as show, logger(logs, out, config.as_json()) as log:

        def report(epoch: int, metrics: Metrics) -> None:
            show(epoch, metrics)
            log(epoch, metrics)

        yield report


@contextlib.contextmanager
def progress(epochs: int, steps: int, budget: float | Sequence[float] | None = None) -> Iterator[Log]:
    """A bar for epochs of so many steps, with what matters beside it; quiet when not on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("epoch"),
        MofNCompleteColumn(),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=epochs, state="compiling …")
        last = time.monotonic()

        def report(epoch: int, metrics: Metrics) -> None:
            nonlocal last
            last, before = time.monotonic(), last
            speed = steps / (last - before)
            shown = f"{speed / 1000:.0f} k steps/s" if speed >= 10_000 else f"{speed:.0f} steps/s"
            bar.update(task, completed=epoch + 1, state=f"{shown} | {describe(metrics, budget)}")

        yield report


def describe(metrics: Metrics, budget: float | Sequence[float] | None = None) -> str:
    """One line for an epoch: return of each seed, then costs and violations of those in which an episode has ended.

    Each of several costs is beside its budget, as in "cost 12.1/30 3.2/5"; violations are counted over all seeds.
    """
    ended = [seed for seed in metrics if seed["episodes"] > 0]
    if not ended:
        return "no episode ended yet"

    def known(name: str) -> list[float]:
        return [seed[name] for seed in ended if not math.isnan(seed[name])]

    returns = " ".join(f"{seed['task_return']:.1f}" if seed["episodes"] > 0 else "–" for seed in metrics)
    costs = [name for name in ended[0] if name == "cost" or name.removeprefix("cost_").isdigit()]
    limits = [f"/{one:g}" for one in budget] if isinstance(budget, Sequence) else [""] * len(costs)
    means = (f"{sum(known(name)) / len(known(name)):.1f}{limit}" for name, limit in zip(costs, limits, strict=True))
    worst = (f"{max(known('worst_' + name)):.1f}" for name in costs)
    spent = f"cost {' '.join(means)}, worst {' '.join(worst)}"
    counted = sum(seed["episodes"] for seed in ended)
    overspent = sum(seed["violation_rate"] * seed["episodes"] for seed in ended)
    violated = "no budget" if math.isnan(overspent) else f"violated {overspent:.0f} of {counted:.0f}"
    return f"return {returns} | {spent} | {violated}"


@contextlib.contextmanager
def logger(names: tuple[str, ...], out: pathlib.Path, config: dict[str, Any]) -> Iterator[Log]:
    """A function that passes the numbers of an epoch to all named loggers."""
    with contextlib.ExitStack() as stack:
        try:
            logs = [stack.enter_context(LOGGERS[nearest(name, LOGGERS, "logger")](out, config)) for name in names]
        except ModuleNotFoundError as missing:
            raise ValueError(f"{missing}; pip install 'saute[log]'") from None

        def log(epoch: int, metrics: Metrics) -> None:
            for one in logs:
                one(epoch, metrics)

        yield log


@contextlib.contextmanager
def _tensorboard(out: pathlib.Path, config: dict[str, Any]) -> Iterator[Log]:
    """Event files in the run folder, one curve per metric and seed."""
    from tensorboardX.event_file_writer import EventsWriter
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.summary import scalar

    # Written here and now: tensorboardX's own writer does it in a thread, and waits for ever once that has met a full disk.
    writer = EventsWriter(str(folder_in(out, "tensorboard") / "events"))
    broken = False

    def tried(write: Callable[[], object]) -> None:
        nonlocal broken
        try:
            write()
        except OSError as problem:
            broken = True
            print(f"warning: no more numbers for TensorBoard ({problem.strerror}); training goes on", file=sys.stderr)

    def log(epoch: int, metrics: Metrics) -> None:
        def write() -> None:
            for name, value in _flat(metrics).items():
                writer.write_event(Event(wall_time=time.time(), step=epoch, summary=scalar(name, value)))
            writer.flush()

        if not broken:
            tried(write)

    try:
        yield log
    finally:
        if not broken:
            tried(writer.close)


@contextlib.contextmanager
def _wandb(out: pathlib.Path, config: dict[str, Any]) -> Iterator[Log]:
    import wandb

    refuse_link(out / "wandb")
    run = wandb.init(project="saute", name=out.name, dir=str(out), config=config)
    try:
        yield lambda epoch, metrics: run.log(_flat(metrics), step=epoch)
    finally:
        run.finish()


def _flat(metrics: Metrics) -> dict[str, float]:
    """The numbers that there are, by name and seed."""
    numbered = ((seed, name, value) for seed, values in enumerate(metrics) for name, value in values.items())
    return {f"{name}/seed-{seed}": value for seed, name, value in numbered if not math.isnan(value)}


LOGGERS: dict[str, Callable[..., Any]] = {"tensorboard": _tensorboard, "wandb": _wandb}
