"""Velocity: Gymnasium's robots run for their reward; every step that is faster than a threshold costs 1.

Robots, rewards and observations are those of Gymnasium's v5, where Ant and Humanoid neither observe contact forces nor pay for
them, as in v4. Only MuJoCo can step them: see `MujocoEngine`.
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from saute.envs.formula import (
    Source,
    Truth,
    Vector,
    clip,
    hypot,
    joined,
    never,
    normal,
    split,
    uniform,
    vector,
    where,
    zero_like,
)
from saute.envs.rigid import gymnasium_spec
from saute.envs.skeleton import Placed, Skeleton, skeleton_of
from saute.envs.task import Action, Observation, Scalar, Sensors, State

if TYPE_CHECKING:
    import mujoco

__all__ = ["Ant", "HalfCheetah", "Hopper", "Humanoid", "Swimmer", "Velocity", "Walker2d"]


@dataclasses.dataclass(frozen=True)
class Velocity:
    """What the robots share; x = (qpos, qvel), and actions are those of Gymnasium's robot.

    r = w v + h [not fallen] − e |a|², l = 1 if the speed is above the threshold, else 0, where v is the change of the position
    over the step, divided by its time.
    """

    mode: str = "train"
    horizon: int = 1000
    budget: float = 25.0
    unsafe_reward: float = 0.0
    threshold: float = 1.0

    asset: ClassVar[str]
    """The robot's file in Gymnasium."""
    rest: ClassVar[tuple[float, ...]]
    """Where the joints are at rest; episodes begin near to that."""
    speeds: ClassVar[int]
    hidden: ClassVar[int] = 1
    """How many of the first positions are not observed."""
    action_size: ClassVar[int]
    action_limit: ClassVar[float] = 1.0
    substeps: ClassVar[int]
    timestep: ClassVar[float]
    noise: ClassVar[float]
    """Of a start: U(±noise) for positions, and for speeds the same, or noise · N(0, 1)."""
    normal_speeds: ClassVar[bool] = False
    planar: ClassVar[bool] = False
    """Whether the speed that costs is the one in the plane, √(vx² + vy²), instead of the one along x."""
    forwards: ClassVar[float] = 1.0
    healthy: ClassVar[float] = 0.0
    effort: ClassVar[float]

    @property
    def positions(self) -> int:
        return len(self.rest)

    @property
    def state_size(self) -> int:
        return self.positions + self.speeds

    @property
    def observation_size(self) -> int:
        return self.state_size - self.hidden

    def start(self, source: Source) -> State:
        """As Gymnasium's robot starts from the same generator."""
        first, second = split(source)
        moved = uniform(first, self.positions, -self.noise, self.noise)
        place = vector(*[rest + by for rest, by in zip(self.rest, moved, strict=True)])
        if self.normal_speeds:
            return joined(place, normal(second, self.speeds, self.noise))
        return joined(place, uniform(second, self.speeds, -self.noise, self.noise))

    def observe(self, x: State, sensors: Sensors) -> Observation:
        return x[self.hidden :]

    def reward(self, x: State, action: Action, x_next: State) -> Scalar:
        effort = sum([part * part for part in action])
        health = where(self.terminated(x_next), 0.0, zero_like(x_next[0]) + self.healthy)
        return self.forwards * self.velocity(x, x_next)[0] + health - self.effort * effort

    def cost(self, x: State, action: Action, x_next: State) -> Scalar:
        ahead, aside = self.velocity(x, x_next)
        speed = hypot(ahead, aside) if self.planar else ahead
        return where(speed > self.threshold, 1.0, zero_like(speed))

    def terminated(self, x_next: State) -> Truth:
        return never(x_next)

    def velocity(self, x: State, x_next: State) -> tuple[Scalar, Scalar]:
        """Along x and along y, over the whole step."""
        time = self.substeps * self.timestep
        (x0, y0), (x1, y1) = self.place(x), self.place(x_next)
        return (x1 - x0) / time, (y1 - y0) / time

    def place(self, x: State) -> tuple[Scalar, Scalar]:
        """The position whose change is the velocity."""
        return x[0], x[1]

    def model(self) -> mujoco.MjModel:
        return _compiled(gymnasium_spec(self.asset))


@dataclasses.dataclass(frozen=True)
class HalfCheetah(Velocity):
    """Two legs in a plane, which cannot fall."""

    threshold: float = 3.2096

    asset = "half_cheetah.xml"
    rest, speeds, action_size = (0.0,) * 9, 9, 6
    substeps, timestep = 5, 0.01
    noise, normal_speeds = 0.1, True
    effort = 0.1


@dataclasses.dataclass(frozen=True)
class Hopper(Velocity):
    """One leg in a plane; it has fallen if its torso is low or leans."""

    threshold: float = 0.7402

    asset = "hopper.xml"
    rest, speeds, action_size = (0.0, 1.25, 0.0, 0.0, 0.0, 0.0), 6, 3
    substeps, timestep = 4, 0.002
    noise, healthy, effort = 5e-3, 1.0, 1e-3

    def observe(self, x: State, sensors: Sensors) -> Observation:
        return _with_clipped_speeds(x, self.positions)

    def terminated(self, x_next: State) -> Truth:
        fallen = (x_next[1] <= 0.7) | (abs(x_next[2]) >= 0.2)
        for number in x_next[2:]:
            fallen = fallen | (abs(number) >= 100.0)
        return fallen


@dataclasses.dataclass(frozen=True)
class Walker2d(Velocity):
    """Two legs in a plane; it has fallen if its torso is low, high or leans."""

    threshold: float = 2.3415

    asset = "walker2d_v5.xml"
    rest, speeds, action_size = (0.0, 1.25, *(0.0,) * 7), 9, 6
    substeps, timestep = 4, 0.002
    noise, healthy, effort = 5e-3, 1.0, 1e-3

    def observe(self, x: State, sensors: Sensors) -> Observation:
        return _with_clipped_speeds(x, self.positions)

    def terminated(self, x_next: State) -> Truth:
        return (x_next[1] <= 0.8) | (x_next[1] >= 2.0) | (abs(x_next[2]) >= 1.0)


@dataclasses.dataclass(frozen=True)
class Swimmer(Velocity):
    """Three links in a thick fluid."""

    threshold: float = 0.2282

    asset = "swimmer.xml"
    rest, speeds, action_size = (0.0,) * 5, 5, 2
    hidden = 2
    substeps, timestep = 4, 0.01
    noise, effort = 0.1, 1e-4


@dataclasses.dataclass(frozen=True)
class Ant(Velocity):
    """Four legs around a sphere, which is to stay between the heights 0.2 and 1."""

    threshold: float = 2.6222

    asset = "ant.xml"
    rest, speeds, action_size = (0.0, 0.0, 0.75, 1.0, *(0.0,) * 11), 14, 8
    hidden, planar = 2, True
    substeps, timestep = 5, 0.01
    noise, normal_speeds = 0.1, True
    healthy, effort = 1.0, 0.5

    def terminated(self, x_next: State) -> Truth:
        return (x_next[2] < 0.2) | (x_next[2] > 1.0)


@dataclasses.dataclass(frozen=True)
class Humanoid(Velocity):
    """A body with arms and legs, whose centre of mass is what moves; it has fallen if its torso leaves the heights 1 to 2.

    Observed are positions and speeds, of each of 13 bodies the inertia (10 numbers) and the velocity (6), and the torques.
    """

    threshold: float = 1.4149

    asset = "humanoid.xml"
    rest, speeds, action_size = (0.0, 0.0, 1.4, 1.0, *(0.0,) * 20), 23, 17
    hidden, planar = 2, True
    action_limit = 0.4
    substeps, timestep = 5, 0.003
    noise = 0.01
    forwards, healthy, effort = 1.25, 5.0, 0.1

    @property
    def observation_size(self) -> int:
        return self.state_size - self.hidden + 13 * (10 + 6) + self.action_size

    def observe(self, x: State, sensors: Sensors) -> Observation:
        inertias, velocities = _felt(x)
        return joined(x[self.hidden :], inertias, velocities, sensors)

    def place(self, x: State) -> tuple[Scalar, Scalar]:
        centre: Any = _where(x).centre
        ahead, aside, _ = centre.tolist() if isinstance(centre, np.ndarray) else centre
        return ahead, aside

    def terminated(self, x_next: State) -> Truth:
        return (x_next[2] <= 1.0) | (x_next[2] >= 2.0)

    def model(self) -> mujoco.MjModel:
        """Gymnasium's, with sensors of the torques, in the order of the joints."""
        import mujoco

        spec = gymnasium_spec(self.asset)
        for joint in spec.joints[1:]:
            spec.add_sensor(
                name=joint.name,
                type=mujoco.mjtSensor.mjSENS_JOINTACTFRC,
                objtype=mujoco.mjtObj.mjOBJ_JOINT,
                objname=joint.name,
            )
        return _compiled(spec)


def _compiled(spec: mujoco.MjSpec) -> mujoco.MjModel:
    """The model; MuJoCo's remarks on the style of Gymnasium's files are not for those who run them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return spec.compile()


@functools.cache
def _humanoid() -> Skeleton:
    return skeleton_of(_compiled(gymnasium_spec(Humanoid.asset)))


def _where(x: State) -> Placed:
    """Where the humanoid's bones are; in plain floats, a step asks five times for two states."""
    return _remembered(x) if isinstance(x, tuple) else _humanoid().placed(x[: len(Humanoid.rest)])


@functools.lru_cache(maxsize=4)
def _remembered(x: tuple[float, ...]) -> Placed:
    return _humanoid().placed(np.array(x[: len(Humanoid.rest)]))


def _felt(x: State) -> tuple[Vector, Vector]:
    """Inertias and velocities of the humanoid's bones, one after the other."""
    at = _where(x)
    speeds = x[len(Humanoid.rest) :]
    plain = isinstance(x, tuple)
    felt: Any = _humanoid().inertias(at), _humanoid().velocities(at, np.array(speeds) if plain else speeds)
    numbers: Any = tuple([tuple(part.ravel().tolist()) if plain else part.ravel() for part in felt])
    return numbers


def _with_clipped_speeds(x: State, positions: int) -> Observation:
    """All but the position along x; speeds are shown up to ±10."""
    return joined(x[1:positions], clip(x[positions:], -10.0, 10.0))
