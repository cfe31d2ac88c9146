"""Run folders: how training is kept in them, continued from them, and read again; all that touches their files."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import filelock
import numpy as np

from saute.core.errors import UserError
from saute.core.files import (
    CheckpointError,
    folder_in,
    parsed,
    read_sealed,
    read_text,
    sealed,
    sweep,
    unsealed,
    write_atomically,
    write_sealed,
)
from saute.core.stopping import whole
from saute.core.text import say
from saute.runs.checkpoint import digest_beside, load, newest, numbered, refuse_odd, restore, save
from saute.runs.config import Config
from saute.runs.holding import MARK, held, holder_of
from saute.runs.pretrained import located, place_of
from saute.runs.report import versions
from saute.runs.shield import KEPT, keep_shield
from saute.runs.trained import finite, save_policies

__all__ = [
    "NUMBERS",
    "Folder",
    "Metrics",
    "TrainingError",
    "begun",
    "describe",
    "discard_start",
    "exclusively",
    "finished",
    "folder_of",
    "inherited",
    "latest",
    "names_of",
    "opened",
    "read_config",
    "read_metrics",
    "snapshots_of",
    "source_of",
    "stored_numbers",
]

NUMBERS = "metrics"
"""The name of the numbers of all epochs in a checkpoint."""
Metrics = dict[str, float]
"""Numbers of one epoch of one seed; NaN, in files null, where there was nothing to measure."""


Show = Callable[[Any], Any]
"""Seed → parameters of its policy, as far as it is."""
OWN = ("config.json", "versions.json", "metrics.jsonl", ".lock", MARK, KEPT)
"""What a run writes into its folder before its first checkpoint."""
INHERITED = {"policy", "value", "cost_value", "critics", "target_critics", "cost_critic", "target_cost_critic", "normaliser"}
"""What a training can begin with of another: nets, and what they see observations through."""


class TrainingError(RuntimeError):
    """Training cannot go on; the message names the epoch, the seed and what was saved."""


class Folder:
    """The folder of a run that trains: its configuration, the numbers of every epoch, and checkpoints."""

    def __init__(
        self,
        path: pathlib.Path,
        config: Config,
        description: Mapping[str, Any],
        shown: Show,
        ours: Callable[[], bool],
        snapshots: int = 0,
    ):
        self.path, self.config, self._shown, self._ours = path, config, shown, ours
        # What changes most changes in the first epochs.
        self._snapshots = {round(epoch) for epoch in np.geomspace(1, config.epochs, snapshots)}
        self._description = {**description, "config": config.digest}
        self._lines, self._written, self._end = path / "metrics.jsonl", 0, 0
        self._saved = time.monotonic()
        self._identity = _identity(path)

    def recover(self, first: Sequence[Any], epochs: int) -> tuple[list[Any], list[list[Metrics]]]:
        """The newest whole checkpoint and the metrics up to it, or the beginning; then the folder gets its configuration."""
        place, template = self.path / "checkpoints", tuple(first)
        for folder in (self.path, place):
            sweep(folder)

        def fits(meta: Any, table: Mapping[str, Any]) -> None:
            refuse_odd(template, {name: it for name, it in table.items() if name != NUMBERS}, place)

        if numbered(place):
            self._refuse_another()
        found, kept = newest(place, fits, self.config.digest), list[list[Metrics]]()
        seeds = list(first)
        if found is not None:
            arrays, meta = found
            if meta["epoch"] > epochs:
                raise TrainingError(
                    f"{self.path} has {meta['epoch']} epochs already, more than {epochs}; ask for at least as many"
                )
            kept = self._numbers(arrays, meta)
            seeds = list(restore(template, arrays, self.path))
        with self._writing():
            self._written, self._end = len(kept), describe(self.path, self.config, kept)
        return seeds, kept

    def _numbers(self, arrays: dict[str, np.ndarray], meta: Mapping[str, Any]) -> list[list[Metrics]]:
        """The metrics up to a checkpoint, which has a copy of them; those of a former version have none."""
        lines = _whole_lines(self._lines)
        if NUMBERS not in arrays:
            if len(lines) < meta["epoch"]:
                raise CheckpointError(
                    f"{self._lines} has only {len(lines)} of the {meta['epoch']} epochs of the newest checkpoint, which is of "
                    "a former version and has no copy of them; restore a copy, or delete this checkpoint to go on from the one "
                    "before it"
                )
            return lines[: meta["epoch"]]
        try:
            kept = stored_numbers(arrays, meta)
        except (KeyError, TypeError, ValueError) as problem:
            raise CheckpointError(f"the newest checkpoint of {self.path} has odd numbers ({problem!r}); delete it") from None
        if list(map(_as_line, range(len(kept)), lines)) != list(map(_as_line, range(len(kept)), kept)):
            say(f"warning: {self._lines} is damaged or incomplete; restored from the checkpoint")
        return kept

    def keep(self, seeds: Sequence[Any], metrics: list[list[Metrics]], seconds: float = 0.0) -> None:
        """Write the numbers that are not written yet, policies that are to stay, and, if the last checkpoint is older than so
        many seconds, another one."""
        content = "".join(map(_as_line, range(self._written, len(metrics)), metrics[self._written :])).encode()
        # Over what an interruption may have left half written.
        with self._writing(), open(self._lines, "r+b") as file:
            file.seek(self._end)
            file.truncate()
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # before a checkpoint that counts on these lines
        if self._written < len(metrics) in self._snapshots:
            self.save_policies(list(map(self._shown, seeds)), len(metrics), f"policy-{len(metrics):06d}.safetensors")
        self._written, self._end = len(metrics), self._end + len(content)
        if time.monotonic() - self._saved >= seconds:
            self._checkpoint(seeds, metrics)
            self._saved = time.monotonic()

    def _checkpoint(self, seeds: Sequence[Any], metrics: list[list[Metrics]]) -> None:
        """Save the seeds and all numbers so far, to go on with, and policies, to be tested; keep the one before as well."""
        place, epoch, names = self.path / "checkpoints", len(metrics), list(metrics[0][0])
        numbers = np.array([[[seed[name] for name in names] for seed in one] for one in metrics], np.float64)
        meta = {"epoch": epoch, "names": names, "config": self.config.digest}
        with self._writing():
            save(place / f"{epoch:06d}.safetensors", tuple(seeds), meta, **{NUMBERS: numbers})
        self.save_policies(list(map(self._shown, seeds)), epoch)
        # Those of later epochs are not this run's, and do not make its own look old.
        for old in [one for one in numbered(place) if int(one.stem) < epoch][:-1]:
            old.unlink()

    def keep_shield(self, run: str | pathlib.Path) -> None:
        """Keep a copy of the shield of another run, to be continued with."""
        with self._writing():
            keep_shield(run, self.path)

    def save_policies(self, policies: list[Any], epochs: int, name: str = "policy.safetensors") -> None:
        """Save the policies that so many epochs came to."""
        with self._writing():
            save_policies(self.path / name, policies, {**self._description, "epochs": epochs})

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """What is written inside is, unless the folder was removed or begun anew by another process, or the disk is full."""
        if _identity(self.path) != self._identity or not self._ours():
            raise TrainingError(f"{self.path} was removed or begun anew while this process trained in it; nothing is written")
        try:
            yield
        except OSError as problem:
            raise TrainingError(
                f"cannot write to {self.path} ({problem.strerror}); what was saved before is kept, make room and continue it"
            ) from None

    def _refuse_another(self) -> None:
        """What was trained with other numbers is not continued."""
        try:
            stored = read_sealed(self.path / "config.json", former=True)
        except FileNotFoundError:
            return  # checkpoints know their configuration themselves
        asked = self.config.as_json()
        names = asked.keys() | stored.keys()  # a shield or a schedule that is not asked for is not in it
        other = sorted(name for name in names if name != "epochs" and stored.get(name) != asked.get(name))
        if other:
            raise TrainingError(
                f"{self.path} holds a run with other settings ({', '.join(other)}); choose another folder with --out, or "
                f"continue it with saute resume {self.path}"
            )


def describe(run: pathlib.Path, config: Config, metrics: list[list[Metrics]]) -> int:
    """Write what a run is, with what it was made, and the numbers of its epochs, of which the bytes are told."""
    content = "".join(map(_as_line, range(len(metrics)), metrics)).encode()
    write_atomically(run / "metrics.jsonl", content)
    write_sealed(run / "config.json", config.as_json())
    write_sealed(run / "versions.json", versions())
    return len(content)


def stored_numbers(arrays: dict[str, np.ndarray], meta: Mapping[str, Any]) -> list[list[Metrics]]:
    """The numbers of all epochs that a checkpoint has beside its arrays, of which they are taken."""
    return [[dict(zip(meta["names"], seed, strict=True)) for seed in epoch] for epoch in arrays.pop(NUMBERS).tolist()]


def _identity(path: pathlib.Path) -> tuple[int, int] | None:
    """The lock itself, whatever its name: while it is held, no other file can have the same numbers."""
    try:
        found = os.stat(path / ".lock", follow_symlinks=False)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def inherited(run: pathlib.Path) -> Callable[[Any, int], Any]:
    """(fresh state, seed) → the state with the policy of a run, and its values where they fit; fewer seeds serve in turn."""
    found = newest(run / "checkpoints", config=digest_beside(run / "config.json"))
    if found is None:
        raise TrainingError(f"init: {run} has no checkpoint to begin with; name the folder of a run that has trained")
    arrays = {name: array for name, array in found[0].items() if name != NUMBERS}
    seeds = 1 + max(int(name[1 : name.index("]")]) for name in arrays)
    # Validation and schedules of budgets each keep the training that they are about.
    inner = next(name for name in arrays if ".state" in name).partition("]")[2].partition(".state")[0] + ".state"

    def stored(state: Any, seed: int) -> Any:
        parts = {}
        for field in INHERITED & set(state._fields):
            place = f"[{seed % seeds}]{inner}.{field}"
            named = {name.removeprefix(place): value for name, value in arrays.items() if name.startswith(place)}
            own = {name: value for name, value in named.items() if not name[:1].isidentifier()}  # not policy_optimiser
            try:
                parts[field] = finite(restore(getattr(state, field), own, run), run)
            except CheckpointError as problem:
                if field == "policy":
                    raise TrainingError(f"init: the policy of {run} is for other spaces or other layers ({problem})") from None
        return state._replace(**parts)

    return stored


@contextlib.contextmanager
def opened(
    out: str | pathlib.Path | None, config: Config, description: Mapping[str, Any], shown: Show, snapshots: int = 0
) -> Iterator[Folder | None]:
    """The folder to train in, which is ours alone as long as it is open; a start that comes to nothing leaves none behind."""
    if out is None:
        yield None
        return
    path = pathlib.Path(out)
    fresh = not os.path.exists(path / "config.json")  # False too where names are too long, which is said below
    with exclusively(path) as ours:
        mine = _identity(path)
        try:
            yield Folder(path, config, description, shown, ours, snapshots)
        finally:
            with whole():
                if fresh and _identity(path) == mine:
                    discard_start(path)


@contextlib.contextmanager
def exclusively(path: pathlib.Path) -> Iterator[Callable[[], bool]]:
    """A run folder that no other process trains in; what it gives tells whether that is still so."""
    with contextlib.ExitStack() as stack:
        try:
            folder_in(path, "checkpoints")
            ours = stack.enter_context(held(path))
        except filelock.Timeout:
            other = holder_of(path)
            where = "" if other is None else f", with number {other.pid} on {other.host}"
            raise TrainingError(f"another process is training in {path}{where}; wait for it, or choose another --out") from None
        except OSError as problem:
            raise TrainingError(f"cannot write to {path} ({problem.strerror}); choose another folder with --out") from None
        yield ours


def discard_start(run: pathlib.Path) -> None:
    """Remove what a training has written into its new folder, if it came to no checkpoint."""
    if begun(run):
        return
    for path in [*(run / name for name in OWN), *snapshots_of(run)]:
        path.unlink(missing_ok=True)
    for folder in (run / "checkpoints", run):
        with contextlib.suppress(OSError):  # there is something else in it, or it was never made
            folder.rmdir()


def begun(run: pathlib.Path) -> bool:
    """Whether a folder has something to go on from: a checkpoint."""
    return bool(numbered(run / "checkpoints"))


def snapshots_of(run: pathlib.Path) -> list[pathlib.Path]:
    """The policies that were kept on the way, by their epochs."""
    return sorted(run.glob("policy-[0-9]*.safetensors"))


def folder_of(config: Config, runs: pathlib.Path) -> pathlib.Path:
    """The folder of a run: equal settings share one, whatever their preset is called, so that figures share runs."""
    numbers, asked = config.as_json(), config.experiment
    del numbers["preset"]
    digest = hashlib.sha256(json.dumps(numbers, sort_keys=True).encode()).hexdigest()[:10]
    return runs / f"{asked.env}-{asked.method}-{asked.algo}-{digest}"


def finished(run: pathlib.Path) -> bool:
    """Whether a run is complete: one whole line of metrics per epoch, and the policies of the last one."""
    try:
        config = read_config(run)
        done = read_text(run / "metrics.jsonl").count("\n")
        return done == config.epochs == load(run / "policy.safetensors", config=config.digest)[1]["epochs"]
    except (OSError, CheckpointError, UserError, KeyError):
        return False


def latest(run: pathlib.Path) -> tuple[int, list[Metrics] | None]:
    """How many epochs are written in the metrics, and the numbers of the last one, if it can be read."""
    file = run / "metrics.jsonl"
    try:
        lines = read_text(file).split("\n")[:-1]
        return len(lines), _from_line(lines[-1], len(lines) - 1, file) if lines else None
    except (OSError, CheckpointError):
        return 0, None


def source_of(run: pathlib.Path) -> pathlib.Path:
    """The run folder itself, or that of pretrained:NAME."""
    try:
        return located(run)
    except ValueError as problem:
        raise UserError(str(problem)) from problem


def names_of(runs: Sequence[pathlib.Path]) -> dict[pathlib.Path, str]:
    """What each run is called: the name of its folder, with as many folders above it as tell it from the others."""
    if not runs:
        raise UserError("no run folder is given; name at least one, for example runs/pendulum-saute-trpo")
    paths = [place_of(run).resolve() for run in runs]
    for depth in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["-".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(runs):
            return dict(zip(runs, names, strict=True))
    twice = next(run for run, path in zip(runs, paths, strict=True) if paths.count(path) > 1)
    raise UserError(f"{twice} is given twice; name every run folder once")


def read_config(run: pathlib.Path) -> Config:
    """The configuration of a run folder."""
    file = source_of(run) / "config.json"
    try:
        return Config.from_json(read_sealed(file, former=True))
    except FileNotFoundError:
        raise UserError(f"{run} is not a run folder (it has no config.json); train one with saute train") from None
    except CheckpointError as problem:
        raise UserError(str(problem)) from None
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        raise UserError(f"{file} cannot be read ({problem})") from None


def read_metrics(run: pathlib.Path) -> list[list[Metrics]]:
    """Epochs → seeds → numbers by name; a last line that a killed process left half written does not count."""
    read_config(run)
    if source_of(run) != run:
        raise UserError(f"{run} comes without the curves of its training; train it anew with saute train")
    file = run / "metrics.jsonl"
    try:
        epochs = list(_epochs(file))
    except FileNotFoundError:
        epochs = []
    except CheckpointError as problem:
        raise UserError(f"{problem}, or let saute resume {run} restore it from its checkpoint") from None
    if not epochs:
        raise UserError(f"{run} has no finished epoch in metrics.jsonl; continue it with saute resume {run}")
    return epochs


def _whole_lines(file: pathlib.Path) -> list[list[Metrics]]:
    """The epochs of the metrics up to the first line that is not whole; a file that is missing has none."""
    epochs: list[list[Metrics]] = []
    with contextlib.suppress(FileNotFoundError, CheckpointError):
        for epoch in _epochs(file):
            epochs.append(epoch)
    return epochs


def _epochs(file: pathlib.Path) -> Iterator[list[Metrics]]:
    """The epochs of the metrics, one after another; what follows the last end of a line does not count."""
    for number, line in enumerate(read_text(file).split("\n")[:-1]):
        yield _from_line(line, number, file)


def _as_line(number: int, epoch: list[Metrics]) -> str:
    known = [{name: None if math.isnan(value) else value for name, value in seed.items()} for seed in epoch]
    return json.dumps(sealed({"epoch": number, "seeds": known})) + "\n"


def _from_line(line: str, number: int, file: pathlib.Path) -> list[Metrics]:
    """The numbers of an epoch, if the line is whole and where it belongs; those of former versions have no number and seal."""
    where = f"line {number + 1} of {file}"
    stored = parsed(line, where)
    values = unsealed(stored, where, former=isinstance(stored, dict) and "epoch" not in stored)
    try:
        if values.get("epoch", number) != number:
            raise ValueError(f"it is of epoch {values['epoch']}, not {number}")
        seeds = values["seeds"]
        return [{str(name): math.nan if value is None else float(value) for name, value in one.items()} for one in seeds]
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise CheckpointError(f"{where} cannot be read ({problem!r}); restore a copy") from None
