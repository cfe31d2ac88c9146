"""A training without a learner that keeps its run folder as all do, and what may happen to it while it writes.

Nothing here uses JAX's devices, so that many processes can be forked and killed in a short time.
"""

from __future__ import annotations

import builtins
import contextlib
import os
import pathlib
import signal
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import numpy as np

from saute.core import files
from saute.runs import folder as folders
from saute.runs.build import configured
from saute.runs.checkpoint import numbered
from saute.runs.config import Experiment

EPOCHS = 4
CONFIG = configured(Experiment("pendulum", seeds=2, epochs=EPOCHS))
Half = Callable[[], object]
"""Does the first half of what is about to be done to a file, if it can be done by halves."""


def light(out: pathlib.Path, epochs: int = EPOCHS, kept: Callable[[int], object] = lambda epoch: None) -> None:
    """Train: every epoch the state of every seed goes on by a fixed rule; `kept` is told what is saved."""
    with folders.opened(out, CONFIG, {}, lambda seed: seed) as folder:
        assert folder is not None
        seeds, metrics = folder.recover([{"weight": np.full((2, 3), 1.0 + i, np.float32)} for i in range(2)], epochs)
        for epoch in range(len(metrics), epochs):
            seeds = [{"weight": (seed["weight"] * np.float32(1.25) + np.float32(epoch)) % np.float32(7)} for seed in seeds]
            metrics = [*metrics, [{"cost": float(seed["weight"].sum()), "episodes": float("nan")} for seed in seeds]]
            folder.keep(seeds, metrics)
            kept(epoch + 1)
        folder.save_policies(seeds, len(metrics))


def content(folder: pathlib.Path) -> dict[str, bytes]:
    """All files of a folder by their names, but for the lock, what the run was made with, and older checkpoints."""
    rest = {folder / ".lock", folder / "versions.json", *numbered(folder / "checkpoints")[:-1]}
    files = (file for file in sorted(folder.rglob("*")) if file.is_file() and file not in rest)
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def different(found: Mapping[str, bytes], expected: Mapping[str, bytes]) -> str | None:
    """The first file in which two folders differ."""
    odd = [name for name in sorted(found.keys() | expected.keys()) if found.get(name) != expected.get(name)]
    return f"{odd[0]} is not as without the fault" if odd else None


class Struck:
    """A file that may be struck before and in the middle of what is written to it."""

    def __init__(self, file: Any, strike: Callable[[Half | None], object]):
        self.file, self.strike = file, strike

    def write(self, content: bytes) -> int:
        self.strike(lambda: (self.file.write(content[: len(content) // 2]), self.file.flush()))
        return self.file.write(content)

    def truncate(self) -> int:
        self.strike(None)
        return self.file.truncate()

    def __enter__(self) -> Struck:
        return self

    def __exit__(self, *problem: object) -> None:
        self.file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


@contextlib.contextmanager
def struck(strike: Callable[[Half | None], object]) -> Iterator[None]:
    """Whatever is done to files inside calls `strike` first."""

    def before(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            strike(None)
            return function(*arguments, **named)

        return called

    def opening(path: Any, mode: str = "r", **named: Any) -> Any:
        return Struck(builtins.open(path, mode, **named), strike)

    with contextlib.ExitStack() as stack:
        for name in ("open", "fsync", "replace", "unlink", "mkdir"):
            stack.enter_context(mock.patch.object(os, name, before(getattr(os, name))))
        for module in (files, folders):
            stack.enter_context(mock.patch.object(module, "open", opening, create=True))
        yield


def calls_of(work: Callable[[], object]) -> list[bool]:
    """Every call of the work that touches files: whether it can be done by halves."""
    calls: list[bool] = []
    with struck(lambda half: calls.append(half is not None)):
        work()
    return calls


def killed(work: Callable[[], object], at: int, halfway: bool = False) -> bool:
    """Whether a process that does the work was killed, before or in the middle of the call of this number."""

    def dying() -> None:
        calls = iter(range(at + 1))

        def strike(half: Half | None) -> None:
            if next(calls, None) == at:
                if halfway and half is not None:
                    half()
                os.kill(os.getpid(), signal.SIGKILL)

        with struck(strike):
            work()

    return forked(dying) == -signal.SIGKILL


def forked(work: Callable[[], object]) -> int:
    """The exit code of a process that does the work: 0, 1 if it failed, negative if a signal ended it."""
    return ended(begun(work))


def begun(work: Callable[[], object]) -> int:
    """The number of a process that does the work."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child


def ended(child: int) -> int:
    """The exit code of a process, when it has ended."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
