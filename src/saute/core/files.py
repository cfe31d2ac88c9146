"""Files that are read again: written whole or not at all, with a checksum that shows damage, and never larger than expected."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import pathlib
import secrets
import stat
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

__all__ = [
    "CheckpointError",
    "folder_in",
    "opened",
    "parsed",
    "read_json",
    "read_sealed",
    "read_text",
    "refuse_link",
    "replacing",
    "seal",
    "sealed",
    "sweep",
    "unsealed",
    "write_atomically",
    "write_sealed",
]

MOST = 2**28
"""Text files with more bytes are not read."""
LONGEST = 2**23
"""Characters of the longest JSON text; as lists it takes twenty times as much memory."""
SEAL = "sha256"
"""The entry of a JSON object that has the digest of all other entries."""
PART = ".part"
"""In the names of files that are still being written."""


class CheckpointError(ValueError):
    """A stored file that cannot be used, and why."""


@contextlib.contextmanager
def opened(path: pathlib.Path) -> Iterator[tuple[BinaryIO, int]]:
    """A regular file, open for reading, and its size; pipes and devices, which may never end, are refused.

    A missing file raises FileNotFoundError, any other problem CheckpointError.
    """
    try:
        _refuse_odd(path, os.stat(path))  # before it is opened, since to open a device may do something
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(path, flags), "rb") as file:
            found = os.fstat(file.fileno())
            _refuse_odd(path, found)
            yield file, found.st_size
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(errno.ENOENT, "it does not exist", str(path)) from None
    except OSError as problem:
        raise CheckpointError(f"{path} cannot be read ({problem.strerror or problem}); restore a copy") from None


def _refuse_odd(path: pathlib.Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise CheckpointError(f"{path} is not a regular file, but a folder, pipe or device; restore a copy")


def read_json(path: pathlib.Path) -> Any:
    """The content of a JSON file."""
    return parsed(read_text(path), path)


def read_text(path: pathlib.Path) -> str:
    with opened(path) as (file, size):
        if size > MOST:
            raise CheckpointError(f"{path} has {size} bytes, more than {MOST}; restore a copy")
        content = file.read(MOST)
    try:
        return content.decode()
    except UnicodeDecodeError as problem:
        raise CheckpointError(f"{path} is damaged ({problem}); restore a copy") from None


def parsed(text: str, where: object) -> Any:
    """The value of a JSON text; one that is damaged, too long, or nested without end, is refused."""
    if len(text) > LONGEST:
        raise CheckpointError(f"{where} has {len(text)} characters, more than {LONGEST}; restore a copy")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise CheckpointError(f"{where} cannot be read ({problem}); restore a copy") from None


def read_sealed(path: pathlib.Path, former: bool = False) -> dict[str, Any]:
    """The entries of a JSON object that `write_sealed` wrote; without a checksum only if `former` versions are allowed."""
    return unsealed(read_json(path), path, former)


def write_sealed(path: pathlib.Path, values: Mapping[str, Any]) -> None:
    """Write a JSON object with a checksum, so that `read_sealed` notices every later change."""
    text = json.dumps(sealed(values), indent=2, ensure_ascii=False) + "\n"
    write_atomically(path, text.encode(errors="backslashreplace"))  # names of files may have bytes that are no text


def sealed(values: Mapping[str, Any]) -> dict[str, Any]:
    """The entries with the digest of all of them as the last one."""
    return {**values, SEAL: seal(values)}


def unsealed(values: object, where: object, former: bool = False) -> dict[str, Any]:
    """The entries without their checksum, if it is right; it may be missing only in files of `former` versions."""
    if not isinstance(values, dict):
        raise CheckpointError(f"{where} cannot be read (it is not an object with names); restore a copy")
    rest = {name: value for name, value in values.items() if name != SEAL}
    if values.get(SEAL) != seal(rest) and not (former and SEAL not in values):
        raise CheckpointError(
            f"{where} was changed or damaged after it was written (its checksum does not match); restore a copy"
        )
    return rest


def seal(values: Mapping[str, Any]) -> str:
    """SHA-256 of plain values, in whatever order."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def write_atomically(path: pathlib.Path, content: bytes) -> None:
    """Replace a file in one step: whatever happens, it is the old one or the new one."""
    with replacing(path) as partial, open(partial, "r+b") as file:
        file.write(content)


@contextlib.contextmanager
def replacing(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A new file to write into, which at the end replaces the file of this name, or the link, in one step."""
    # A short name, since that of the file may be as long as names can be; some writers go by the suffix.
    partial = path.parent / f".{secrets.token_hex(8)}{PART}{path.suffix[:16]}"
    if path.is_dir() and not path.is_symlink():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    # O_EXCL follows no link; the mode is that of new files, less the user's mask.
    os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    try:
        yield partial
        _sync(partial, os.O_RDWR)
        os.replace(partial, path)
        with contextlib.suppress(OSError):  # keeps the name through a power cut; not every system can do it
            _sync(path.parent, os.O_RDONLY)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def _sync(path: pathlib.Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def folder_in(parent: pathlib.Path, name: str) -> pathlib.Path:
    """A folder inside another, made if it is missing; a link is refused, since it would lead elsewhere."""
    folder = parent / name
    refuse_link(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def refuse_link(path: pathlib.Path) -> None:
    """Refuse to write through a link; a file of several names is one, too."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if stat.S_ISLNK(found.st_mode) or (stat.S_ISREG(found.st_mode) and found.st_nlink > 1):
        kind = "symbolic" if stat.S_ISLNK(found.st_mode) else "hard"
        raise OSError(errno.ELOOP, f"{path} is a {kind} link, and those are not written through; remove it")


def sweep(folder: pathlib.Path) -> None:
    """Remove half-written files of processes that were killed."""
    for file in folder.glob(f".{'[0-9a-f]' * 16}{PART}*"):
        with contextlib.suppress(OSError):
            file.unlink()
