"""A run folder on one machine that follows one on another: what a worker writes arrives where it was asked for."""

from __future__ import annotations

import _thread
import contextlib
import pathlib
import socket
import tempfile
import threading
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from saute.core.files import PART, write_atomically
from saute.runs.folder import TrainingError

__all__ = ["Mirror", "Piece", "mirrored"]

SENT = 5.0
"""Seconds from one sending to the next."""


class Piece(NamedTuple):
    """What is new of a file: its bytes from some place on."""

    start: int
    content: bytes


class Mirror:
    """Folders of this machine that follow those of workers."""

    def fetch(self, folder: pathlib.Path) -> dict[str, bytes]:
        """All that a folder holds so far."""
        return {name: (folder / name).read_bytes() for name in _files(folder)}

    def follow(self, folder: pathlib.Path, pieces: Mapping[str, Piece], sizes: Mapping[str, int]) -> list[str]:
        """Add what is new, remove what is no more, and name the files that are not whole, to be sent again."""
        try:
            return self._followed(folder, pieces, sizes)
        except OSError as problem:
            raise TrainingError(
                f"cannot write to {folder} on {socket.gethostname()} ({problem.strerror}); what was sent before is kept, make "
                "room and continue it"
            ) from None

    def _followed(self, folder: pathlib.Path, pieces: Mapping[str, Piece], sizes: Mapping[str, int]) -> list[str]:
        for name, (start, content) in pieces.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            before = file.read_bytes()[:start] if start and file.exists() else b""
            if len(before) == start:
                write_atomically(file, before + content)
        for name in _files(folder):
            if name not in sizes:
                (folder / name).unlink()
        return [name for name, size in sizes.items() if _size(folder / name) != size]


@contextlib.contextmanager
def mirrored(folder: pathlib.Path, mirror: Any) -> Iterator[pathlib.Path]:
    """A copy of a folder of another machine, by which that is brought up to date every few seconds and at the end.

    If it cannot be, work in the copy is stopped, since nobody would get what comes of it.
    """
    import ray

    with tempfile.TemporaryDirectory(prefix="saute-") as place:
        copy = pathlib.Path(place) / folder.name
        for name, content in ray.get(mirror.fetch.remote(folder)).items():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes(content)
        sent, ended, problems = dict[str, tuple[int, int]](), threading.Event(), list[Exception]()

        def send() -> None:
            pieces, sizes = _news(copy, sent)
            for name in ray.get(mirror.follow.remote(folder, pieces, sizes)):
                sent.pop(name, None)

        def keep_sending() -> None:
            try:
                while not ended.wait(SENT):
                    send()
            except Exception as problem:
                problems.append(problem)
                if not ended.is_set():
                    _thread.interrupt_main()

        thread = threading.Thread(target=keep_sending, daemon=True)
        thread.start()
        try:
            yield copy
        except KeyboardInterrupt:
            raise problems[0] if problems else KeyboardInterrupt from None
        finally:
            ended.set()
            thread.join()
            send()
            if len(sent) < len(_files(copy)):  # something arrived in parts
                send()


def _news(folder: pathlib.Path, sent: dict[str, tuple[int, int]]) -> tuple[dict[str, Piece], dict[str, int]]:
    """What has changed since it was sent, which is noted, and the sizes of all files; metrics only grow."""
    pieces, sizes = {}, {}
    for name in _files(folder):
        file = folder / name
        try:
            now = (file.stat().st_mtime_ns, file.stat().st_size)
            start = sent[name][1] if name == "metrics.jsonl" and name in sent and now[1] >= sent[name][1] else 0
            if sent.get(name) != now:
                pieces[name] = Piece(start, file.read_bytes()[start:])
                now = (now[0], start + len(pieces[name].content))
        except FileNotFoundError:  # another checkpoint has taken its place
            continue
        sent[name], sizes[name] = now, now[1]
    return pieces, sizes


def _files(folder: pathlib.Path) -> list[str]:
    """The files of a run folder, but for its lock and those that are half written."""
    files = (file for file in folder.rglob("*") if file.is_file() and file.name != ".lock" and PART not in file.name)
    return sorted(str(file.relative_to(folder)) for file in files)


def _size(file: pathlib.Path) -> int | None:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return None
