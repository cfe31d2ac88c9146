"""PointGoal1 without its vase: the Point collects goals, one after the other, among hazards; every layout is drawn anew.

Safety-Gymnasium's level 1 has a light box besides, which may be pushed and costs nothing. Without it nothing touches anything,
so that all is a formula; its lidar is left out.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from saute.envs.goal import lidar
from saute.envs.point_goal import PointGoal
from saute.envs.rigid import sin_cos
from saute.envs.task import Action, Observation, Scalar, Sensors, State

__all__ = ["PointGoal1"]

POINT = PointGoal()
"""Whose physics these are; its state comes first in ours."""
TRIES = 100
"""An object is redrawn so often; if it still finds no place, the whole layout is drawn anew."""
DRAWN = 32
"""Proposals for a new goal that are drawn together; most often one of them is clear."""
ROUNDS = 32
"""After so many draws the least crowded proposal is taken, so that no layout of one's own can hold up the others."""
SHARE = 16
"""One environment in so many gets its new goal at the same time as others."""

Place = Float[Array, " 2"]
Places = Float[Array, "place 2"]


@dataclasses.dataclass(frozen=True)
class PointGoal1:
    """Goals for the Point among hazards, without the vase, with the state x = (x, y, heading, ẋ, ẏ, ω, goal 2, hazards 2 each).

    r = |xy − goal| − |xy' − goal|, plus 1 when the goal is reached, which then moves on; l = 1 within a hazard, else 0.
    """

    mode: str = "train"
    horizon: int = 1000
    budget: float = 25.0
    unsafe_reward: float = -1.0
    extent: float = 1.5
    """Everything begins in the square ±extent."""
    hazards: int = 8
    hazard_radius: float = 0.2
    hazard_keepout: float = 0.18
    goal_radius: float = 0.3
    goal_keepout: float = 0.305
    robot_keepout: float = 0.4
    goal_reward: float = 1.0
    lidar_bins: int = 16
    lidar_reach: float = 3.0

    action_size = 2

    def __post_init__(self) -> None:
        if not isinstance(self.hazards, int) or self.hazards < 1:
            raise ValueError(f"hazards={self.hazards!r} must be a whole number ≥ 1")
        if not _can_be_placed(self.keepouts, self.extent):
            raise ValueError(
                f"{self.hazards} hazards with a keep-out of {self.hazard_keepout}, a goal with {self.goal_keepout} and a robot "
                f"with {self.robot_keepout} cannot be placed within ±{self.extent}; use fewer hazards, smaller keep-outs or "
                "a larger extent"
            )

    @property
    def keepouts(self) -> tuple[float, ...]:
        """Of robot, goal and hazards, in the order in which they are placed."""
        return (self.robot_keepout, self.goal_keepout, *(self.hazard_keepout,) * self.hazards)

    @property
    def state_size(self) -> int:
        return POINT.state_size + 2 + 2 * self.hazards

    @property
    def observation_size(self) -> int:
        return 12 + 2 * self.lidar_bins

    def start(self, source: PRNGKeyArray) -> State:
        """A layout, no two objects nearer than the sum of their keep-outs, and the robot at rest, turned by U(0, 2π)."""
        layout_key, heading_key = jax.random.split(source)

        def again(draw: tuple[Array, Places, Bool[Array, ""]]) -> tuple[Array, Places, Bool[Array, ""]]:
            return draw[0] + 1, *self._layout(jax.random.fold_in(layout_key, draw[0]))

        nowhere = jnp.zeros((len(self.keepouts), 2))
        none = (jnp.zeros((), jnp.uint32), nowhere, jnp.zeros((), bool))
        places = jax.lax.while_loop(lambda draw: ~draw[2], again, none)[1]
        heading = jax.random.uniform(heading_key, (1,), maxval=2 * math.pi)
        return jnp.concatenate([places[0], heading, jnp.zeros(3), places[1:].ravel()])

    def advance(self, x: State, action: Action) -> State:
        return jnp.concatenate([POINT.advance(x[:6], action), x[6:]])

    def renew(self, x_next: State, key: PRNGKeyArray) -> State:
        """The next goal, where this one is reached, clear of hazards and robot."""
        return _moved_on(self)(x_next, jax.random.key_data(key))

    def sense(self, x: State, action: Action) -> Sensors:
        return POINT.sense(x[:6], action)

    def observe(self, x: State, sensors: Sensors) -> Observation:
        """Accelerometer, velocimeter, gyro, magnetometer Rᵀ(0, −½, 0), then the lidars of goal and hazards."""
        sin, cos = sin_cos(x[2])

        def seen(place: Place) -> Float[Array, " bin"]:
            dx, dy = place - x[:2]
            return lidar(jnp.stack([cos * dx + sin * dy, cos * dy - sin * dx]), self.lidar_bins, self.lidar_reach)

        goal, hazards = seen(x[6:8]), jax.vmap(seen)(x[8:].reshape(-1, 2)).max(0)
        magnetometer = jnp.stack([-0.5 * sin, -0.5 * cos, jnp.zeros_like(sin)])
        return jnp.concatenate([sensors[:3], sensors[6:9], sensors[3:6], magnetometer, goal, hazards])

    def reward(self, x: State, action: Action, x_next: State) -> Scalar:
        goal = x[6:8]  # in x_next it may be the next one already
        before, after = (jnp.hypot(*(place[:2] - goal)) for place in (x, x_next))
        return before - after + jnp.where(after <= self.goal_radius, self.goal_reward, 0.0)

    def cost(self, x: State, action: Action, x_next: State) -> Scalar:
        nearest = _distances(x_next[:2], x_next[8:].reshape(-1, 2)).min()
        return jnp.where(nearest <= self.hazard_radius, 1.0, jnp.zeros_like(nearest))

    def terminated(self, x_next: State) -> Bool[Array, ""]:
        return jnp.zeros((), bool)

    def reached(self, x: State) -> Bool[Array, ""]:
        return jnp.hypot(*(x[:2] - x[6:8])) <= self.goal_radius

    def _layout(self, key: PRNGKeyArray) -> tuple[Places, Bool[Array, ""]]:
        """One object after the other, each at the first of its proposals that is clear of those before; whether all are."""
        keepouts, count = jnp.array(self.keepouts), len(self.keepouts)
        reach = (self.extent - keepouts)[:, None, None]
        proposals = reach * jax.random.uniform(key, (count, TRIES, 2), minval=-1.0)

        def one_more(i: Int[Array, ""], placed: tuple[Places, Bool[Array, ""]]) -> tuple[Places, Bool[Array, ""]]:
            places, found = placed
            gaps = _distances(proposals[i][:, None], places)
            clear = ((gaps >= keepouts[i] + keepouts) | (jnp.arange(count) >= i)).all(1)
            return places.at[i].set(proposals[i, clear.argmax()]), found & clear.any()

        return jax.lax.fori_loop(0, count, one_more, (jnp.zeros((count, 2)), jnp.ones((), bool)))

    def _next_goal(self, x: State, key: Array, tried: Int[Array, ""]) -> tuple[Place, Bool[Array, ""]]:
        """The first of some proposals that is clear of robot and hazards, and whether it is to be taken."""
        drawn = jax.random.fold_in(jax.random.wrap_key_data(key), tried)
        proposals = (self.extent - self.goal_keepout) * jax.random.uniform(drawn, (DRAWN, 2), x.dtype, minval=-1.0)
        from_robot = _distances(proposals, x[:2]) - self.robot_keepout
        from_hazards = _distances(proposals[:, None], x[8:].reshape(-1, 2)).min(1) - self.hazard_keepout
        room = jnp.minimum(from_robot, from_hazards) - self.goal_keepout
        clear = room >= 0
        chosen = jnp.where(clear.any(), clear.argmax(), room.argmax())
        return proposals[chosen], clear.any() | (tried >= ROUNDS - 1)


@functools.cache
def _moved_on(task: PointGoal1) -> jax.custom_batching.custom_vmap:
    """(x, key) → x with the next goal if this one is reached; of a batch, draws are made only for those that need one.

    Under `vmap` alone, every environment would draw a goal in every step, which takes several times as long as its physics.
    """

    @jax.custom_batching.custom_vmap
    def moved_on(x: State, key: Array) -> State:
        return _renewed(task, x[None], key[None])[0]

    @moved_on.def_vmap
    def of_batch(size: int, batched: list[bool], x: Array, key: Array) -> tuple[Array, bool]:
        x, key = (part if own else jnp.broadcast_to(part, (size, *part.shape)) for part, own in zip((x, key), batched))  # noqa: B905
        return _renewed(task, x, key), True

    return moved_on


def _renewed(task: PointGoal1, x: Float[Array, "env state"], keys: Array) -> Float[Array, "env state"]:
    """New goals where they are reached: a share of the environments at a time, and again for those that found no place."""
    share = max(1, len(x) // SHARE)

    def some(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        x, waiting, tried = carry
        # Where fewer wait, the first environment fills the rest: it gets the same goal again, or none.
        rows = jnp.nonzero(waiting, size=share, fill_value=0)[0]
        goal, found = jax.vmap(task._next_goal)(x[rows], keys[rows], tried[rows])
        found = found & waiting[rows]
        x = x.at[rows, 6:8].set(jnp.where(found[:, None], goal, x[rows, 6:8]))
        return x, waiting.at[rows].set(waiting[rows] & ~found), tried.at[rows].add(1)

    first = (x, jax.vmap(task.reached)(x), jnp.zeros(len(x), jnp.int32))
    return jax.lax.while_loop(lambda carry: carry[1].any(), some, first)[0]


def _distances(places: Array, others: Array) -> Array:
    return jnp.hypot(places[..., 0] - others[..., 0], places[..., 1] - others[..., 1])


@functools.cache
def _can_be_placed(keepouts: tuple[float, ...], extent: float, layouts: int = 100) -> bool:
    """Whether one of some layouts finds a place for every object."""
    rng, reach = np.random.default_rng(0), [extent - keepout for keepout in keepouts]
    if min(reach) <= 0:
        return False

    def placed() -> bool:
        places = np.zeros((0, 2))
        for i, keepout in enumerate(keepouts):
            proposals = rng.uniform(-reach[i], reach[i], (TRIES, 2))
            gaps = np.hypot(*np.moveaxis(proposals[:, None] - places, -1, 0))
            clear = proposals[(gaps >= keepout + np.array(keepouts[:i])).all(1)]
            if not len(clear):
                return False
            places = np.concatenate([places, clear[:1]])
        return True

    return any(placed() for _ in range(layouts))
