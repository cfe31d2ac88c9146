"""A ring of past transitions, without budget shaping: w' = (w − l)/γ is known, so each is true for every remaining budget."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree
from numpy.typing import ArrayLike

from saute import budget as B
from saute.core.options import Options
from saute.core.protocol import Transition

__all__ = ["Batch", "Replay", "Rows", "add", "create", "observed", "relabel_half", "row_like", "sample", "sauted", "stored"]


class Rows(NamedTuple):
    """Transitions of the bare environment, and apart from them the remaining budgets before and after (w, w')."""

    obs: Float[Array, "row obs"]
    remaining: Float[Array, "row ..."]
    action: Float[Array, "row action"]
    task_reward: Float[Array, " row"]
    cost: Float[Array, "row ..."]
    next_obs: Float[Array, "row obs"]
    next_remaining: Float[Array, "row ..."]
    terminated: Bool[Array, " row"]


class Batch(NamedTuple):
    """Transitions as a learner sees them: augmented observations and the shaped reward."""

    obs: Float[Array, "row sauted"]
    action: Float[Array, "row action"]
    reward: Float[Array, " row"]
    cost: Float[Array, "row ..."]
    next_obs: Float[Array, "row sauted"]
    terminated: Bool[Array, " row"]


class Replay(NamedTuple):
    """Arrays with `capacity` rows, of which `size` are filled; the next one goes to `position`."""

    rows: PyTree
    position: Int[Array, ""]
    size: Int[Array, ""]

    @property
    def capacity(self) -> int:
        return jax.tree.leaves(self.rows)[0].shape[0]


def row_like(observations: int, actions: int, options: Options | None, cost_shape: tuple[int, ...] = ()) -> Rows:
    """One empty row, for observations of the bare environment; sautéed, it has a budget for each cost."""
    obs, scalar = jnp.zeros(observations), jnp.zeros(())
    cost = jnp.zeros(cost_shape if options is None else options.budget_shape)
    remaining = jnp.zeros(0) if options is None else cost
    return Rows(obs, remaining, jnp.zeros(actions), scalar, cost, obs, remaining, jnp.zeros((), bool))


def stored(moved: Transition, action: Float[Array, "row action"], options: Options | None) -> Rows:
    """A step as the replay keeps it: without z in the observations, and with the reward before shaping."""
    bare = slice(None) if options is None or not options.augment else slice(-options.constraints)
    return Rows(
        obs=moved.obs[:, bare],
        remaining=moved.remaining,
        action=action,
        task_reward=moved.task_reward,
        cost=moved.cost,
        next_obs=moved.next_obs[:, bare],
        next_remaining=moved.next_remaining,
        terminated=moved.terminated,
    )


def create(example: PyTree, capacity: int) -> Replay:
    """An empty ring for rows like the example, which is one row without the leading axis."""
    rows = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), example)
    return Replay(rows, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))


def add(replay: Replay, rows: PyTree) -> Replay:
    """The ring with these rows after the last ones, over the oldest ones once it is full."""
    count, capacity = jax.tree.leaves(rows)[0].shape[0], replay.capacity
    if count > capacity:
        raise ValueError(f"{count} rows do not fit a replay of {capacity}; make its capacity at least {count}")
    places = (replay.position + jnp.arange(count, dtype=jnp.int32)) % capacity

    def put(column: Array, new: Array) -> Array:
        return column.at[places].set(new, unique_indices=True, mode="promise_in_bounds")

    written = jax.tree.map(put, replay.rows, rows)
    return Replay(written, (replay.position + count) % capacity, jnp.minimum(replay.size + count, capacity))


def sample(replay: Replay, key: PRNGKeyArray, count: int) -> PyTree:
    """Rows drawn uniformly, with repetition, from those that are filled."""
    chosen = jax.random.randint(key, (count,), 0, replay.size)
    return jax.tree.map(lambda column: column.at[chosen].get(mode="promise_in_bounds"), replay.rows)


def relabel(rows: Rows, key: PRNGKeyArray, options: Options, low: ArrayLike, high: ArrayLike) -> Rows:
    """The same transitions with other budgets: w ~ U[low, high) and w' = (w − l)/γ."""
    u = jax.random.uniform(key, rows.remaining.shape, rows.remaining.dtype)
    remaining = jnp.asarray(low, u.dtype) + (jnp.asarray(high, u.dtype) - jnp.asarray(low, u.dtype)) * u
    return rows._replace(remaining=remaining, next_remaining=B.spend(remaining, rows.cost, options.discount))


def relabel_half(rows: Rows, key: PRNGKeyArray, options: Options, overdraft: float) -> Rows:
    """Every second row with a fresh budget, w ~ U[−overdraft, 1) · (largest budget)."""
    fresh = relabel(rows, key, options, -overdraft * options.high, options.high)
    return jax.tree.map(lambda own, other: jnp.concatenate([own[::2], other[1::2]]), rows, fresh)


def observed(obs: Float[Array, "row obs"], remaining: Float[Array, "row ..."], options: Options | None) -> Array:
    """What a policy sees: z = w/d_ref after the observation, if there is a budget and it is shown."""
    if options is None or not options.augment:
        return obs
    z = B.observe(remaining, options.reference).astype(obs.dtype)
    return jnp.concatenate([obs, z.reshape(len(obs), -1)], axis=1)


def sauted(rows: Rows, options: Options | None) -> Batch:
    """What a sautéed environment would have given: z = w/d_ref observed, r̃ = r if w' ≥ 0 else n; without options, the rows."""
    if options is None:
        return Batch(rows.obs, rows.action, rows.task_reward, rows.cost, rows.next_obs, rows.terminated)
    is_safe = B.safe(rows.next_remaining).reshape(len(rows.terminated), -1).all(axis=1)

    return Batch(
        obs=observed(rows.obs, rows.remaining, options),
        action=rows.action,
        reward=B.shape(rows.task_reward, is_safe, options.unsafe_reward) if options.shape else rows.task_reward,
        cost=rows.cost,
        next_obs=observed(rows.next_obs, rows.next_remaining, options),
        terminated=rows.terminated | ~is_safe if options.terminate else rows.terminated,
    )
