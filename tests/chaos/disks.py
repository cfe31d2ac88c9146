"""Files that a crash has torn, old files in the place of new ones, full disks, and power cuts."""

from __future__ import annotations

import contextlib
import pathlib
import resource
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator

from chaos.faults import Half, content, different, forked, light, struck
from saute.core.errors import UserError
from saute.core.files import CheckpointError
from saute.runs.checkpoint import newest
from saute.runs.folder import TrainingError
from saute.runs.report import logger

REFUSALS = (CheckpointError, TrainingError, UserError)
ROOM = 40_000
"""Bytes that a training needs on a disk, at most."""


def torn_and_stale(place: pathlib.Path, parts: int) -> Iterator[str | None]:
    """Files cut, zeroed or older than the others, somewhere in a training; it ends as if nothing had been, or is refused."""
    light(place / "whole")
    whole = content(place / "whole")
    for epochs in (2, 3):
        light(place / f"after-{epochs}", epochs)
    names = [str(file.relative_to(place / "after-3")) for file in sorted((place / "after-3").rglob("*.*")) if file.is_file()]
    for name in names:
        before = (place / "after-3" / name).read_bytes()
        older = place / "after-2" / name
        damaged = [before[: len(before) * i // parts] for i in range(parts)]
        damaged += [one + bytes(len(before) - len(one)) for one in damaged]
        damaged += [older.read_bytes()] if older.exists() else []
        for i, odd in enumerate(damaged):
            out = place / f"{i}-{name.replace('/', '-')}"
            shutil.copytree(place / "after-3", out)
            (out / name).write_bytes(odd)
            yield _same_or_refused(out, whole)
            shutil.rmtree(out)


def _same_or_refused(out: pathlib.Path, whole: dict[str, bytes]) -> str | None:
    try:
        light(out)
    except REFUSALS as problem:
        return None if str(problem) else "refused without a word"
    return different(content(out), whole)


def full(place: pathlib.Path, fills: int) -> Iterator[str | None]:
    """A disk, or the files that may be written, with less and less room; when there is room again, the run goes on."""
    light(place / "whole")
    whole = content(place / "whole")
    with _mounted("tmpfs", f"size={ROOM + 2**16}", place / "disk") as disk:
        limited = _limited if disk is None else _filled
        for i in range(fills):
            out = (disk or place) / f"run-{i}"
            limited(ROOM * i // fills, out)
            light(out)
            yield different(content(out), whole)
            shutil.rmtree(out)
        if disk is not None:
            yield _logged(disk)


def _filled(room: int, out: pathlib.Path) -> None:
    """Train on a disk that has so many bytes left."""
    filler = out.parent / "filler"
    free = shutil.disk_usage(out.parent).free
    filler.write_bytes(bytes(max(0, free - room)))
    with contextlib.suppress(*REFUSALS):
        light(out)
    filler.unlink()
    out.mkdir(exist_ok=True)


def _limited(room: int, out: pathlib.Path) -> None:
    """Train where no file may be longer than so many bytes, if no disk of our own can be mounted."""

    def training() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room // 20, room // 20))
        with contextlib.suppress(*REFUSALS):
            light(out)

    forked(training)
    out.mkdir(exist_ok=True)


def _logged(disk: pathlib.Path) -> str | None:
    """TensorBoard on a disk that becomes full: the numbers are lost, the training goes on."""
    with logger(("tensorboard",), disk, {}) as log:
        for epoch in range(5000):
            log(epoch, [{"cost": 1.0}])
    return None if shutil.disk_usage(disk).free < 2**12 else "the disk has not become full"


def power_cuts(place: pathlib.Path) -> Iterator[str | None]:
    """The blocks of a disk as they are before every call of a training that touches files, mounted, and gone on from.

    What was told to be saved has to be there, and the end has to be that of a training without a cut.
    """
    light(place / "whole")
    whole, image, images, saved = content(place / "whole"), place / "image", place / "images", [0]
    images.mkdir()
    _formatted(image)
    with _mounted("ext4", "loop", place / "disk", image) as disk:
        if disk is None:
            return  # no loop mounts here
        told: list[int] = []

        one = threading.Lock()  # the mark of the folder is renewed beside the training

        def cut(half: Half | None) -> None:
            with one:
                shutil.copyfile(image, images / str(len(told)))
                told.append(saved[-1])

        with struck(cut):
            light(disk / "run", kept=saved.append)
    for i, epochs in enumerate(told):
        with _mounted("ext4", "loop", place / "disk", images / str(i)) as disk:
            yield "the disk cannot be mounted" if disk is None else _survived(disk / "run", epochs, whole)
        (images / str(i)).unlink()


def _survived(out: pathlib.Path, epochs: int, whole: dict[str, bytes]) -> str | None:
    found = newest(out / "checkpoints")
    if epochs and (found is None or found[1]["epoch"] < epochs):
        return f"epoch {epochs} was told to be saved, and is lost"
    light(out)
    return different(content(out), whole)


def _formatted(image: pathlib.Path) -> None:
    with open(image, "wb") as file:
        file.truncate(8 * 2**20)
    with contextlib.suppress(FileNotFoundError):
        subprocess.run(["mkfs.ext4", "-q", "-b", "1024", str(image)], check=False, stderr=subprocess.DEVNULL)


@contextlib.contextmanager
def _mounted(kind: str, options: str, at: pathlib.Path, what: pathlib.Path | None = None) -> Iterator[pathlib.Path | None]:
    """The folder of a file system that is mounted while it is used; None if this machine does not allow it."""
    at.mkdir(exist_ok=True)
    command = ["mount", "-t", kind, "-o", options, str(what or kind), str(at)]
    try:
        done = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        done = False
    try:
        yield at if done else None
    finally:
        if done:
            subprocess.run(["umount", str(at)], check=True)
