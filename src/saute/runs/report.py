"""How a training tells how it goes: a progress bar, TensorBoard, Weights & Biases; and the versions that made it."""

from __future__ import annotations

import contextlib
import importlib.metadata
import math
import pathlib
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from saute.core.files import folder_in, refuse_link
from saute.core.machine import cores
from saute.core.names import nearest
from saute.core.progress import Forms, Meter, progress, speed
from saute.core.text import say
from saute.runs.config import Config

__all__ = ["LOGGERS", "Report", "Told", "logger", "numbers_told", "outcome_told", "reporting", "told", "unlike", "versions"]

Metrics = list[dict[str, float]]
Log = Callable[[int, Metrics], None]
"""(epoch, numbers of every seed) → None."""
PACKAGES = ("saute", "gymnasium", "jax", "jaxlib", "mujoco", "numpy", "optax", "scipy")
SAME = ("python", *PACKAGES)
"""What all machines that share a work have to agree on."""


def versions() -> dict[str, Any]:
    """What a run was made with."""
    packages = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {"python": platform.python_version(), "system": platform.system(), "cores": cores(), **packages}


def unlike(found: Mapping[str, Any], expected: Mapping[str, Any]) -> str | None:
    """Which of the versions are not those that are expected, and what to do about it."""
    odd = [f"{name} {found.get(name)} instead of {expected[name]}" for name in SAME if found.get(name) != expected[name]]
    return f"it has {', '.join(odd)}; install the same on all machines" if odd else None


class Report(NamedTuple):
    """How a training tells how it goes: that it begins, and the numbers of each of its epochs."""

    begin: Callable[..., None]
    """(epochs that are done already, share of the next one that is done) → None."""
    epoch: Log


@contextlib.contextmanager
def reporting(config: Config, out: pathlib.Path, logs: tuple[str, ...]) -> Iterator[Report]:
    """A bar on the terminal, and all named loggers."""
    asked, meter = config.experiment, Meter("epoch", config.epochs)
    steps, last = config.settings.steps_per_epoch * asked.seeds, time.monotonic()
    # Costs that are not discounted say nothing of a budget for those that are.
    budget = asked.budget if asked.discount == 1.0 else None
    with progress(meter, stays=True), logger(logs, out, config.as_json()) as log:

        def epoch(number: int, metrics: Metrics) -> None:
            nonlocal last
            last, before = time.monotonic(), last
            meter.tell(number + 1, *told(metrics, budget), (speed(steps / (last - before)), ""))
            log(number, metrics)

        yield Report(meter.begin, epoch)


class Told(NamedTuple):
    """What there is to say of an epoch."""

    returns: list[float]
    """Of every seed in which an episode has ended."""
    costs: list[float]
    """Means over the seeds, one for each cost."""
    worst: list[float]
    violated: int | None
    """Episodes that overspent their budget; None if they had none."""
    episodes: int


def numbers_told(metrics: Metrics) -> Told | None:
    """The numbers of an epoch over all seeds in which an episode has ended; None if none has."""
    ended = [seed for seed in metrics if seed["episodes"] > 0]
    if not ended:
        return None

    def known(name: str) -> list[float]:
        return [seed[name] for seed in ended if not math.isnan(seed[name])]

    returns = known("task_return")
    costs = each_named("cost", ended[0])
    means = [sum(known(name)) / len(known(name)) for name in costs]
    counted = sum(seed["episodes"] for seed in ended)
    overspent = sum(seed["violation_rate"] * seed["episodes"] for seed in ended)
    worst = [max(known(f"worst_{name}")) for name in costs]
    return Told(returns, means, worst, None if math.isnan(overspent) else round(overspent), round(counted))


def told(metrics: Metrics, budget: float | Sequence[float] | None = None) -> list[Forms]:
    """What to say of an epoch: the return over all seeds in which an episode has ended, the worst costs, all violations.

    Each of several costs is beside its budget, as in "worst 12.1/30 3.2/5".
    """
    found = numbers_told(metrics)
    if found is None:
        return [("no episode ended yet",)]
    return [*outcome_told(*found, budget), *_begun_with([seed for seed in metrics if seed["episodes"] > 0])]


def each_named(name: str, metrics: Iterable[str]) -> list[str]:
    """The names of a number that there may be one of for each constraint: cost, or cost_0, cost_1 and so on."""
    return [one for one in metrics if one == name or one.removeprefix(f"{name}_").isdigit()]


def _begun_with(metrics: Metrics) -> list[Forms]:
    """The least and the greatest budget that a schedule gave to episodes, if there is one."""
    each = [[seed[name] for seed in metrics] for name in each_named("budget", metrics[0])]
    spans = [(min(budgets), max(budgets)) for budgets in each]
    texts = [f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}" for low, high in spans]
    return [(f"begun with {' and '.join(texts)}",)] if texts else []


def outcome_told(
    returns: Sequence[float],
    means: Sequence[float],
    worst: Sequence[float],
    violated: int | None,
    episodes: int,
    budget: float | Sequence[float] | None,
) -> list[Forms]:
    """Return (of several seeds from the least to the greatest), mean and worst costs, and violations, in three lengths."""
    mean, span = sum(returns) / len(returns), f" ({min(returns):.4g} to {max(returns):.4g})" if len(returns) > 1 else ""
    limits = [budget] * len(worst) if budget is None or isinstance(budget, float | int) else list(budget)
    pairs = zip(worst, limits, strict=True)
    paid = f"worst {' '.join(f'{most:.3g}' if limit is None else f'{most:.3g}/{limit:g}' for most, limit in pairs)}"
    spent = f"cost {' '.join(f'{one:.3g}' for one in means)}, {paid}"
    counted = f"violated {violated} of {episodes}"
    broken = ("no budget", "") if violated is None else (counted, counted, f"viol. {violated}/{episodes}")
    return [(f"return {mean:.4g}{span}", f"return {mean:.4g}", f"return {mean:.3g}"), (spent, paid), broken]


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
            say(f"warning: no more numbers for TensorBoard ({problem.strerror}); training goes on")

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
