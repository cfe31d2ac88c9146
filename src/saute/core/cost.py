"""Read the safety cost of a transition: from where the user says it is, checked, and never guessed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf, prod
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["CostSource", "check_batch", "check_source", "read", "read_batch", "read_function"]

CostSource = str | Sequence[str] | Callable[[Any, Any, Any, Any], Any]
"""An info key (dotted for nested keys), a sequence of keys, or a function (obs, action, next_obs, info) → cost."""

NUMBERS = float, np.floating, np.integer, np.bool_
"""What is one finite or infinite number, whatever it is; other costs may be anything, and are looked at more closely."""

ALLOWED = "a safety cost must be finite and ≥ 0"


def check_source(source: CostSource, constraints: int, several: bool) -> CostSource:
    """The source, if it can give one cost per constraint; several constraints have the default key "costs"."""
    if callable(source):
        return source
    if isinstance(source, str) and source:
        return "costs" if several and source == "cost" else source
    is_keys = isinstance(source, Sequence) and source and all(isinstance(key, str) and key for key in source)
    if not is_keys:
        raise TypeError(
            f"cost={source!r} must be an info key, a sequence of keys, or a function of (obs, action, next_obs, info)"
        )
    if len(source) != constraints or not several:
        raise ValueError(
            f"cost={source!r} names {len(source)} costs for {constraints} budget(s); pass budget=[…] with one number per key"
        )
    return tuple(source)


def read(
    source: CostSource, shape: tuple[int, ...], obs: object, action: object, next_obs: object, info: Mapping[Any, Any]
) -> Any:
    """The cost of one transition: a float for shape (), an array for several constraints."""
    cost: Any = source(obs, action, next_obs, info) if callable(source) else info.get(source)
    if type(cost) is float and 0.0 <= cost < inf and not shape:  # the usual case, with as few calls as possible
        return cost
    if not callable(source):
        cost = _find(info, source)[0] if isinstance(source, str) else [_find(info, key)[0] for key in source]
    return _as_vector(cost, source, shape) if shape else _as_scalar(cost, source)


def read_batch(source: str | Sequence[str], shape: tuple[int, ...], info: Mapping[str, Any], needed: np.ndarray) -> np.ndarray:
    """The costs in the info of a vector environment; 0 for the environments that are not `needed`."""
    plain = None if shape else info.get(source) if isinstance(source, str) else None
    if type(plain) is np.ndarray and plain.dtype == np.float64 and plain.shape == needed.shape:
        everyone = np.count_nonzero(needed & info.get(f"_{source}", True)) == len(needed)
        if everyone and plain.min() >= 0.0 and plain.max() < inf:  # the usual case, in a few reductions
            return plain.copy()
    cost = np.zeros((len(needed), *shape))
    if not needed.any():
        return cost
    if isinstance(source, str):
        cost[needed] = _needed_rows(info, source, needed, shape)
    else:
        for column, key in enumerate(source):
            cost[needed, column] = _needed_rows(info, key, needed, ())
    return check_batch(cost, source)


def read_function(
    source: Callable[[Any, Any, Any, Any], Any],
    shape: tuple[int, ...],
    obs: object,
    actions: object,
    next_obs: object,
    info: Mapping[str, Any],
) -> np.ndarray:
    """The costs of all environments of a vector, from a function of whole batches."""
    given = source(obs, actions, next_obs, info)
    if isinstance(given, np.ndarray) and any(given is one or np.may_share_memory(given, one) for one in _arrays(info)):
        refuse_cut(given, source)  # what the function has computed itself, a mask say, may have any type
    cost = as_numbers(given, source)
    if cost.shape != shape:
        raise ValueError(f"the cost function returned shape {cost.shape}, expected {shape}; return a batch of costs")
    return cost


def _arrays(info: Mapping[str, Any]) -> Iterator[np.ndarray]:
    for value in info.values():
        if isinstance(value, Mapping):
            yield from _arrays(value)
        elif isinstance(value, np.ndarray):
            yield value


def check_batch(cost: np.ndarray, source: CostSource) -> np.ndarray:
    """The same costs, if all are finite and ≥ 0."""
    bad = ~((cost >= 0) & (cost < np.inf))
    if bad.any():
        env = int(np.flatnonzero(bad.reshape(len(bad), -1).any(1))[0])
        raise ValueError(f"cost {_name(source)} of env {env} is {cost[env]}; {ALLOWED}. {_fix(source)}")
    return cost


def as_numbers(cost: object, source: CostSource) -> np.ndarray:
    """Costs as a new array of floats; texts are refused, though NumPy would read numbers from them."""
    try:
        array = np.asarray(cost.tolist() if isinstance(cost, np.ndarray) and cost.dtype == object else cost)
        if array.dtype.kind not in "biuf":
            raise TypeError
        return array.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"cost {_name(source)} is {cost!r}, not numbers; {ALLOWED}. {_fix(source)}") from None


def _needed_rows(info: Mapping[str, Any], key: str, needed: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    values, mask = _find(info, key)
    missing = needed & ~np.asarray(mask) if mask is not None else np.zeros_like(needed)
    if missing.any():
        raise ValueError(_missing(key, info, f" of envs {np.flatnonzero(missing).tolist()}"))
    values = np.asarray(values)
    if values.shape[:1] != needed.shape:
        raise ValueError(
            f"cost {key!r} has shape {values.shape} for {len(needed)} environments; return one cost per environment"
        )
    refuse_cut(values, key)
    rows = as_numbers(values[needed], key)
    if rows.shape != (len(rows), *shape) and rows.size != prod((len(rows), *shape)):
        raise ValueError(f"cost {key!r} has shape {rows.shape[1:]} per environment, expected {shape}; {_per_budget}")
    return rows.reshape(len(rows), *shape)


def refuse_cut(values: np.ndarray, source: CostSource) -> None:
    """Refuse costs of a vector environment in a type that has no place for others."""
    if values.dtype.kind in "biu" or values.dtype == np.float16:
        lost = "1e-9" if values.dtype.kind == "f" else "0.9"
        raise ValueError(
            f"costs {_name(source)} come as {values.dtype}: a vector environment takes the type from the first cost that it "
            f"meets, and would cut {lost} to 0. Return float(cost) in the environment, or let saute.HostEnvs(make_env, n) "
            "make the vector"
        )


def _find(info: Mapping[str, Any], key: str) -> tuple[Any, Any]:
    """The value at a dotted key and, in the info of a vector environment, its mask."""
    if key in info:
        return info[key], info.get(f"_{key}")
    *parents, leaf = key.split(".")
    node: Any = info
    for parent in parents:
        node = node.get(parent) if isinstance(node, Mapping) else None
    if not isinstance(node, Mapping) or leaf not in node:
        raise ValueError(_missing(key, info, ""))
    return node[leaf], node.get(f"_{leaf}")


def _as_scalar(cost: npt.ArrayLike, source: CostSource) -> float:
    if isinstance(cost, NUMBERS):
        cost = float(cost)
    else:
        array = np.asarray(cost)
        if array.dtype.kind not in "biuf" or array.size != 1:
            raise ValueError(f"cost {_name(source)} is {cost!r}, expected one number; {_per_budget}")
        cost = float(array.item())
    if not 0.0 <= cost < inf:
        raise ValueError(f"cost {_name(source)} is {cost}; {ALLOWED}. {_fix(source)}")
    return cost


def _as_vector(cost: npt.ArrayLike, source: CostSource, shape: tuple[int, ...]) -> np.ndarray:
    array = as_numbers(cost, source)
    if array.shape != shape:
        raise ValueError(f"cost {_name(source)} has shape {array.shape}, expected {shape}; {_per_budget}")
    if not ((array >= 0) & (array < np.inf)).all():
        raise ValueError(f"cost {_name(source)} is {array}; {ALLOWED}. {_fix(source)}")
    return array


_per_budget = "return one cost per budget, or change budget to match"


def _name(source: CostSource) -> str:
    return f"function {getattr(source, '__name__', source)!r}" if callable(source) else repr(source)


def _fix(source: CostSource) -> str:
    return "Correct the function" if callable(source) else "Correct the environment, or pass cost=function to compute it"


def _keys(info: Mapping[str, Any], above: str = "") -> list[str]:
    """All keys as one would write them, dotted where they are nested; without a vector's masks."""
    named = [(f"{above}{name}", part) for name, part in info.items() if not str(name).startswith("_")]
    return [key for name, part in named for key in (_keys(part, f"{name}.") if isinstance(part, Mapping) else [name])]


def _missing(key: str, info: Mapping[str, Any], whose: str) -> str:
    return (
        f"no cost: info{whose} has no key {key!r} (found {sorted(_keys(info))}). Every step must report its cost, also when it "
        "is 0: set it in the environment, pass cost='other.key', or cost=function of (obs, action, next_obs, info)"
    )
