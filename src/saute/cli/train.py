"""`saute train` and `saute resume`: run folders from names."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import pathlib
from typing import Annotated, Any, NamedTuple

import tyro

from saute.cli.machines import ALONE, Machines, crew, placed
from saute.cli.options import flat, readable
from saute.core.errors import UserError
from saute.core.stopping import parting
from saute.runs.build import configured
from saute.runs.checkpoint import CheckpointError
from saute.runs.config import Config, Experiment, completed
from saute.runs.folder import TrainingError, begun, discard_start, inherited, read_config, source_of
from saute.runs.loop import run
from saute.runs.presets import changed, stored_preset
from saute.runs.shards import train_in_shards
from saute.runs.shielding import shielded
from saute.runs.source import modules_in, refuse_modules
from saute.runs.state import PARTS

__all__ = ["Resume", "Shell", "Train", "read_train", "resume", "train", "train_options"]


@dataclasses.dataclass(frozen=True)
class Shell:
    """What does not shape a run."""

    out: pathlib.Path | None = None
    """Run folder; by default runs/ENV-METHOD-ALGO."""
    init: pathlib.Path | None = None
    """Run folder whose policies and values training begins with."""
    shield: pathlib.Path | None = None
    """Run folder whose shield replaces actions after which the budget might not suffice; saute shield makes it."""
    log: tuple[str, ...] = ()
    """tensorboard, wandb: log there as well; metrics.jsonl is always written."""
    snapshots: int = 0
    """Keep the policies of so many epochs on the way, close together at first, for saute plot trajectories."""


class Train(NamedTuple):
    """Train several seeds of a method and keep everything in a run folder.

    The defaults of settings and constraint are those of the preset for the environment, algorithm and method that are named.
    """

    experiment: Experiment
    shell: Shell
    machines: Machines
    changes: dict[str, Any]
    """What differs from the preset, by dotted names."""


def train_options(words: list[str]) -> tuple[type, Config]:
    """The options as a class, and the preset: defaults of the settings are those of the preset, so they depend on the words."""
    names: dict[str, Any] = {name: _said(words, f"--{name}") for name in ("algo", "method", "preset", "budget-schedule")}
    env = next((word for word in words[:1] if not word.startswith("-")), "pendulum")
    try:
        names["preset"], changes = _preset(names["preset"])
        asked = Experiment(env, **{name.replace("-", "_"): said for name, said in names.items() if said is not None})
        usual = completed(dataclasses.replace(asked, budget=1.0), changes)
    except ValueError:  # it will be said of the options as a whole
        usual = completed(Experiment("pendulum"))
    kinds = {
        "experiment": Annotated[readable(Experiment), flat()],
        "shell": Annotated[readable(Shell), flat()],
        "machines": Annotated[readable(Machines), flat()],
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
    # What options mean is in the class already; to look for it again in the source takes as long as the rest of the help.
    config = (tyro.conf.PositionalRequiredArgs, tyro.conf.HelptextFromCommentsOff)
    given: Any = tyro.cli(whole, args=words, prog=prog, config=config)
    try:
        preset, stored = _preset(given.experiment.preset)
    except ValueError as problem:
        raise UserError(f"--preset: {problem}") from problem
    parts = [name for name in ("settings", "constraint", "schedule") if hasattr(given, name)]
    changes = {k: v for name in parts for k, v in _changes(name, getattr(usual, name), getattr(given, name)).items()}
    experiment = Experiment(**{**vars(given.experiment), "preset": preset})
    return Train(experiment, Shell(**vars(given.shell)), Machines(**vars(given.machines)), stored | changes)


def _preset(said: Any) -> tuple[Any, dict[str, Any]]:
    """The preset by its name, and what a file changes of it if one is named."""
    return stored_preset(said) if str(said).endswith(".toml") else (said, {})


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
    snapshots: int = 0
    """Keep the policies of so many epochs on the way, close together at first, for saute plot trajectories."""
    trust: bool = False
    """Import the modules that the run folder names, whose code then runs; by default only those that you name are imported."""
    machines: Annotated[Machines, flat()] = ALONE


def train(options: Train) -> None:
    try:
        config = configured(options.experiment, options.changes)
        if options.shell.shield is not None:
            config = shielded(config, options.shell.shield)
    except ValueError as problem:
        raise UserError(str(problem)) from problem
    asked = config.experiment
    name = f"{asked.env.split(':')[-1]}-{asked.method}-{asked.algo}".replace("/", "-")
    out = placed(options.machines, options.shell.out or pathlib.Path("runs", name))
    if (begun(out) or (out / "policy.safetensors").exists()) and read_config(out) != config:
        raise UserError(f"{out} holds a run with other settings; choose another --out, or continue it with saute resume {out}")
    if options.shell.init is not None:
        if options.machines.ray is not None:
            raise UserError("--init is not for --ray, whose machines may not see that run; leave one of them out")
        try:
            inherited(options.shell.init)  # What cannot be begun with is said before a folder is made.
        except (TrainingError, CheckpointError) as problem:
            raise UserError(str(problem)) from problem
    if options.shell.shield is not None and options.machines.ray is not None:
        raise UserError("--shield is not for --ray, whose machines may not see that run; leave one of them out")
    _run(config, out, options.shell, options.machines)
    print(f"wrote {out}; evaluate it with saute evaluate {out}{_trusting(config)},")
    print(f"draw its training with saute plot curves {out}")


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
    run = placed(options.machines, options.run)
    shell = Shell(log=options.log, snapshots=options.snapshots)
    _run(changed(config, "experiment.epochs", epochs), run, shell, options.machines)
    print(f"finished {options.run} at epoch {epochs}; evaluate it with saute evaluate {options.run}{_trusting(config)}")


def _run(config: Config, out: pathlib.Path, shell: Shell, machines: Machines) -> None:
    if machines.ray is None and (out / PARTS).exists():
        raise UserError(f"{out} was begun with --ray; continue it with saute resume {out} --ray")
    if shell.snapshots < 0 or (shell.snapshots and machines.ray is not None):
        raise UserError(f"--snapshots {shell.snapshots} must be at least 0, and is not for --ray; leave one of them out")
    fresh = not (out / "config.json").exists()
    try:
        with parting(lambda: _parting(out, fresh)):
            out.mkdir(parents=True, exist_ok=True)
            if machines.ray is None:
                run(config, out, shell.log, shell.init, snapshots=shell.snapshots, shield=shell.shield)
                return
            with crew(machines) as workers:
                train_in_shards(config, out, workers, shell.log)
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
    if (out / PARTS).exists():
        return f"stopped; what is trained so far is kept, continue with saute resume {out} --ray"
    if not begun(out):
        return "stopped before the first epoch was saved; there is nothing to continue"
    own = _trusting(read_config(out))
    return f"stopped; continue with saute resume {out}{own},\nor test it as it is with saute evaluate {out}{own}"


def _trusting(config: Config) -> str:
    """What has to be added to a command whose run names modules, so that it may import them."""
    asked = config.experiment
    return " --trust" if modules_in(asked.env, *asked.costs) else ""


def _tidy(out: pathlib.Path) -> None:
    with contextlib.suppress(OSError):  # it is not empty, or was never made
        out.rmdir()
