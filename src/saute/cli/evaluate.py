"""`saute evaluate`: what the policies of run folders do in episodes that training never saw."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Annotated

import tyro

from saute.core.errors import UserError
from saute.core.tables import columns
from saute.evidence.stats import upper_bound
from saute.runs.evaluate import TEST_SEED, Outcome, pooled
from saute.runs.folder import names_of
from saute.runs.outcomes import keep_outcomes, outcomes_of
from saute.runs.pretrained import place_of

__all__ = ["Evaluate", "evaluate_runs"]


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """Evaluate the deterministic policies of run folders on starts that training never saw."""

    runs: Annotated[tuple[pathlib.Path, ...], tyro.conf.arg(metavar="RUN [RUN ...]")]
    """Run folders, or pretrained:NAME."""
    episodes: int = 100
    """Episodes per seed."""
    out: pathlib.Path | None = None
    """Folder for the numbers of every episode, by default the run folder; for several runs, one folder in it for each."""
    budget: tuple[float, ...] = ()
    """Budgets to test at; by default the run's own."""
    seed: int = TEST_SEED
    """Seed of the evaluation."""


def evaluate_runs(options: Evaluate) -> None:
    rows, places = [["run", "budget", "seed", "task return", "cost", "worst", "violations"]], []
    for run, name in names_of(options.runs).items():
        place = place_of(run) if options.out is None else options.out if len(options.runs) == 1 else options.out / name
        places.append(str(place))
        for budget in options.budget or (None,):
            config, outcomes = outcomes_of(run, options.episodes, options.seed, budget)
            try:
                keep_outcomes(place if budget is None else place / f"budget-{budget:g}", outcomes)
            except OSError as problem:
                raise UserError(f"cannot write the episodes to {place} ({problem.strerror}); pass --out") from problem
            for seed, outcome in [*((str(i), one) for i, one in enumerate(outcomes)), ("all", pooled(outcomes))]:
                rows.append(_row(str(run), seed, outcome, config.experiment.budget))
    print(columns(rows, right=range(1, 6)))
    print(f"wrote every episode to {', '.join(places)}")


def _row(run: str, seed: str, outcome: Outcome, budget: float | None) -> list[str]:
    returns, costs = outcome.task_return, outcome.spent
    text, shown = "no budget", "–"
    if outcome.violated is not None and budget is not None:
        k, n = int(outcome.violated.sum()), len(costs)
        text, shown = f"{k} of {n}, so ≤ {100 * upper_bound(k, n):.3f} % at 95 %", f"{budget:g}"
    name = run if len(run) <= 30 else "…" + run[-29:]
    return [name, shown, seed, f"{returns.mean():.2f} ± {returns.std():.2f}", f"{costs.mean():.2f}", f"{costs.max():.2f}", text]
