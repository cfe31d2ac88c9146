"""How run folders stand: running, interrupted or finished, how far, with what numbers, and where."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Literal, NamedTuple

from saute.core.errors import UserError
from saute.runs.config import Config
from saute.runs.folder import finished, latest, read_config
from saute.runs.holding import holder_of
from saute.runs.report import Told, numbers_told

__all__ = ["PARTS", "Standing", "parts_of", "runs_in", "standing_of"]

PARTS = "shards"
"""The folder in a run folder whose seeds are trained apart, until they are put together."""


class Standing(NamedTuple):
    """How a run folder stands."""

    run: pathlib.Path
    state: Literal["running", "interrupted", "finished", "unreadable"]
    epochs: int
    """Of all seeds, so those of the slowest."""
    config: Config | None
    numbers: Told | None
    """Of the last epoch of every seed; None if no episode has ended, or nothing can be read."""
    where: str
    """The machine, or machines, that train it now."""


def runs_in(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Every run folder in a folder, or the folder itself; the shards of a run are not runs of their own."""
    for file in sorted(folder.rglob("config.json")):
        if PARTS not in file.relative_to(folder).parts:
            yield file.parent


def parts_of(place: pathlib.Path) -> list[pathlib.Path]:
    """The shards in a folder."""
    return sorted(file.parent for file in place.glob("*/config.json"))


def standing_of(run: pathlib.Path) -> Standing:
    """How a run stands by its own files; one of shards by theirs."""
    try:
        config = read_config(run)
    except UserError:
        return Standing(run, "unreadable", 0, None, None, "")
    shards = parts_of(run / PARTS) or [run]
    stand = [latest(one) for one in shards]
    metrics = [seed for _, seeds in stand for seed in seeds or ()]
    hosts = sorted({found.host for one in {run, *shards} if (found := holder_of(one)) is not None})
    apart = (run / PARTS).exists()
    known = sum(map(len, (seeds or () for _, seeds in stand))) == config.experiment.seeds
    return Standing(
        run,
        "running" if hosts else "finished" if finished(run) and not apart else "interrupted",
        min(epochs for epochs, _ in stand) if known else 0,
        config,
        numbers_told(metrics) if metrics else None,
        ", ".join(hosts),
    )
