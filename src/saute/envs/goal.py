"""Static goal: drive a robot to a disc near a corner; every step inside another disc, around the origin, costs 1."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from saute.envs import formula
from saute.envs.formula import (
    Source,
    Truth,
    accepted,
    arctan2,
    clip,
    entry,
    hypot,
    joined,
    maximum,
    minimum,
    sqrt,
    uniform,
    vector,
    where,
    zero_like,
)
from saute.envs.task import Action, Observation, Scalar, Sensors, State

__all__ = ["Goal", "into", "lidar", "rotation"]

Triple = Float[Array, " 3"]
Matrix = Float[Array, "3 3"]
Quaternion = Float[Array, " 4"]
if not TYPE_CHECKING:
    Triple, Quaternion = Triple | tuple[float, float, float], Quaternion | tuple[float, float, float, float]
    Matrix = Matrix | tuple[tuple[float, float, float], ...]


def rotation(quaternion: Quaternion) -> Matrix:
    """R with R v = q v q⁻¹, for q = (w, x, y, z) of any length but 0."""
    w, x, y, z = quaternion
    length = sqrt(w * w + x * x + y * y + z * z)
    w, x, y, z = w / length, x / length, y / length, z / length
    return vector(
        vector(1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        vector(2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        vector(2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    )


def into(frame: Matrix, v: Triple) -> Triple:
    """Rᵀ v, written out, because XLA does not fuse a batch of tiny matrix products."""
    return vector(*[frame[0][i] * v[0] + frame[1][i] * v[1] + frame[2][i] * v[2] for i in range(3)])


def lidar(offset: formula.Vector, bins: int, reach: float) -> formula.Vector:
    """Bin k reads s·clip(3/2 − |u − k − 1/2|, 0, 1), with u the object's angle in bins (cyclic), s = (1 − d/reach)⁺.

    This is the usual rule in closed form, without ⌊·⌋: the bin with the object reads s, the next one f·s, the previous one
    (1 − f)·s, where f is how far into its bin the object is; so the readings are continuous in the object's angle.
    """
    strength = maximum(0.0, 1 - hypot(offset[0], offset[1]) / reach)
    angle = arctan2(offset[1], offset[0]) * (bins / (2 * math.pi))

    def reading(middle: Any) -> Any:
        gap = abs(angle - middle)
        return strength * clip(1.5 - minimum(gap, bins - gap), 0.0, 1.0)

    middles = (np.arange(bins) + 0.5 + bins / 2) % bins - bins / 2
    if isinstance(offset, tuple):
        return tuple([reading(middle) for middle in middles.tolist()])
    return reading(jnp.asarray(middles, offset.dtype))


@dataclasses.dataclass(frozen=True)
class Goal:
    """What the Point and the Car share: arena, rewards, costs and lidar. The state x of both begins with the position xy."""

    mode: str = "train"
    horizon: int = 200
    budget: float = 20.0
    unsafe_reward: float = -1.0
    goal: tuple[float, float] = (1.1, 1.1)
    goal_radius: float = 0.3
    goal_reward: float = 1.0
    hazard: tuple[float, float] = (0.0, 0.0)
    hazard_radius: float = 0.7
    start_extent: float = 1.1
    goal_keepout: float = 0.705
    """Least distance of a start to the goal; `hazard_keepout` is that to the hazard."""
    hazard_keepout: float = 1.105
    lidar_bins: int = 16
    lidar_reach: float = 3.0

    action_size = 2
    substeps = 10

    def reward(self, x: State, action: Action, x_next: State) -> Scalar:
        """r = |xy − goal| − |xy' − goal|, plus 1 when the goal is reached."""
        before, after = _distance(x, self.goal), _distance(x_next, self.goal)
        return before - after + where(after <= self.goal_radius, self.goal_reward, 0.0)

    def cost(self, x: State, action: Action, x_next: State) -> Scalar:
        """l = 1 if |xy' − hazard| ≤ 0.7, else 0."""
        return where(_distance(x_next, self.hazard) <= self.hazard_radius, 1.0, zero_like(x_next[0]))

    def terminated(self, x_next: State) -> Truth:
        return _distance(x_next, self.goal) <= self.goal_radius

    def start_pose(self, source: Source) -> Triple:
        """(x, y, heading) with xy ~ U([−1.1, 1.1]²), far enough from hazard and goal, and heading ~ U(0, 2π).

        Only a sixth of the square is far enough, and under `vmap` all draws wait for the unluckiest one. So we propose only
        from the cells of a grid that touch this sixth: the distribution is the same, and 93 % of the proposals are accepted.
        """
        cells, width = _start_cells(self)

        def propose(source: Source) -> Triple:
            cell, u, v, turn = uniform(source, 4)
            x, y = entry(cells, cell * len(cells))
            return vector(x + width * u, y + width * v, 2 * math.pi * turn)

        def admissible(pose: Triple) -> Truth:
            clear = _distance(pose, self.hazard) >= self.hazard_keepout
            return clear & (_distance(pose, self.goal) >= self.goal_keepout)

        return accepted(source, propose, admissible)

    def view(self, position: Triple, frame: Matrix, accelerometer: Sensors, gyro: Triple, velocimeter: Triple) -> Observation:
        """Accelerometer, goal lidar, gyro, hazard lidar, magnetometer Rᵀ(0, −½, 0), velocimeter, where R is `frame`."""

        def seen(place: tuple[float, float]) -> formula.Vector:
            offset = into(frame, vector(place[0] - position[0], place[1] - position[1], -position[2]))
            return lidar(offset[:2], self.lidar_bins, self.lidar_reach)

        x, y, z = frame[1]
        magnetometer = vector(-0.5 * x, -0.5 * y, -0.5 * z)
        return joined(accelerometer, seen(self.goal), gyro, seen(self.hazard), magnetometer, velocimeter)

    def scenery(self) -> str:
        """Plane, light, goal and hazard in MuJoCo's format; goal and hazard are sites, which nothing can touch."""
        (gx, gy), (hx, hy) = self.goal, self.hazard
        return f"""
    <light pos="0 0 4" castshadow="false"/>
    <camera name="above" pos="0 0 5.5"/>
    <geom name="floor" type="plane" size="3.5 3.5 .1" condim="6" rgba=".85 .87 .9 1"/>
    <site name="goal" type="cylinder" size="{self.goal_radius} .01" pos="{gx} {gy} .01" rgba=".2 .8 .3 .5"/>
    <site name="hazard" type="cylinder" size="{self.hazard_radius} .005" pos="{hx} {hy} .005" rgba=".3 .3 .9 .4"/>"""


@functools.cache
def _start_cells(task: Goal, grid: int = 128) -> tuple[np.ndarray, float]:
    """Lower left corners and width of the grid cells that are not wholly too close to the hazard or to the goal."""
    edges = np.linspace(-task.start_extent, task.start_extent, grid + 1)

    def reaches(place: tuple[float, float], keepout: float) -> np.ndarray:
        farthest = [np.maximum(np.abs(edges[:-1] - centre), np.abs(edges[1:] - centre)) for centre in place]
        return np.hypot(farthest[0][:, None], farthest[1]) >= keepout

    kept = np.argwhere(reaches(task.hazard, task.hazard_keepout) & reaches(task.goal, task.goal_keepout))
    if not len(kept):
        raise ValueError(f"no start is {task.hazard_keepout} from the hazard and {task.goal_keepout} from the goal")
    return edges[kept], edges[1] - edges[0]


def _distance(x: State, place: tuple[float, float]) -> Scalar:
    return hypot(x[0] - place[0], x[1] - place[1])
