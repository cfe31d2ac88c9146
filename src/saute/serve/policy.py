"""A trained policy on a plant: observation and remaining budget in, action out, whatever computes it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from saute import budget as B
from saute.core.encoder import pixels_of
from saute.serve.description import Description

__all__ = ["Act", "Policy"]

Act = Callable[[np.ndarray, Any], np.ndarray]
"""(what is seen, one row or many; what to draw with, or None for the most likely action) → action before it is clipped."""


@dataclasses.dataclass(frozen=True, eq=False)
class Policy:
    """A policy for the observations of the bare environment; a sautéed one also takes the remaining budget.

    `policy(obs, remaining=12.5)` acts deterministically on one observation (d,) or on many (N, d), with one remaining budget
    or one each; `key`, a NumPy generator, or a key of JAX if that computes it, makes it draw from its distribution instead.
    With m constraints `remaining` is (m,) or (N, m). If all that the environment observes is a picture, it may be given as
    such, (H, W, C) or (N, H, W, C).
    """

    about: Description
    net: Act
    brake: np.ndarray | None = None
    """The action for inputs that are not finite; None if they are refused."""

    def __call__(self, obs: ArrayLike, remaining: ArrayLike | None = None, key: object = None) -> np.ndarray:
        seen = self._augmented(obs, remaining)
        known = np.isfinite(seen)
        if np.count_nonzero(known) == known.size:  # a third of the time of known.all()
            return self._bounded(self.net(seen, key))
        if self.brake is None:
            bad = sorted({int(place[-1]) for place in np.argwhere(~known)})
            raise ValueError(
                f"inputs {bad} of the policy, the last ones being z, are not finite; stop, or load it with on_nan='brake'"
            )
        action = self._bounded(self.net(np.where(known, seen, np.float32(0.0)), key))
        whole = known.all(-1).reshape(known.shape[:-1] + (1,) * (action.ndim - known.ndim + 1))
        return np.where(whole, action, np.asarray(self.brake, action.dtype))

    def braking(self, brake: ArrayLike) -> Policy:
        """The same policy, which gives this action where an observation or remaining budget is not finite."""
        about, action = self.about, np.asarray(brake)
        shape = (about.actions,) if about.low is not None or about.several else ()
        low, high = self._ends
        if action.shape != shape or not np.isfinite(action).all() or not np.all((action >= low) & (action <= high)):
            raise ValueError(f"brake={brake!r} is not an action: expected shape {shape}, from {low} to {high}")
        return dataclasses.replace(self, brake=action.astype(np.int32 if about.low is None else np.float32))

    @functools.cached_property
    def reference(self) -> np.ndarray | None:
        """Reference budgets of the constraints, or None for a policy that does not observe its budget."""
        return None if self.about.reference is None else np.array(self.about.reference, np.float32)

    @functools.cached_property
    def _ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Lowest and highest action."""
        about = self.about
        if about.low is not None:
            return np.array(about.low, np.float32), np.array(about.high, np.float32)
        low = np.array(about.start if about.several else about.start[0], np.int32)
        return low, low + np.array(about.choices if about.several else about.choices[0], np.int32) - 1

    def _bounded(self, action: np.ndarray) -> np.ndarray:
        low, high = self._ends
        return np.add(action, low) if self.about.low is None else np.minimum(np.maximum(action, low), high)

    def _augmented(self, obs: ArrayLike, remaining: ArrayLike | None) -> np.ndarray:
        about, image = self.about, self.about.image
        try:
            obs = np.asarray(obs, np.float32)
        except (TypeError, ValueError):
            raise ValueError(
                f"the observation is a {type(obs).__name__} that is not one array of numbers; pass what the policy was trained "
                "on, saute.flat(env.observation_space).one(obs)"
            ) from None
        size = about.observations - about.constraints
        if image is not None and size == pixels_of(image) and obs.shape[-3:] == image:
            obs = obs.reshape(*obs.shape[:-3], size)
        if obs.ndim not in (1, 2) or obs.shape[-1] != size:
            raise ValueError(f"observation has shape {obs.shape}, expected ({size},) or (N, {size}) of the bare environment")
        if self.reference is None:
            if remaining is not None:
                raise ValueError("this policy does not observe its budget; call it without remaining")
            return obs
        seen = np.empty((*obs.shape[:-1], about.observations), np.float32)
        seen[..., :size] = obs
        seen[..., size:] = B.observe(self._left(remaining, obs.shape), self.reference)
        return seen

    def _left(self, remaining: ArrayLike | None, shape: tuple[int, ...]) -> np.ndarray:
        """What remains of each budget, for observations of this shape."""
        if remaining is None:
            raise ValueError(
                "this policy needs its remaining budget: policy(obs, remaining=12.5), or let BudgetedPolicy keep it"
            )
        left, extra = np.asarray(remaining, np.float32), self.about.constraints
        if extra == 1 and left.shape[-1:] != (1,):
            left = left[..., None]
        if left.shape not in ((extra,), (*shape[:-1], extra)):
            wanted = "one number, or one per observation" if extra == 1 else f"({extra},) or (N, {extra}), one per constraint"
            raise ValueError(f"remaining has shape {np.shape(remaining)}, expected {wanted}")
        return left
