"""One step of many environments, and sums over their episodes; each episode carries its own budget, and counts when it ends."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Bool, Float, Int, PRNGKeyArray, PyTree, Shaped
from numpy.typing import ArrayLike

from saute import budget as B
from saute.core.masks import along
from saute.core.native import Sauted, spent, task_reward
from saute.core.options import Options
from saute.core.protocol import Env, Episodes, Step, Transition
from saute.core.sums import Sum, add
from saute.envs.from_gym import HostEnvs
from saute.learn.agent import Acted, Memory

__all__ = ["Stream", "advance", "advance_on_host", "begin", "begin_on_host", "bounded", "select"]


class Books(NamedTuple):
    """Sums over the running episodes, and the budget that each carries."""

    task_return: Sum
    cost: Sum
    spent: Sum
    remaining: Float[Any, "env ..."]
    """Of the ledger's budget; not looked at if each episode carries its own."""
    lost: Float[Any, "env ..."]
    """The part of their costs that rounding lost, still to be paid."""
    length: Int[Any, " env"]


class Stream(NamedTuple):
    """Where a batch of environments is."""

    state: PyTree
    obs: Float[Any, "env obs"]
    memory: Memory
    books: Books
    counts: Bool[Any, " env"]
    """Whether the running episode will be counted when it ends."""


def begin(
    env: Env, key: PRNGKeyArray, count: int, memory: Memory = (), ledger: Options | None = None, budget: Any = None
) -> Stream:
    """Fresh episodes; if a budget is given, sautéed ones begin with it."""
    keys = jax.random.split(key, count)
    state, obs = jax.vmap(_start(env, budget))(keys)
    action = jnp.asarray(np.zeros((count, *(env.action_space.shape or ())), env.action_space.dtype))
    cost = jax.eval_shape(lambda: jax.vmap(env.step)(state, action, keys).cost)
    return Stream(state, obs, memory, _opened(jnp.zeros(cost.shape, cost.dtype), ledger), jnp.ones(count, bool))


def begin_on_host(
    envs: HostEnvs,
    seed: int | list[int],
    memory: Memory = (),
    ledger: Options | None = None,
    budgets: np.ndarray | None = None,
) -> Stream:
    """Fresh episodes of Gymnasium's environments, seeded by one number, or by one each; with these budgets, if given."""
    obs, count = envs.reset(seed, budgets), envs.num_envs
    return Stream(envs.state, obs, memory, _opened(np.zeros((count, *envs.cost_shape)), ledger), np.ones(count, bool))


def advance(
    env: Env,
    stream: Stream,
    acted: Acted,
    blank: Memory,
    step_key: PRNGKeyArray,
    reset_key: PRNGKeyArray,
    ledger: Options | None = None,
    fresh: bool = True,
    budget: Any = None,
) -> tuple[Stream, Transition, Episodes]:
    """One step of all; an episode that ends is followed by the next one, but the transition has its own last observation."""
    count = len(stream.obs)
    step = jax.vmap(env.step)(stream.state, bounded(env.action_space, acted.action), jax.random.split(step_key, count))
    books, episodes = _booked(stream, step, ledger, budget is None)

    def restarted() -> Any:
        begun = jax.vmap(_start(env, budget))(jax.random.split(reset_key, count))
        opened = _opened(jnp.zeros_like(step.cost), ledger)
        return select(episodes.ended, (*begun, blank, opened), (step.state, step.obs, acted.memory, books))

    # Most steps end no episode, and drawing starts that nobody needs would take longer than the physics.
    state, obs, memory, books = jax.lax.cond(
        episodes.ended.any(), restarted, lambda: (step.state, step.obs, acted.memory, books)
    )
    counts = stream.counts & ~episodes.ended if fresh else stream.counts
    return Stream(state, obs, memory, books, counts), _transition(stream, acted, step), episodes


def advance_on_host(
    envs: HostEnvs,
    stream: Stream,
    acted: Acted,
    blank: Memory,
    ledger: Options | None,
    fresh: bool,
    budgets: np.ndarray | None = None,
) -> tuple[Stream, Transition, Episodes]:
    """The same in Gymnasium's environments, which we reset ourselves, after the transition has been recorded."""
    acted = acted._replace(action=np.asarray(acted.action))
    step = envs.step(bounded(envs.action_space, acted.action))
    books, episodes = _booked(stream, step, ledger, budgets is None)
    rows = jax.tree.map(_single, _transition(stream, acted, step))
    state, obs, memory = step.state, step.obs, acted.memory
    if episodes.ended.any():
        obs = envs.restart(episodes.ended, budgets)
        state = envs.state
        books = select(episodes.ended, _opened(np.zeros_like(step.cost), ledger), books)
        memory = select(episodes.ended, blank, memory)
    counts = stream.counts & ~episodes.ended if fresh else stream.counts
    return Stream(state, obs, memory, books, counts), rows, episodes


def bounded(space: spaces.Space[Any], action: Shaped[Any, "env ..."]) -> Shaped[Any, "env ..."]:
    """The action that the environment is given: within its bounds, discrete ones counted from the space's `start`.

    Learners store the action that they chose, not this one.
    """
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return action + space.start.astype(action.dtype) if np.any(space.start) else action
    if not isinstance(space, spaces.Box):
        return action
    clip = np.clip if isinstance(action, np.ndarray) else jnp.clip
    return clip(action, space.low.astype(action.dtype), space.high.astype(action.dtype))


def _start(env: Any, budget: Any) -> Callable[[PRNGKeyArray], tuple[PyTree, Any]]:
    """The beginning of an episode, if it is sautéed with a given budget."""
    return env.reset if budget is None else functools.partial(env.reset, budget=budget)


def _opened(zero: Float[Any, "env ..."], ledger: Options | None) -> Books:
    """The books of fresh episodes; `zero` has the shape of the costs."""
    if ledger is not None and ledger.budget_shape != zero.shape[1:]:
        have, want = (f"{shape[0]} numbers" if shape else "one number" for shape in (ledger.budget_shape, zero.shape[1:]))
        raise ValueError(f"the budget is {have}, but the cost of a step is {want}; give one budget per cost")
    flat = zero.reshape(len(zero), -1)[:, 0]
    remaining = zero + (np.inf if ledger is None else ledger.high)
    length = flat.astype(np.int32)
    return Books(Sum(flat, flat), Sum(zero, zero), Sum(zero, zero), remaining.astype(zero.dtype), zero, length)


def _booked(stream: Stream, step: Step, ledger: Options | None, full: bool) -> tuple[Books, Episodes]:
    """The books after a step, and what they say of the episodes up to it.

    Sautéed episodes are held against the budget that they carry, unless that is not their full one: then, as others, against
    that of the ledger.
    """
    books, own = stream.books, step.state if full and isinstance(step.state, Sauted) else None
    discount = 1.0 if ledger is None else ledger.discount
    cost = add(books.cost, step.cost)
    now = along(discount**books.length, step.cost) * step.cost if discount != 1.0 else step.cost
    remaining, lost = books.remaining, books.lost
    if own:
        remaining, lost = own.remaining, own.lost
    elif ledger is not None:
        remaining, lost = spent(remaining, lost, step.cost, discount)
    books = Books(
        task_return=add(books.task_return, task_reward(step)),
        cost=cost,
        spent=cost if discount == 1.0 else add(books.spent, now),
        remaining=remaining,
        lost=lost,
        length=books.length + 1,
    )
    ended = step.terminated | step.truncated
    each = ~B.safe(remaining)
    violated = each.reshape(len(ended), -1).any(1)
    totals = (books.task_return.total, books.cost.total, books.spent.total)
    several = each if each.ndim > 1 else None
    return books, Episodes(ended, ended & stream.counts, *totals, violated, books.length, several)


def _transition(stream: Stream, acted: Acted, step: Step) -> Transition:
    """What a learner sees of a step."""
    own = isinstance(step.state, Sauted)
    none = stream.obs[:, :0]
    return Transition(
        obs=stream.obs,
        action=acted.action,
        reward=step.reward,
        task_reward=task_reward(step),
        cost=step.cost,
        next_obs=step.obs,
        remaining=stream.state.remaining if own else none,
        next_remaining=step.state.remaining if own else none,
        terminated=step.terminated,
        truncated=step.truncated,
        extras=acted.extras,
    )


def select(mask: Bool[Any, " env"], new: PyTree, old: PyTree) -> PyTree:
    """New rows where the mask holds, old ones elsewhere."""
    where = np.where if isinstance(mask, np.ndarray) else jnp.where
    return jax.tree.map(lambda a, b: where(along(mask, b), a, b), new, old)


def _single(leaf: ArrayLike) -> np.ndarray:
    """As learners take it: floats in single precision."""
    array = np.asarray(leaf)
    return array.astype(np.float32) if array.dtype == np.float64 else array
