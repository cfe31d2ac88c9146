"""The books of a policy on a plant: what remains of the budget, and what to do when it is not known or gone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from numpy.typing import ArrayLike

from saute import budget as B
from saute.core.names import nearest
from saute.serve.policy import Policy
from saute.serve.shield import Shield

__all__ = ["BudgetedPolicy"]

OnEmpty = Literal["policy", "hold", "backup"] | Callable[..., Any]
"""Who acts once more than the budget has been spent."""


class BudgetedPolicy:
    """A policy that keeps its own books on a real plant: `begin(budget)`, then `act(obs)` and `spend(cost)` in turn.

    Several constraints have one budget and one cost each: `begin([30.0, 5.0])`, `spend([1.0, 0.0])`.

    A cost that is not reported before the next `act`, or that is NaN, is refused; if there is a `missing_cost`, such as the
    largest that a step can have, then that is booked instead. Once more than the budget has been spent, `on_empty` says who
    acts: "policy" goes on, "hold" repeats the last action from before, "backup" asks `backup`, and a function is asked
    itself. Those are called as the policy is, with the observation and remaining=….

    A `shield`, from `saute.load_shield`, replaces actions of the policy after which the budget might not suffice for the way
    back; `interventions` counts them since `begin`.

    Example:
        >>> keeper = BudgetedPolicy(lambda obs, remaining: remaining, discount=1.0)
        >>> keeper.begin(2.0)
        >>> keeper.act(None), keeper.spend(0.5), keeper.act(None), keeper.violated
        (2.0, 1.5, 1.5, False)
    """

    def __init__(
        self,
        policy: Callable[..., Any],
        discount: float = 1.0,
        *,
        on_empty: OnEmpty = "policy",
        backup: Callable[..., Any] | None = None,
        missing_cost: ArrayLike | None = None,
        shield: Shield | None = None,
    ):
        if not 0.0 < discount <= 1.0:
            raise ValueError(f"discount={discount!r} is outside (0, 1]; use the one that the policy was trained with")
        if not callable(on_empty):
            nearest(on_empty, ("policy", "hold", "backup"), "on_empty")
        if (on_empty == "backup") != (backup is not None):
            raise ValueError(
                f"on_empty={on_empty!r} with backup={backup!r}: pass both on_empty='backup' and a policy, or neither"
            )
        if missing_cost is not None and not _is_cost(missing_cost):
            raise ValueError(f"missing_cost={missing_cost!r} must be finite and ≥ 0, such as the largest cost of a step")
        if shield is not None:
            shield.refuse_other(policy, discount)
        self.policy, self.discount, self.missing_cost, self.shield = policy, discount, missing_cost, shield
        known = {"policy": policy, "hold": self._hold, "backup": backup}
        self._last_resort: Any = known[on_empty] if isinstance(on_empty, str) else on_empty
        self.remaining: Any = None
        self.interventions = 0
        self._owed = False
        self._held: Any = None

    def begin(self, budget: ArrayLike) -> None:
        """Start an episode with its full budget."""
        if not np.all((np.asarray(budget) > 0) & np.isfinite(budget)):
            raise ValueError(f"budget={budget!r} must be positive and finite")
        known = self.policy.about.constraints if isinstance(self.policy, Policy) else 0
        seen = known or (0 if self.shield is None else len(self.shield.reference))
        if seen and np.size(budget) != seen:
            raise ValueError(f"budget={budget!r} does not fit the policy, which observes {seen} budgets; pass one number each")
        self.remaining = budget if np.ndim(budget) == 0 else np.array(budget, np.float64)
        self._owed, self._held, self.interventions = False, None, 0

    def act(self, obs: ArrayLike) -> Any:
        """The action for this observation, given what remains."""
        if self.remaining is None:
            raise gym.error.ResetNeeded("act was called before begin; call begin(budget) to start an episode")
        if self._owed:
            self._settle()
        asked = self._last_resort if self.violated else self.policy
        action = _asked(asked, obs, self.remaining)
        if self.shield is not None and asked is self.policy:
            action, stepped_in = self.shield(obs, action, self.remaining)
            self.interventions += int(stepped_in)
        if not self.violated:
            self._held = action
        self._owed = True
        return action

    def spend(self, cost: ArrayLike) -> Any:
        """Book the cost of the last step, and return what remains."""
        if self.remaining is None:
            raise gym.error.ResetNeeded("spend was called before begin; call begin(budget) to start an episode")
        if np.shape(cost) != np.shape(self.remaining):
            raise ValueError(
                f"cost={cost!r} does not fit the budgets, of which {self.remaining} remain; pass one cost for each"
            )
        if not _is_cost(cost):
            cost = self._known(cost)
        self.remaining = B.spend(self.remaining, cost if np.ndim(cost) == 0 else np.asarray(cost, np.float64), self.discount)
        self._owed = False
        return self.remaining

    @property
    def violated(self) -> bool:
        """Whether more than the budget has been spent."""
        left = self.remaining
        return left is not None and not (left >= 0 if isinstance(left, float) else np.all(B.safe(left)))

    def _known(self, cost: ArrayLike) -> Any:
        """The missing cost in the place of those that are NaN; every other number is an error of the caller."""
        if self.missing_cost is None or np.any(np.asarray(cost) < 0) or np.any(np.isinf(cost)):
            raise ValueError(f"cost={cost!r} must be finite and ≥ 0; pass missing_cost=… to book that where it is NaN")
        return np.where(np.isnan(cost), self.missing_cost, cost)[()]

    def _settle(self) -> None:
        """Book a cost that was never reported."""
        if self.missing_cost is None:
            raise gym.error.ResetNeeded(
                "act was called twice without the cost of the step between; call spend(cost), 0.0 if there was none, or pass "
                "missing_cost=… to book that"
            )
        self.spend(np.broadcast_to(self.missing_cost, np.shape(self.remaining))[()])

    def _hold(self, obs: ArrayLike, remaining: ArrayLike) -> Any:
        if self._held is None:
            raise gym.error.ResetNeeded(
                "the budget was gone before the first action, so there is none to hold; call begin(budget)"
            )
        return self._held


def _asked(policy: Callable[..., Any], obs: ArrayLike, remaining: ArrayLike) -> Any:
    """The policy's action; one that does not observe its budget is not told it."""
    blind = isinstance(policy, Policy) and policy.reference is None
    return policy(obs) if blind else policy(obs, remaining=remaining)


def _is_cost(cost: ArrayLike) -> bool:
    if isinstance(cost, float):
        return 0.0 <= cost < math.inf
    return bool(np.all((np.asarray(cost) >= 0) & np.isfinite(cost)))
