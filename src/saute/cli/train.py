"""`saute train` and `saute resume`: run folders from names."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Annotated

import tyro

from saute.core.errors import UserError
from saute.runs.build import configured
from saute.runs.checkpoint import CheckpointError
from saute.runs.config import Config, Experiment
from saute.runs.folder import TrainingError, read_config, source_of
from saute.runs.loop import run
from saute.runs.presets import changed

__all__ = ["Resume", "Train", "resume", "train"]


@dataclasses.dataclass(frozen=True)
class Train:
    """Train several seeds of a method and keep everything in a run folder."""

    experiment: Annotated[Experiment, tyro.conf.arg(name="")]
    out: pathlib.Path | None = None
    """Run folder; by default runs/ENV-METHOD-ALGO."""
    log: tuple[str, ...] = ()
    """tensorboard, wandb: log there as well; metrics.jsonl is always written."""


@dataclasses.dataclass(frozen=True)
class Resume:
    """Continue a run folder where its newest whole checkpoint stands, bit for bit."""

    run: pathlib.Path
    """Run folder."""
    epochs: int | None = None
    """Train up to this epoch instead of the one that was planned."""
    log: tuple[str, ...] = ()
    """tensorboard, wandb: log there as well."""


def train(options: Train) -> None:
    try:
        config = configured(options.experiment)
    except ValueError as problem:
        raise UserError(str(problem)) from problem
    asked = config.experiment
    name = f"{asked.env.split(':')[-1]}-{asked.method}-{asked.algo}".replace("/", "-")
    out = options.out or pathlib.Path("runs", name)
    if (out / "config.json").exists() and read_config(out) != config:
        raise UserError(f"{out} holds a run with other settings; choose another --out, or continue it with saute resume {out}")
    _run(config, out, options.log)
    print(f"wrote {out}; evaluate it with saute evaluate {out}, draw its training with saute plot curves {out}")


def resume(options: Resume) -> None:
    config = read_config(options.run)
    if source_of(options.run) != options.run:
        raise UserError(
            f"{options.run} has no checkpoint to continue from; train it anew with saute train {config.experiment.env}"
        )
    epochs = config.epochs if options.epochs is None else options.epochs
    if epochs < 1:
        raise UserError(f"--epochs {epochs} must be at least 1")
    _run(changed(config, "experiment.epochs", epochs), options.run, options.log)
    print(f"finished {options.run} at epoch {epochs}; evaluate it with saute evaluate {options.run}")


def _run(config: Config, out: pathlib.Path, logs: tuple[str, ...]) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        run(config, out, logs)
    except (TrainingError, CheckpointError, ValueError) as problem:
        raise UserError(str(problem)) from problem
    except OSError as problem:
        raise UserError(f"cannot write to {out} ({problem.strerror}); nothing already written is lost") from problem
    except KeyboardInterrupt:
        print(f"stopped; continue with saute resume {out}")
        raise
