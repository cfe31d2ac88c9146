"""`saute pretrained`: the trained policies that come with the package."""

from __future__ import annotations

import dataclasses
from typing import Any

from saute.core.files import read_sealed
from saute.core.tables import as_json, columns, room
from saute.runs.pretrained import located, names

__all__ = ["Pretrained", "listing", "pretrained"]


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """List the trained policies that come with the package; use one as pretrained:NAME wherever a run folder is asked for."""

    json: bool = False
    """Print the list as JSON instead."""


def pretrained(options: Pretrained) -> None:
    print(as_json(entries()) if options.json else listing(room()))


def entries() -> list[dict[str, Any]]:
    """Name, task, method, algorithm, seeds, budget, range of the budgets of training, and size on disk."""
    kept = ("method", "algo", "seeds", "budget", "lowest_budget")
    found = []
    for name in names():
        folder = located(f"pretrained:{name}")
        it, size = read_sealed(folder / "config.json", former=True), sum(file.stat().st_size for file in folder.iterdir())
        found.append({"name": name, "task": it["env"], **{key: it[key] for key in kept}, "bytes": size})
    return found


def listing(width: int | None = None) -> str:
    """The same in columns."""
    rows = [("name", "task", "algorithm", "seeds", "budget", "trained at", "size")]
    for it in entries():
        seen = f"{it['budget']:g}" if it["lowest_budget"] is None else f"{it['lowest_budget']:g} to {it['budget']:g}"
        method, size = f"{it['method']} {it['algo']}", f"{it['bytes'] / 1000:.0f} kB"
        rows.append((it["name"], it["task"], method, str(it["seeds"]), f"{it['budget']:g}", seen, size))
    return f"{columns(rows, width=width)}\n\nUse one as pretrained:NAME, for example saute certify pretrained:{rows[-1][0]}"
