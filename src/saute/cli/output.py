"""Write the files that the user asked for: whole or not at all, with errors that name the file."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator

from saute.core import files
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
    """A new file beside the wanted one, which it replaces at the end, with errors that are the user's to put right."""
    with contextlib.ExitStack() as stack:
        with writing(out):
            partial = stack.enter_context(files.replacing(out))
        yield partial
        with writing(out):
            stack.close()
