"""Runs that are tested side by side: their names, the budget they share, and their episodes."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from saute.core.errors import UserError
from saute.runs.config import Config
from saute.runs.evaluate import Outcome
from saute.runs.folder import names_of, read_config
from saute.runs.outcomes import OWN, Budget, Elsewhere, flags_of, in_words, outcomes_of

__all__ = ["Trial", "asked_budget", "common_budget", "reported", "trials"]


class Trial(NamedTuple):
    """A run, by the name it is shown under, and its evaluated episodes."""

    run: pathlib.Path
    name: str
    config: Config
    outcomes: list[Outcome]

    @property
    def returns(self) -> list[np.ndarray]:
        return [outcome.task_return for outcome in self.outcomes]

    @property
    def costs(self) -> list[np.ndarray]:
        """What the budget was spent on."""
        return [outcome.spent for outcome in self.outcomes]

    @property
    def violated(self) -> list[np.ndarray] | None:
        """What the budget of every episode said; of several budgets each."""
        return flags_of(self.outcomes)


def trials(
    runs: Sequence[pathlib.Path],
    episodes: int,
    seed: int,
    budget: Budget | None,
    elsewhere: Elsewhere = OWN,
    shield: bool = False,
) -> Iterator[Trial]:
    """Fresh episodes of every run, one run after the other."""
    for run, name in names_of(runs).items():
        yield Trial(run, name, *outcomes_of(run, episodes, seed, budget, elsewhere, shield=shield))


def asked_budget(numbers: Sequence[float]) -> Budget | None:
    """The budget of a command line: none, one number, or one for each constraint."""
    return numbers[0] if len(numbers) == 1 else tuple(numbers) or None


def common_budget(runs: Sequence[pathlib.Path], budget: Budget | None) -> Budget | None:
    """The budget that all runs share; those of other tasks or budgets do not belong into one comparison."""
    experiments = [read_config(run).experiment for run in runs]
    for run, experiment in zip(runs, experiments, strict=True):
        if experiment.env != experiments[0].env:
            raise UserError(f"{run} is of {experiment.env}, {runs[0]} of {experiments[0].env}; compare runs of one task")
        if budget is None and experiment.budget != experiments[0].budget:
            raise UserError(
                f"{run} has budget {experiment.budget}, {runs[0]} has {experiments[0].budget}; test both at one with --budget"
            )
    own: Budget | None = experiments[0].budget
    if budget is not None and own is not None and np.shape(own) != np.shape(budget):
        count = np.size(own)
        raise UserError(
            f"--budget {in_words(budget)}: {runs[0]} has {count} constraint(s); pass {count} number(s), one for each"
        )
    return own if budget is None else budget


@contextlib.contextmanager
def reported(run: pathlib.Path) -> Iterator[None]:
    """What is wrong with the numbers of a run is the user's to know."""
    try:
        yield
    except ValueError as problem:
        raise UserError(f"{run}: {problem}") from problem
