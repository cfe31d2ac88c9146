"""The Point: a sphere with a box as its nose, which slides over the plane, is pushed forwards and turned about z."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from saute.envs.formula import Source, clip, joined, repeated, vector, zero_like
from saute.envs.goal import Goal, Matrix, into
from saute.envs.rigid import Scalars, sin_cos
from saute.envs.task import Action, Observation, Scalar, Sensors, State

__all__ = ["PointGoal"]

RADIUS, NOSE, NOSE_AT, DENSITY = 0.1, 0.05, 0.1, 1.0
SPHERE_MASS = DENSITY * 4 / 3 * math.pi * RADIUS**3
NOSE_MASS = DENSITY * (2 * NOSE) ** 3
MASS = SPHERE_MASS + NOSE_MASS
CENTRE = NOSE_MASS * NOSE_AT / MASS
"""The centre of mass lies this far in front of the centre of the sphere, which is the robot's position."""
INERTIA = (
    0.4 * SPHERE_MASS * RADIUS**2
    + SPHERE_MASS * CENTRE**2
    + NOSE_MASS * 2 * (2 * NOSE) ** 2 / 12
    + NOSE_MASS * (NOSE_AT - CENTRE) ** 2
)
"""Moment of inertia about the vertical axis through the centre of mass."""
GEAR, MAX_FORCE = 0.3, 0.05
DRAG, SPIN_DRAG = 0.01, 0.005
GRAVITY = 9.81


@dataclasses.dataclass(frozen=True)
class PointGoal(Goal):
    """Static goal for the Point, with the state x = (x, y, heading, ẋ, ẏ, ω).

    The action is a forward force 0.3 clip(a₁, ±0.05) and a torque 0.3 clip(a₂ − 0.3 ω, ±0.05), which steers ω to a₂ / 0.3.
    """

    timestep: float = 0.002

    state_size = 6

    @property
    def observation_size(self) -> int:
        return 12 + 2 * self.lidar_bins

    def start(self, source: Source) -> State:
        x, y, heading = self.start_pose(source)
        return vector(x, y, heading, 0.0, 0.0, 0.0)

    def advance(self, x: State, action: Action) -> State:
        """v' = v + h (M + hD)⁻¹ (force − D v), q' = q + h v', ten times: MuJoCo's Euler rule with implicit damping."""
        h = self.timestep

        def substep(state: Scalars) -> Scalars:
            px, py, heading, vx, vy, ω = state
            ax, ay, spin_up = _acceleration(heading, vx, vy, ω, action, h)
            vx, vy, ω = vx + h * ax, vy + h * ay, ω + h * spin_up
            return px + h * vx, py + h * vy, heading + h * ω, vx, vy, ω

        return vector(*repeated(self.substeps, substep, tuple(x)))

    def sense(self, x: State, action: Action) -> Sensors:
        """Accelerometer (gravity included), gyro and velocimeter, in the robot's frame."""
        frame, zero = _frame(x[2]), zero_like(x[2])
        ax, ay, _ = _acceleration(x[2], x[3], x[4], x[5], action, 0.0)
        accelerometer = into(frame, vector(ax, ay, zero + GRAVITY))
        return joined(accelerometer, vector(zero, zero, x[5]), into(frame, vector(x[3], x[4], zero)))

    def observe(self, x: State, sensors: Sensors) -> Observation:
        position = vector(x[0], x[1], RADIUS)
        return self.view(position, _frame(x[2]), sensors[:3], sensors[3:6], sensors[6:9])

    def model(self) -> Any:
        import mujoco

        return mujoco.MjModel.from_xml_string(self.mjcf())

    def mjcf(self) -> str:
        """The Point in MuJoCo's format; contacts are off, since its joints do not let the plane push the robot anyway."""
        return f"""
<mujoco model="point">
  <option timestep="{self.timestep}" gravity="0 0 {-GRAVITY}" integrator="Euler"><flag contact="disable"/></option>
  <worldbody>
    {self.scenery()}
    <body name="robot" pos="0 0 {RADIUS}">
      <joint name="x" type="slide" axis="1 0 0" damping="{DRAG}"/>
      <joint name="y" type="slide" axis="0 1 0" damping="{DRAG}"/>
      <joint name="heading" type="hinge" axis="0 0 1" damping="{SPIN_DRAG}"/>
      <geom type="sphere" size="{RADIUS}" density="{DENSITY}" rgba=".9 .3 .2 1"/>
      <geom type="box" size="{NOSE} {NOSE} {NOSE}" pos="{NOSE_AT} 0 0" density="{DENSITY}" rgba=".9 .3 .2 1"/>
      <site name="robot" size=".01"/>
    </body>
  </worldbody>
  <actuator>
    <motor name="push" site="robot" gear="{GEAR} 0 0 0 0 0" ctrlrange="-1 1" forcerange="{-MAX_FORCE} {MAX_FORCE}"/>
    <velocity name="turn" joint="heading" gear="{GEAR}" kv="1" ctrlrange="-1 1" forcerange="{-MAX_FORCE} {MAX_FORCE}"/>
  </actuator>
  <sensor>
    <accelerometer site="robot"/>
    <gyro site="robot"/>
    <velocimeter site="robot"/>
  </sensor>
</mujoco>
"""


def _frame(heading: Scalar) -> Matrix:
    """The rotation by the heading about z."""
    (sin, cos), zero = sin_cos(heading), zero_like(heading)
    return vector(vector(cos, -sin, zero), vector(sin, cos, zero), vector(zero, zero, zero + 1.0))


def _acceleration(heading: Scalar, vx: Scalar, vy: Scalar, ω: Scalar, action: Action, h: float) -> Scalars:
    """(M + hD)⁻¹ (force − D v), solved in the robot's frame, where only sideways motion and turning are coupled."""
    sin, cos = sin_cos(heading)
    ahead, aside = cos * vx + sin * vy, cos * vy - sin * vx
    push, turn = clip(action, -1.0, 1.0)
    force = GEAR * clip(push, -MAX_FORCE, MAX_FORCE) - DRAG * ahead + MASS * CENTRE * ω**2
    torque = GEAR * clip(turn - GEAR * ω, -MAX_FORCE, MAX_FORCE) - SPIN_DRAG * ω
    mass, lever, inertia = MASS + h * DRAG, MASS * CENTRE, INERTIA + MASS * CENTRE**2 + h * SPIN_DRAG
    spin_up = (mass * torque + lever * DRAG * aside) / (mass * inertia - lever**2)
    forwards, sidewards = force / mass, -(DRAG * aside + lever * spin_up) / mass
    return cos * forwards - sin * sidewards, sin * forwards + cos * sidewards, spin_up
