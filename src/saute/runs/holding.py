"""Who trains in a run folder: a lock that ends with its process, and beside it a mark that other machines can read as well."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pathlib
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import filelock

from saute.core.files import read_json, refuse_link, write_atomically
from saute.core.typed import rebuilt

__all__ = ["MARK", "Holder", "held", "holder_of"]

MARK = ".held"
"""The file that says who trains in a folder; it is renewed as long as they do."""
BEAT, STALE = 5.0, 30.0
"""Seconds after which a mark is renewed, and after which one that was not is that of a process, or a machine, that is lost."""
OURS: set[str] = set()
"""Tokens of the marks that this process renews."""
NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP}
"""What file systems without locks say; there the mark stands alone."""


class Holder(NamedTuple):
    """A process that trains in a folder."""

    host: str
    pid: int
    token: str


def holder_of(run: pathlib.Path, now: float | None = None) -> Holder | None:
    """Who trains in a folder; None if nobody does, or if who did is lost."""
    file = run / MARK
    try:
        age = (time.time() if now is None else now) - file.stat().st_mtime
        found: Holder = rebuilt(Holder, read_json(file), MARK)
    except (OSError, ValueError):
        return None
    ended = found.host == socket.gethostname() and not _lives(found)
    return None if ended or age > STALE else found


@contextlib.contextmanager
def held(run: pathlib.Path) -> Iterator[Callable[[], bool]]:
    """A folder is ours alone inside; what it gives tells whether it still is. Another's folder is a `filelock.Timeout`."""
    refuse_link(run / ".lock")
    lock = filelock.FileLock(run / ".lock", timeout=0, fallback_to_soft=False)
    mine, file = Holder(socket.gethostname(), os.getpid(), secrets.token_hex(8)), run / MARK
    try:
        lock.acquire()
    except OSError as problem:
        if problem.errno not in NO_LOCKS:
            raise
    try:
        # By the clock of the file system, which all machines share.
        os.utime(run / ".lock")
        if holder_of(run, (run / ".lock").stat().st_mtime) is not None:
            raise filelock.Timeout(str(run / ".lock"))
        OURS.add(mine.token)
        write_atomically(file, json.dumps(mine._asdict()).encode())

        def ours() -> bool:
            try:
                return read_json(file)["token"] == mine.token
            except (OSError, ValueError, KeyError, TypeError):
                return False

        with _renewed(file, ours):
            yield ours
    finally:
        OURS.discard(mine.token)
        lock.release()


@contextlib.contextmanager
def _renewed(file: pathlib.Path, ours: Callable[[], bool]) -> Iterator[None]:
    """The mark is renewed inside, and removed at the end, as long as it is ours."""
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(BEAT) and ours():
            with contextlib.suppress(OSError):
                os.utime(file)

    threading.Thread(target=renew, daemon=True).start()
    try:
        yield
    finally:
        ended.set()
        if ours():
            file.unlink(missing_ok=True)


def _lives(holder: Holder) -> bool:
    """Whether a process of this machine lives; where that cannot be asked, it may.

    One with our own number is another that was lost, as in a container that begins again, unless the mark is ours.
    """
    if holder.pid == os.getpid():
        return holder.token in OURS
    if os.name != "posix":
        return True
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
