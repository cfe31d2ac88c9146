"""`saute shield`: what lets a trained policy act only as long as its budget suffices for the way back."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Annotated

from saute.cli.options import shown_as
from saute.core.errors import UserError
from saute.runs.outcomes import Elsewhere
from saute.runs.shielding import ShieldSettings, make_shield

__all__ = ["ShieldRun", "shield"]


@dataclasses.dataclass(frozen=True)
class ShieldRun:
    """Learn a shield for the policies of a run: a backup that spends little, what it needs, and a margin that kept it safe."""

    run: Annotated[pathlib.Path, shown_as("RUN", "required")]
    """Run folder, or pretrained:NAME; the shield is kept in it, in place of an older one."""
    backup_steps: Annotated[int, shown_as("N")] = ShieldSettings().backup_steps
    """Steps in which the backup is trained."""
    needs_epochs: Annotated[int, shown_as("N")] = ShieldSettings().needs.epochs
    """Epochs in which it is estimated what the backup needs, each of 400,000 steps."""
    episodes: Annotated[int, shown_as("N")] = ShieldSettings().validation
    """Validation episodes of every seed, which arbitrary actions interrupt; the margin is the smallest that keeps them safe."""
    tolerance: Annotated[float, shown_as("SHARE")] = 0.0
    """Share of those episodes that may violate all the same: a smaller margin costs less of the return."""
    seed: Annotated[int, shown_as("N")] = 0
    """Seed of the training."""
    env: Annotated[str, shown_as("ENV", "default: the run's own")] = ""
    """Environment to learn in, module:Id-v0, for runs whose environment was given in Python."""
    cost: Annotated[tuple[str, ...], shown_as("KEY ...", "default: the run's own")] = ()
    """Where the info of that environment has its cost."""
    trust: bool = False
    """Import the modules that the run folder names, whose code then runs; by default only those that you name are imported."""


def shield(options: ShieldRun) -> None:
    for name in ("backup_steps", "needs_epochs", "episodes"):
        if getattr(options, name) < 1:
            raise UserError(f"--{name.replace('_', '-')} {getattr(options, name)} must be at least 1")
    if not 0.0 <= options.tolerance < 1.0:
        raise UserError(f"--tolerance {options.tolerance:g} must be at least 0 and below 1; 0.01 is one episode of a hundred")
    usual = ShieldSettings()
    settings = dataclasses.replace(
        usual,
        backup_steps=options.backup_steps,
        needs=dataclasses.replace(usual.needs, epochs=options.needs_epochs),
        validation=options.episodes,
        tolerance=options.tolerance,
        seed=options.seed,
    )
    config = Elsewhere(options.env, options.cost, options.trust).of(options.run)
    try:
        place = make_shield(options.run, config, settings)
    except ValueError as problem:
        raise UserError(str(problem)) from problem
    print(f"wrote {place}; use it with saute evaluate {options.run} --shield, or saute.load_shield in Python")
