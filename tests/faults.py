"""A training without a learner that keeps its run folder as all do, and what may happen to it while it writes.

Nothing here uses JAX's devices, so that thousands of processes can be forked and killed in a minute.
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
from saute.runs.config import Experiment

__all__ = ["CONFIG", "EPOCHS", "ENDING", "content", "forked", "killed", "light", "struck"]

EPOCHS = 4
CONFIG = configured(Experiment("pendulum", seeds=2, epochs=EPOCHS))
ENDING = -signal.SIGKILL
"""The exit code of a process that was killed."""
PLAIN = {"hidden": [], "squashed": False, "observations": 2, "discrete": 3, "low": None, "high": None, "reference": None}
"""A policy of two observations and three actions."""


def light(out: pathlib.Path, epochs: int = EPOCHS, kept: Callable[[int], object] = lambda epoch: None) -> None:
    """Train: every epoch the state of every seed goes on by a fixed rule; `kept` is told what is saved."""
    with folders.opened(out, CONFIG, PLAIN, lambda seed: seed) as folder:
        assert folder is not None
        seeds, metrics = folder.recover([{"weight": np.full((2, 3), 1.0 + i, np.float32)} for i in range(2)], epochs)
        for epoch in range(len(metrics), epochs):
            seeds = [{"weight": (seed["weight"] * np.float32(1.25) + np.float32(epoch)) % np.float32(7)} for seed in seeds]
            metrics = [*metrics, [{"cost": float(seed["weight"].sum()), "episodes": float("nan")} for seed in seeds]]
            folder.keep(seeds, metrics)
            kept(epoch + 1)
        folder.save_policies(seeds, len(metrics))


def content(folder: pathlib.Path) -> dict[str, bytes]:
    """All files of a folder by their names, but for the lock, which is empty."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name not in (".lock", "versions.json")
    }


@contextlib.contextmanager
def struck(strike: Callable[[Callable[[], object]], object]) -> Iterator[None]:
    """Whatever is done to files inside first calls `strike`, with a function that does half of it."""

    def before(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            strike(lambda: None)
            return function(*arguments, **named)

        return called

    class Struck:
        """A file that is written in two halves."""

        def __init__(self, file: Any):
            self.file = file

        def write(self, content: bytes) -> int:
            strike(lambda: (self.file.write(content[: len(content) // 2]), self.file.flush()))
            return self.file.write(content)

        def truncate(self) -> int:
            strike(lambda: None)
            return self.file.truncate()

        def __enter__(self) -> Struck:
            return self

        def __exit__(self, *problem: object) -> None:
            self.file.close()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

    def opening(path: Any, mode: str = "r", **named: Any) -> Any:
        return Struck(builtins.open(path, mode, **named))

    with contextlib.ExitStack() as stack:
        for name in ("open", "fsync", "replace", "unlink", "mkdir"):
            stack.enter_context(mock.patch.object(os, name, before(getattr(os, name))))
        for module in (files, folders):
            stack.enter_context(mock.patch.object(module, "open", opening, create=True))
        yield


def killed(work: Callable[[], object], at: int, halfway: bool) -> tuple[int, int]:
    """The exit code of a process that does the work and is killed at one of its calls, and how many calls it made."""

    def dying() -> None:
        calls = 0

        def strike(half: Callable[[], object]) -> None:
            nonlocal calls
            calls += 1
            if calls == at:
                if halfway:
                    half()
                os.kill(os.getpid(), signal.SIGKILL)

        with struck(strike):
            work()

    return forked(dying)


def counted(work: Callable[[], object]) -> int:
    """How many calls that change files the work makes."""
    calls = 0

    def strike(half: Callable[[], object]) -> None:
        nonlocal calls
        calls += 1

    with struck(strike):
        work()
    return calls


def forked(work: Callable[[], object]) -> int:
    """The exit code of a process that does the work; negative if a signal ended it."""
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(BaseException):
            work()
            code = 0
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def different(found: Mapping[str, bytes], expected: Mapping[str, bytes]) -> str | None:
    """The first file in which two folders differ."""
    for name in sorted(found.keys() | expected.keys()):
        if found.get(name) != expected.get(name):
            return f"{name} is another one"
    return None
