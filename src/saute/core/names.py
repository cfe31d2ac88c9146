"""Check the names that users type, and suggest the most similar one for an unknown name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import TypeVar

__all__ = ["nearest", "similar"]

Name = TypeVar("Name")


def nearest(name: Name, known: Iterable[object], what: str) -> Name:
    """The same name, if it is known; else an error that suggests the most similar one."""
    known = tuple(known)
    if name in known:
        return name
    names = [str(one) for one in known]
    meant = similar(str(name), names)
    hint = f"; did you mean {meant!r}?" if meant else "."
    known_names = f" Known: {', '.join(names)}" if len(names) <= 30 else ""
    raise ValueError(f"unknown {what} {name!r}{hint}{known_names}")


def similar(name: str, known: Sequence[str]) -> str | None:
    """The most similar known name, if one is similar."""
    return next(iter(difflib.get_close_matches(name, known, n=1)), None)
