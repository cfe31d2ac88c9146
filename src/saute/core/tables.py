"""Tables of text: aligned columns for terminals, Markdown for pages."""

from __future__ import annotations

from collections.abc import Sequence

from saute.core.text import shown

__all__ = ["columns", "markdown"]

Row = Sequence[str]


def columns(rows: Sequence[Row], right: Sequence[int] = ()) -> str:
    """The rows as aligned columns; the first row holds the headings.

    Columns are aligned to the left, but those whose number is in `right` to the right.

    Example:
        >>> print(columns([("task", "cost"), ("pendulum", "7")], right=[1]))
        task      cost
        pendulum     7
    """
    rows = [[shown(cell) for cell in row] for row in rows]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]

    def line(row: Row) -> str:
        cells = (cell.rjust(w) if i in right else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True)))
        return "  ".join(cells).rstrip()

    return "\n".join(map(line, rows))


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a table in Markdown; the first row holds the headings."""
    heads, *others = rows
    return "\n".join("| " + " | ".join(row) + " |" for row in [heads, ["---"] * len(heads), *others])
