"""What a stored policy says of itself, checked: its spaces, its layers, and which arrays it has to have."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from saute.core.encoder import Image, check_image, encoded_size, layers_of
from saute.core.typed import rebuilt

__all__ = ["Description", "Shaped", "described", "layout"]

LARGEST = 10_000_000
"""Of the numbers that describe a stored policy: observations, layers, actions."""
DEEPEST = 1000
"""Layers of a stored policy."""
GREATEST, TINIEST = float(np.finfo(np.float32).max), float(np.finfo(np.float32).tiny)


class Shaped(NamedTuple):
    """What an array has to be."""

    shape: tuple[int, ...]
    dtype: np.dtype = np.dtype(np.float32)


class Description(NamedTuple):
    """A policy but for its parameters."""

    observations: int
    """Inputs: the observations of the bare environment, then z of every constraint if it observes its budget."""
    hidden: tuple[int, ...] | None
    """Units of each hidden layer; None for a planner, which has a model instead."""
    kind: str
    """gaussian or squashed for a vector of actions, categorical for discrete ones."""
    relu: bool
    """Whether rectifiers stand between the layers, instead of tanh."""
    low: tuple[float, ...] | None
    """Bounds of a vector of actions; None for discrete ones."""
    high: tuple[float, ...] | None
    choices: tuple[int, ...]
    """How many values each discrete action has; none for a vector."""
    several: bool
    """Whether the discrete actions are a vector, even if it has only one of them."""
    start: tuple[int, ...]
    """What each discrete action is counted from."""
    reference: tuple[float, ...] | None
    """Reference budgets of the constraints, or None for a policy that does not observe its budget."""
    image: Image

    @property
    def constraints(self) -> int:
        """Remaining budgets that it takes."""
        return 0 if self.reference is None else len(self.reference)

    @property
    def bare(self) -> int:
        """Numbers that the bare environment observes."""
        return self.observations - self.constraints

    @property
    def actions(self) -> int:
        """Numbers that an action has."""
        return len(self.choices) if self.low is None else len(self.low)

    @property
    def outputs(self) -> int:
        """Numbers that the last layer gives."""
        return sum(self.choices) if self.low is None else self.actions * (2 if self.kind == "squashed" else 1)


def described(meta: Mapping[str, Any]) -> Description:
    """The description in the plain values that are stored with a policy; sizes that no policy has are refused."""
    planner = "planner" in meta
    low, high = (rebuilt(tuple[float, ...] | None, _unbounded(meta[end]), end) for end in ("low", "high"))
    choices = _choices(meta)
    start = rebuilt(tuple[int, ...], np.atleast_1d(meta.get("start", 0)).tolist(), "start")
    image = rebuilt(tuple[int, ...] | None, meta.get("image"), "image")
    found = Description(
        observations=_size(meta["observations"], "observations"),
        hidden=None if planner else tuple(_size(one, "hidden") for one in meta["hidden"]),
        kind="categorical" if low is None else "squashed" if planner or meta["squashed"] else "gaussian",
        relu=not planner and bool(meta["squashed"] or meta.get("relu", False)),
        low=low,
        high=high,
        choices=() if low is not None else choices,
        several="choices" in meta,
        start=start if len(start) == len(choices) else start * len(choices),
        reference=rebuilt(tuple[float, ...] | None, meta["reference"], "reference"),
        image=image,
    )
    _refuse_odd(found)
    return found


def _unbounded(ends: object) -> Any:
    """Bounds for the check of types, to which an infinite number is none, in single precision."""
    if not isinstance(ends, list):
        return ends
    return [math.copysign(GREATEST, one) if isinstance(one, float) and abs(one) > GREATEST else one for one in ends]


def _choices(meta: Mapping[str, Any]) -> tuple[int, ...]:
    if "choices" in meta:
        return tuple(_size(one, "choices") for one in meta["choices"])
    return () if meta["low"] is not None else (_size(meta["discrete"], "discrete"),)


def _size(value: object, name: str) -> int:
    size = int(rebuilt(int, value, name))
    if not 0 < size <= LARGEST:
        raise ValueError(f"{name} is {size}, expected 1 to {LARGEST}")
    return size


def _refuse_odd(found: Description) -> None:
    if found.low is not None and (
        found.high is None or len(found.low) != len(found.high) or np.any(found.low > np.array(found.high))
    ):
        raise ValueError(f"actions from {found.low} to {found.high}")
    if found.actions == 0 or (found.low is None and len(found.start) != len(found.choices)):
        raise ValueError(f"{found.actions} actions, counted from {found.start}")
    if len(found.hidden or ()) > DEEPEST:
        raise ValueError(f"{len(found.hidden or ())} layers, expected at most {DEEPEST}")
    if found.kind == "squashed" and any(b - a > GREATEST for a, b in zip(found.low or (), found.high or (), strict=True)):
        raise ValueError(f"actions from {found.low} to {found.high}, which a squashed policy cannot span")
    if any(first + count > 2**31 for first, count in zip(found.start, found.choices, strict=False)):
        raise ValueError(f"actions counted from {found.start}, beyond 2³¹")
    if found.reference is not None and not all(TINIEST <= one <= GREATEST for one in found.reference):
        raise ValueError(f"reference budgets {found.reference}")
    if found.bare < 1:
        raise ValueError(f"{found.observations} observations with {found.constraints} budgets among them")
    if found.image is not None and (len(found.image) != 3 or min(found.image) < 1):
        raise ValueError(f"pictures of {found.image}")
    check_image(found.image, found.bare)


def layout(found: Description) -> dict[str, Shaped]:
    """The arrays that the policy has to have, by their names in the file."""
    place = ".mean" if found.kind == "gaussian" else ""
    arrays = {".log_std": Shaped((found.actions,))} if found.kind == "gaussian" else {}
    for i, shape in enumerate(_shapes(found)):
        arrays |= {f"{place}[{i}].weight": Shaped(shape), f"{place}[{i}].bias": Shaped(shape[-1:])}
    return arrays


def _shapes(found: Description) -> Iterator[tuple[int, ...]]:
    """Of the weights of all layers: filters of the picture, then the others."""
    channels = 0 if found.image is None else found.image[2]
    for outputs, side, _ in layers_of(found.image):
        yield side, side, channels, outputs
        channels = outputs
    sizes = (encoded_size(found.observations, found.image), *(found.hidden or ()), found.outputs)
    yield from itertools.pairwise(sizes)
