"""Numbers for readers: aligned columns for terminals, Markdown for pages, JSON for machines."""

from __future__ import annotations

import itertools
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence

import numpy as np

from saute.core.text import columns_of, one_line

__all__ = ["as_json", "columns", "markdown", "room"]

Row = Sequence[str]


def columns(rows: Sequence[Row], right: Sequence[int] = (), width: int | None = None) -> str:
    """The rows as aligned columns; the first row holds the headings.

    Columns are aligned to the left, but those whose number is in `right` to the right. A table that is wider than asked for is
    parted by its first column where rows share it, else into tables of fewer columns that all begin with the first one.

    Example:
        >>> print(columns([("task", "cost"), ("pendulum", "7")], right=[1]))
        task      cost
        pendulum     7
    """
    rows = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    if width is None or sum(widths) + 2 * len(widths) - 2 <= width or len(widths) < 3:
        return "\n".join(_line(row, widths, right) for row in rows)
    heads, *others = rows
    if len({row[0] for row in others}) < len(others):
        groups = [list(group) for _, group in itertools.groupby(others, key=lambda row: row[0])]
        left = [i - 1 for i in right]
        parts = []
        for group in groups:
            rest: list[Row] = [row[1:] for row in [heads, *group]]
            parts.append(f"{heads[0]} {group[0][0]}\n{columns(rest, left, width)}")
        return "\n\n".join(parts)
    first = next((i for i in range(3, len(widths)) if sum(widths[: i + 1]) + 2 * i > width), len(widths) - 1)
    pieces: list[list[Row]] = [[row[:first] for row in rows], [[row[0], *row[first:]] for row in rows]]
    sides = (right, [0] * (0 in right) + [i - first + 1 for i in right if i >= first])
    return "\n\n".join(columns(piece, side, width) for piece, side in zip(pieces, sides, strict=True))


def _line(row: Row, widths: Sequence[int], right: Sequence[int]) -> str:
    cells = (cell.rjust(w) if i in right else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True)))
    return "  ".join(cells).rstrip()


def room() -> int | None:
    """Columns of the terminal that is printed to; None if it is a file or a pipe, which take any width."""
    return columns_of(sys.stdout)


def as_json(value: object) -> str:
    """The value for machines: named tuples as objects, arrays as lists, and null for numbers that JSON does not have."""
    return json.dumps(_plain(value), indent=2, allow_nan=False, ensure_ascii=False)


def _plain(value: object) -> object:
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return _plain(value._asdict())
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a table in Markdown; the first row holds the headings."""
    heads, *others = rows
    return "\n".join("| " + " | ".join(row) + " |" for row in [heads, ["---"] * len(heads), *others])
