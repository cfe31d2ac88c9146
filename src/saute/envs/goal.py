"""Static goal: drive a robot to a disc near a corner; every step inside another disc, around the origin, costs 1."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from saute.envs.task import Action, Scalar, State

__all__ = ["Goal", "into", "lidar", "rotation"]

Vector = Float[Array, " 3"]
Matrix = Float[Array, "3 3"]


def rotation(quaternion: Float[Array, " 4"]) -> Matrix:
    """R with R v = q v q⁻¹, for q = (w, x, y, z) of any length but 0."""
    w, x, y, z = quaternion / jnp.linalg.norm(quaternion)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return jnp.stack([jnp.stack(row) for row in rows])


def into(frame: Matrix, v: Vector) -> Vector:
    """Rᵀ v, written out, because XLA does not fuse a batch of tiny matrix products."""
    return jnp.stack([x * v[0] + y * v[1] + z * v[2] for x, y, z in frame.T])


def lidar(offset: Float[Array, " 2"], bins: int, reach: float) -> Float[Array, " bins"]:
    """Bin k reads s·clip(3/2 − |u − k − 1/2|, 0, 1), with u the object's angle in bins (cyclic), s = (1 − d/reach)⁺.

    This is the usual rule in closed form, without ⌊·⌋: the bin with the object reads s, the next one f·s, the previous one
    (1 − f)·s, where f is how far into its bin the object is; so the readings are continuous in the object's angle.
    """
    strength = jnp.maximum(0.0, 1 - jnp.hypot(offset[0], offset[1]) / reach)
    middles = jnp.asarray((np.arange(bins) + 0.5 + bins / 2) % bins - bins / 2, offset.dtype)
    gaps = jnp.abs(jnp.arctan2(offset[1], offset[0]) * (bins / (2 * np.pi)) - middles)
    return strength * jnp.clip(1.5 - jnp.minimum(gaps, bins - gaps), 0.0, 1.0)


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
        before, after = _distance(x[:2], self.goal), _distance(x_next[:2], self.goal)
        return before - after + jnp.where(after <= self.goal_radius, self.goal_reward, 0.0)

    def cost(self, x: State, action: Action, x_next: State) -> Scalar:
        """l = 1 if |xy' − hazard| ≤ 0.7, else 0."""
        return (_distance(x_next[:2], self.hazard) <= self.hazard_radius).astype(x_next.dtype)

    def terminated(self, x_next: State) -> Bool[Array, ""]:
        return _distance(x_next[:2], self.goal) <= self.goal_radius

    def start_pose(self, key: PRNGKeyArray) -> tuple[Float[Array, " 2"], Scalar]:
        """xy ~ U([−1.1, 1.1]²), far enough from hazard and goal, and heading ~ U(0, 2π).

        Only a sixth of the square is far enough, and under `vmap` all draws wait for the unluckiest one. So we propose only
        from the cells of a grid that touch this sixth: the distribution is the same, and 93 % of the proposals are accepted.
        """
        cells, width = _start_cells(self)
        corners = jnp.asarray(cells, float)

        def propose(draw: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            cell, u, v, turn = jax.random.uniform(jax.random.fold_in(key, draw[0]), (4,))
            corner = corners[(cell * len(cells)).astype(int)]
            return draw[0] + 1, corner + width * jnp.stack([u, v]), 2 * jnp.pi * turn

        def inadmissible(draw: tuple[Array, Array, Array]) -> Bool[Array, ""]:
            clear = _distance(draw[1], self.hazard) >= self.hazard_keepout
            return ~(clear & (_distance(draw[1], self.goal) >= self.goal_keepout))

        nowhere = (jnp.zeros((), jnp.uint32), jnp.full(2, jnp.nan), jnp.zeros(()))
        _, xy, heading = jax.lax.while_loop(inadmissible, propose, nowhere)
        return xy, heading

    def view(
        self, position: Vector, frame: Matrix, accelerometer: Array, gyro: Vector, velocimeter: Vector
    ) -> Float[Array, " obs"]:
        """Accelerometer, goal lidar, gyro, hazard lidar, magnetometer Rᵀ(0, −½, 0), velocimeter, where R is `frame`."""

        def seen(place: tuple[float, float]) -> Float[Array, " bins"]:
            offset = into(frame, jnp.asarray([*place, 0.0], position.dtype) - position)
            return lidar(offset[:2], self.lidar_bins, self.lidar_reach)

        return jnp.concatenate([accelerometer, seen(self.goal), gyro, seen(self.hazard), -0.5 * frame[1], velocimeter])

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


def _distance(xy: Float[Array, " 2"], place: tuple[float, float]) -> Scalar:
    return jnp.hypot(xy[0] - place[0], xy[1] - place[1])
