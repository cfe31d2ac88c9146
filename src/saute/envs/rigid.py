"""Rigid bodies, moved as MuJoCo moves them: inertias, soft joint limits, Runge–Kutta steps (Todorov et al. 2012)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from math import cos, sin
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import gymnasium
import jax.numpy as jnp
from jaxtyping import Array, Float

from saute.envs.formula import clip, maximum, repeated, sign, where
from saute.envs.task import Scalar

__all__ = ["Body", "Real", "Scalars", "capsule", "gymnasium_spec", "limit_force", "runge_kutta", "sin_cos", "sphere"]

Scalars = Sequence[Scalar]
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
    if isinstance(q, float) and margin - (bound - abs(q)) <= 0:
        return 0.0
    side = sign(q)
    depth = margin - (bound - side * q)
    ramp = clip(depth / IMPEDANCE_WIDTH, 0.0, 1.0)
    ramp = where(ramp <= 0.5, 2 * (ramp * ramp), 1 - 2 * ((1 - ramp) * (1 - ramp)))
    impedance = LEAST_IMPEDANCE + (MOST_IMPEDANCE - LEAST_IMPEDANCE) * ramp
    excess = STIFFNESS * impedance * depth + DAMPING * side * speed + side * free
    force = excess * impedance * inertia / (impedance + (1 - impedance) * weight * inertia)
    return where(depth > 0, -side * maximum(0.0, force), 0.0)


Angles = Float[Array, "*shape"]
if not TYPE_CHECKING:
    Angles = Angles | float


def sin_cos(x: Angles) -> tuple[Angles, Angles]:
    """sin x and cos x to the precision of x; in compiled code by their power series about the nearest multiple of π.

    On a CPU, XLA evaluates its own sin and cos number by number, with branches, and again for every use: with them a step of
    the double pendulum takes three to four times as long.
    """
    if isinstance(x, float):
        return sin(x), cos(x)
    turns = jnp.round(x * (1 / math.pi))
    # π is split into a short part, whose product is exact, and a rest, so that the difference loses no digits.
    r = x - turns * 3.140625 - turns * (math.pi - 3.140625)
    precision = float(jnp.finfo(x.dtype).eps) / 4
    order = next(n for n in itertools.count(2, 2) if (math.pi / 2) ** n / math.factorial(n) < precision)
    square, s, c = r * r, jnp.ones_like(r), jnp.ones_like(r)
    for n in range(order, 0, -2):
        s = 1 - square * s * (1 / (n * (n + 1)))
        c = 1 - square * c * (1 / (n * (n - 1)))
    flip = 1 - 2 * (turns - 2 * jnp.floor(turns / 2))
    return flip * r * s, flip * c


def runge_kutta(slope: Callable[[Scalars], Scalars], state: Scalars, timestep: float, steps: int) -> Scalars:
    """The state after classical fourth-order Runge–Kutta steps of d state/dt = slope(state)."""

    half = timestep / 2

    # To check that lengths agree would take a twentieth of the time of a step with floats.
    def step(state: Scalars) -> Scalars:
        k1 = slope(state)
        k2 = slope([y + half * k for y, k in zip(state, k1)])  # noqa: B905
        k3 = slope([y + half * k for y, k in zip(state, k2)])  # noqa: B905
        k4 = slope([y + timestep * k for y, k in zip(state, k3)])  # noqa: B905
        return tuple([y + timestep * ((a + 2 * (b + c) + d) / 6) for y, a, b, c, d in zip(state, k1, k2, k3, k4)])  # noqa: B905

    return repeated(steps, step, state)


def gymnasium_spec(asset: str) -> Any:
    """The editable `mujoco.MjSpec` of a model that comes with Gymnasium."""
    import mujoco

    file = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / asset
    if not file.is_file():
        raise FileNotFoundError(
            f"Gymnasium {gymnasium.__version__} has no robot {asset}; install one that does: pip install 'gymnasium>=1.1'"
        )
    return mujoco.MjSpec.from_file(str(file))
