"""Rigid bodies, moved as MuJoCo moves them: inertias, soft joint limits, Runge–Kutta steps (Todorov et al. 2012)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import gymnasium
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from saute.envs.task import Scalar

__all__ = ["Body", "Real", "Scalars", "capsule", "gymnasium_spec", "limit_force", "runge_kutta", "sin_cos", "sphere"]

Scalars = tuple[Scalar, ...]
Real = TypeVar("Real", float, Array)
"""A constant of the model or a traced number; the same formulas serve both."""

DENSITY = 1000.0
"""MuJoCo's default density of a geom in kg/m³, that of water."""

LEAST_IMPEDANCE, MOST_IMPEDANCE, IMPEDANCE_WIDTH = 0.9, 0.95, 0.001
"""MuJoCo's default `solimp`: the impedance climbs from the first to the second over this depth."""

TIME_CONSTANT = 0.02
"""MuJoCo's default `solref`, critically damped. MuJoCo raises it to two timesteps, so timesteps must be ≤ 0.01 s here."""

STIFFNESS = 1.0 / (MOST_IMPEDANCE * TIME_CONSTANT) ** 2
DAMPING = 2.0 / (MOST_IMPEDANCE * TIME_CONSTANT)


class Body(NamedTuple):
    """The mass of a body, and its inertia about an axis through its centre (for a capsule, an axis across its length)."""

    mass: float
    inertia: float


def sphere(radius: float) -> Body:
    """A sphere: m = 4/3 πρr³, I = 2/5 mr²."""
    mass = DENSITY * math.pi * 4 / 3 * radius**3
    return Body(mass, 0.4 * mass * radius**2)


def capsule(radius: float, length: float) -> Body:
    """A cylinder c between two half spheres s: I = m_c (3r² + L²)/12 + m_s (2/5 r² + L²/4 + 3/8 Lr)."""
    cylinder, ends = DENSITY * math.pi * radius**2 * length, sphere(radius)
    across = cylinder * (3 * radius**2 + length**2) / 12 + ends.mass * (length**2 / 4 + 3 / 8 * length * radius)
    return Body(cylinder + ends.mass, across + ends.inertia)


def limit_force(
    q: Scalar, speed: Scalar, free: Scalar | float, inertia: Scalar | float, weight: float, bound: float, margin: float
) -> Scalar:
    """The force f = max(0, (a* + a₀)/(A + R)), towards 0, that MuJoCo adds where |q| > bound − margin.

    Outwards is positive: δ is the depth beyond that threshold, a₀ = `free` is the acceleration without f, and with the
    impedance i(δ) we have a* = k i δ + b δ̇, A = 1/`inertia`, R = `weight` (1 − i)/i; `weight` is MuJoCo's `dof_invweight0`.
    This solves MuJoCo's convex problem if no other limit is active in the same kinematic tree.
    """
    side = jnp.sign(q)
    depth = margin - (bound - side * q)
    ramp = jnp.clip(depth / IMPEDANCE_WIDTH, 0.0, 1.0)
    ramp = jnp.where(ramp <= 0.5, 2 * ramp**2, 1 - 2 * (1 - ramp) ** 2)
    impedance = LEAST_IMPEDANCE + (MOST_IMPEDANCE - LEAST_IMPEDANCE) * ramp
    excess = STIFFNESS * impedance * depth + DAMPING * side * speed + side * free
    force = excess * impedance * inertia / (impedance + (1 - impedance) * weight * inertia)
    return jnp.where(depth > 0, -side * jnp.maximum(force, 0.0), 0.0)


def sin_cos(x: Float[Array, "*shape"]) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
    """sin x and cos x to the precision of x, by their power series about the nearest multiple of π.

    On a CPU, XLA evaluates its own sin and cos number by number, with branches, and again for every use: with them a step of
    the double pendulum takes three to four times as long.
    """
    turns = jnp.round(x * (1 / math.pi))
    # π is split into a short part, whose product is exact, and a rest, so that the difference loses no digits.
    r = x - turns * 3.140625 - turns * (math.pi - 3.140625)
    precision = float(jnp.finfo(x.dtype).eps) / 4
    order = next(n for n in itertools.count(2, 2) if (math.pi / 2) ** n / math.factorial(n) < precision)
    square, sin, cos = r * r, jnp.ones_like(r), jnp.ones_like(r)
    for n in range(order, 0, -2):
        sin = 1 - square * sin * (1 / (n * (n + 1)))
        cos = 1 - square * cos * (1 / (n * (n - 1)))
    sign = 1 - 2 * (turns - 2 * jnp.floor(turns / 2))
    return sign * r * sin, sign * cos


def runge_kutta(
    acceleration: Callable[[Scalars, Scalars], Scalars], q: Scalars, v: Scalars, timestep: float, steps: int
) -> tuple[Scalars, Scalars]:
    """Positions and velocities after classical fourth-order Runge–Kutta steps of q̈ = acceleration(q, q̇)."""

    def ahead(start: Scalars, slope: Scalars, time: float) -> Scalars:
        return tuple(y + time * dy for y, dy in zip(start, slope, strict=True))

    def mean(*slopes: Scalars) -> Scalars:
        return tuple((k1 + 2 * (k2 + k3) + k4) / 6 for k1, k2, k3, k4 in zip(*slopes, strict=True))

    def step(_: Int[Array, ""], state: tuple[Scalars, Scalars]) -> tuple[Scalars, Scalars]:
        q, v1 = state
        a1 = acceleration(q, v1)
        v2 = ahead(v1, a1, timestep / 2)
        a2 = acceleration(ahead(q, v1, timestep / 2), v2)
        v3 = ahead(v1, a2, timestep / 2)
        a3 = acceleration(ahead(q, v2, timestep / 2), v3)
        v4 = ahead(v1, a3, timestep)
        a4 = acceleration(ahead(q, v3, timestep), v4)
        return ahead(q, mean(v1, v2, v3, v4), timestep), ahead(v1, mean(a1, a2, a3, a4), timestep)

    return jax.lax.fori_loop(0, steps, step, (q, v))


def gymnasium_spec(asset: str) -> Any:
    """The editable `mujoco.MjSpec` of a model that comes with Gymnasium."""
    import mujoco

    return mujoco.MjSpec.from_file(str(Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / asset))
