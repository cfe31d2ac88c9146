"""The tasks of the paper and of the field's benchmark, by name and as JAX-native environments; each is defined in a file."""

from __future__ import annotations

import dataclasses
import importlib
from typing import TYPE_CHECKING, NamedTuple

from saute.core.names import nearest

if TYPE_CHECKING:
    import saute.envs.task

__all__ = [
    "TASKS",
    "Registered",
    "double_pendulum",
    "is_native",
    "make_task",
    "pendulum",
    "point",
    "point_goal1",
    "reacher",
    "task_named",
]


class Registered(NamedTuple):
    """Where a task is defined, and the engines that can step it; the first one is the default.

    "python" computes the formulas that "jax" compiles in plain floats, for one environment at a time.
    """

    module: str
    kind: str
    engines: tuple[str, ...]


TASKS = {
    "pendulum": Registered("saute.envs.safe_pendulum", "Pendulum", ("python", "jax")),
    "double_pendulum": Registered("saute.envs.safe_double_pendulum", "DoublePendulum", ("python", "jax", "mujoco")),
    "reacher": Registered("saute.envs.safe_reacher", "Reacher", ("python", "jax", "mujoco")),
    "point": Registered("saute.envs.point_goal", "PointGoal", ("python", "jax", "mujoco")),
    "car": Registered("saute.envs.car_goal", "CarGoal", ("mujoco",)),
    "point_goal1": Registered("saute.envs.point_goals", "PointGoal1", ("jax",)),
    "half_cheetah_velocity": Registered("saute.envs.velocity", "HalfCheetah", ("mujoco",)),
    "hopper_velocity": Registered("saute.envs.velocity", "Hopper", ("mujoco",)),
    "walker2d_velocity": Registered("saute.envs.velocity", "Walker2d", ("mujoco",)),
    "swimmer_velocity": Registered("saute.envs.velocity", "Swimmer", ("mujoco",)),
    "ant_velocity": Registered("saute.envs.velocity", "Ant", ("mujoco",)),
    "humanoid_velocity": Registered("saute.envs.velocity", "Humanoid", ("mujoco",)),
}
"""The tasks by name."""


def task_named(name: str) -> str | None:
    """The task of a name, or of its Gymnasium id; None for all other environments."""
    import gymnasium as gym

    spec = gym.registry.get(name)
    if spec is not None and spec.entry_point == "saute.envs.register:single":
        return spec.kwargs["name"]
    plain = name.replace("-", "_")
    return plain if plain in TASKS else None


def is_native(name: str) -> bool:
    """Whether there is a task of this name with physics in JAX."""
    return name in TASKS and "jax" in TASKS[name].engines


def pendulum(mode: str = "train", **parameters: object) -> saute.envs.task.TaskEnv:
    """Safe pendulum swing-up, JAX-native; parameters are the fields of `saute.envs.safe_pendulum.Pendulum`."""
    return _native("pendulum", mode, parameters)


def double_pendulum(mode: str = "train", **parameters: object) -> saute.envs.task.TaskEnv:
    """Safe double pendulum, JAX-native; parameters are the fields of `DoublePendulum`."""
    return _native("double_pendulum", mode, parameters)


def reacher(mode: str = "train", **parameters: object) -> saute.envs.task.TaskEnv:
    """Safe reacher, JAX-native; parameters are the fields of `Reacher`."""
    return _native("reacher", mode, parameters)


def point(mode: str = "train", **parameters: object) -> saute.envs.task.TaskEnv:
    """Static goal for the Point, JAX-native; parameters are the fields of `PointGoal`."""
    return _native("point", mode, parameters)


def point_goal1(mode: str = "train", **parameters: object) -> saute.envs.task.TaskEnv:
    """PointGoal1 without its vase, JAX-native; parameters are the fields of `PointGoal1`."""
    return _native("point_goal1", mode, parameters)


def make_task(name: str, mode: str = "train", **parameters: object) -> saute.envs.task.Task:
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


def _native(name: str, mode: str, parameters: dict[str, object]) -> saute.envs.task.TaskEnv:
    task = make_task(name, mode, **parameters)
    from saute.envs.task import TaskEnv

    return TaskEnv(task)
