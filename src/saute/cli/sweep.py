"""`saute sweep`: a search for settings, as a study that can be continued and looked at, and a preset that comes of it."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Annotated, Any, NamedTuple

import tyro

from saute.cli.machines import Machines, crew, placed
from saute.cli.options import flat, readable
from saute.cli.output import writing
from saute.core.errors import UserError
from saute.core.machine import cores
from saute.core.progress import Meter, progress
from saute.core.stopping import parting
from saute.core.tables import columns, room
from saute.runs.config import Experiment
from saute.runs.folder import TrainingError
from saute.runs.sweep import Plan, read_space, safe_trials, search

__all__ = ["Search", "Sweep", "read_sweep", "sweep", "sweep_options"]


@dataclasses.dataclass(frozen=True)
class Search:
    """What is searched, and how long."""

    space: pathlib.Path = pathlib.Path("space.toml")
    """TOML file of what may be tried: "settings.discount" = {low = 0.9, high = 0.999}, or a list of choices."""
    trials: int = 30
    """Trials to come to; a sweep that was begun goes on up to them."""
    episodes: int = 200
    """Validation episodes per seed; they are neither those of training nor those of any test."""
    violations: float = 0.05
    """Greatest violation probability that a setting may have, with 95 % confidence, by its validation."""
    out: pathlib.Path | None = None
    """Folder of the sweep; by default runs/sweep-ENV-METHOD-ALGO."""


class Sweep(NamedTuple):
    """Search settings: the greatest mean return of those whose violation probability is small enough, in validation.

    A trial trains all seeds of a setting. The first one is the preset itself; trials below the median are stopped early.
    """

    experiment: Experiment
    search: Search
    machines: Machines


PARTS = {"experiment": Experiment, "search": Search, "machines": Machines}


def sweep_options() -> type:
    """The options as a class."""
    kinds = [(name, Annotated[readable(kind), flat()]) for name, kind in PARTS.items()]
    whole = dataclasses.make_dataclass("Sweep", kinds)
    whole.__doc__ = Sweep.__doc__
    return whole


def read_sweep(words: list[str], prog: str) -> Sweep:
    """What the words ask for."""
    given: Any = tyro.cli(sweep_options(), args=words, prog=prog, config=(tyro.conf.PositionalRequiredArgs,))
    return Sweep(*(kind(**vars(getattr(given, name))) for name, kind in PARTS.items()))


def sweep(options: Sweep) -> None:
    asked, wanted = options.experiment, options.search
    for name in ("trials", "episodes"):
        if getattr(wanted, name) < 1:
            raise UserError(f"--{name} {getattr(wanted, name)} must be at least 1")
    if not 0.0 < wanted.violations <= 1.0:
        raise UserError(f"--violations {wanted.violations} is outside (0, 1]; use a probability, for example 0.05")
    space = read_space(wanted.space, asked)
    name = f"sweep-{asked.env.split(':')[-1]}-{asked.method}-{asked.algo}".replace("/", "-")
    place = placed(options.machines, wanted.out or pathlib.Path("runs", name))
    plan = Plan(asked, space, place, wanted.trials, wanted.episodes, wanted.violations)
    machines = options.machines
    if machines.ray is None:  # one trial after another, each with all cores
        machines = dataclasses.replace(machines, cores=cores())
    stays = f"stopped; the study is kept in {place}, and the same command goes on"
    with writing(place), parting(lambda: stays), crew(machines) as workers, progress(Meter("trials", wanted.trials)) as meter:
        try:
            study = search(plan, workers, meter)
        except (TrainingError, ValueError) as problem:
            raise UserError(str(problem)) from problem
    _show(study, plan)


def _show(study: Any, plan: Plan) -> None:
    """The best trials that are safe enough, and what can be done with them."""
    safe, whole = safe_trials(study), [one for one in study.trials if "bound" in one.user_attrs]
    heads = ["trial", "return", "violations in validation", *plan.space]
    rows = [
        [
            str(one.number),
            f"{one.value:.4g}",
            f"{one.user_attrs['violated']} of {one.user_attrs['episodes']}, so ≤ {one.user_attrs['bound']:.2g}",
            *(
                f"{one.params[name]:.4g}" if isinstance(one.params[name], float) else str(one.params[name])
                for name in plan.space
            ),
        ]
        for one in safe[:10]
    ]
    print(f"{len(study.trials)} trials, {len(whole)} of them whole, {len(safe)} of these safe enough; bounds are at 95 %\n")
    if not safe:
        print(f"none had a violation probability of at most {plan.violations:g}; widen the space, or train for longer")
        return
    print(columns([heads, *rows], right=[0, 1], width=room()))
    asked, best = plan.asked, plan.place / "best.toml"
    train = f"saute train {asked.env} --algo {asked.algo} --method {asked.method} --preset {best}"
    print(f"\nwrote {best}; {train} trains by it, optuna-dashboard {plan.place / 'study.log'} shows every trial")
