"""The options of the Sauté transformation, checked once and shared by all of its forms."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import jax

__all__ = ["BudgetLike", "Options", "Uniform", "as_budget", "options", "uniform"]


@dataclasses.dataclass(frozen=True)
class Uniform:
    """A range of budgets, from which one is drawn for every episode: d ~ U[low, high]."""

    low: float
    high: float


BudgetLike = Uniform | npt.ArrayLike | Sequence[float | Uniform] | Mapping[str, float]
"""What a user may pass as a budget: a number, a range (in JSON a dict), or a sequence of those, one per constraint."""


def uniform(low: float, high: float) -> Uniform:
    """Draw a new budget for every episode, d ~ U[low, high], so that one policy learns every budget in the range."""
    low, high = (_positive(value, f"saute.uniform's {name}") for name, value in (("low", low), ("high", high)))
    if low > high:
        raise ValueError(f"saute.uniform got low={low!r} > high={high!r}; pass the smaller budget first")
    return Uniform(low, high)


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """The checked options: budgets in [low, high], floats for one constraint, arrays for several."""

    low: Any
    high: Any
    reference: Any
    discount: float
    unsafe_reward: float
    augment: bool
    shape: bool
    terminate: bool

    @property
    def several(self) -> bool:
        return isinstance(self.low, np.ndarray)

    @property
    def constraints(self) -> int:
        return len(self.low) if self.several else 1

    @property
    def budget_shape(self) -> tuple[int, ...]:
        return (self.constraints,) if self.several else ()

    @property
    def random(self) -> bool:
        return bool(np.any(self.low < self.high))

    def draw(self, u: float | np.ndarray | jax.Array) -> Any:
        """d = low + (high − low) u for u ~ U[0, 1); a fixed budget is returned exactly."""
        return self.low + (self.high - self.low) * u


def options(
    budget: BudgetLike | None,
    *,
    discount: float = 1.0,
    unsafe_reward: float = 0.0,
    reference_budget: npt.ArrayLike | None = None,
    augment: bool = True,
    shape: bool = True,
    terminate: bool = False,
) -> Options:
    """Check the arguments that `SauteWrapper`, `SauteVectorWrapper` and `saute.saute` share."""
    low: Any
    high: Any
    if hasattr(budget, "__array__"):
        budget = np.asarray(budget).tolist()
    if isinstance(budget, Sequence) and not isinstance(budget, str | bytes):
        if len(budget) == 0:
            raise ValueError("budget is empty; pass one positive number per constraint")
        ranges = [_range(b, f"budget[{i}]") for i, b in enumerate(budget)]
        low, high = np.array(ranges, dtype=np.float64).T
    else:
        low, high = _range(budget, "budget")
    reference = high if reference_budget is None else as_budget(reference_budget, np.shape(low), "reference_budget")
    if not _is_number(discount) or not 0.0 < discount <= 1.0:
        raise ValueError(f"discount={discount!r} is outside (0, 1]; use 1.0 to count every cost fully, as the paper does")
    if not _is_number(unsafe_reward) or not math.isfinite(unsafe_reward):
        raise ValueError(f"unsafe_reward={unsafe_reward!r} is not a finite number; use one below every safe reward")
    flags = {"augment": augment, "shape": shape, "terminate": terminate}
    for name, flag in flags.items():
        if not isinstance(flag, bool | np.bool_):
            raise TypeError(f"{name}={flag!r} is not a bool; pass True or False")
    return Options(low, high, reference, float(discount), float(unsafe_reward), **flags)


def as_budget(value: object, shape: tuple[int, ...], name: str) -> Any:
    """A positive, finite budget as a float (shape ()) or as a new array of the given shape."""
    if shape == ():
        return _positive(value, name)
    try:
        given = np.asarray(value)
        if given.dtype.kind not in "iuf":
            raise TypeError
        array = np.array(np.broadcast_to(given.astype(np.float64), shape))
    except (TypeError, ValueError):
        raise ValueError(f"{name}={value!r} does not fit shape {shape}; pass one positive number, or one each") from None
    if not np.all((array > 0) & (array < np.inf)):
        raise ValueError(f"{name}={value!r} must be positive and finite everywhere, for example {name}=30.0")
    return array


def _range(budget: object, name: str) -> tuple[float, float]:
    if isinstance(budget, Mapping) and budget.keys() == {"low", "high"}:  # a range that was read from JSON
        budget = uniform(**budget)
    if isinstance(budget, Uniform):
        return budget.low, budget.high
    number = _positive(budget, name)
    return number, number


def _positive(value: object, name: str) -> float:
    number = value.item() if isinstance(value, np.ndarray | np.generic) and value.ndim == 0 else value
    if not _is_number(number) or not 0.0 < number < math.inf:
        raise ValueError(f"{name}={value!r} must be a positive, finite number in the units of the cost, for example 30.0")
    return float(number)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
