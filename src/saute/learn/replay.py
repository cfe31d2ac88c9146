"""A ring of past transitions, without budget shaping: w' = (w − l)/γ is known, so each is true for every remaining budget."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from saute import budget as B
from saute.core.options import Options

__all__ = ["Batch", "Replay", "Rows", "add", "create", "relabel", "sample", "sauted"]


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

    rows: Any
    position: Int[Array, ""]
    size: Int[Array, ""]

    @property
    def capacity(self) -> int:
        return jax.tree.leaves(self.rows)[0].shape[0]


def create(example: Any, capacity: int) -> Replay:
    """An empty ring for rows like the example, which is one row without the leading axis."""
    rows = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), example)
    return Replay(rows, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))


def add(replay: Replay, rows: Any) -> Replay:
    """The ring with these rows after the last ones, over the oldest ones once it is full."""
    count, capacity = jax.tree.leaves(rows)[0].shape[0], replay.capacity
    if count > capacity:
        raise ValueError(f"{count} rows do not fit a replay of {capacity}; make its capacity at least {count}")
    places = (replay.position + jnp.arange(count, dtype=jnp.int32)) % capacity

    def put(column: Array, new: Array) -> Array:
        return column.at[places].set(new, unique_indices=True, mode="promise_in_bounds")

    written = jax.tree.map(put, replay.rows, rows)
    return Replay(written, (replay.position + count) % capacity, jnp.minimum(replay.size + count, capacity))


def sample(replay: Replay, key: PRNGKeyArray, count: int) -> Any:
    """Rows drawn uniformly, with repetition, from those that are filled."""
    chosen = jax.random.randint(key, (count,), 0, replay.size)
    return jax.tree.map(lambda column: column.at[chosen].get(mode="promise_in_bounds"), replay.rows)


def relabel(rows: Rows, key: PRNGKeyArray, options: Options, low: Any, high: Any) -> Rows:
    """The same transitions with other budgets: w ~ U[low, high) and w' = (w − l)/γ."""
    u = jax.random.uniform(key, rows.remaining.shape, rows.remaining.dtype)
    remaining = jnp.asarray(low, u.dtype) + (jnp.asarray(high, u.dtype) - jnp.asarray(low, u.dtype)) * u
    return rows._replace(remaining=remaining, next_remaining=B.spend(remaining, rows.cost, options.discount))


def sauted(rows: Rows, options: Options | None) -> Batch:
    """What a sautéed environment would have given: z = w/d_ref observed, r̃ = r if w' ≥ 0 else n; without options, the rows."""
    if options is None:
        return Batch(rows.obs, rows.action, rows.task_reward, rows.cost, rows.next_obs, rows.terminated)
    is_safe = B.safe(rows.next_remaining).reshape(len(rows.terminated), -1).all(axis=1)

    def observe(obs: Array, remaining: Array) -> Array:
        if not options.augment:
            return obs
        z = B.observe(remaining, options.reference).astype(obs.dtype)
        return jnp.concatenate([obs, z.reshape(len(obs), -1)], axis=1)

    return Batch(
        obs=observe(rows.obs, rows.remaining),
        action=rows.action,
        reward=B.shape(rows.task_reward, is_safe, options.unsafe_reward) if options.shape else rows.task_reward,
        cost=rows.cost,
        next_obs=observe(rows.next_obs, rows.next_remaining),
        terminated=rows.terminated | ~is_safe if options.terminate else rows.terminated,
    )
