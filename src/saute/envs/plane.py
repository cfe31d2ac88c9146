"""Where the five tasks cost: two coordinates of the physical state that tell its cost, as on a map."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from saute.envs.goal import Goal
from saute.envs.safe_double_pendulum import DoublePendulum
from saute.envs.safe_pendulum import Pendulum
from saute.envs.safe_reacher import Reacher
from saute.envs.task import Task

__all__ = ["Plane", "cost_on", "plane_of"]

States = Float[np.ndarray, "*batch state"]
Places = Float[np.ndarray, "*batch 2"]


class Plane(NamedTuple):
    """A map of a task: what its two coordinates are, where it ends, and which states lie where."""

    labels: tuple[str, str]
    extent: tuple[float, float, float, float]
    """Left, right, bottom and top."""
    places: Callable[[States], Places]
    states: Callable[[Places], States]
    """A state at each place, whose other coordinates are 0."""
    period: float | None = None
    """After which the first coordinate comes again, if it does."""
    goal: tuple[float, float, float] | None = None
    """Centre and radius of the disc in which an episode ends, if there is one; then both coordinates are lengths."""


def plane_of(task: Task) -> Plane | None:
    """The map of a task; None for those that are not ours."""
    if isinstance(task, Pendulum):
        return Plane(("angle [°]", "speed [rad/s]"), (-180, 180, -8, 8), _angles(0, 1), _angled(2, 0, 1), period=360.0)
    if isinstance(task, DoublePendulum):
        labels = ("angle of the first pole [°]", "its speed [rad/s]")
        return Plane(labels, (-75, 75, -8, 8), _angles(1, 4), _angled(task.state_size, 1, 4))
    if isinstance(task, Reacher):
        # In the plane of the fingertip the part of the hazard that the arm can reach is three millimetres thin.
        return Plane(("shoulder [°]", "elbow [°]"), (-15, 75, -30, 30), _joints, _bent)
    if isinstance(task, Goal):
        return Plane(
            ("x [m]", "y [m]"), (-1.75, 1.75, -1.75, 1.75), _positions, _robots(task), goal=(*task.goal, task.goal_radius)
        )
    return None


def cost_on(task: Task, plane: Plane, points: int = 201) -> Float[np.ndarray, "row column"]:
    """The cost of a step in the states of a grid over the map, the lowest row first."""
    left, right, bottom, top = plane.extent
    places = np.stack(np.meshgrid(np.linspace(left, right, points), np.linspace(bottom, top, points)), -1)
    states, action = plane.states(places).reshape(points**2, -1), jnp.zeros(task.action_size)
    costs = jax.jit(jax.vmap(lambda x: task.cost(x, action, x)))(states)
    return np.asarray(costs).reshape(points, points)


def _angles(angle: int, speed: int) -> Callable[[States], Places]:
    """The angle in degrees, within ±180, and its speed, by their places in the state."""
    return lambda x: np.stack([(np.rad2deg(x[..., angle]) + 180) % 360 - 180, x[..., speed]], -1)


def _angled(size: int, angle: int, speed: int) -> Callable[[Places], States]:
    def states(places: Places) -> States:
        x = np.zeros((*places.shape[:-1], size))
        x[..., angle], x[..., speed] = np.deg2rad(places[..., 0]), places[..., 1]
        return x

    return states


def _positions(x: States) -> Places:
    return x[..., :2]


def _robots(task: Goal) -> Callable[[Places], States]:
    size = task.state_size  # type: ignore[attr-defined]
    return lambda places: np.concatenate([places, np.zeros((*places.shape[:-1], size - 2))], -1)


def _joints(x: States) -> Places:
    return np.rad2deg(x[..., :2])


def _bent(places: Places) -> States:
    return np.concatenate([np.deg2rad(places), np.zeros((*places.shape[:-1], Reacher.state_size - 2))], -1)
