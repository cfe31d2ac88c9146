"""One training on many machines: its seeds in shards, each an ordinary run folder, and the shards put together again."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from saute.core.files import write_atomically
from saute.core.progress import Meter, progress
from saute.runs.checkpoint import load, newest, save
from saute.runs.config import Config
from saute.runs.crew import Crew, Job, done_in_turn, trained
from saute.runs.folder import (
    NUMBERS,
    TrainingError,
    begun,
    describe,
    exclusively,
    finished,
    latest,
    read_config,
    read_metrics,
    stored_numbers,
)
from saute.runs.holding import holder_of
from saute.runs.report import logger, told
from saute.runs.state import PARTS, parts_of

__all__ = ["shards_of", "train_in_shards"]

Arrays = dict[str, np.ndarray]


def shards_of(config: Config, out: pathlib.Path, per: int) -> dict[pathlib.Path, Config]:
    """Folder → configuration of every shard of so many seeds; a training that was begun keeps the shards that it has."""
    there, asked, shards = parts_of(out / PARTS), config.experiment, {}
    per = read_config(there[0]).experiment.seeds if there else per
    for first in range(0, asked.seeds, per):
        own = dataclasses.replace(asked, seed=asked.seed + first, seeds=min(per, asked.seeds - first))
        shards[out / PARTS / f"{first:04d}"] = dataclasses.replace(config, experiment=own)
    return shards


def train_in_shards(config: Config, out: pathlib.Path, crew: Crew, logs: tuple[str, ...] = ()) -> None:
    """Train all seeds with a crew, from where they stand, into one folder that is as if one machine had trained them."""
    done = out / f".{PARTS}"
    shutil.rmtree(done, ignore_errors=True)
    if begun(out) and not (out / PARTS).exists():
        if finished(out):
            return
        raise TrainingError(f"{out} was begun without --ray; continue it with saute resume {out}")
    shards = shards_of(config, out, -(-config.experiment.seeds // crew.slots))
    with exclusively(out):
        (out / PARTS).mkdir(exist_ok=True)
        describe(out, config, [])
        _train(config, shards, crew)
        _merge(config, out, list(shards))
        with logger(logs, out, config.as_json()) as log:
            for epoch, metrics in enumerate(read_metrics(out)):
                log(epoch, metrics)
        # Only now, so that whatever happens before can be done again; and all at once, so that none of them is trained again.
        (out / PARTS).rename(done)
    shutil.rmtree(done)


def _train(config: Config, shards: Mapping[pathlib.Path, Config], crew: Crew) -> None:
    missing = [folder for folder in shards if not finished(folder)]
    jobs = [Job(f"seeds from {folder.name}", shards[folder], folder, trained) for folder in missing]
    meter, notes = Meter("epoch", config.epochs * len(shards)), set[str]()
    with progress(meter, stays=True):
        look = functools.partial(_look, meter, list(shards), config)
        for job, result in done_in_turn(crew, jobs, look):
            if isinstance(result, BaseException):
                raise TrainingError(f"{job.title}: {result}; what is trained so far is kept, and the same command goes on")
            notes.update(result)
        look()
    for note in sorted(notes):
        print("note:", note, file=sys.stderr)


def _look(meter: Meter, shards: Sequence[pathlib.Path], config: Config) -> None:
    """Tell the epochs of all shards together, what the newest of each came to, and where they are trained."""
    stand = [latest(folder) for folder in shards]
    done = sum(epochs for epochs, _ in stand)
    if meter.doing and done:
        meter.begin(done)
    if not meter.doing and done != meter.done:
        metrics = [seed for _, seeds in stand for seed in seeds or ()]
        where = [found.host for found in map(holder_of, shards) if found is not None]
        hosts = ", ".join(f"{where.count(host)} on {host}" for host in sorted(set(where)))
        asked = config.experiment
        meter.tell(done, *told(metrics, asked.budget if asked.discount == 1.0 else None), (hosts, ""))


def _merge(config: Config, out: pathlib.Path, shards: Sequence[pathlib.Path]) -> None:
    """One folder of all seeds, from those of their shards; the checkpoint comes last, by which the folder counts as begun."""
    states = [newest(folder / "checkpoints", config=read_config(folder).digest) for folder in shards]
    if any(found is None for found in states):
        raise TrainingError(f"a shard of {out} has no checkpoint; start the same command again")
    known = [found for found in states if found is not None]
    metrics = [stored_numbers(arrays, meta) for arrays, meta in known]
    together = [[seed for shard in epoch for seed in shard] for epoch in zip(*metrics, strict=True)]
    describe(out, config, together)
    # Theirs, since numbers depend on how many cores each of them had.
    write_atomically(out / "versions.json", (shards[0] / "versions.json").read_bytes())
    policies = [load(folder / "policy.safetensors") for folder in shards]
    save(out / "policy.safetensors", {}, _about(policies, config), **_counted_on([arrays for arrays, _ in policies]))
    about, names = _about(known, config), known[0][1]["names"]
    numbers = np.array([[[seed[name] for name in names] for seed in epoch] for epoch in together], np.float64)
    states_of_all = _counted_on([arrays for arrays, _ in known])
    save(out / "checkpoints" / f"{config.epochs:06d}.safetensors", {}, about, **states_of_all, **{NUMBERS: numbers})


def _about(stored: Sequence[tuple[Arrays, dict[str, Any]]], config: Config) -> dict[str, Any]:
    """What all shards say of their files, as it is of the whole."""
    metas = [{**meta, "config": config.digest} for _, meta in stored]
    if any(meta != metas[0] for meta in metas):
        raise TrainingError("the shards are not of one training; train it anew in another folder")
    return metas[0]


def _counted_on(shards: Sequence[Arrays]) -> Arrays:
    """The arrays of all seeds, each shard's counted on from those before, as in [0].policy or ['0'].policy."""
    whole: Arrays = {}
    first = 0
    for arrays in shards:
        seeds = {int(match[1]) for name in arrays if (match := SEED.match(name))}
        for name, array in arrays.items():
            whole[SEED.sub(_moved(first), name)] = array
        first += len(seeds)
    return whole


SEED = re.compile(r"^\['?(\d+)'?\]")
"""The number of a seed at the beginning of an array's name."""


def _moved(first: int) -> Callable[[re.Match[str]], str]:
    return lambda match: match[0].replace(match[1], str(first + int(match[1])))
