"""The Sauté MDP of a finite problem, solved exactly by dynamic programming backwards in time.

Rewards r are maximised, and each step after the budget is overspent is worth −n. The optimal values over T steps are

    V_t(s, w) = max_a r(s, a) + γ E V_{t+1}(s', w')  if w' = w − l(s, a) ≥ 0  else  −n + γ V_{t+1}(overspent),    V_T = 0.

As n grows they fall to V_∞, where a violation, however improbable, is worth −∞ (Sootla et al. 2022, theorem 2; the paper
minimises costs −r, so that there V_n rises to V_∞).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Int

__all__ = ["NO_SAFE_ACTION", "Mdp", "Solution", "mdp", "minimal_budget", "solve", "stages", "violation_probability"]

NO_SAFE_ACTION = -1
"""Stands in the policy of n = ∞ for an action, where every action may lead to a violation."""


class Mdp(NamedTuple):
    """A finite MDP with a safety cost in levels of the budget; `transition` has one sparse matrix per action."""

    transition: tuple[Any, ...]
    reward: Float[np.ndarray, "state action"]
    cost: Float[np.ndarray, "state action"]


class Solution(NamedTuple):
    """V_t(s, w) and an optimal action for every time, state and remaining budget w = 0, 1, …, levels."""

    value: Float[np.ndarray, "times state level"]
    policy: Int[np.ndarray, "time state level"]


def mdp(transition: Sequence[Any], reward: npt.ArrayLike, cost: npt.ArrayLike) -> Mdp:
    """Check and make an `Mdp` from one (state, state) matrix per action, sparse or not, and tables (state, action)."""
    from scipy import sparse

    matrices = tuple(sparse.csr_array(one, copy=True) for one in transition)
    rewards, costs = (np.asarray(table, np.result_type(np.asarray(table), np.float32)) for table in (reward, cost))
    shape = (matrices[0].shape[0], len(matrices)) if matrices else (0, 0)
    if 0 in shape or any(one.shape != (shape[0],) * 2 for one in matrices):
        shapes = ", ".join(str(one.shape) for one in matrices) or "none"
        raise ValueError(f"transition has matrices {shapes}; pass one (states, states) matrix for each action")
    for name, table in (("reward", rewards), ("cost", costs)):
        if table.shape != shape or not np.isfinite(table).all():
            raise ValueError(f"{name} has shape {table.shape}; pass one finite number per state and action, {shape}")
    if costs.min() < 0:
        raise ValueError(f"cost has {costs.min():g}; a safety cost is at least 0")
    for action, one in enumerate(matrices):
        # A stored 0 would be multiplied by the −∞ of a state that cannot be reached.
        one.eliminate_zeros()
        total = one.sum(1)
        if one.data.min() < 0 or not np.allclose(total, 1, atol=1e-5):
            worst = total[np.abs(total - 1).argmax()]
            raise ValueError(
                f"transition of action {action} has a row that sums to {worst:g}; probabilities are ≥ 0 and sum to 1"
            )
    return Mdp(matrices, rewards, costs)


def stages(
    mdp: Mdp, levels: int, horizon: int, unsafe_reward: float = -np.inf, discount: float = 1.0
) -> Iterator[Float[np.ndarray, "state level"]]:
    """V_t for t = T − 1, …, 0; where a cost leads between two levels, their values are interpolated.

    Interpolation is the same as rounding the remaining budget up or down at random, so that it is right on average. For whole
    costs the solution is exact; for others it converges as there are more levels (Kushner & Dupuis 2001). Under n = ∞ every
    outcome of the rounding has to be safe, which wastes budget: use a finite n with costs that are not whole.
    """
    value, overspent, prices = _last(mdp, levels, horizon, unsafe_reward, discount)
    # If all actions cost the same, the best one is chosen first and only that one is paid for.
    shared = bool((mdp.cost == mdp.cost[:, :1]).all())
    for _ in range(horizon):
        overspent = unsafe_reward + discount * overspent
        actions = _ahead(mdp, [[]] * len(prices) if shared else prices, value, overspent, discount)
        value = functools.reduce(lambda best, one: np.maximum(best, one, out=best), actions)
        if shared:
            _pay(value, prices[0], overspent)
        yield value


def solve(mdp: Mdp, levels: int, horizon: int, unsafe_reward: float = -np.inf, discount: float = 1.0) -> Solution:
    """All values and actions, for problems whose tables fit into memory; for whole costs they are exact."""
    value, overspent, prices = _last(mdp, levels, horizon, unsafe_reward, discount)
    values, policies = [value], []
    for _ in range(horizon):
        overspent = unsafe_reward + discount * overspent
        actions = np.stack([*_ahead(mdp, prices, values[-1], overspent, discount)])
        values.append(actions.max(0))
        policies.append(np.where(values[-1] > -np.inf, actions.argmax(0), NO_SAFE_ACTION))
    return Solution(np.stack(values[::-1]), np.stack(policies[::-1]))


def minimal_budget(
    mdp: Mdp, horizon: int, discount: float = 1.0, interpolated: bool = False
) -> Float[np.ndarray, "times state"]:
    """The least budget with which the future of a state can still be safe, for every time, in levels of the budget:

        b_t(s) = min_a l(s, a) + γ max_{s': P(s'|s, a) > 0} b_{t+1}(s'),    b_T = 0.

    A step is safe iff w − l ≥ γ b_{t+1}(s') for every s' that can follow: a policy that keeps to this never overspends, and
    with less than b_t(s) none can be sure not to. γ is the discount of the cost. On a grid, whose probabilities only say
    between which points the one successor lies, `interpolated` takes their mean in the place of the worst.
    """
    if horizon < 1 or not 0 < discount <= 1:
        raise ValueError(f"horizon={horizon} must be at least 1, and discount={discount} in (0, 1]")
    needs = [np.zeros(len(mdp.cost), mdp.cost.dtype)]
    for _ in range(horizon):
        ahead = [one @ needs[-1] if interpolated else _worst(one, needs[-1]) for one in mdp.transition]
        needs.append(np.min([cost + discount * after for cost, after in zip(mdp.cost.T, ahead, strict=True)], axis=0))
    return np.stack(needs[::-1])


def _worst(transition: Any, values: np.ndarray) -> np.ndarray:
    """The largest value among the states that can follow, for every state."""
    return np.maximum.reduceat(values[transition.indices], transition.indptr[:-1])


def violation_probability(mdp: Mdp, solution: Solution, state: int, level: int) -> float:
    """The exact probability that an episode of the optimal policy overspends, from the distribution of (s, w) at each step."""
    if (mdp.cost != np.round(mdp.cost)).any():
        raise ValueError("some costs are not whole levels; the distribution is exact only for whole costs")
    levels = solution.value.shape[2]
    here, kept = np.zeros((len(mdp.reward), levels)), np.arange(levels)
    here[state, level] = 1.0
    for policy in solution.policy:
        ahead = np.zeros_like(here)
        for a, transition in enumerate(mdp.transition):
            # Where no action is safe, all are equally bad, and the first one is taken.
            moved = np.where(np.maximum(policy, 0) == a, here, 0.0)
            paid = kept[None, :] + mdp.cost[:, a, None].astype(int)
            after = np.where(paid < levels, np.take_along_axis(moved, np.minimum(paid, levels - 1), 1), 0.0)
            ahead += transition.T @ after
        here = ahead
    return float(max(0.0, 1.0 - here.sum()))


def _last(
    mdp: Mdp, levels: int, horizon: int, unsafe_reward: float, discount: float
) -> tuple[np.ndarray, float, list[list[_Price]]]:
    """Where the recursion begins: V_T, the value of an overspent budget, and what each action costs."""
    if levels < 0 or horizon < 1:
        raise ValueError(f"levels={levels} and horizon={horizon} must be at least 0 and 1")
    if not unsafe_reward < np.inf or not 0 < discount <= 1:
        raise ValueError(f"unsafe_reward={unsafe_reward} must be below ∞ and discount={discount} in (0, 1]")
    return np.zeros((len(mdp.reward), levels + 1), mdp.reward.dtype), 0.0, [_prices(cost) for cost in mdp.cost.T]


def _ahead(mdp: Mdp, prices: list[list[_Price]], value: np.ndarray, overspent: float, discount: float) -> Iterator[np.ndarray]:
    """Q_t(s, w, a), for one action after another."""
    for transition, reward, price in zip(mdp.transition, mdp.reward.T, prices, strict=True):
        ahead = transition @ value
        if discount != 1:
            ahead *= discount
        ahead += reward[:, None]
        _pay(ahead, price, overspent)
        yield ahead


class _Price(NamedTuple):
    """The states in which an action costs `whole` levels, and `part` of one more level; None if it costs no more in any."""

    rows: np.ndarray
    whole: int
    part: np.ndarray | None


def _prices(cost: np.ndarray) -> list[_Price]:
    whole = np.floor(cost).astype(int)
    part = (cost - whole)[:, None]
    prices = []
    for k in np.unique(whole):
        exact, between = (np.flatnonzero((whole == k) & ((part[:, 0] > 0) == fraction)) for fraction in (False, True))
        prices += [_Price(exact, k, None), _Price(between, k, part[between])]
    return [one for one in prices if one.rows.size and (one.whole or one.part is not None)]


def _pay(ahead: np.ndarray, prices: list[_Price], overspent: float) -> None:
    """Turn values by the budget after a step into values by the budget before it, in place."""
    levels = ahead.shape[1] - 1
    for rows, k, part in prices:
        left = ahead[rows]
        paid = np.full_like(left, overspent)
        if part is None:
            paid[:, k:] = left[:, : max(0, levels + 1 - k)]
        elif k < levels:
            paid[:, k + 1 :] = (1 - part) * left[:, 1 : levels + 1 - k] + part * left[:, : levels - k]
        ahead[rows] = paid
