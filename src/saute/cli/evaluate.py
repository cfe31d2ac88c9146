"""`saute evaluate`: what the policies of run folders do in episodes that training never saw."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import tyro

from saute.core.errors import UserError
from saute.core.files import folder_in
from saute.core.tables import as_json, columns, room
from saute.runs.config import Config
from saute.runs.evaluate import TEST_SEED, Outcome, pooled
from saute.runs.folder import names_of, read_config
from saute.runs.outcomes import (
    Budget,
    Elsewhere,
    heads,
    in_words,
    keep_outcomes,
    numbers_of,
    outcomes_of,
    over_seeds,
    rows_of,
    stepped_in,
)
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
    shield: bool = False
    """Whether the shields of the runs may step in; saute shield makes them."""
    env: str = ""
    """Environment to test in, module:Id-v0; by default the run's own, which has to be named if it was given in Python."""
    cost: tuple[str, ...] = ()
    """Where the info of that environment has its cost; by default where the run's own has it."""
    trust: bool = False
    """Import the modules that the run folder names, whose code then runs; by default only those that you name are imported."""
    json: bool = False
    """Print all numbers as JSON instead."""


class Tested(NamedTuple):
    """The episodes of a run at one budget, and the folder that they are to be kept in."""

    run: pathlib.Path
    config: Config
    outcomes: list[Outcome]
    place: pathlib.Path
    inside: str = ""
    """The folder in it that those of another budget go to."""

    def named(self) -> list[tuple[str, Outcome]]:
        """Every seed, and all of them together."""
        return [*((str(i), one) for i, one in enumerate(self.outcomes)), ("all", pooled(self.outcomes))]


def evaluate_runs(options: Evaluate) -> None:
    if options.shield and options.sampled:
        raise UserError(
            "--shield is for deterministic policies, since they are what it was calibrated with; leave --sampled out"
        )
    done = list[Tested]()
    try:
        done.extend(_tested(options))
    finally:  # the numbers come first: what was tested is shown, whatever becomes of the rest
        if done:
            print(_numbers(done) if options.json else _table(done))
    for one in done:
        try:
            keep_outcomes(folder_in(one.place, one.inside) if one.inside else one.place, one.outcomes)
        except OSError as problem:
            raise UserError(f"cannot write the episodes to {one.place} ({problem.strerror}); pass --out") from problem
    if not options.json:
        print(f"wrote every episode to {', '.join(dict.fromkeys(str(one.place) for one in done))}")


def _tested(options: Evaluate) -> Iterator[Tested]:
    elsewhere = Elsewhere(options.env, options.cost, options.trust)
    for run, name in names_of(options.runs).items():
        place = place_of(run) if options.out is None else options.out if len(options.runs) == 1 else options.out / name
        for budget in _budgets(run, options.budget):
            asked = (options.episodes, options.seed, budget, elsewhere, options.sampled, options.shield)
            config, outcomes = outcomes_of(run, *asked)
            at = [] if budget is None else [f"budget-{in_words(budget).replace(' ', '-')}"]
            yield Tested(run, config, outcomes, place, "-".join(["shielded"] * options.shield + at))


def _table(done: Sequence[Tested]) -> str:
    discount = min(one.config.experiment.discount for one in done)
    named = [(one, seed, outcome) for one in done for seed, outcome in one.named()]
    rows = [row for one, seed, outcome in named for row in rows_of(str(one.run), seed, outcome, one.config.experiment.budget)]
    told = [f"{one.run}: {words}" for one in done if (words := stepped_in(pooled(one.outcomes)))]
    told += [f"{one.run}: {words}" for one in done for words in over_seeds(one.outcomes)]
    return "\n".join([columns([heads(discount), *rows], right=range(1, 6), width=room()), *told])


def _numbers(done: Sequence[Tested]) -> str:
    def of(one: Tested) -> dict[str, Any]:
        asked, seeds = one.config.experiment, {seed: numbers_of(outcome) for seed, outcome in one.named()}
        return {"run": one.run, "budget": asked.budget, "discount": asked.discount, "all": seeds.pop("all"), "seeds": seeds}

    return as_json({"confidence": 0.95, "runs": [of(one) for one in done]})


def _budgets(run: pathlib.Path, numbers: tuple[float, ...]) -> list[Budget | None]:
    """The budgets that the numbers of the command line are: as many numbers each as the run has constraints."""
    own: Budget | None = read_config(run).experiment.budget
    if not isinstance(own, tuple):
        return list(numbers) or [None]
    size = len(own)
    if len(numbers) % size:
        raise UserError(f"--budget {in_words(numbers)}: {run} has {size} constraints; pass {size} numbers for each budget")
    return [numbers[i : i + size] for i in range(0, len(numbers), size)] or [None]
