"""The paper in four pure functions, for floats, NumPy and JAX arrays alike.

A task has a reward r and a safety cost l ≥ 0; along an episode Σ γᵗ l_t ≤ d must hold almost surely.
Carry the remaining budget w in the state and make every reward worthless once it is overspent:

    w₀ = d,    w' = (w − l) / γ,    r̃ = r if w' ≥ 0 else n,    z = w / d_ref is observed.

Sootla et al., "Sauté RL: Almost Surely Safe Reinforcement Learning Using State Augmentation", ICML 2022.

The budget is carried in the units of the cost, not as the paper's normalised z' = (z − l/d) / γ. The mathematics is the
same, but whole costs are subtracted exactly, so that spending precisely the budget leaves precisely 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    import jax

__all__ = ["observe", "rescale", "safe", "shape", "spend"]

Amount = TypeVar("Amount", float, np.ndarray, "jax.Array")
"""An amount of cost or reward: a number, or an array of them."""


def spend(remaining: Amount, cost: Amount | float, discount: float = 1.0) -> Amount:
    """The remaining budget after a cost is paid: w' = (w − l) / γ (Sootla et al. 2022, eq. 8)."""
    return (remaining - cost) / discount


def safe(remaining: Amount) -> Any:
    """Whether the budget is not overspent: w ≥ 0. To spend exactly all of it is allowed."""
    return remaining >= 0


def shape(reward: Amount, is_safe: bool | np.ndarray | jax.Array, unsafe_reward: Amount | float = 0.0) -> Any:
    """The reward of the Sauté MDP: r̃ = r if safe else n (Sootla et al. 2022, eq. 9, for rewards instead of costs)."""
    if is_safe is True or is_safe is False:
        return reward if is_safe else unsafe_reward
    xp = np if isinstance(is_safe, np.ndarray) else getattr(is_safe, "__array_namespace__", lambda: np)()
    return xp.where(is_safe, reward, unsafe_reward)


def observe(remaining: Amount, reference: Amount | float) -> Amount:
    """What the policy sees of the budget: z = w / d_ref, not clipped."""
    return remaining / reference


def rescale(budget: Amount, discount: float, horizon: int) -> Amount:
    """The discounted budget that a constant cost of d/T per step spends: d (1 − γᵀ) / ((1 − γ) T), which is d at γ = 1."""
    if discount == 1.0:
        return budget
    return budget * (1.0 - discount**horizon) / ((1.0 - discount) * horizon)
