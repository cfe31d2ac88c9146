"""Environments of other JAX libraries as an `Env`: flat observations, a cost found where the user says, whole episodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree
from numpy.typing import ArrayLike

from saute.core.cost import CostSource, check_source
from saute.core.protocol import Step

__all__ = ["ForeignEnv", "Moved", "Running", "adapted", "pick"]

CostFunction = Callable[[Any, Any, Any, Any], Any]


class Moved(NamedTuple):
    """One transition as a library gives it; `terminated` says nothing of time limits."""

    state: PyTree
    obs: PyTree
    reward: Any
    terminated: Any
    info: Mapping[str, Any]


class Running(NamedTuple):
    """State of a `ForeignEnv`: the library's own, its last observation as the library gives it, and the steps so far."""

    state: PyTree
    obs: PyTree
    time: Int[Any, ""]


@dataclasses.dataclass(frozen=True, eq=False)
class ForeignEnv:
    """An environment of another library, which never resets itself: its `done` terminates, our horizon truncates."""

    name: str
    begin: Callable[[Array], tuple[PyTree, PyTree]]
    """Raw key → state, observation."""
    advance: Callable[[PyTree, Array, Array], Moved]
    """State, action, raw key → transition."""
    view: Callable[[PyTree], PyTree]
    """What a policy sees of an observation."""
    cost: CostFunction
    horizon: int
    observation_space: spaces.Box
    action_space: spaces.Space[Any]
    cost_shape: tuple[int, ...]

    def reset(self, key: PRNGKeyArray) -> tuple[Running, Float[Array, " obs"]]:
        # Raw keys, because these libraries keep them in their states, and raw ones can be saved like any other array.
        state, obs = jax.tree.map(_strong, self.begin(jax.random.key_data(key)))
        return Running(state, obs, jnp.zeros((), jnp.int32)), flat(self.view(obs))

    def step(self, state: Running, action: Array, key: PRNGKeyArray) -> Step:
        moved, time = self.advance(state.state, action, jax.random.key_data(key)), state.time + 1
        cost = jnp.asarray(self.cost(state.obs, action, moved.obs, moved.info), _float())
        terminated = jnp.asarray(moved.terminated).astype(bool).reshape(())
        return Step(
            state=Running(_like(state.state, moved.state), _like(state.obs, moved.obs), time),
            obs=flat(self.view(moved.obs)),
            reward=jnp.asarray(moved.reward, _float()).reshape(()),
            # Compiled code cannot raise; what is not a number stops training, while a negative cost would refill the budget.
            cost=jnp.where(cost >= 0.0, cost, jnp.nan),
            terminated=terminated,
            truncated=(time >= self.horizon) & ~terminated,
        )


def adapted(
    name: str,
    begin: Callable[[Array], tuple[PyTree, PyTree]],
    advance: Callable[[PyTree, Array, Array], Moved],
    cost: CostSource,
    horizon: int,
    action_space: spaces.Space[Any],
    view: Callable[[PyTree], PyTree] = lambda obs: obs,
) -> ForeignEnv:
    """The `Env`, after one step of it has been traced, not computed: what does not fit is refused here."""
    if isinstance(horizon, bool) or not isinstance(horizon, int | np.integer) or horizon < 1:
        raise ValueError(f"horizon={horizon!r} must be a whole number ≥ 1: the steps after which an episode is truncated")
    read = _reader(cost)
    key = jax.random.key_data(jax.random.key(0))
    action = np.zeros(action_space.shape or (), action_space.dtype)
    state, obs = jax.eval_shape(begin, key)
    moved = jax.eval_shape(lambda state, key: advance(state, jnp.asarray(action), key), state, key)
    _check_same((state, obs), (moved.state, moved.obs), name)
    paid = jax.eval_shape(lambda *step: _asarray(read(*step), cost), obs, action, moved.obs, moved.info)
    if paid.ndim > 1:
        raise ValueError(f"cost={cost!r} has shape {paid.shape}; give one number, or a vector with one per constraint")
    size = jax.eval_shape(lambda obs: flat(view(obs)), obs).size
    seen = spaces.Box(-np.inf, np.inf, (size,), np.float32)
    return ForeignEnv(name, begin, advance, view, read, int(horizon), seen, action_space, paid.shape)


def pick(tree: object, key: str, missing: str) -> Any:
    """The entry of nested mappings at a dotted key; `missing` is the error, which is told what there is."""
    if isinstance(tree, Mapping) and key in tree:
        return tree[key]
    node = tree
    for part in key.split("."):
        if not isinstance(node, Mapping) or part not in node:
            raise ValueError(missing.format(key=key, known=", ".join(_names(tree)) or "nothing"))
        node = node[part]
    return node


def flat(obs: PyTree) -> Float[Array, " obs"]:
    """All numbers of an observation in one row, dictionaries in the order of their keys."""
    return jnp.concatenate([jnp.ravel(leaf).astype(_float()) for leaf in jax.tree.leaves(obs)])


def _reader(source: CostSource) -> CostFunction:
    """(obs, action, next_obs, info) → cost, in compiled code."""
    several = not isinstance(source, str) and not callable(source)
    checked = check_source(source, len(source) if several and hasattr(source, "__len__") else 1, several)
    if callable(checked):
        return checked
    if isinstance(checked, str):
        return lambda obs, action, next_obs, info: _paid(info, checked)
    return lambda obs, action, next_obs, info: jnp.stack([_one(info, key) for key in checked])


def _paid(info: Mapping[str, Any], key: str) -> Any:
    missing = (
        "no cost: a step reports no {key!r}, only: {known}. "
        "Pass one of these, or a function of (obs, action, next_obs, info), as cost="
    )
    return pick(info, key, missing)


def _one(info: Mapping[str, Any], key: str) -> Array:
    cost = jnp.asarray(_paid(info, key), _float())
    if cost.size != 1:
        raise ValueError(f"cost {key!r} has shape {cost.shape}; each of several keys must be one number")
    return cost.reshape(())


def _asarray(cost: object, source: CostSource) -> Array:
    try:
        return jnp.asarray(cost, _float())
    except (TypeError, ValueError):
        raise ValueError(f"cost={source!r} gives {cost!r}, which is no array of numbers; name one of its parts") from None


def _names(tree: object, above: str = "") -> list[str]:
    """The dotted keys of nested mappings."""
    names = []
    for key, value in tree.items() if isinstance(tree, Mapping) else ():
        names += _names(value, f"{above}{key}.") if isinstance(value, Mapping) else [f"{above}{key}"]
    return sorted(names)


def _check_same(before: PyTree, after: PyTree, name: str) -> None:
    """Compiled loops carry the state, so a step must not change what it consists of."""
    known, found = ({jax.tree_util.keystr(path): leaf for path, leaf in _leaves(tree)} for tree in (before, after))
    changed = sorted(known.keys() ^ found.keys()) or [path for path in known if known[path].shape != found[path].shape]
    if changed:
        raise ValueError(
            f"a step of {name} changes what its state consists of ({', '.join(changed[:3])}); reset must give the same "
            "entries, in the same shapes, as a step"
        )


def _leaves(tree: PyTree) -> list[Any]:
    return jax.tree_util.tree_flatten_with_path(tree)[0]


def _like(before: PyTree, after: PyTree) -> PyTree:
    """The new state in the types of the old one: a reward of Python's 1.0 would else change them."""
    return jax.tree.map(lambda old, new: jnp.asarray(new).astype(old.dtype), before, after)


def _strong(leaf: ArrayLike) -> Array:
    array = jnp.asarray(leaf)
    return array.astype(array.dtype)


def _float() -> Any:
    """Single precision in training, double for `GymEnv` on the host."""
    return jnp.result_type(float)
