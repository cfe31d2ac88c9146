"""Safe reacher: stretch a two-link arm towards a far goal; to be near a hazard on the way costs (appendix A4).

The physics is that of Gymnasium's `reacher.xml`, as formulas: same numbers, same integrator.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from saute.envs.formula import Source, Truth, clip, never, sqrt, uniform, vector, where
from saute.envs.rigid import Real, Scalars, capsule, gymnasium_spec, limit_force, runge_kutta, sin_cos, sphere
from saute.envs.task import Action, Observation, Scalar, Sensors, State

__all__ = ["Reacher"]

LENGTH, TIP_LENGTH = 0.1, 0.11
"""From the shoulder to the elbow, and from the elbow to the fingertip, which is just beyond the second link's end."""
HEIGHT = 0.01
LINK = capsule(radius=0.01, length=LENGTH)
TIP = sphere(radius=0.01)
ARMATURE = 1.0
DAMPING = 1.0
GEAR = 200.0
ELBOW_BOUND = 3.0
TARGET_BOUND = 0.27
TIMESTEP = 0.01

LOWER_MOMENT = LINK.mass * LENGTH / 2 + TIP.mass * TIP_LENGTH
LOWER_INERTIA = LINK.inertia + LINK.mass * LENGTH**2 / 4 + TIP.inertia + TIP.mass * TIP_LENGTH**2
"""Inertia of the second link with the fingertip, about the elbow."""
UPPER_INERTIA = LINK.inertia + LINK.mass * LENGTH**2 / 4 + (LINK.mass + TIP.mass) * LENGTH**2
"""Inertia of the first link about the shoulder, with the mass that it carries at the elbow."""


@dataclasses.dataclass(frozen=True)
class Reacher:
    """An arm in the plane and a sliding target: x = (q, q̇), q = (shoulder, elbow, target x, target y)."""

    mode: str = "train"
    horizon: int = 50
    budget: float = 10.0
    unsafe_reward: float = -3.75
    goal: tuple[float, float] = (1.0, 1.0)
    """The fixed point to reach for. The moving target starts there too, beyond its limits, which then pull it back."""
    hazard_centre: tuple[float, float, float] = (0.5, 0.5, 0.0)
    """The paper prints (1, 1, 0.01), with `hazard_slope=50`: too far for the arm by 0.7, so that nothing ever costs."""
    hazard_radius: float = 0.5
    hazard_cost: float = 100.0
    hazard_slope: float = 200.0

    state_size = 8
    observation_size = 11
    action_size = 2
    substeps = 2

    def start(self, source: Source) -> State:
        """q ~ U(±0.1), q̇ ~ U(±0.005) for the arm; the target rests at the goal. The same in training and in test."""
        u = uniform(source, 4, -1.0, 1.0)
        return vector(0.1 * u[0], 0.1 * u[1], *self.goal, 0.005 * u[2], 0.005 * u[3], 0.0, 0.0)

    def advance(self, x: State, action: Action) -> State:
        """Two Runge–Kutta steps of 0.01 s."""
        torque = GEAR * clip(action[0], -1.0, 1.0), GEAR * clip(action[1], -1.0, 1.0)

        def slope(state: Scalars) -> Scalars:
            _, elbow, tx, ty, v0, v1, vx, vy = state
            a0, a1 = _arm_acceleration(elbow, v0, v1, torque)
            return v0, v1, vx, vy, a0, a1, _target_acceleration(tx, vx), _target_acceleration(ty, vy)

        return vector(*runge_kutta(slope, tuple(x), TIMESTEP, self.substeps))

    def sense(self, x: State, action: Action) -> Sensors:
        return x[:0]

    def observe(self, x: State, sensors: Sensors) -> Observation:
        """(cos q, sin q, target joints, q̇, fingertip − goal); the last entry is a height difference, always 0."""
        (s0, c0), (s1, c1) = sin_cos(x[0]), sin_cos(x[1])
        return vector(c0, c1, s0, s1, x[2], x[3], x[4], x[5], *self._offset(x), 0.0)

    def reward(self, x: State, action: Action, x_next: State) -> Scalar:
        """r = −‖fingertip − goal‖ − ‖a‖², before the step."""
        dx, dy = self._offset(x)
        return -sqrt(dx**2 + dy**2) - (action[0] ** 2 + action[1] ** 2)

    def cost(self, x: State, action: Action, x_next: State) -> Scalar:
        """l = 100 − 200 d if d = ‖fingertip − centre of the hazard‖ < 0.5, else 0, after the step."""
        (across, along), (cx, cy, cz) = _fingertip(x_next), self.hazard_centre
        distance = sqrt((across - cx) ** 2 + (along - cy) ** 2 + (HEIGHT - cz) ** 2)
        return where(distance < self.hazard_radius, self.hazard_cost - self.hazard_slope * distance, 0.0)

    def terminated(self, x_next: State) -> Truth:
        return never(x_next)

    def model(self) -> Any:
        return gymnasium_spec("reacher.xml").compile()

    def _offset(self, x: State) -> tuple[Scalar, Scalar]:
        across, along = _fingertip(x)
        return across - self.goal[0], along - self.goal[1]


def _fingertip(x: State) -> tuple[Scalar, Scalar]:
    (sα, cα), (sβ, cβ) = sin_cos(x[0]), sin_cos(x[0] + x[1])
    return LENGTH * cα + TIP_LENGTH * cβ, LENGTH * sα + TIP_LENGTH * sβ


def _elbow_inertia(cos: Real) -> tuple[Real, Real, Real]:
    """The inertia of the elbow with a shoulder that follows freely, m₂₂ − m₁₂²/m₁₁, then m₁₂/m₁₁, and m₁₁."""
    coupling = LOWER_INERTIA + LENGTH * LOWER_MOMENT * cos
    shoulder = ARMATURE + UPPER_INERTIA + LENGTH * LOWER_MOMENT * cos + coupling
    k = coupling / shoulder
    return ARMATURE + LOWER_INERTIA - k * coupling, k, shoulder


ELBOW_WEIGHT = 1.0 / _elbow_inertia(1.0)[0]
"""Inverse inertia of the elbow with the arm stretched, MuJoCo's `dof_invweight0`."""


def _arm_acceleration(elbow: Scalar, v0: Scalar, v1: Scalar, torque: Scalars) -> Scalars:
    """q̈ = M(q)⁻¹(τ − q̇ − C(q, q̇)q̇), with the elbow kept within ±3; gravity is perpendicular to the plane."""
    sin, cos = sin_cos(elbow)
    inertia, k, shoulder = _elbow_inertia(cos)
    swing = LENGTH * LOWER_MOMENT * sin
    f0 = torque[0] - DAMPING * v0 + swing * v1 * (2 * v0 + v1)
    f1 = torque[1] - DAMPING * v1 - swing * (v0 * v0)
    free = (f1 - k * f0) / inertia
    bend = free + limit_force(elbow, v1, free, inertia, ELBOW_WEIGHT, ELBOW_BOUND, 0.0) / inertia
    return f0 / shoulder - k * bend, bend


def _target_acceleration(q: Scalar, v: Scalar) -> Scalar:
    """0, but at the limits ±0.27 of its slides; they accelerate the target alike whatever its mass, so the mass is 1 here."""
    return limit_force(q, v, 0.0, 1.0, 1.0, TARGET_BOUND, 0.0)
