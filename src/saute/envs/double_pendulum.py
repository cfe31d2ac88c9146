"""Safe double pendulum: balance two poles on a cart, while angles of the first pole around δ = 25° cost (A4)."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from saute.envs.pendulum import angle_cost
from saute.envs.rigid import Scalars, capsule, gymnasium_spec, limit_force, runge_kutta
from saute.envs.task import Action, Scalar, State

__all__ = ["DoublePendulum"]

CART = capsule(radius=0.1, length=0.2)
POLE = capsule(radius=0.045, length=0.6)
LENGTH = 0.6
RAIL = 1.0
MARGIN = 0.01
GEAR = 500.0
DAMPING = 0.05
SIDEWAYS, GRAVITY = 1e-5, 9.81
"""The shipped model really pulls a little along the rail."""
TIMESTEP = 0.01

MASS = CART.mass + 2 * POLE.mass
LOWER_MOMENT, UPPER_MOMENT = 1.5 * POLE.mass * LENGTH, 0.5 * POLE.mass * LENGTH
"""First moments of mass of the poles about their hinges; the lower one carries the upper one at its end."""
UPPER_INERTIA = POLE.inertia + POLE.mass * LENGTH**2 / 4
LOWER_INERTIA = UPPER_INERTIA + POLE.mass * LENGTH**2
CROSS_INERTIA = POLE.mass * LENGTH**2 / 2


@dataclasses.dataclass(frozen=True)
class DoublePendulum:
    """Cart on a rail under two poles, x = (q, q̇), q = (cart, hinge, hinge relative to the first pole), 0 upright."""

    mode: str = "train"
    horizon: int = 200
    budget: float = 40.0
    unsafe_reward: float = -200.0
    unsafe_angle: float = 25.0
    unsafe_width: float = 50.0
    least_height: float = 1.0
    """The episode ends in failure once the tip is no higher than this; upright it is at 1.2."""

    state_size = 6
    observation_size = 11
    action_size = 1
    substeps = 5

    def start(self, key: PRNGKeyArray) -> State:
        """q ~ U(±0.1), q̇ ~ 0.1 N(0, 1), in training and in test."""
        position, speed = jax.random.split(key)
        q = jax.random.uniform(position, (3,), minval=-0.1, maxval=0.1)
        return jnp.concatenate([q, 0.1 * jax.random.normal(speed, (3,))])

    def advance(self, x: State, action: Action) -> State:
        """Five Runge–Kutta steps of 0.01 s in the cart's position and the poles' absolute angles α, β."""
        force = _force(action)
        q, v = runge_kutta(lambda q, v: _forward(q, v, force)[0], *_absolute(x), TIMESTEP, self.substeps)
        (s, α, β), (ṡ, α̇, β̇) = q, v
        return jnp.stack([s, α, β - α, ṡ, α̇, β̇ - α̇])

    def sense(self, x: State, action: Action) -> Float[Array, " 1"]:
        """Size of the force by which the end of the rail pushes the cart back."""
        return jnp.abs(_forward(*_absolute(x), _force(action))[1])[None]

    def observe(self, x: State, sensors: Float[Array, " 1"]) -> Float[Array, " 11"]:
        """(s, sin θ, cos θ, clip(q̇, ±10), clip(constraint force, ±10)); the rail acts on the cart only."""
        push = jnp.clip(-jnp.sign(x[0]) * sensors, -10.0, 10.0)
        angles, speed = x[1:3], jnp.clip(x[3:], -10.0, 10.0)
        return jnp.concatenate([x[:1], jnp.sin(angles), jnp.cos(angles), speed, push, jnp.zeros(2, x.dtype)])

    def reward(self, x: State, action: Action, x_next: State) -> Scalar:
        """r = 1 − (0.01 x² + (y − 2)² + 0.001 θ̇₁² + 0.005 θ̇₂²) / 10 with (x, y) the tip, after the step."""
        sideways, height = _tip(x_next)
        loss = 0.01 * sideways**2 + (height - 2.0) ** 2 + 1e-3 * x_next[4] ** 2 + 5e-3 * x_next[5] ** 2
        return 1.0 - loss / 10.0

    def cost(self, x: State, action: Action, x_next: State) -> Scalar:
        return angle_cost(x[1], self.unsafe_angle, self.unsafe_width)

    def terminated(self, x_next: State) -> Bool[Array, ""]:
        return _tip(x_next)[1] <= self.least_height

    def model(self) -> Any:
        import mujoco

        spec = gymnasium_spec("inverted_double_pendulum.xml")
        spec.add_sensor(type=mujoco.mjtSensor.mjSENS_JOINTLIMITFRC, objtype=mujoco.mjtObj.mjOBJ_JOINT, objname="slider")
        return spec.compile()


def _tip(x: State) -> tuple[Scalar, Scalar]:
    α, β = x[1], x[1] + x[2]
    return x[0] + LENGTH * (jnp.sin(α) + jnp.sin(β)), LENGTH * (jnp.cos(α) + jnp.cos(β))


def _force(action: Action) -> Scalar:
    return GEAR * jnp.clip(action[0], -1.0, 1.0)


def _absolute(x: State) -> tuple[Scalars, Scalars]:
    return (x[0], x[1], x[1] + x[2]), (x[3], x[4], x[4] + x[5])


def _schur(b: Scalar, c: Scalar, d: Scalar) -> tuple[Scalar, Scalar, Scalar, Scalar]:
    """Inertia of the cart once the poles follow freely, with …"""
    det = LOWER_INERTIA * UPPER_INERTIA - d**2
    kα, kβ = (UPPER_INERTIA * b - d * c) / det, (LOWER_INERTIA * c - d * b) / det
    return MASS - b * kα - c * kβ, kα, kβ, det


WEIGHT = 1.0 / _schur(LOWER_MOMENT, UPPER_MOMENT, CROSS_INERTIA)[0]


def _forward(q: Scalars, v: Scalars, force: Scalar) -> tuple[Scalars, Scalar]:
    (s, α, β), (ṡ, α̇, β̇) = q, v
    sinα, cosα, sinβ, cosβ = jax.lax.optimization_barrier((jnp.sin(α), jnp.cos(α), jnp.sin(β), jnp.cos(β)))
    b, c = LOWER_MOMENT * cosα, UPPER_MOMENT * cosβ
    d = CROSS_INERTIA * (cosα * cosβ + sinα * sinβ)
    twist = CROSS_INERTIA * (sinα * cosβ - cosα * sinβ)
    inertia, kα, kβ, det = _schur(b, c, d)
    τ = -DAMPING * (β̇ - α̇)
    fs = force - DAMPING * ṡ + MASS * SIDEWAYS + LOWER_MOMENT * sinα * α̇**2 + UPPER_MOMENT * sinβ * β̇**2
    fα = -DAMPING * α̇ - τ + LOWER_MOMENT * (GRAVITY * sinα + SIDEWAYS * cosα) - twist * β̇**2
    fβ = τ + UPPER_MOMENT * (GRAVITY * sinβ + SIDEWAYS * cosβ) + twist * α̇**2
    free = (fs - kα * fα - kβ * fβ) / inertia
    push = limit_force(s, ṡ, free, inertia, WEIGHT, RAIL, MARGIN)
    a = free + push / inertia
    return (
        a,
        (UPPER_INERTIA * fα - d * fβ) / det - kα * a,
        (LOWER_INERTIA * fβ - d * fα) / det - kβ * a,
    ), push
