"""`saute evaluate`: what the policies of run folders do in episodes that training never saw."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Annotated

import tyro

from saute.core.errors import UserError
from saute.core.files import folder_in
from saute.core.tables import columns
from saute.runs.evaluate import TEST_SEED, pooled
from saute.runs.folder import names_of, read_config
from saute.runs.outcomes import Budget, Elsewhere, heads, in_words, keep_outcomes, outcomes_of, rows_of
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
    sampled: bool = False
    """Whether policies draw their actions, as in training; by default they act deterministically."""
    env: str = ""
    """Environment to test in, module:Id-v0; by default the run's own, which has to be named if it was given in Python."""
    cost: tuple[str, ...] = ()
    """Where the info of that environment has its cost; by default where the run's own has it."""
    trust: bool = False
    """Import the modules that the run folder names, whose code then runs; by default only those that you name are imported."""


def evaluate_runs(options: Evaluate) -> None:
    rows, places, discount = list[list[str]](), [], 1.0
    elsewhere = Elsewhere(options.env, options.cost, options.trust)
    for run, name in names_of(options.runs).items():
        place = place_of(run) if options.out is None else options.out if len(options.runs) == 1 else options.out / name
        places.append(str(place))
        for budget in _budgets(run, options.budget):
            config, outcomes = outcomes_of(run, options.episodes, options.seed, budget, elsewhere, options.sampled)
            try:
                own = place if budget is None else folder_in(place, f"budget-{in_words(budget).replace(' ', '-')}")
                keep_outcomes(own, outcomes)
            except OSError as problem:
                raise UserError(f"cannot write the episodes to {place} ({problem.strerror}); pass --out") from problem
            for seed, outcome in [*((str(i), one) for i, one in enumerate(outcomes)), ("all", pooled(outcomes))]:
                discount = min(discount, config.experiment.discount)
                rows += rows_of(str(run), seed, outcome, config.experiment.budget)
    print(columns([heads(discount), *rows], right=range(1, 6)))
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
