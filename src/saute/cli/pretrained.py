"""`saute pretrained`: the trained policies that come with the package."""

from __future__ import annotations

import dataclasses

from saute.core.files import read_sealed
from saute.core.tables import columns
from saute.runs.pretrained import located, names

__all__ = ["Pretrained", "listing", "pretrained"]


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """List the trained policies that come with the package; use one as pretrained:NAME wherever a run folder is asked for."""


def pretrained(options: Pretrained) -> None:
    print(listing())


def listing() -> str:
    """Name, task, algorithm, seeds, budget, range of the budgets of training, and size on disk, in columns."""
    rows = [("name", "task", "algorithm", "seeds", "budget", "trained at", "size")]
    for name in names():
        folder = located(f"pretrained:{name}")
        it = read_sealed(folder / "config.json", former=True)
        seen = f"{it['budget']:g}" if it["lowest_budget"] is None else f"{it['lowest_budget']:g} to {it['budget']:g}"
        size = sum(file.stat().st_size for file in folder.iterdir())
        method = f"{it['method']} {it['algo']}"
        rows.append((name, it["env"], method, str(it["seeds"]), f"{it['budget']:g}", seen, f"{size / 1000:.0f} kB"))
    return f"{columns(rows)}\n\nUse one as pretrained:NAME, for example saute certify pretrained:{rows[-1][0]}"
