"""The five tasks of the paper, as JAX-native environments and by name; see each file for its definition."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from saute.envs.task import TaskEnv

__all__ = ["TASKS", "double_pendulum", "make_task", "pendulum", "point", "reacher"]

TASKS = {
    "pendulum": ("saute.envs.safe_pendulum", "Pendulum", ("jax",)),
    "double_pendulum": ("saute.envs.safe_double_pendulum", "DoublePendulum", ("jax", "mujoco")),
    "reacher": ("saute.envs.safe_reacher", "Reacher", ("jax", "mujoco")),
    "point": ("saute.envs.point_goal", "PointGoal", ("jax", "mujoco")),
    "car": ("saute.envs.car_goal", "CarGoal", ("mujoco",)),
}
"""Name → module, class and engines; the first engine is the default."""


def pendulum(mode: str = "train", **parameters: Any) -> TaskEnv:
    """Safe pendulum swing-up, JAX-native; parameters are the fields of `saute.envs.safe_pendulum.Pendulum`."""
    return _native("pendulum", mode, parameters)


def double_pendulum(mode: str = "train", **parameters: Any) -> TaskEnv:
    """Safe double pendulum, JAX-native; parameters are the fields of `DoublePendulum`."""
    return _native("double_pendulum", mode, parameters)


def reacher(mode: str = "train", **parameters: Any) -> TaskEnv:
    """Safe reacher, JAX-native; parameters are the fields of `Reacher`."""
    return _native("reacher", mode, parameters)


def point(mode: str = "train", **parameters: Any) -> TaskEnv:
    """Static goal for the Point, JAX-native; parameters are the fields of `PointGoal`."""
    return _native("point", mode, parameters)


def make_task(name: str, mode: str = "train", **parameters: Any) -> Any:
    """A task by name, with the given fields changed."""
    module, kind, _ = TASKS[nearest(name, TASKS, "task")]
    nearest(mode, ("train", "test"), "mode")
    try:
        task = getattr(importlib.import_module(module), kind)
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(f"{missing}; the tasks need JAX and MuJoCo: pip install 'saute[train]'") from missing
    fields = [field.name for field in dataclasses.fields(task)]
    for parameter in parameters:
        nearest(parameter, fields, f"parameter of {name}")
    return task(mode=mode, **parameters)


def nearest(name: Any, known: Any, what: str) -> Any:
    """The name itself if it is known, else an error that suggests the most similar one."""
    if name in tuple(known):
        return name
    names = [str(one) for one in known]
    similar = difflib.get_close_matches(str(name), names, n=1)
    hint = f"; did you mean {similar[0]!r}?" if similar else "."
    known_names = f" Known: {', '.join(names)}" if len(names) <= 30 else ""
    raise ValueError(f"unknown {what} {name!r}{hint}{known_names}")


def _native(name: str, mode: str, parameters: dict[str, Any]) -> TaskEnv:
    task = make_task(name, mode, **parameters)
    from saute.envs.task import TaskEnv

    return TaskEnv(task)
