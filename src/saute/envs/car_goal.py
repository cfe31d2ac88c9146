"""The Car: a box on two driven wheels and a free ball, standing on the plane by contact alone; forwards is −y."""

from __future__ import annotations

import dataclasses
from typing import Any

from saute.envs.formula import Source, joined, vector
from saute.envs.goal import Goal, rotation
from saute.envs.rigid import sin_cos
from saute.envs.task import Observation, Sensors, State

__all__ = ["CarGoal"]

HEIGHT = 0.1
"""Height of the body's centre at the start, where wheels and ball just touch the plane, up to rounding."""

ROBOT = f"""\
<body name="robot" pos="0 0 {HEIGHT}">
  <freejoint name="robot"/>
  <site name="robot" size=".01"/>
  <geom name="body" class="shell" size=".1 .1 .05"/>
  <geom name="back bumper" class="shell" size=".1 .01 .05" pos="0 .15 0"/>
  <geom name="back connector" class="shell" size=".01 .025 .03" pos="0 .125 0"/>
  <geom name="front bumper" class="shell" size=".05 .01 .05" pos="0 -.165 0"/>
  <geom name="front connector" class="shell" size=".05 .03 .01" pos="0 -.13 .04"/>
  <body name="left" pos="-.1 .1 -.05">
    <joint name="left" type="hinge" axis="1 0 0"/>
    <geom name="left" class="wheel" fromto="-.005 0 0 -.055 0 0"/>
  </body>
  <body name="right" pos=".1 .1 -.05">
    <joint name="right" type="hinge" axis="1 0 0"/>
    <geom name="right" class="wheel" fromto=".005 0 0 .055 0 0"/>
  </body>
  <body name="rear" pos="0 -.1 -.05">
    <joint name="rear" type="ball"/>
    <geom name="rear" type="sphere" size=".05" rgba=".2 .2 .2 1"/>
  </body>
</body>"""
"""The box, its two wheels and its ball, in MuJoCo's format."""


@dataclasses.dataclass(frozen=True)
class CarGoal(Goal):
    """Static goal for the Car; the action is the torque clip(a, ±0.02) of the left (x < 0) and of the right wheel.

    x = (position 3, quaternion 4, wheel angles 2, ball quaternion 4, velocity 3, angular velocity 3 in the robot's
    frame, wheel speeds 2, angular velocity 3 of the ball). Only MuJoCo can step it: see `MujocoEngine`.
    """

    timestep: float = 0.004

    state_size = 24

    @property
    def observation_size(self) -> int:
        return 24 + 2 * self.lidar_bins

    def start(self, source: Source) -> State:
        x, y, heading = self.start_pose(source)
        sin, cos = sin_cos(heading / 2)
        return vector(x, y, HEIGHT, cos, 0.0, 0.0, sin, 0.0, 0.0, 1.0, *[0.0] * 14)

    def observe(self, x: State, sensors: Sensors) -> Observation:
        """As `Goal.view`, with the ball's angular velocity and orientation (a 3×3 matrix) after the accelerometer."""
        touch = joined(sensors[:6], *rotation(sensors[6:10]))
        return self.view(x[:3], rotation(x[3:7]), touch, sensors[10:13], sensors[13:16])

    def model(self) -> Any:
        import mujoco

        return mujoco.MjModel.from_xml_string(self.mjcf())

    def mjcf(self) -> str:
        """The Car in MuJoCo's format, with its default friction (1, 0.005, 0.0001), contact softness and solver.

        A single robot is a single island of constraints: to switch the search for islands off saves 7 % of the time and
        changes no bit.
        """
        return f"""
<mujoco model="car">
  <option timestep="{self.timestep}" integrator="Euler"><flag island="disable"/></option>
  <default>
    <geom condim="6" density="5"/>
    <joint damping=".001"/>
    <motor gear="1" ctrlrange="-1 1" forcerange="-.02 .02"/>
    <default class="shell"><geom type="box" rgba=".9 .3 .2 1"/></default>
    <default class="wheel"><geom type="cylinder" size=".05" rgba=".2 .2 .2 1"/></default>
  </default>
  <worldbody>
    {self.scenery()}
    {ROBOT}
  </worldbody>
  <actuator>
    <motor name="left" joint="left"/>
    <motor name="right" joint="right"/>
  </actuator>
  <sensor>
    <accelerometer site="robot"/>
    <ballangvel joint="rear"/>
    <ballquat joint="rear"/>
    <gyro site="robot"/>
    <velocimeter site="robot"/>
  </sensor>
</mujoco>
"""
