"""`saute train` and `saute resume`: run folders from names."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import pathlib
from typing import Annotated, Any, NamedTuple

import tyro

from saute.cli.options import readable
from saute.core.errors import UserError
from saute.core.stopping import parting
from saute.runs.build import configured
from saute.runs.checkpoint import CheckpointError
from saute.runs.config import Config, Experiment, completed
from saute.runs.folder import TrainingError, begun, discard_start, inherited, read_config, source_of
from saute.runs.loop import run
from saute.runs.presets import changed
from saute.runs.source import refuse_modules

__all__ = ["Resume", "Shell", "Train", "read_train", "resume", "train", "train_options"]


@dataclasses.dataclass(frozen=True)
class Shell:
    """What does not shape a run."""

    out: pathlib.Path | None = None
    """Run folder; by default runs/ENV-METHOD-ALGO."""
    init: pathlib.Path | None = None
    """Run folder whose policies and values training begins with."""
    log: tuple[str, ...] = ()
    """tensorboard, wandb: log there as well; metrics.jsonl is always written."""


class Train(NamedTuple):
    """Train several seeds of a method and keep everything in a run folder.

    The defaults of settings and constraint are those of the preset for the environment, algorithm and method that are named.
    """

    experiment: Experiment
    shell: Shell
    changes: dict[str, Any]
    """What differs from the preset, by dotted names."""


def train_options(words: list[str]) -> tuple[type, Config]:
    """The options as a class, and the preset: defaults of the settings are those of the preset, so they depend on the words."""
    names: dict[str, Any] = {name: _said(words, f"--{name}") for name in ("algo", "method", "preset", "budget-schedule")}
    env = next((word for word in words[:1] if not word.startswith("-")), "pendulum")
    asked = Experiment(env, **{name.replace("-", "_"): said for name, said in names.items() if said is not None})
    try:
        usual = completed(dataclasses.replace(asked, budget=1.0))
    except ValueError:  # it will be said of the options as a whole
        usual = completed(Experiment("pendulum"))
    kinds = {
        "experiment": Annotated[readable(Experiment), tyro.conf.arg(name="")],
        "shell": Annotated[readable(Shell), tyro.conf.arg(name="")],
        "settings": readable(type(usual.settings), usual.settings),
        "constraint": readable(type(usual.constraint), usual.constraint, hidden=("limit",)),
    }
    if usual.schedule is not None:
        kinds["schedule"] = readable(type(usual.schedule), usual.schedule)
    whole = dataclasses.make_dataclass("Train", kinds.items())
    whole.__doc__ = Train.__doc__
    return whole, usual


def read_train(words: list[str], prog: str) -> Train:
    """What the words ask for."""
    whole, usual = train_options(words)
    given: Any = tyro.cli(whole, args=words, prog=prog, config=(tyro.conf.PositionalRequiredArgs,))
    parts = [name for name in ("settings", "constraint", "schedule") if hasattr(given, name)]
    changes = {k: v for name in parts for k, v in _changes(name, getattr(usual, name), getattr(given, name)).items()}
    shell = {field.name: getattr(given.shell, field.name) for field in dataclasses.fields(Shell)}
    return Train(Experiment(**vars(given.experiment)), Shell(**shell), changes)


def _changes(name: str, usual: Any, given: Any) -> dict[str, Any]:
    """What differs from the preset, by dotted names."""
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(given):
        before, after = getattr(usual, field.name), getattr(given, field.name)
        if dataclasses.is_dataclass(before):
            changes |= _changes(f"{name}.{field.name}", before, after)
        elif before != after:
            changes[f"{name}.{field.name}"] = after
    return changes


def _said(words: list[str], name: str) -> str | None:
    """The word after an option, if it is there."""
    said = [after for word, after in itertools.pairwise([*words, ""]) if word == name] + [
        word.partition("=")[2] for word in words if word.startswith(f"{name}=")
    ]
    return said[-1] if said else None


@dataclasses.dataclass(frozen=True)
class Resume:
    """Continue a run folder where its newest whole checkpoint stands, bit for bit."""

    run: pathlib.Path
    """Run folder."""
    epochs: int | None = None
    """Train up to this epoch instead of the one that was planned."""
    log: tuple[str, ...] = ()
    """tensorboard, wandb: log there as well."""
    trust: bool = False
    """Import the modules that the run folder names, whose code then runs; by default only those that you name are imported."""


def train(options: Train) -> None:
    try:
        config = configured(options.experiment, options.changes)
    except ValueError as problem:
        raise UserError(str(problem)) from problem
    asked = config.experiment
    name = f"{asked.env.split(':')[-1]}-{asked.method}-{asked.algo}".replace("/", "-")
    out = options.shell.out or pathlib.Path("runs", name)
    if (begun(out) or (out / "policy.safetensors").exists()) and read_config(out) != config:
        raise UserError(f"{out} holds a run with other settings; choose another --out, or continue it with saute resume {out}")
    if options.shell.init is not None:
        try:
            inherited(options.shell.init)  # What cannot be begun with is said before a folder is made.
        except (TrainingError, CheckpointError) as problem:
            raise UserError(str(problem)) from problem
    _run(config, out, options.shell.log, options.shell.init)
    print(f"wrote {out}; evaluate it with saute evaluate {out}, draw its training with saute plot curves {out}")


def resume(options: Resume) -> None:
    config = read_config(options.run)
    if source_of(options.run) != options.run:
        raise UserError(
            f"{options.run} has no checkpoint to continue from; train it anew with saute train {config.experiment.env}"
        )
    if not options.trust:
        refuse_modules(options.run, config.experiment.env, *config.experiment.costs)
    epochs = config.epochs if options.epochs is None else options.epochs
    if epochs < 1:
        raise UserError(f"--epochs {epochs} must be at least 1")
    _run(changed(config, "experiment.epochs", epochs), options.run, options.log)
    print(f"finished {options.run} at epoch {epochs}; evaluate it with saute evaluate {options.run}")


def _run(config: Config, out: pathlib.Path, logs: tuple[str, ...], init: pathlib.Path | None = None) -> None:
    fresh = not (out / "config.json").exists()
    try:
        with parting(lambda: _parting(out, fresh)):
            out.mkdir(parents=True, exist_ok=True)
            run(config, out, logs, init)
    except (TrainingError, CheckpointError, ValueError) as problem:
        raise UserError(str(problem)) from problem
    except OSError as problem:
        raise UserError(f"cannot write to {out} ({problem.strerror}); nothing already written is lost") from problem
    finally:
        _tidy(out)


def _parting(out: pathlib.Path, fresh: bool) -> str:
    """What can be done with a run that was stopped; a new folder with nothing to go on from goes."""
    if fresh:
        discard_start(out)
    if not begun(out):
        return "stopped before the first epoch was saved; there is nothing to continue"
    return f"stopped; continue with saute resume {out}, or test it as it is with saute evaluate {out}"


def _tidy(out: pathlib.Path) -> None:
    with contextlib.suppress(OSError):  # it is not empty, or was never made
        out.rmdir()
