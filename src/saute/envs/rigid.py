"""Rigid bodies the way MuJoCo moves them: inertias, soft joint limits, Runge–Kutta steps (Todorov et al. 2012)."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import gymnasium
import jax
import jax.numpy as jnp
from jaxtyping import Array

from saute.envs.task import Scalar

__all__ = ["Body", "Real", "Scalars", "capsule", "gymnasium_spec", "limit_force", "runge_kutta", "sphere"]

Scalars = tuple[Scalar, ...]
Stage = tuple[Scalars, Scalars, Scalars, Scalars]
Real = TypeVar("Real", float, Array)
"""A number of the model, or one that is traced: the same formula serves both."""

DENSITY = 1000.0
"""MuJoCo's default density of a geom, that of water."""

LEAST_IMPEDANCE, MOST_IMPEDANCE, IMPEDANCE_WIDTH = 0.9, 0.95, 0.001
"""MuJoCo's default `solimp`: the impedance climbs from the first to the second over this depth."""

TIME_CONSTANT = 0.02
"""MuJoCo's default `solref`, critically damped; never below two timesteps, so it fits models stepped by ≤ 0.01 s."""

STIFFNESS = 1.0 / (MOST_IMPEDANCE * TIME_CONSTANT) ** 2
DAMPING = 2.0 / (MOST_IMPEDANCE * TIME_CONSTANT)


class Body(NamedTuple):
    """Mass of a body, and its inertia about an axis through its centre (of a capsule: across its length)."""

    mass: float
    inertia: float


def sphere(radius: float) -> Body:
    """m = 4/3 πρr³, I = 2/5 mr²."""
    mass = DENSITY * math.pi * 4 / 3 * radius**3
    return Body(mass, 0.4 * mass * radius**2)


def capsule(radius: float, length: float) -> Body:
    """Cylinder c between two half spheres s: I = m_c (3r² + L²)/12 + m_s (2/5 r² + L²/4 + 3/8 Lr)."""
    cylinder, ends = DENSITY * math.pi * radius**2 * length, sphere(radius)
    across = cylinder * (3 * radius**2 + length**2) / 12 + ends.mass * (length**2 / 4 + 3 / 8 * length * radius)
    return Body(cylinder + ends.mass, across + ends.inertia)


def limit_force(
    q: Scalar, speed: Scalar, free: Scalar | float, inertia: Scalar | float, weight: float, bound: float, margin: float
) -> Scalar:
    """Force f = max(0, (a* + a₀)/(A + R)), towards 0, that MuJoCo adds where |q| > bound − margin.

    Counted outwards, δ is the depth beyond that threshold, a₀ = `free` the acceleration without f, and with i(δ) the
    impedance a* = k i δ + b δ̇, A = 1/`inertia` of q, R = `weight` (1 − i)/i, where `weight` is the `dof_invweight0`.
    This solves MuJoCo's convex problem when no other limit is active in the same kinematic tree.
    """
    side = jnp.sign(q)
    depth = margin - (bound - side * q)
    ramp = jnp.clip(depth / IMPEDANCE_WIDTH, 0.0, 1.0)
    ramp = jnp.where(ramp <= 0.5, 2 * ramp**2, 1 - 2 * (1 - ramp) ** 2)
    impedance = LEAST_IMPEDANCE + (MOST_IMPEDANCE - LEAST_IMPEDANCE) * ramp
    excess = STIFFNESS * impedance * depth + DAMPING * side * speed + side * free
    force = excess * impedance * inertia / (impedance + (1 - impedance) * weight * inertia)
    return jnp.where(depth > 0, -side * jnp.maximum(force, 0.0), 0.0)


def runge_kutta(
    pose: Callable[[Scalars], Scalars],
    acceleration: Callable[[Scalars, Scalars, Scalars], Scalars],
    q: Scalars,
    v: Scalars,
    timestep: float,
    steps: int,
) -> tuple[Scalars, Scalars]:
    """Positions and velocities after classical fourth-order steps of q̈ = acceleration(pose(q), q, q̇).

    One loop over all stages, and sines carried from stage to stage as `pose(q)`: inside one loop body XLA would fuse,
    hence evaluate, them again for every use, which makes the whole step two to three times slower.
    """
    n, dtype = len(q), q[0].dtype
    weight = jnp.tile(jnp.array([1 / 6, 1 / 3, 1 / 3, 1 / 6], dtype), steps) * timestep
    reach = jnp.tile(jnp.array([1 / 2, 1 / 2, 1, 0], dtype), steps) * timestep
    last = reach == 0

    def stage(carry: Stage, coefficients: tuple[Scalar, Scalar, Scalar]) -> tuple[Stage, None]:
        start, total, now, posed = carry
        weight, reach, last = coefficients
        slope = (*now[n:], *acceleration(posed, now[:n], now[n:]))
        total = tuple(y + weight * dy for y, dy in zip(total, slope, strict=True))
        now = tuple(jnp.where(last, y, y0 + reach * dy) for y, y0, dy in zip(total, start, slope, strict=True))
        start = tuple(jnp.where(last, y, y0) for y, y0 in zip(total, start, strict=True))
        return (start, total, now, pose(now[:n])), None

    x = (*q, *v)
    (end, _, _, _), _ = jax.lax.scan(stage, (x, x, x, pose(q)), (weight, reach, last))
    return end[:n], end[n:]


def gymnasium_spec(asset: str) -> Any:
    """The editable `mujoco.MjSpec` of a model shipped with Gymnasium."""
    import mujoco

    return mujoco.MjSpec.from_file(str(Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / asset))
