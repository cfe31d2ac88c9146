"""A ring of past transitions before shaping: since w' = (w − l)/γ is known, each can be used with any remaining budget."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped, UInt8, UInt32
from numpy.typing import ArrayLike

from saute import budget as B
from saute.core.encoder import Image, pixels_of
from saute.core.options import Options
from saute.core.protocol import Transition

__all__ = [
    "Batch",
    "Replay",
    "Rows",
    "add",
    "create",
    "lots",
    "observed",
    "picked",
    "relabel_half",
    "row_like",
    "sample",
    "sauted",
    "stored",
]


class Pictured(NamedTuple):
    """Observations that begin with a picture, whose pixels take one byte each."""

    pixels: UInt8[Array, "*row pixel"]
    others: Float[Array, "*row other"]


class Rows(NamedTuple):
    """Transitions of the bare environment, and separately the remaining budgets before and after them (w, w')."""

    obs: PyTree[Shaped[Array, "row ..."]]
    """Numbers in one array, or `Pictured`."""
    remaining: Float[Array, "row ..."]
    action: Shaped[Array, "row ..."]
    task_reward: Float[Array, " row"]
    cost: Float[Array, "row ..."]
    next_obs: PyTree[Shaped[Array, "row ..."]]
    next_remaining: Float[Array, "row ..."]
    terminated: Bool[Array, " row"]


class Batch(NamedTuple):
    """Transitions as a learner sees them: augmented observations and the shaped reward."""

    obs: Float[Array, "row sauted"]
    action: Shaped[Array, "row ..."]
    reward: Float[Array, " row"]
    cost: Float[Array, "row ..."]
    next_obs: Float[Array, "row sauted"]
    terminated: Bool[Array, " row"]


class Replay(NamedTuple):
    """Arrays with `capacity` rows; `size` rows are filled, and the next row is written at `position`."""

    rows: PyTree
    position: Int[Array, ""]
    size: Int[Array, ""]

    @property
    def capacity(self) -> int:
        return jax.tree.leaves(self.rows)[0].shape[0]


def row_like(
    observations: int,
    action: Shaped[Array, "*action"],
    options: Options | None,
    cost_shape: tuple[int, ...] = (),
    image: Image = None,
) -> Rows:
    """One row of zeros, for observations of the bare environment, and actions like this one; sautéed, with budgets."""
    obs, scalar = packed(jnp.zeros(observations), image), jnp.zeros(())
    cost = jnp.zeros(cost_shape if options is None else options.budget_shape)
    remaining = jnp.zeros(0) if options is None else cost
    return Rows(obs, remaining, action, scalar, cost, obs, remaining, jnp.zeros((), bool))


def packed(obs: Float[Array, "*row obs"], image: Image) -> Float[Array, "*row obs"] | Pictured:
    """As the replay keeps observations: those that begin with a picture have its pixels as whole numbers from 0 to 255."""
    if image is None:
        return obs
    pixels = jnp.clip(jnp.round(obs[..., : pixels_of(image)]), 0, 255).astype(jnp.uint8)
    return Pictured(pixels, obs[..., pixels_of(image) :])


def unpacked(obs: Float[Array, "*row obs"] | Pictured) -> Float[Array, "*row obs"]:
    """As nets take them."""
    if not isinstance(obs, Pictured):
        return obs
    return jnp.concatenate([obs.pixels.astype(obs.others.dtype), obs.others], axis=-1)


def stored(moved: Transition, action: Shaped[Array, "row ..."], options: Options | None, image: Image = None) -> Rows:
    """A step as the replay keeps it: without z in the observations, and with the reward before shaping."""
    bare = slice(None) if options is None or not options.augment else slice(-options.constraints)
    return Rows(
        obs=packed(moved.obs[:, bare], image),
        remaining=moved.remaining,
        action=action,
        task_reward=moved.task_reward,
        cost=moved.cost,
        next_obs=packed(moved.next_obs[:, bare], image),
        next_remaining=moved.next_remaining,
        terminated=moved.terminated,
    )


def create(example: PyTree, capacity: int) -> Replay:
    """An empty ring for rows like the example, a single row without a leading axis."""
    rows = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), example)
    return Replay(rows, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))


def add(replay: Replay, rows: PyTree) -> Replay:
    """The ring with these rows added; once it is full, they replace the oldest rows."""
    count, capacity = jax.tree.leaves(rows)[0].shape[0], replay.capacity
    if count > capacity:
        raise ValueError(f"{count} rows do not fit a replay of {capacity}; make its capacity at least {count}")
    places = (replay.position + jnp.arange(count, dtype=jnp.int32)) % capacity

    def put(column: Array, new: Array) -> Array:
        return column.at[places].set(new, unique_indices=True, mode="promise_in_bounds")

    written = jax.tree.map(put, replay.rows, rows)
    return Replay(written, (replay.position + count) % capacity, jnp.minimum(replay.size + count, capacity))


def sample(replay: Replay, key: PRNGKeyArray, count: int) -> PyTree:
    """Rows drawn uniformly, with replacement, from the filled ones."""
    return picked(replay, lots(key, count))


def lots(key: PRNGKeyArray, count: int) -> UInt32[Array, "half row"]:
    """The random bits of rows: 64 of each, so that every row of a ring is as likely; they can be drawn before it is filled."""
    return jax.vmap(lambda half: jax.random.bits(half, (count,)))(jax.random.split(key))


def picked(replay: Replay, drawn: UInt32[Array, "half row"]) -> PyTree:
    """The filled rows that these bits stand for: their remainder, as in `jax.random.randint(key, (count,), 0, replay.size)`."""
    size, (high, low) = jnp.maximum(replay.size, 1).astype(jnp.uint32), drawn
    carry = (2**16 % size) ** 2 % size
    chosen = ((high % size * carry + low % size) % size).astype(jnp.int32)
    return jax.tree.map(lambda column: column.at[chosen].get(mode="promise_in_bounds"), replay.rows)


def relabel(rows: Rows, key: PRNGKeyArray, options: Options, low: ArrayLike, high: ArrayLike) -> Rows:
    """The same transitions with other budgets: w ~ U[low, high) and w' = (w − l)/γ."""
    u = jax.random.uniform(key, rows.remaining.shape, rows.remaining.dtype)
    remaining = jnp.asarray(low, u.dtype) + (jnp.asarray(high, u.dtype) - jnp.asarray(low, u.dtype)) * u
    return rows._replace(remaining=remaining, next_remaining=B.spend(remaining, rows.cost, options.discount))


def relabel_half(rows: Rows, key: PRNGKeyArray, options: Options, overdraft: float) -> Rows:
    """The rows, every second one with a new remaining budget: w ~ U[−overdraft, 1) · (largest budget)."""
    fresh = relabel(rows, key, options, -overdraft * options.high, options.high)
    return jax.tree.map(lambda own, other: jnp.concatenate([own[::2], other[1::2]]), rows, fresh)


def observed(obs: Float[Array, "row obs"], remaining: Float[Array, "row ..."], options: Options | None) -> Array:
    """What a policy sees: the observation, followed by z = w/d_ref if there is a budget and it is observed."""
    if options is None or not options.augment:
        return obs
    z = B.observe(remaining, options.reference).astype(obs.dtype)
    return jnp.concatenate([obs, z.reshape(len(obs), -1)], axis=1)


def sauted(rows: Rows, options: Options | None) -> Batch:
    """The batch of a sautéed environment: z = w/d_ref observed, r̃ = r if w' ≥ 0 else n; without options, of a bare one."""
    if options is None:
        seen = unpacked(rows.obs), unpacked(rows.next_obs)
        return Batch(seen[0], rows.action, rows.task_reward, rows.cost, seen[1], rows.terminated)
    is_safe = B.safe(rows.next_remaining).reshape(len(rows.terminated), -1).all(axis=1)

    return Batch(
        obs=observed(unpacked(rows.obs), rows.remaining, options),
        action=rows.action,
        reward=B.shape(rows.task_reward, is_safe, options.unsafe_reward) if options.shape else rows.task_reward,
        cost=rows.cost,
        next_obs=observed(unpacked(rows.next_obs), rows.next_remaining, options),
        terminated=rows.terminated | ~is_safe if options.terminate else rows.terminated,
    )
