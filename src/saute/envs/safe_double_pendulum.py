"""Safe double pendulum: balance two poles on a cart; angles of the first pole around δ = 25° cost (appendix A4).

The physics is that of Gymnasium's `inverted_double_pendulum.xml`, as formulas: same numbers, same integrator.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from saute.envs.formula import Source, Truth, clip, joined, normal, sign, split, uniform, vector
from saute.envs.rigid import Real, Scalars, capsule, gymnasium_spec, limit_force, runge_kutta, sin_cos
from saute.envs.safe_pendulum import angle_cost
from saute.envs.task import Action, Observation, Scalar, Sensors, State

__all__ = ["DoublePendulum"]

LENGTH = 0.6
CART = capsule(radius=0.1, length=0.2)
POLE = capsule(radius=0.045, length=LENGTH)
RAIL, MARGIN = 1.0, 0.01
"""The cart is pushed back from the ends ±RAIL, from the distance MARGIN on."""
GEAR = 500.0
DAMPING = 0.05
DRIFT, GRAVITY = 1e-5, 9.81
"""Gravity along the rail (Gymnasium's model has it, so that no start is perfectly balanced) and down."""
TIMESTEP = 0.01

MASS = CART.mass + 2 * POLE.mass
PULL = MASS * DRIFT
LOWER_MOMENT, UPPER_MOMENT = 1.5 * POLE.mass * LENGTH, 0.5 * POLE.mass * LENGTH
"""First moments of mass about the hinges; the lower pole carries the mass of the upper one at its end."""
CROSS_INERTIA = POLE.mass * LENGTH**2 / 2
UPPER_INERTIA = POLE.inertia + POLE.mass * LENGTH**2 / 4
LOWER_INERTIA = UPPER_INERTIA + POLE.mass * LENGTH**2
INERTIAS = LOWER_INERTIA * UPPER_INERTIA


@dataclasses.dataclass(frozen=True)
class DoublePendulum:
    """Cart on a rail with two poles, x = (q, q̇), q = (position, θ₁, θ₂ relative to the first pole), all 0 upright."""

    mode: str = "train"
    horizon: int = 200
    budget: float = 40.0
    unsafe_reward: float = -200.0
    unsafe_angle: float = 25.0
    unsafe_width: float = 50.0
    least_height: float = 1.0
    """The episode terminates when the tip is at this height or below; upright it is at 1.2."""

    state_size = 6
    observation_size = 11
    action_size = 1
    substeps = 5

    def start(self, source: Source) -> State:
        """q ~ U(±0.1), q̇ ~ 0.1 N(0, 1), in training and in test."""
        for_q, for_speed = split(source)
        return joined(uniform(for_q, 3, -0.1, 0.1), normal(for_speed, 3, 0.1))

    def advance(self, x: State, action: Action) -> State:
        """Five Runge–Kutta steps of 0.01 s in the cart's position and the absolute angles of the poles."""
        force = _force(action)

        def slope(state: Scalars) -> Scalars:
            return _forward(state, force)[0]

        s, α, β, u, ωα, ωβ = runge_kutta(slope, _absolute(x), TIMESTEP, self.substeps)
        return vector(s, α, β - α, u, ωα, ωβ - ωα)

    def sense(self, x: State, action: Action) -> Sensors:
        """The size of the force with which the end of the rail pushes the cart back."""
        return vector(abs(_forward(_absolute(x), _force(action))[1]))

    def observe(self, x: State, sensors: Sensors) -> Observation:
        """(s, sin θ, cos θ, clip(q̇, ±10), clip(f, ±10)); of the three constraint forces f only the rail's is not 0."""
        s, α, β, *speeds = x
        (sα, cα), (sβ, cβ) = sin_cos(α), sin_cos(β)
        u, ωα, ωβ = [clip(speed, -10.0, 10.0) for speed in speeds]
        return vector(s, sα, sβ, cα, cβ, u, ωα, ωβ, clip(-sign(s) * sensors[0], -10.0, 10.0), 0.0, 0.0)

    def reward(self, x: State, action: Action, x_next: State) -> Scalar:
        """r = 1 − (0.01 x² + (y − 2)² + 0.001 θ̇₁² + 0.005 θ̇₂²) / 10 with the tip at (x, y), after the step."""
        across, height = _tip(x_next)
        loss = 0.01 * across**2 + (height - 2.0) ** 2 + 0.001 * x_next[4] ** 2 + 0.005 * x_next[5] ** 2
        return 1.0 - loss / 10.0

    def cost(self, x: State, action: Action, x_next: State) -> Scalar:
        return angle_cost(x[1], self.unsafe_angle, self.unsafe_width)

    def terminated(self, x_next: State) -> Truth:
        return _tip(x_next)[1] <= self.least_height

    def model(self) -> Any:
        import mujoco

        spec = gymnasium_spec("inverted_double_pendulum.xml")
        spec.add_sensor(type=mujoco.mjtSensor.mjSENS_JOINTLIMITFRC, objtype=mujoco.mjtObj.mjOBJ_JOINT, objname="slider")
        return spec.compile()


def _tip(x: State) -> tuple[Scalar, Scalar]:
    (sα, cα), (sβ, cβ) = sin_cos(x[1]), sin_cos(x[1] + x[2])
    return x[0] + LENGTH * (sα + sβ), LENGTH * (cα + cβ)


def _force(action: Action) -> Scalar:
    return GEAR * clip(action[0], -1.0, 1.0)


def _absolute(x: State) -> Scalars:
    """Position and velocity, with the upper pole's angle from upright too: then the inertias of the poles are constant."""
    return x[0], x[1], x[1] + x[2], x[3], x[4], x[4] + x[5]


def _cart_inertia(lower: Real, upper: Real, cross: Real) -> tuple[Real, Real, Real, Real]:
    """The inertia of the cart with poles that follow freely, m − bᵀk, then the two numbers k = C⁻¹b, and det C.

    M = [[m, bᵀ], [b, C]] with b = (lower, upper), C = [[I₁, cross], [cross, I₂]]; per unit of the cart's acceleration the
    poles have the angular accelerations −k.
    """
    det = INERTIAS - cross * cross
    kα = (UPPER_INERTIA * lower - cross * upper) / det
    kβ = (LOWER_INERTIA * upper - cross * lower) / det
    return MASS - lower * kα - upper * kβ, kα, kβ, det


RAIL_WEIGHT = 1.0 / _cart_inertia(LOWER_MOMENT, UPPER_MOMENT, CROSS_INERTIA)[0]
"""Inverse inertia of the cart with upright poles, MuJoCo's `dof_invweight0`."""


def _forward(state: Scalars, force: Scalar) -> tuple[Scalars, Scalar]:
    """q̇ and q̈ = M(q)⁻¹(F(q, q̇) + push) for a force on the cart, and the push of the rail's ends."""
    s, α, β, u, ωα, ωβ = state
    (sα, cα), (sβ, cβ) = sin_cos(α), sin_cos(β)
    cross, swing = CROSS_INERTIA * (cα * cβ + sα * sβ), CROSS_INERTIA * (sα * cβ - cα * sβ)
    inertia, kα, kβ, det = _cart_inertia(LOWER_MOMENT * cα, UPPER_MOMENT * cβ, cross)
    drag = DAMPING * (ωβ - ωα)
    fα = drag - DAMPING * ωα + LOWER_MOMENT * (GRAVITY * sα + DRIFT * cα) - swing * (ωβ * ωβ)
    fβ = -drag + UPPER_MOMENT * (GRAVITY * sβ + DRIFT * cβ) + swing * (ωα * ωα)
    fs = force - DAMPING * u + PULL + LOWER_MOMENT * sα * (ωα * ωα) + UPPER_MOMENT * sβ * (ωβ * ωβ)
    free = (fs - kα * fα - kβ * fβ) / inertia
    push = limit_force(s, u, free, inertia, RAIL_WEIGHT, RAIL, MARGIN)
    a = free + push / inertia
    aα = (UPPER_INERTIA * fα - cross * fβ) / det - kα * a
    aβ = (LOWER_INERTIA * fβ - cross * fα) / det - kβ * a
    return (u, ωα, ωβ, a, aα, aβ), push
