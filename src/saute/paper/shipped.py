"""The policies that come with the package, tested on seeds that nothing was chosen by."""

from __future__ import annotations

import pathlib

from saute.core.errors import UserError
from saute.core.files import write_sealed
from saute.core.tables import markdown
from saute.envs import is_native
from saute.evidence.stats import upper_bound
from saute.paper.measured import Measured, measure
from saute.paper.opened import Opened, looked_at, open_next
from saute.runs.folder import read_config
from saute.runs.outcomes import outcomes_of
from saute.runs.pretrained import FOLDER, PREFIX, names
from saute.runs.shield import FILE, file_of_shield

__all__ = ["SHIPPED", "make_shipped", "shipped_table"]

SHIPPED = "shipped"
"""The name of this result."""
MOST_ON_HOST = 200
"""Test episodes per seed where the physics are not compiled, which takes a hundred times as long."""


def make_shipped(scale: str, out: pathlib.Path, episodes: int, reserved: bool) -> str:
    """Test every policy at its own budget, and write the numbers; the text is their table."""
    what = f"{scale} {SHIPPED}, {episodes} episodes per seed"
    configs = {name: read_config(pathlib.Path(f"{PREFIX}{name}")) for name in names()}
    guarded = [name for name in configs if _has_shield(name)]
    most = max(config.experiment.seeds for config in configs.values())
    block = open_next(out, what, most * episodes) if reserved else looked_at()
    counts = {
        name: episodes if is_native(config.experiment.env) else min(episodes, MOST_ON_HOST) for name, config in configs.items()
    }
    rows = {name: _tested(name, counts[name], block) for name in configs}
    for name in guarded:
        label = f"{name}, under its shield"
        rows[label] = _tested(name, counts[name], block, label)
    place = out / scale / SHIPPED
    place.mkdir(parents=True, exist_ok=True)
    write_sealed(place / "numbers.json", {"rows": [row.as_json() for row in rows.values()]})
    return shipped_table(rows)


def _has_shield(name: str) -> bool:
    """Whether it comes with one, which is the one that will be tested."""
    its = FOLDER / name / FILE
    if its.exists() and file_of_shield(f"{PREFIX}{name}") != its:
        raise UserError(
            f"{file_of_shield(f'{PREFIX}{name}')} is your own shield of {name}; test the package's in another folder"
        )
    return its.exists()


def _tested(name: str, episodes: int, block: Opened, shielded: str = "") -> Measured:
    """A policy at its budget, or, by another label, in the very same episodes under its shield."""
    run = pathlib.Path(f"{PREFIX}{name}")
    config, outcomes = outcomes_of(run, episodes, block.first, shield=bool(shielded))
    made = block.made(block.first + len(outcomes) * episodes - 1)
    budget = config.experiment.budget
    if not isinstance(budget, float):
        raise ValueError(f"{name} has the budgets {budget}; what comes with the package is tested at one")
    return measure(shielded or name, budget, outcomes, run=str(run), epochs=config.epochs, made=made)


def shipped_table(rows: dict[str, Measured]) -> str:
    """Every policy, with the bounds on bad episodes and on bad seeds."""
    lines: list[tuple[str, ...]] = [
        ("policy", "budget", "return: mean, median, IQM", "cost: mean, worst", "violations", "seeds", "tested")
    ]
    for name, row in rows.items():
        task, bad = row.task_return, sum(seed.violations > 0 for seed in row.seeds)
        middle = "–" if task.iqm is None else f"{task.iqm:.2f}"
        returns, costs = f"{task.mean:.2f}, {task.median:.2f}, {middle}", f"{row.cost.mean:.2f}, {row.cost.largest:.2f}"
        clean = f"{len(row.seeds) - bad} of {len(row.seeds)} clean, so ≤ {100 * upper_bound(bad, len(row.seeds)):.0f} % bad"
        lines.append((name, f"{row.budget:g}", returns, costs, row.seen, clean, "–" if row.made is None else row.made.told))
    return markdown(lines)
