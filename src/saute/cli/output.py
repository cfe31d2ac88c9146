"""Write the files that the user asked for: whole or not at all, with errors that name the file."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
from collections.abc import Iterator

from saute.core.errors import UserError

__all__ = ["replacing", "writing"]


@contextlib.contextmanager
def writing(out: pathlib.Path, option: str = "--out") -> Iterator[None]:
    """Turn an error of the file system into one that names the file and the option to choose another place."""
    try:
        yield
    except OSError as problem:
        raise UserError(f"cannot write {out}: {problem.strerror or problem}; choose another place with {option}") from problem


@contextlib.contextmanager
def replacing(out: pathlib.Path) -> Iterator[pathlib.Path]:
    """A new file beside the wanted one; at the end it replaces the wanted one, so that there is never half a file."""
    partial = out.with_name(f".{out.stem}.{os.getpid()}{out.suffix}")
    try:
        with writing(out):
            if out.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            partial.touch()
        yield partial
        with writing(out):
            partial.replace(out)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
