"""Check the names that users type, and suggest the most similar one for an unknown name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TypeVar

__all__ = ["nearest"]

Name = TypeVar("Name")


def nearest(name: Name, known: Iterable[object], what: str) -> Name:
    """The same name, if it is known; else an error that suggests the most similar one."""
    known = tuple(known)
    if name in known:
        return name
    names = [str(one) for one in known]
    similar = difflib.get_close_matches(str(name), names, n=1)
    hint = f"; did you mean {similar[0]!r}?" if similar else "."
    known_names = f" Known: {', '.join(names)}" if len(names) <= 30 else ""
    raise ValueError(f"unknown {what} {name!r}{hint}{known_names}")
