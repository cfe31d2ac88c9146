"""Settings by name: the paper's, and fast ones that come to equally good policies in a fraction of the time; one table."""

from __future__ import annotations

import dataclasses
import pathlib
import tomllib
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, TypeVar

from saute.core.files import read_text
from saute.core.names import nearest

__all__ = ["OWN", "PRESETS", "TABLE", "at", "changed", "changes_of", "stored_preset"]

PRESETS = ("paper", "fast", "short", "quick")
"""short: fast ones for fewer epochs, for what is only compared; quick: fast ones, but for sac on the pendulum."""

OWN = "own"
"""What all environments but our own tasks are called here."""
Changes = Mapping[str, Any]
"""Dotted names of a configuration → values: {"epochs": 85, "settings.discount": 0.98, "constraint.rate": 0.03}."""
T = TypeVar("T")


class Preset(NamedTuple):
    """What changes for some presets, tasks, algorithms and methods, each "*" or names with spaces between."""

    preset: str
    task: str
    algo: str
    method: str
    changes: Changes

    def fits(self, preset: str, task: str, algo: str, methods: Collection[str]) -> bool:
        asked = ((self.preset, {preset}), (self.task, {task}), (self.algo, {algo}), (self.method, set(methods)))
        return all(names == "*" or names_asked & set(names.split()) for names, names_asked in asked)


ON_POLICY = "ppo trpo cpo"
VELOCITY = "half_cheetah_velocity hopper_velocity walker2d_velocity swimmer_velocity ant_velocity humanoid_velocity"
SCALED = {"settings.running_normaliser": True, "settings.scale_rewards": True}
NORMALISED = {**SCALED, "settings.trace": 0.95}

TABLE = (
    # The paper's: table 1 and 2, and what it says of single tasks.
    Preset("paper", "reacher", ON_POLICY, "*", {"epochs": 1000}),
    Preset(
        "paper", "reacher", ON_POLICY, "lagrangian",
        {"settings.value_rate": 1e-2, "settings.tries": 15, "constraint.rate": 3e-2},
    ),
    Preset(
        "paper", "point car", ON_POLICY, "*",
        {"epochs": 2000, "settings.steps_per_epoch": 10_000, "settings.value_rate": 5e-3},
    ),
    Preset("paper", "*", "sac", "*", {"epochs": 300, "settings.replay": 60_000}),
    # The field's benchmark, which is not the paper's: its published policies saw 10⁷ steps, 20,000 in an epoch.
    Preset(
        "paper", f"{VELOCITY} point_goal1", ON_POLICY, "*",
        {
            **NORMALISED, "epochs": 500, "settings.steps_per_epoch": 20_000, "settings.minibatches": 20,
            "settings.value_iterations": 200, "settings.policy_iterations": 200, "settings.target_kl": 0.02,
        },
    ),
    Preset(
        "paper", VELOCITY, "sac", "*",
        {**SCALED, "epochs": 100, "settings.steps_per_epoch": 10_000, "settings.replay": 1_000_000},
    ),
    # Fast: large batches, whose values are fitted in minibatches.
    Preset(
        "fast short quick", "*", ON_POLICY, "*",
        {
            "epochs": 85, "settings.steps_per_epoch": 32_000, "settings.minibatches": 20, "settings.value_iterations": 40,
            "settings.value_rate": 5e-3, "settings.value_scale": 50.0, "settings.target_kl": 0.03,
        },
    ),
    Preset(
        "fast short quick", "pendulum", "ppo", "*",
        {
            "epochs": 300, "settings.target_kl": 0.02, "settings.kl_epochs": 300, "settings.policy_rate": 7e-4,
            "settings.policy_iterations": 40,
        },
    ),
    Preset(
        "fast short quick", "double_pendulum", ON_POLICY, "*",
        {"epochs": 800, "settings.normalise": True, "settings.kl_epochs": 800},
    ),
    Preset(
        "fast short quick", "reacher", ON_POLICY, "*",
        {
            "epochs": 600, "settings.steps_per_epoch": 4000, "settings.minibatches": 4, "settings.value_scale": 1.0,
            "settings.target_kl": 0.01,
        },
    ),
    Preset(
        "fast short quick", "point", ON_POLICY, "*",
        {
            "epochs": 1200, "settings.steps_per_epoch": 10_000, "settings.minibatches": 6, "settings.value_scale": 10.0,
            "settings.target_kl": 0.02, "settings.normalise": True, "settings.kl_epochs": 800,
        },
    ),
    Preset(
        "fast short quick", "car", ON_POLICY, "*",
        {
            "epochs": 600, "settings.steps_per_epoch": 4000, "settings.minibatches": 3, "settings.value_scale": 10.0,
            "settings.normalise": True, "settings.kl_epochs": 600,
        },
    ),
    Preset(
        "fast short quick", VELOCITY, ON_POLICY, "*",
        {
            **NORMALISED, "epochs": 300, "settings.steps_per_epoch": 10_000, "settings.minibatches": 10,
            "settings.value_iterations": 100, "settings.policy_iterations": 100, "settings.value_rate": 1e-3,
            "settings.value_scale": 1.0, "settings.kl_epochs": 300,
        },
    ),
    Preset(
        "fast short quick", "point_goal1", ON_POLICY, "*",
        {
            **NORMALISED, "epochs": 200, "settings.minibatches": 16, "settings.value_iterations": 80,
            "settings.policy_iterations": 80, "settings.value_rate": 1e-3, "settings.value_scale": 1.0,
            "settings.kl_epochs": 200,
        },
    ),
    # Only sautéed policies begin nearer to the hazard, which would change the mean cost that the others are to keep, and only
    # they are chosen by validation, whose measure of safety is theirs. The tasks' own unsafe reward drowns everything else.
    Preset(
        "fast quick", "point", ON_POLICY, "saute",
        {"task.hazard_keepout": 0.8, "training_unsafe_reward": -0.2, "validation": 10_000},
    ),
    Preset(
        "fast quick", "point_goal1", ON_POLICY, "saute",
        {"training_unsafe_reward": -0.1, "validation": 1000, "validation_every": 20},
    ),
    Preset("fast quick", "car", ON_POLICY, "saute", {"task.hazard_keepout": 0.8, "training_unsafe_reward": -0.05}),
    # Short: Sauté comes to 78 instead of 81 on the double pendulum, in half the time.
    Preset("short", "double_pendulum", ON_POLICY, "*", {"epochs": 400, "settings.kl_epochs": 400}),
    Preset("short", "reacher", ON_POLICY, "*", {"epochs": 400}),
    Preset("short", "point", ON_POLICY, "*", {"epochs": 500, "settings.kl_epochs": 500}),
    Preset("short", "car", ON_POLICY, "*", {"epochs": 120, "settings.kl_epochs": 120}),
    # CVaR-L learns of costs from the worst episode of an epoch alone: it needs more episodes in each, and more of them.
    Preset(
        "short", "car", ON_POLICY, "cvar",
        {"epochs": 160, "settings.steps_per_epoch": 10_000, "settings.minibatches": 6, "settings.kl_epochs": 160},
    ),
    # Soft actor-critic: epochs of 200 steps; the replay holds all of them. Its multiplier moves at every update.
    Preset(
        "fast short quick", "*", "sac", "*",
        {
            "epochs": 200, "settings.hidden": (64, 64), "settings.batch": 256, "settings.temperature_rate": 5e-4,
            "settings.replay": 60_000,
        },
    ),
    # Ten robots side by side, one update for every second of their steps; the replay holds all steps. Only sautéed policies are
    # relabelled, and chosen by validation.
    Preset(
        "fast short quick", VELOCITY, "sac", "*",
        {
            **SCALED, "epochs": 20, "settings.steps_per_epoch": 10_000, "settings.updates_per_step": 0.5, "settings.rate": 1e-3,
            "settings.temperature_rate": 1e-3, "settings.replay": 200_000,
        },
    ),
    # Half the rate for twice as long, which came to no more in validation than that of the others; the committed row has it.
    Preset(
        "fast short quick", "hopper_velocity", "sac", "*",
        {"epochs": 40, "settings.rate": 5e-4, "settings.replay": 400_000},
    ),
    Preset(
        "fast quick", VELOCITY, "sac", "saute", {"settings.relabel": True, "validation": 50, "validation_every": 5},
    ),
    # Quick: half the steps at four times the rate, with values in units of 50. A policy changes much from one epoch to the next
    # then, so that the best one is kept.
    Preset(
        "quick", "pendulum", "sac", "*",
        {"epochs": 100, "settings.rate": 2e-3, "settings.temperature_rate": 1e-3, "settings.value_scale": 50.0},
    ),
    Preset("quick", "pendulum", "sac", "saute", {"settings.relabel": True, "validation": 2000, "validation_every": 5}),
    Preset("*", "*", "sac", "lagrangian", {"constraint.through_softplus": True}),
    # The paper publishes no settings of its model-based experiments, so all presets have ours.
    Preset("*", "*", "mbpo", "*", {"epochs": 25}),
    Preset("*", "*", "mbpo", "saute", {"settings.sac.relabel": True}),
    Preset("*", "*", "pets", "*", {"epochs": 10}),
    # Own environments come in any units: nets see them in units of their deviation, and learn from rewards in units of theirs.
    Preset(
        "*", OWN, f"{ON_POLICY} sac", "*", {"settings.running_normaliser": True, "settings.scale_rewards": True},
    ),
    # Methods that are one controller with another statistic.
    Preset("*", "*", "*", "cvar cvar-tail", {"constraint.worst": 0.01}),
    Preset("*", "*", "*", "cvar-tail", {"constraint.tail": True}),
)  # fmt: skip
"""All rows that fit apply, later ones over earlier ones."""


def changes_of(preset: str, task: str, algo: str, methods: Collection[str]) -> dict[str, Any]:
    """What differs from the defaults of the settings."""
    return {name: value for row in TABLE if row.fits(preset, task, algo, methods) for name, value in row.changes.items()}


def stored_preset(file: str) -> tuple[str, dict[str, Any]]:
    """A preset in a TOML file: the name of the one that it is based on, and what it changes."""
    path = pathlib.Path(file)
    try:
        values = tomllib.loads(read_text(path))
    except FileNotFoundError:
        raise ValueError(f"preset {file} does not exist; name a file that saute sweep wrote, or {', '.join(PRESETS)}") from None
    except ValueError as problem:
        raise ValueError(f"preset {file} cannot be read: {problem}") from problem
    unknown = values.keys() - {"preset", "changes"}
    if unknown or not isinstance(values.get("changes", {}), dict):
        raise ValueError(
            f"preset {file} has {', '.join(sorted(unknown)) or 'odd changes'}; it may have preset = … and [changes]"
        )
    plain = {name: tuple(one) if isinstance(one, list) else one for name, one in values.get("changes", {}).items()}
    return nearest(values.get("preset", PRESETS[0]), PRESETS, "preset"), plain


def at(whole: Any, name: str) -> Any:
    """The part of a dataclass, or of a mapping, at a dotted name; None if a mapping has none."""
    first, _, rest = name.partition(".")
    part = whole.get(first) if isinstance(whole, Mapping) else getattr(whole, first)
    return at(part, rest) if rest else part


def changed(whole: T, name: str, value: object) -> T:
    """A dataclass, or a mapping, with the part at a dotted name replaced."""
    first, _, rest = name.partition(".")
    if isinstance(whole, Mapping):
        return {**whole, first: value}  # type: ignore[return-value]
    nearest(first, [field.name for field in dataclasses.fields(whole)], "setting")  # type: ignore[arg-type]
    part = changed(getattr(whole, first), rest, value) if rest else value
    return dataclasses.replace(whole, **{first: part})  # type: ignore[type-var]
