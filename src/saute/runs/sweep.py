"""A search for settings: Optuna asks for trials and is told what they came to, and trials are ordinary run folders."""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from saute.core.errors import UserError
from saute.core.files import CheckpointError, read_sealed, read_text, write_atomically, write_sealed
from saute.core.progress import Meter
from saute.core.seeds import VALIDATION
from saute.evidence.stats import upper_bound
from saute.runs.build import configured
from saute.runs.config import Config, Experiment
from saute.runs.crew import Crew, Job, done_in_turn, trained
from saute.runs.folder import Metrics, finished, folder_of, latest, read_metrics
from saute.runs.outcomes import Elsewhere, outcomes_of
from saute.runs.presets import at

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.trial import FrozenTrial

__all__ = ["Knob", "Plan", "read_space", "safe_trials", "search", "study_in"]

WARM, LOOKS = 4, 20
"""No trial is stopped in this part of its epochs (1/4), and at most so many times it is asked whether to stop it."""


class Knob(NamedTuple):
    """What may be tried of a setting: some values, or all between two ends."""

    choices: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False

    @property
    def ends(self) -> tuple[Any, ...]:
        return self.choices or (self.low, self.high)


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is searched: the best mean return, whose violation probability is with 95 % confidence at most `violations`."""

    asked: Experiment
    space: Mapping[str, Knob]
    place: pathlib.Path
    trials: int = 30
    episodes: int = 200
    """Of a validation, per seed."""
    violations: float = 0.05

    def config(self, changes: Mapping[str, Any]) -> Config:
        return configured(self.asked, changes)


def read_space(file: pathlib.Path, asked: Experiment) -> dict[str, Knob]:
    """The settings of a TOML file, all of which the configuration has to know; lists are choices, low and high are ends."""
    try:
        space = dict(_knobs(tomllib.loads(read_text(file))))
    except FileNotFoundError:
        raise UserError(f"--space {file} does not exist; write one, as docs/cluster.md shows") from None
    except (ValueError, TypeError) as problem:
        raise UserError(f"--space {file}: {problem}") from problem
    if not space:
        raise UserError(f"--space {file} names no setting; add one, for example settings.discount = {{low = 0.9, high = 1.0}}")
    for name, knob in space.items():
        for value in knob.ends:
            try:
                config = configured(asked, {name: value})
                Config.from_json(config.as_json())
            except (ValueError, TypeError, AttributeError) as problem:
                raise UserError(f"--space {file}: {name} = {value!r}: {problem}") from problem
    return space


def _knobs(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Knob]]:
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, list) and value:
            yield name, Knob(tuple(tuple(one) if isinstance(one, list) else one for one in value))
        elif isinstance(value, dict) and "low" in value and "high" in value:
            knob = Knob(**value)
            if not knob.low < knob.high or (knob.log and knob.low <= 0):
                raise ValueError(
                    f"{name}: low = {knob.low} and high = {knob.high} are no range; low < high, and 0 < low if log"
                )
            yield name, knob
        elif isinstance(value, dict):
            yield from _knobs(value, f"{name}.")
        else:
            raise ValueError(f"{name} = {value!r} leaves nothing to try; give a list, or {{low = …, high = …}}")


def study_in(plan: Plan) -> Study:
    """The study of a folder, which goes on where it was; its file is one that optuna-dashboard opens."""
    import optuna
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    plan.place.mkdir(parents=True, exist_ok=True)
    storage = optuna.storages.JournalStorage(JournalFileBackend(str(plan.place / "study.log")))
    epochs = plan.config({}).epochs
    pruner = optuna.pruners.MedianPruner(n_warmup_steps=epochs // WARM, interval_steps=max(1, epochs // LOOKS))
    study = optuna.create_study(storage=storage, pruner=pruner, direction="maximize", study_name="sweep", load_if_exists=True)
    study.sampler = optuna.samplers.TPESampler(seed=len(study.trials))
    asked = json.dumps(dataclasses.asdict(plan.asked), sort_keys=True)
    if study.user_attrs.setdefault("asked", asked) != asked:
        raise UserError(f"{plan.place} holds a sweep of another training; choose another folder with --out")
    study.set_user_attr("asked", asked)
    _begin_again(study, plan)
    return study


def _begin_again(study: Study, plan: Plan) -> None:
    """Trials that were under way are asked for again, and their folders continued; the first one is the preset itself."""
    import optuna

    for trial in study.get_trials(states=[optuna.trial.TrialState.RUNNING]):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        study.enqueue_trial(trial.params)
    if not study.trials:
        usual = plan.config({})
        own = {name: _as_parameter(knob, at(usual, name)) for name, knob in plan.space.items()}
        # What the space leaves out of the preset is chosen by the sampler.
        inside = {name: value for name, value in own.items() if _is_inside(plan.space[name], at(usual, name))}
        study.enqueue_trial(inside)


def search(plan: Plan, crew: Crew, meter: Meter) -> Study:
    """Try settings until there are as many whole or stopped trials as asked for; the best so far is always in best.toml."""
    it = _Search(plan, crew, study_in(plan))
    meter.begin(it.ended())
    for job, result in done_in_turn(crew, it.asked(), functools.partial(it.look, meter), crew.slots):
        it.end(job, result)
    meter.tell(it.ended(), *_best_so_far(it.study))
    return it.study


@dataclasses.dataclass
class _Running:
    """A job, the trials that have its settings, and how many of its epochs they know."""

    job: Job
    trials: list[Trial]
    reported: int = 0
    stopped: bool = False


@dataclasses.dataclass
class _Search:
    """A study, and the trials of it that are under way, by their folders."""

    plan: Plan
    crew: Crew
    study: Study
    running: dict[pathlib.Path, _Running] = dataclasses.field(default_factory=dict)

    def ended(self) -> int:
        from optuna.trial import TrialState

        return len(self.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED)))

    def asked(self) -> Iterator[Job]:
        """The next trial, as long as one is wanted; settings that were tried already are told at once."""
        plan = self.plan
        while self.ended() + sum(len(one.trials) for one in self.running.values()) < plan.trials:
            trial = self.study.ask()
            config = plan.config({name: _chosen(trial, name, knob, plan) for name, knob in plan.space.items()})
            folder = folder_of(config, plan.place / "trials")
            if folder in self.running:
                self.running[folder].trials.append(trial)
            elif (folder / "validation.json").exists():
                _tell(self.study, plan, folder, [trial])
            else:
                job = Job(f"trial {trial.number}", config, folder, functools.partial(_tried, episodes=plan.episodes))
                self.running[folder] = _Running(job, [trial])
                yield job

    def look(self, meter: Meter) -> None:
        """Stop what is not worth going on with."""
        for one in self.running.values():
            if not one.stopped and _should_stop(one):
                one.stopped = True
                self.crew.drop(one.job)
        meter.tell(self.ended(), *_best_so_far(self.study))

    def end(self, job: Job, result: list[str] | BaseException) -> None:
        """Tell the study what a job came to."""
        from optuna.trial import TrialState

        one = self.running.pop(job.folder)
        if not one.stopped and not isinstance(result, BaseException):
            _tell(self.study, self.plan, job.folder, one.trials)
            return
        for trial in one.trials:
            self.study.tell(trial, state=TrialState.PRUNED if one.stopped else TrialState.FAIL)
        if not one.stopped:
            raise UserError(f"{job.title} ({one.trials[0].params}) failed: {result}; all others are kept, and can go on")


def _tried(config: Config, folder: pathlib.Path, episodes: int) -> list[str]:
    """Train a setting, and validate it in episodes that neither training nor tests see."""
    notes = [] if finished(folder) else trained(config, folder)
    _, outcomes = outcomes_of(folder, episodes, VALIDATION.start, elsewhere=Elsewhere(trusted=True))
    violated = sum(int(one.violated.sum()) for one in outcomes if one.violated is not None)
    returns = float(np.mean([one.task_return.mean() for one in outcomes]))
    numbers = {"return": returns, "violated": violated, "episodes": len(outcomes) * episodes}
    write_sealed(folder / "validation.json", numbers)
    return notes


def _tell(study: Study, plan: Plan, folder: pathlib.Path, trials: Sequence[Trial]) -> None:
    """What a validation came to, as the value of its trials and their constraint."""
    try:
        numbers = read_sealed(folder / "validation.json")
    except CheckpointError as problem:
        raise UserError(str(problem)) from problem
    bound = upper_bound(numbers["violated"], numbers["episodes"])
    for trial in trials:
        trial.set_constraint("violations", bound - plan.violations)
        for name, value in {**numbers, "bound": bound, "run": folder.name}.items():
            trial.set_user_attr(name, value)
        study.tell(trial, numbers["return"])
    _write_best(study, plan)


def _should_stop(one: _Running) -> bool:
    """Tell a trial its new epochs, and ask whether to stop it."""
    if latest(one.job.folder)[0] <= one.reported:
        return False
    for epoch, metrics in enumerate(read_metrics(one.job.folder)[one.reported :], one.reported):
        one.reported = epoch + 1
        if not np.isnan(value := _so_far(metrics)):
            one.trials[0].report(value, epoch)
            if one.trials[0].should_prune():
                return True
    return False


def _so_far(metrics: Sequence[Metrics]) -> float:
    """Mean return of an epoch, in which an episode that overspent its budget counts as the worst one."""
    rates = [0.0 if np.isnan(one["violation_rate"]) else one["violation_rate"] for one in metrics]
    pairs = zip(metrics, rates, strict=True)
    return float(np.mean([(1.0 - rate) * one["task_return"] + rate * one["worst_return"] for one, rate in pairs]))


def _chosen(trial: Trial, name: str, knob: Knob, plan: Plan) -> Any:
    if knob.choices:
        return knob.choices[[_as_parameter(knob, one) for one in knob.choices].index(_suggested(trial, name, knob))]
    if isinstance(at(plan.config({}), name), int):
        return trial.suggest_int(name, int(knob.low), int(knob.high), log=knob.log)
    return trial.suggest_float(name, knob.low, knob.high, log=knob.log)


def _suggested(trial: Trial, name: str, knob: Knob) -> Any:
    return trial.suggest_categorical(name, [_as_parameter(knob, one) for one in knob.choices])


def _as_parameter(knob: Knob, value: Any) -> Any:
    """As Optuna keeps it, which knows no tuples."""
    return json.dumps(value) if isinstance(value, tuple) else value


def _is_inside(knob: Knob, value: object) -> bool:
    if knob.choices:
        return value in knob.choices
    return isinstance(value, int | float) and knob.low <= value <= knob.high


def safe_trials(study: Study) -> list[FrozenTrial]:
    """The whole trials that are safe enough, the best first."""
    from optuna.trial import TrialState

    whole = study.get_trials(states=(TrialState.COMPLETE,))
    safe = (one for one in whole if one.value is not None and max(one.constraints.values()) <= 0)
    return sorted(safe, key=lambda one: one.value or 0.0, reverse=True)


def _best_of(study: Study) -> FrozenTrial | None:
    """The trial with the greatest return of those that keep the constraint; None if there is none."""
    return next(iter(safe_trials(study)), None)


def _best_so_far(study: Study) -> list[tuple[str, str]]:
    best = _best_of(study)
    return [("none is safe enough yet", "")] if best is None else [(f"best return {best.value:.4g}", f"{best.value:.4g}")]


def _write_best(study: Study, plan: Plan) -> None:
    best = _best_of(study)
    if best is None:
        return
    it, asked = best.user_attrs, plan.asked
    text = (
        f"# {asked.env}, {asked.algo}, {asked.method}: trial {best.number} has return {best.value:.6g} in validation, and\n"
        f"# violated {it['violated']} of {it['episodes']} episodes, so ≤ {it['bound']:.3g} at 95 %.\n"
        f"preset = {json.dumps(asked.preset)}\n\n[changes]\n"
    )
    # Settings that were found for some epochs are not those for the preset's number of them.
    changes = {**({} if asked.epochs is None else {"epochs": asked.epochs}), **best.params}
    lines = (f"{json.dumps(name)} = {_in_toml(value)}\n" for name, value in sorted(changes.items()))
    write_atomically(plan.place / "best.toml", (text + "".join(lines)).encode())


def _in_toml(value: object) -> str:
    """A parameter of a trial; several numbers, which Optuna keeps as text, are such again."""
    return value if isinstance(value, str) and value.startswith("[") else json.dumps(value)
