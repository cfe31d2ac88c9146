"""A slippery grid-world with mud: a short way that costs, and a long way round the mud that does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from saute.exact import Mdp, mdp

__all__ = ["MAP", "MOVES", "Gridworld", "gridworld"]

MAP = (
    "...~~~...",
    "S..~~~..G",
    "...~#~...",
    "....~....",
    "...###...",
    "...###...",
    ".........",
)
"""S start, G goal, ~ mud, # wall."""
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))


class Gridworld(NamedTuple):
    """The cells that are not walls, numbered row by row, and their `Mdp`."""

    rows: tuple[str, ...]
    cells: tuple[tuple[int, int], ...]
    mdp: Mdp
    start: int
    goal: int


def gridworld(rows: Sequence[str] = MAP, slip: float = 0.1) -> Gridworld:
    """Each step before the goal earns −1, each step in mud costs 1 of the budget, and with probability `slip` a step slips.

    A step that slips also moves one cell to the left or to the right, equally likely. If that cell is blocked, the step is
    straight; if straight is blocked too, one stays. So the number of steps through mud is known, but not the place.
    """
    if not 0 <= slip <= 1:
        raise ValueError(f"slip={slip} is a probability; choose it from [0, 1]")
    if len({len(row) for row in rows}) != 1 or set("".join(rows)) - set("SG~.#"):
        raise ValueError(f"the map {list(rows)} needs rows of equal length of the signs S G ~ . #")
    if any("".join(rows).count(sign) != 1 for sign in "SG"):
        raise ValueError(f"the map {list(rows)} needs exactly one start S and one goal G")
    cells = tuple((i, j) for i, row in enumerate(rows) for j, sign in enumerate(row) if sign != "#")
    number = {cell: index for index, cell in enumerate(cells)}
    signs = np.array([rows[i][j] for i, j in cells])
    transition = np.zeros((len(MOVES), len(cells), len(cells)))
    for a, (down, right) in enumerate(MOVES):
        for (i, j), here in number.items():
            straight = number.get((i + down, j + right), here)
            for side, probability in ((0, 1 - slip), (-1, slip / 2), (1, slip / 2)):
                aslant = (i + down + side * right, j + right + side * down)
                transition[a, here, number.get(aslant, straight)] += probability
    goal = int(np.flatnonzero(signs == "G")[0])
    transition[:, goal] = np.eye(len(cells))[goal]
    reward, cost = (np.repeat(column[:, None], len(MOVES), 1) for column in (-1.0 * (signs != "G"), 1.0 * (signs == "~")))
    return Gridworld(tuple(rows), cells, mdp([*transition], reward, cost), int(np.flatnonzero(signs == "S")[0]), goal)
