"""Rigid bodies the way MuJoCo moves them: inertias, soft joint limits, Runge–Kutta steps (Todorov et al. 2012)."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp

from saute.envs.task import Scalar

__all__ = ["Body", "capsule", "gymnasium_spec", "limit_force", "runge_kutta", "sphere"]

DENSITY = 1000.0
"""MuJoCo's default density of a geom, that of water."""

TIME_CONSTANT = 0.02
"""Default `solref`: critically damped with this time constant, which is also twice the timestep of both models."""

LEAST_IMPEDANCE, MOST_IMPEDANCE, IMPEDANCE_WIDTH = 0.9, 0.95, 0.001
"""Default `solimp`: the impedance climbs from the first to the second over this depth."""

STIFFNESS = 1.0 / (MOST_IMPEDANCE * TIME_CONSTANT) ** 2
DAMPING = 2.0 / (MOST_IMPEDANCE * TIME_CONSTANT)

Scalars = tuple[Scalar, ...]


class Body(NamedTuple):
    """Mass of a geom, and its inertia about an axis through the centre (of a capsule: across its length)."""

    mass: float
    inertia: float


def sphere(radius: float) -> Body:
    """m = 4/3 πρr³, I = 2/5 mr²."""
    mass = DENSITY * math.pi * 4 / 3 * radius**3
    return Body(mass, 0.4 * mass * radius**2)


def capsule(radius: float, length: float) -> Body:
    """Cylinder of length L between two half spheres: I = m_c (3r² + L²)/12 + m_s (2/5 r² + L²/4 + 3/8 Lr)."""
    ends = sphere(radius)
    cylinder = DENSITY * math.pi * radius**2 * length
    across = cylinder * (3 * radius**2 + length**2) / 12
    return Body(
        cylinder + ends.mass, across + ends.inertia + ends.mass * (length**2 / 4 + 3 / 8 * length * radius)
    )


def limit_force(
    q: Scalar, speed: Scalar, free: Scalar, inertia: Scalar | float, weight: float, bound: float, margin: float = 0.0
) -> Scalar:
    """Force that keeps |q| ≤ bound: f = max(0, (a* − J a₀)/(A + R)) towards 0, once the gap is below the margin.

    With δ the depth into the margin and i = i(δ) the impedance, a* = k i δ − b δ̇, A = 1/inertia and R = A₀ (1 − i)/i.
    `free` is the acceleration a₀ without the limit, `inertia` the effective one of q, `weight` = A₀ that of the
    reference pose inverted (MuJoCo's `dof_invweight0`). It solves MuJoCo's convex problem where q is the only active
    limit of its kinematic tree.
    """
    side = jnp.where(q < 0, -1.0, 1.0).astype(q.dtype)
    depth = margin - (bound - side * q)
    ramp = jnp.clip(depth / IMPEDANCE_WIDTH, 0.0, 1.0)
    ramp = jnp.where(ramp <= 0.5, 2 * ramp**2, 1 - 2 * (1 - ramp) ** 2)
    impedance = LEAST_IMPEDANCE + (MOST_IMPEDANCE - LEAST_IMPEDANCE) * ramp
    reference = STIFFNESS * impedance * depth + DAMPING * side * speed
    force = (reference + side * free) * impedance * inertia / (impedance + (1 - impedance) * weight * inertia)
    return jnp.where(depth > 0, -side * jnp.maximum(force, 0.0), 0.0)


def runge_kutta(
    acceleration: Callable[[Scalars, Scalars], Scalars], q: Scalars, v: Scalars, timestep: float, steps: int
) -> tuple[Scalars, Scalars]:
    """Positions and velocities after classical fourth-order steps of q̈ = acceleration(q, q̇)."""

    def along(start: Scalars, slope: Scalars, h: float) -> Scalars:
        return tuple(s + h * d for s, d in zip(start, slope, strict=True))

    def mean(k1: Scalars, k2: Scalars, k3: Scalars, k4: Scalars) -> Scalars:
        return tuple((a + 2 * (b + c) + d) / 6 for a, b, c, d in zip(k1, k2, k3, k4, strict=True))

    def step(_: int, state: tuple[Scalars, Scalars]) -> tuple[Scalars, Scalars]:
        q, v1 = state
        a1 = acceleration(q, v1)
        v2 = along(v1, a1, timestep / 2)
        a2 = acceleration(along(q, v1, timestep / 2), v2)
        v3 = along(v1, a2, timestep / 2)
        a3 = acceleration(along(q, v2, timestep / 2), v3)
        v4 = along(v1, a3, timestep)
        a4 = acceleration(along(q, v3, timestep), v4)
        return along(q, mean(v1, v2, v3, v4), timestep), along(v1, mean(a1, a2, a3, a4), timestep)

    return jax.lax.fori_loop(0, steps, step, (q, v))


def gymnasium_spec(asset: str) -> Any:
    """The `mujoco.MjSpec` of a model shipped with Gymnasium."""
    import mujoco

    return mujoco.MjSpec.from_file(str(Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / asset))
