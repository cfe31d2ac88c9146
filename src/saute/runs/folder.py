"""Run folders: how training is kept in them, continued from them, and read again; all that touches their files."""

from __future__ import annotations

import contextlib
import json
import math
import os
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import filelock

from saute.core.errors import UserError
from saute.runs.checkpoint import CheckpointError, newest, numbered, restore, save, write_atomically
from saute.runs.config import Config
from saute.runs.pretrained import located, place_of
from saute.runs.report import versions

__all__ = [
    "Folder",
    "Metrics",
    "TrainingError",
    "begun",
    "inherited",
    "names_of",
    "opened",
    "read_config",
    "read_metrics",
    "source_of",
]

Metrics = dict[str, float]
"""Numbers of one epoch of one seed; NaN, in files null, where there was nothing to measure."""


Export = Callable[[pathlib.Path, Sequence[Any], int], None]
"""(file, seeds, epoch) → None: writes the policies of the seeds after so many epochs."""
OWN = ("config.json", "versions.json", "metrics.jsonl", ".lock")
"""What a run writes into its folder before its first checkpoint."""
INHERITED = {"policy", "value", "cost_value", "critics", "target_critics", "cost_critic", "target_cost_critic", "normaliser"}
"""What a training can begin with of another: nets, and what they see observations through."""


class TrainingError(RuntimeError):
    """Training cannot go on; the message names the epoch, the seed and what was saved."""


class Folder:
    """The folder of a run that trains: its configuration, the numbers of every epoch, and checkpoints."""

    def __init__(self, path: pathlib.Path, config: Config, export: Export):
        self.path, self.config, self._export = path, config, export
        self._lines, self._written, self._end = path / "metrics.jsonl", 0, 0
        self._saved = time.monotonic()

    def recover(self, first: Sequence[Any], epochs: int) -> tuple[list[Any], list[list[Metrics]]]:
        """The newest whole checkpoint and the metrics up to it, or the beginning; then the folder gets its configuration."""
        lines = _whole_lines(self._lines)
        found, kept = newest(self.path / "checkpoints", len(lines)), list[str]()
        seeds = list(first)
        if found is not None:
            arrays, meta = found
            if meta["epoch"] > epochs:
                raise TrainingError(
                    f"{self.path} has {meta['epoch']} epochs already, more than {epochs}; ask for at least as many"
                )
            self._refuse_another()
            kept = lines[: meta["epoch"]]
            seeds = list(restore(tuple(first), arrays, self.path))
        content = "".join(line + "\n" for line in kept).encode()
        write_atomically(self._lines, content)
        self._written, self._end = len(kept), len(content)
        write_atomically(self.path / "config.json", _as_lines(self.config.as_json()))
        write_atomically(self.path / "versions.json", _as_lines(versions()))
        return seeds, [_from_line(line) for line in kept]

    def keep(self, seeds: Sequence[Any], metrics: list[list[Metrics]], seconds: float = 0.0) -> None:
        """Write the numbers that are not written yet and, if the last checkpoint is older than so many seconds, another one."""
        content = "".join(_as_line(epoch) for epoch in metrics[self._written :]).encode()
        # Over what an interruption may have left half written.
        with open(self._lines, "r+b") as file:
            file.seek(self._end)
            file.truncate()
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # before a checkpoint that counts on these lines
        self._written, self._end = len(metrics), self._end + len(content)
        if time.monotonic() - self._saved >= seconds:
            self._checkpoint(seeds, len(metrics))
            self._saved = time.monotonic()

    def _checkpoint(self, seeds: Sequence[Any], epoch: int) -> None:
        """Save the seeds, to go on with, and their policies, to be tested; keep the one before as well."""
        place = self.path / "checkpoints"
        try:
            save(place / f"{epoch:06d}.safetensors", tuple(seeds), {"epoch": epoch})
            self._export(self.path / "policy.safetensors", seeds, epoch)
        except OSError as problem:
            raise TrainingError(
                f"could not save epoch {epoch} in {place} ({problem.strerror}); earlier checkpoints are kept"
            ) from None
        for old in numbered(place)[:-2]:
            old.unlink()

    def _refuse_another(self) -> None:
        """What was trained with other numbers is not continued."""
        stored = _read_json(self.path / "config.json")
        asked = self.config.as_json()
        other = sorted(name for name in asked if name != "epochs" and stored.get(name) != asked[name])
        if other:
            raise TrainingError(
                f"{self.path} holds a run with other settings ({', '.join(other)}); choose another folder with --out, or "
                f"continue it with saute resume {self.path}"
            )


def inherited(run: pathlib.Path) -> Callable[[Any, int], Any]:
    """(fresh state, seed) → the state with the policy of a run, and its values where they fit; fewer seeds serve in turn."""
    found = newest(run / "checkpoints")
    if found is None:
        raise TrainingError(f"init: {run} has no checkpoint to begin with; name the folder of a run that has trained")
    arrays, _ = found
    seeds = 1 + max(int(name[1 : name.index("]")]) for name in arrays)
    inner = ".training.state" if any(".training.state." in name for name in arrays) else ".state"

    def stored(state: Any, seed: int) -> Any:
        parts = {}
        for field in INHERITED & set(state._fields):
            place = f"[{seed % seeds}]{inner}.{field}"
            own = {name.removeprefix(place): value for name, value in arrays.items() if name.startswith(place)}
            try:
                parts[field] = restore(getattr(state, field), own, run)
            except CheckpointError as problem:
                if field == "policy":
                    raise TrainingError(f"init: the policy of {run} is for other spaces or other layers ({problem})") from None
        return state._replace(**parts)

    return stored


@contextlib.contextmanager
def opened(out: str | pathlib.Path | None, config: Config, export: Export) -> Iterator[Folder | None]:
    """The folder to train in, which is ours alone as long as it is open; a start that comes to nothing leaves none behind."""
    if out is None:
        yield None
        return
    path = pathlib.Path(out)
    fresh = not (path / "config.json").exists()
    try:
        (path / "checkpoints").mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(path / ".lock", timeout=0)
        lock.acquire()
    except filelock.Timeout:
        raise TrainingError(f"another process is training in {path}; wait for it, or choose another --out") from None
    except OSError as problem:
        raise TrainingError(f"cannot write to {path} ({problem.strerror}); choose another folder with --out") from None
    try:
        yield Folder(path, config, export)
    finally:
        if fresh and not begun(path):
            for name in OWN:
                (path / name).unlink(missing_ok=True)
            for folder in (path / "checkpoints", path):
                with contextlib.suppress(OSError):  # there is something else in it
                    folder.rmdir()
        lock.release()


def begun(run: pathlib.Path) -> bool:
    """Whether a folder has something to go on from: a checkpoint."""
    return bool(numbered(run / "checkpoints"))


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
        return Config.from_json(_read_json(file))
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{run} is not a run folder (it has no config.json); train one with saute train") from None
    except (OSError, AttributeError, KeyError, TypeError, ValueError) as problem:
        raise UserError(f"{file} cannot be read ({problem})") from None


def read_metrics(run: pathlib.Path) -> list[list[Metrics]]:
    """Epochs → seeds → numbers by name; a last line that a killed process left half written does not count."""
    read_config(run)
    if source_of(run) != run:
        raise UserError(f"{run} comes without the curves of its training; train it anew with saute train")
    file = run / "metrics.jsonl"
    try:
        epochs = [_from_line(line) for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]
    except FileNotFoundError:
        epochs = []
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as problem:
        raise UserError(f"{file} cannot be read ({problem}); restore a copy, or train again") from None
    if not epochs:
        raise UserError(f"{run} has no finished epoch in metrics.jsonl; continue it with saute resume {run}")
    return epochs


def _whole_lines(file: pathlib.Path) -> list[str]:
    """The lines of the metrics up to the first that is not whole; a file that is missing has none."""
    lines: list[str] = []
    with contextlib.suppress(FileNotFoundError):
        for line in file.read_bytes().splitlines(keepends=True):
            try:
                text = line.decode()
                _from_line(text)
            except (ValueError, KeyError, TypeError, AttributeError):
                break
            if not text.endswith("\n"):
                break
            lines.append(text.rstrip("\n"))
    return lines


def _as_line(epoch: list[Metrics]) -> str:
    known = [{name: None if math.isnan(value) else value for name, value in seed.items()} for seed in epoch]
    return json.dumps({"seeds": known}) + "\n"


def _from_line(line: str) -> list[Metrics]:
    seeds = json.loads(line)["seeds"]
    return [{name: math.nan if value is None else float(value) for name, value in seed.items()} for seed in seeds]


def _read_json(file: str | os.PathLike[str]) -> Any:
    return json.loads(pathlib.Path(file).read_text())


def _as_lines(values: dict[str, Any]) -> bytes:
    return (json.dumps(values, indent=2) + "\n").encode()
