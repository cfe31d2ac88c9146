"""Which blocks of test seeds have been opened, for which result and by which code: each of them once, never to choose by."""

from __future__ import annotations

import datetime
import pathlib
from typing import NamedTuple

from saute.core.files import read_sealed, write_sealed
from saute.core.seeds import BLOCK, TESTS, block
from saute.core.typed import rebuilt
from saute.paper.measured import Made
from saute.runs.provenance import commit

__all__ = ["Opened", "looked_at", "open_next", "opened"]

FILE = "opened.json"
SEEN = {
    1: "for looking: settings were once chosen on it",
    7: "settings of Point and Car were judged on it",
    9: "the gallery, and what a search of settings found, were tested on it",
    13: "policies of the pendulum were tested on it under their shields",
    14: "policies that trained under a shield were tested on it",
}
"""Blocks that are no longer fresh, and why."""


class Opened(NamedTuple):
    """A block of test seeds, and what it was opened for."""

    block: int
    date: str
    commit: str
    what: str
    """What was tested, and in how many episodes."""

    @property
    def first(self) -> int:
        return block(self.block).start

    def made(self, last: int) -> Made:
        """What a row says of its tests, the last of which has this seed."""
        return Made(self.date, self.commit, (self.first, last))


def opened(results: pathlib.Path) -> tuple[Opened, ...]:
    """All that have been opened for the results in a folder."""
    try:
        return rebuilt(tuple[Opened, ...], read_sealed(results / FILE)["opened"], FILE)
    except FileNotFoundError:
        return ()


def open_next(results: pathlib.Path, what: str, seeds: int) -> Opened:
    """Open the next block for a result, which needs so many seeds, and write that down before anything is tested."""
    if seeds > BLOCK:
        raise ValueError(f"{what} needs {seeds:,} test seeds, and a block has {BLOCK:,}; ask for fewer --episodes")
    known = opened(results)
    taken = SEEN.keys() | {one.block for one in known}
    number = next(number for number in range(1, 1 + len(TESTS) // BLOCK) if number not in taken)
    fresh = Opened(number, _today(), commit(), what)
    results.mkdir(parents=True, exist_ok=True)
    write_sealed(results / FILE, {"opened": [one._asdict() for one in (*known, fresh)]})
    return fresh


def looked_at() -> Opened:
    """The block for looking, which nobody has to open."""
    return Opened(1, _today(), commit(), "for looking")


def _today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()
