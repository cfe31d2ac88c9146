"""`saute runs`: a table of all runs in a folder, also while they are trained."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Annotated, Any

import numpy as np

from saute.cli.options import positional
from saute.core.errors import UserError
from saute.core.tables import as_json, columns, room
from saute.evidence.stats import upper_bound
from saute.runs.outcomes import in_words
from saute.runs.state import Standing, runs_in, standing_of

__all__ = ["Runs", "runs"]

HEADS = ("run", "state", "epochs", "return", "worst cost", "violations in training, bound at 95 %", "where")


@dataclasses.dataclass(frozen=True)
class Runs:
    """List every run in a folder: running, interrupted or finished, its epochs, and the numbers of its last epoch."""

    folder: Annotated[pathlib.Path, positional()] = pathlib.Path("runs")
    """Folder of run folders, or one of them."""
    json: bool = False
    """Print them as JSON."""


def runs(options: Runs) -> None:
    if not options.folder.is_dir():
        raise UserError(f"{options.folder} is not a folder; name the one that holds your run folders")
    found = [standing_of(run) for run in runs_in(options.folder)]
    if options.json:
        print(as_json([_entries(one) for one in found]))
        return
    if not found:
        print(f"there is no run in {options.folder}; train one with saute train")
        return
    print(columns([HEADS, *(_row(one, options.folder) for one in found)], right=[2, 3], width=room()))


def _entries(it: Standing) -> dict[str, Any]:
    planned = None if it.config is None else it.config.epochs
    numbers = None if it.numbers is None else it.numbers._asdict()
    return {"run": it.run, "state": it.state, "epochs": it.epochs, "planned": planned, "numbers": numbers, "where": it.where}


def _row(it: Standing, folder: pathlib.Path) -> tuple[str, ...]:
    name = str(it.run.relative_to(folder)) if it.run != folder else it.run.name
    if it.config is None:
        return name, it.state, *["–"] * (len(HEADS) - 2)
    epochs = f"{it.epochs}/{it.config.epochs}"
    if it.numbers is None:
        return name, it.state, epochs, "–", "–", "–", it.where or "–"
    asked, seen = it.config.experiment, it.numbers
    worst = " ".join(f"{cost:.4g}" for cost in seen.worst)
    limit = "" if asked.budget is None or asked.discount != 1.0 else f" of {in_words(asked.budget)}"
    broken = "no budget"
    if seen.violated is not None:
        broken = f"{seen.violated} of {seen.episodes}, so ≤ {100 * upper_bound(seen.violated, seen.episodes):.3g} %"
    return name, it.state, epochs, f"{np.mean(seen.returns):.4g}", worst + limit, broken, it.where or "–"
