"""The safe pendulum on a grid: its Sauté MDP solved by dynamic programming, and the controller in the true dynamics."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from saute import budget as B
from saute.envs.safe_pendulum import Pendulum
from saute.exact import Mdp, mdp, minimal_budget, stages
from saute.runs.evaluate import Outcome

__all__ = [
    "Grid",
    "Plan",
    "discretise",
    "dual_values",
    "least_budget",
    "needed",
    "plan",
    "roll_out",
    "spend_least",
    "starts",
    "value_at",
]

Pair = tuple[Array, Array]
LOOKAHEAD = 41
"""Number of torques from which the controller chooses."""


class Grid(NamedTuple):
    """How many angles around the circle, speeds in ±8, torques in ±2, and steps of the remaining budget."""

    angles: int
    speeds: int
    torques: int
    levels: int


class Plan(NamedTuple):
    """V at every `stride`-th number of steps to go, for the remaining budgets 0, width, 2 width, …"""

    values: Float[Array, "slice angle speed level"]
    stride: int
    width: float
    unsafe_reward: float


def discretise(task: Pendulum, grid: Grid, width: float, price: float = 0.0) -> Mdp:
    """Each state moves to the grid points around its successor, with bilinear weights as probabilities, and earns r − λ l."""
    from scipy import sparse

    if min(grid.angles, grid.speeds, grid.torques) < 2 or grid.levels < 0:
        raise ValueError(f"{grid} needs at least 2 angles, speeds and torques, and at least 0 levels")
    angles = 2 * np.pi * np.arange(grid.angles) / grid.angles - np.pi
    speeds = np.linspace(-task.max_speed, task.max_speed, grid.speeds)
    x = np.stack(np.meshgrid(angles, speeds, indexing="ij"), -1).reshape(-1, 2)
    torques = np.linspace(-1.0, 1.0, grid.torques)[:, None]
    found = _transitions(task, grid.angles, grid.speeds, jnp.asarray(x, jnp.float32), jnp.asarray(torques, jnp.float32))
    corners, weights, reward, cost = map(np.asarray, found)
    begin, shape = np.arange(0, 4 * len(x) + 1, 4), (len(x), len(x))
    around = zip(corners, weights, strict=True)
    matrices = [sparse.csr_array((weight.ravel(), corner.ravel(), begin), shape=shape) for corner, weight in around]
    earned = (reward - np.float32(price) * cost).T
    return mdp(matrices, earned, cost.T / width if grid.levels else np.zeros_like(earned))


def plan(
    task: Pendulum, grid: Grid, largest_budget: float, unsafe_reward: float = 0.0, price: float = 0.0, stride: int = 10
) -> Plan:
    """Values for all budgets up to the largest; with 0 levels there is no budget, but each unit of cost has a price λ."""
    if not 0.0 < largest_budget < np.inf:
        raise ValueError(f"largest_budget={largest_budget} must be positive and finite, in the units of the cost")
    if not 1 <= stride <= task.horizon:
        raise ValueError(f"stride={stride} must be from 1 to the horizon {task.horizon}")
    width = largest_budget / max(1, grid.levels)
    problem = discretise(task, grid, width, price)
    shape = (grid.angles, grid.speeds, grid.levels + 1)
    kept = [np.zeros(shape, np.float32)]
    for done, value in enumerate(stages(problem, grid.levels, task.horizon, unsafe_reward), 1):
        if done % stride == 0 or done == task.horizon:
            kept.append(value.reshape(shape))
    return Plan(jnp.asarray(np.stack(kept)), stride, width, unsafe_reward)


def least_budget(task: Pendulum, grid: Grid) -> Float[np.ndarray, "times angle speed"]:
    """b*_t(s) of the grid for t = 0, …, T: the least budget with which the pendulum can still be safe."""
    problem = discretise(task, grid._replace(levels=1), 1.0)
    return minimal_budget(problem, task.horizon, interpolated=True).reshape(-1, grid.angles, grid.speeds)


def needed(task: Pendulum, needs: Float[np.ndarray, "angle speed"], x: Float[Array, "state 2"]) -> np.ndarray:
    """b* at any states, interpolated."""
    return np.asarray(_values_at(task, jnp.asarray(needs)[..., None], x, jnp.float32(0.0)))


@functools.partial(jax.jit, static_argnums=0)
def spend_least(task: Pendulum, needs: Float[Array, "times angle speed"], x: Float[Array, "episode 2"]) -> Array:
    """What episodes cost in the true dynamics if each step is the best one by b*: no less than the true least budget."""
    actions = jnp.linspace(-1.0, 1.0, LOOKAHEAD)[:, None]

    def step(x: Array, ahead: Array) -> Pair:
        def spent(action: Array) -> Array:
            following = task.advance(x, action)
            return task.cost(x, action, following) + _interpolate(task, ahead[..., None], following, jnp.float32(0.0))

        action = actions[jnp.argmin(jax.vmap(spent)(actions))]
        following = task.advance(x, action)
        return following, task.cost(x, action, following)

    return jax.vmap(lambda one: jax.lax.scan(step, one, needs[1:])[1].sum())(x)


def starts(task: Pendulum, episodes: int, seed: int = 0) -> Float[Array, "episode 2"]:
    """Test starts: θ = π ± .2, θ̇ = ± .1."""
    if episodes < 1:
        raise ValueError(f"episodes={episodes} must be at least 1")
    return jax.vmap(task.start)(jax.random.split(jax.random.key(seed), episodes))


def value_at(task: Pendulum, plan: Plan, x: Float[Array, "episode 2"], budget: float) -> np.ndarray:
    """V₀ of the grid, at the given starts with a budget."""
    return np.asarray(_values_at(task, plan.values[-1], x, jnp.float32(budget / plan.width)))


def roll_out(task: Pendulum, plan: Plan, x: Float[Array, "episode 2"], budget: float) -> Outcome:
    """Episodes in the true dynamics; the controller looks one step ahead: max_a r + V(x', w − l)."""
    returns, costs = _roll_out(task, plan.stride, plan._replace(stride=0), x, jnp.float32(budget))
    paid = np.asarray(costs)
    violated = ~B.safe(budget - paid)
    return Outcome(np.asarray(returns), paid, np.full(len(x), task.horizon), paid, violated)


def dual_values(
    task: Pendulum, grid: Grid, prices: Sequence[float], x: Float[Array, "episode 2"], budgets: Sequence[float]
) -> Float[np.ndarray, " budget"]:
    """The Lagrangian dual on the grid, mean over starts: min_λ max_π J(π) − λ (C(π) − d), for each budget d.

    In the limit of fine grids no policy that keeps d earns more; on a coarse grid, interpolation loses some of the value.
    """
    free = grid._replace(levels=0)
    of_price = [value_at(task, plan(task, free, 1.0, price=price, stride=task.horizon), x, np.inf) for price in prices]
    relaxed = np.stack(of_price)[None] + np.asarray(prices)[:, None] * np.asarray(budgets, float)[:, None, None]
    return relaxed.min(1).mean(1)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _transitions(
    task: Pendulum, angles: int, speeds: int, x: Float[Array, "state 2"], actions: Float[Array, "action 1"]
) -> tuple[Array, ...]:
    """For every action and state: the grid points around its successor, their weights, the reward and the cost."""

    def one(action: Float[Array, " 1"], x: Float[Array, " 2"]) -> tuple[Array, ...]:
        following = task.advance(x, action)
        corner, weight = _corners(task, angles, speeds, following)
        return corner, weight, task.reward(x, action, following), task.cost(x, action, following)

    return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(actions, x)


def _corners(task: Pendulum, angles: int, speeds: int, x: Float[Array, " 2"]) -> tuple[Array, Array]:
    """The numbers of the four grid points around a state, and their weights."""
    turn, speed = (x[0] + jnp.pi) / (2 * jnp.pi) * angles, (x[1] + task.max_speed) / (2 * task.max_speed) * (speeds - 1)
    i, j = jnp.floor(turn).astype(int), jnp.clip(jnp.floor(speed).astype(int), 0, speeds - 2)
    f, g = turn - i, speed - j
    corner = jnp.stack([(i + a) % angles * speeds + j + b for a in (0, 1) for b in (0, 1)])
    return corner, jnp.stack([p * q for p in (1 - f, f) for q in (1 - g, g)])


def _interpolate(task: Pendulum, value: Float[Array, "angle speed level"], x: Float[Array, " 2"], level: Array) -> Array:
    angles, speeds, count = value.shape
    corner, weight = _corners(task, angles, speeds, x)
    level = jnp.clip(level, 0, count - 1)
    low = jnp.floor(level).astype(int)
    rows = value.reshape(-1, count)
    below, above = rows[corner, low] @ weight, rows[corner, jnp.minimum(low + 1, count - 1)] @ weight
    return below + (level - low) * (above - below)


@functools.partial(jax.jit, static_argnums=0)
def _values_at(task: Pendulum, value: Float[Array, "angle speed level"], x: Float[Array, "episode 2"], level: Array) -> Array:
    return jax.vmap(lambda one: _interpolate(task, value, one, level))(x)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _roll_out(task: Pendulum, stride: int, plan: Plan, x: Float[Array, "episode 2"], budget: Array) -> tuple[Array, Array]:
    actions = jnp.linspace(-1.0, 1.0, LOOKAHEAD)[:, None]

    def step(carry: Pair, time: Array) -> tuple[Pair, Pair]:
        x, remaining = carry
        to_go = task.horizon - 1 - time
        ahead = plan.values[(to_go + stride - 1) // stride]

        def worth(action: Array) -> Array:
            following = task.advance(x, action)
            left = B.spend(remaining, task.cost(x, action, following))
            later = _interpolate(task, ahead, following, left / plan.width)
            kept = task.reward(x, action, following) + later
            return B.shape(kept, B.safe(left), plan.unsafe_reward * (to_go + 1))

        action = actions[jnp.argmax(jax.vmap(worth)(actions))]
        following = task.advance(x, action)
        cost = task.cost(x, action, following)
        return (following, B.spend(remaining, cost)), (task.reward(x, action, following), cost)

    def episode(x: Array) -> Pair:
        _, (rewards, costs) = jax.lax.scan(step, (x, budget), jnp.arange(task.horizon))
        return rewards.sum(), costs.sum()

    return jax.vmap(episode)(x)
