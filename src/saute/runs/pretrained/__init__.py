"""Trained policies that come with the package, one folder each, and `saute pretrained`, which lists them."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib

from saute.envs import nearest

__all__ = ["Pretrained", "located", "names", "place_of", "pretrained"]

PREFIX = "pretrained:"
FOLDER = pathlib.Path(__file__).parent
OUT = pathlib.Path("runs", "pretrained")
"""Where evaluations of these policies go, since the folder of an installed package is not the user's to write to."""


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """List the trained policies that come with the package; use one as pretrained:NAME wherever a run folder is asked for."""


def pretrained(options: Pretrained) -> None:
    print(listing())


def names() -> list[str]:
    """What comes with the package."""
    return sorted(file.parent.name for file in FOLDER.glob("*/policy.safetensors"))


def located(run: str | os.PathLike[str]) -> pathlib.Path:
    """The folder behind pretrained:NAME; every other path stands for itself."""
    if not (name := _name(run)):
        return pathlib.Path(run)
    try:
        return FOLDER / nearest(name, names(), "pretrained policy")
    except ValueError as problem:
        raise ValueError(f"{problem}; saute pretrained lists them") from None


def place_of(run: str | os.PathLike[str]) -> pathlib.Path:
    """Where to keep what is found out about a run: in its own folder, or in runs/pretrained/NAME."""
    return OUT / name if (name := _name(run)) else pathlib.Path(run)


def listing() -> str:
    """Name, task, algorithm, seeds, budget, range of the budgets of training, and size on disk, in columns."""
    rows = [("name", "task", "algorithm", "seeds", "budget", "trained at", "size")]
    for name in names():
        it = json.loads((FOLDER / name / "config.json").read_text())
        seen = f"{it['budget']:g}" if it["lowest_budget"] is None else f"{it['lowest_budget']:g} to {it['budget']:g}"
        size = sum(file.stat().st_size for file in (FOLDER / name).iterdir())
        method = f"{it['method']} {it['algo']}"
        rows.append((name, it["env"], method, str(it["seeds"]), f"{it['budget']:g}", seen, f"{size / 1000:.0f} kB"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    table = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join([*table, "", "Use one as pretrained:NAME, for example saute certify pretrained:" + rows[-1][0]])


def _name(run: str | os.PathLike[str]) -> str | None:
    text = os.fspath(run)
    return text.removeprefix(PREFIX) if text.startswith(PREFIX) else None
