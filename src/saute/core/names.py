"""Names that users type: known ones pass, others get the most similar one suggested."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TypeVar

__all__ = ["nearest"]

Name = TypeVar("Name")


def nearest(name: Name, known: Iterable[object], what: str) -> Name:
    """The name itself if it is known, else an error that suggests the most similar one."""
    known = tuple(known)
    if name in known:
        return name
    names = [str(one) for one in known]
    similar = difflib.get_close_matches(str(name), names, n=1)
    hint = f"; did you mean {similar[0]!r}?" if similar else "."
    known_names = f" Known: {', '.join(names)}" if len(names) <= 30 else ""
    raise ValueError(f"unknown {what} {name!r}{hint}{known_names}")
