"""`saute evaluate`: what the policies of run folders do in episodes that training never saw."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Annotated

import numpy as np
import tyro

from saute.core.errors import UserError
from saute.core.tables import columns
from saute.evidence.stats import upper_bound
from saute.runs.evaluate import TEST_SEED, Outcome, pooled
from saute.runs.folder import names_of, read_config
from saute.runs.outcomes import Budget, in_words, keep_outcomes, outcomes_of
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
    """Budgets to test at, for several constraints one number each in turn; by default the run's own."""
    seed: int = TEST_SEED
    """Seed of the evaluation."""


def evaluate_runs(options: Evaluate) -> None:
    rows, places = [["run", "budget", "seed", "task return", "cost", "worst", "violations"]], []
    for run, name in names_of(options.runs).items():
        place = place_of(run) if options.out is None else options.out if len(options.runs) == 1 else options.out / name
        places.append(str(place))
        for budget in _budgets(run, options.budget):
            config, outcomes = outcomes_of(run, options.episodes, options.seed, budget)
            try:
                keep_outcomes(place if budget is None else place / f"budget-{in_words(budget).replace(' ', '-')}", outcomes)
            except OSError as problem:
                raise UserError(f"cannot write the episodes to {place} ({problem.strerror}); pass --out") from problem
            for seed, outcome in [*((str(i), one) for i, one in enumerate(outcomes)), ("all", pooled(outcomes))]:
                rows += _rows(str(run), seed, outcome, config.experiment.budget)
    print(columns(rows, right=range(1, 6)))
    print(f"wrote every episode to {', '.join(places)}")


def _budgets(run: pathlib.Path, numbers: tuple[float, ...]) -> list[Budget | None]:
    """The budgets that the numbers of the command line are: as many numbers each as the run has constraints."""
    own: Budget | None = read_config(run).experiment.budget
    if not isinstance(own, tuple):
        return list(numbers) or [None]
    size = len(own)
    if len(numbers) % size:
        raise UserError(f"--budget {in_words(numbers)}: {run} has {size} constraints; pass {size} numbers for each budget")
    return [numbers[i : i + size] for i in range(0, len(numbers), size)] or [None]


def _rows(run: str, seed: str, outcome: Outcome, budget: Budget | None) -> list[list[str]]:
    """What the episodes of a seed come to; of several constraints a row for all of them together, and one for each."""
    returns, costs, violated = outcome.task_return, outcome.spent, outcome.violated
    name = run if len(run) <= 30 else "…" + run[-29:]
    value = f"{returns.mean():.2f} ± {returns.std():.2f}"
    if costs.ndim == 1:
        known = violated if budget is not None else None
        return [[name, "–" if known is None else in_words(budget or 0.0), seed, value, *_paid(costs), _bound(known)]]
    each = outcome.violated_each
    limits = ["–"] * costs.shape[1] if each is None or budget is None else [f"{one:g}" for one in np.atleast_1d(budget)]
    rows = [[name, "any", seed, value, "", "", _bound(violated)]]
    for i, limit in enumerate(limits):
        rows.append([name, limit, seed, "", *_paid(costs[:, i]), _bound(None if each is None else each[:, i])])
    return rows


def _paid(costs: np.ndarray) -> tuple[str, str]:
    return f"{costs.mean():.2f}", f"{costs.max():.2f}"


def _bound(violated: np.ndarray | None) -> str:
    if violated is None:
        return "no budget"
    k, n = int(violated.sum()), len(violated)
    return f"{k} of {n}, so ≤ {100 * upper_bound(k, n):.3f} % at 95 %"
