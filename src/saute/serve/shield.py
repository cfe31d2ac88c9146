"""A shield: it lets a policy act as long as the budget that would be left suffices for the way back."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from saute import budget as B
from saute.serve.description import Description
from saute.serve.nets import Network
from saute.serve.policy import Policy

__all__ = ["Shield", "as_inputs"]


def as_inputs(about: Description, action: Any, xp: Any = np) -> Any:
    """An action as a net takes it: a vector as it is; of each discrete one, counted from 0, which of its values it has."""
    if about.low is not None:
        return action
    action = xp.asarray(action)
    each = [action[..., i] for i in range(about.actions)] if about.several else [action]
    return xp.concatenate([xp.eye(n, dtype=xp.float32)[one] for n, one in zip(about.choices, each, strict=True)], axis=-1)


@dataclasses.dataclass(frozen=True, eq=False)
class Shield:
    """A backup policy that spends as little as it can, and an upper estimate b(s, a) of what it needs after an action.

    The action a of the policy is taken if  w ≥ b(s, a) + margin  for every constraint; else the backup acts. b and the margin
    are in shares of the reference budgets, as z is.
    """

    backup: Policy
    """Of the bare observations; it does not see its budget."""
    needs: Policy
    """(observation, action) → b(s, a) of each constraint."""
    reference: np.ndarray
    margin: float
    discount: float
    about: dict[str, Any] = dataclasses.field(default_factory=dict)
    """How it was calibrated, and the SHA-256 of the policies that it was made for."""

    def need(self, obs: ArrayLike, action: ArrayLike) -> np.ndarray:
        """b(s, a) + margin, in the units of the costs."""
        obs, about = np.asarray(obs, np.float32), self.backup.about
        if about.low is None:
            action = np.asarray(action) - (about.start if about.several else about.start[0])
        inputs = np.concatenate([obs, np.asarray(as_inputs(about, action), np.float32)], axis=-1)
        return (self.needs(inputs) + self.margin) * self.reference

    def __call__(self, obs: ArrayLike, action: ArrayLike, remaining: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """The action to take instead of the policy's, which is the same if it is safe, and whether the shield stepped in."""
        left = np.asarray(remaining, np.float64)
        left = left[..., None] if len(self.reference) == 1 and left.shape[-1:] != (1,) else left
        stops = ~np.all(B.safe(left - self.need(obs, action)), axis=-1)
        if not stops.any():
            return np.asarray(action), stops
        wide = stops.reshape(stops.shape + (1,) * (np.ndim(action) - stops.ndim))
        return np.where(wide, self.backup(obs), action), stops

    @property
    def networks(self) -> tuple[Network, Network]:
        """Of the backup and of what it needs, to be written into files."""
        backup, needs = self.backup.net, self.needs.net
        if not (isinstance(backup, Network) and isinstance(needs, Network)):
            raise ValueError("the nets of this shield are not known; load it with saute.load_shield")
        return backup, needs

    def refuse_other(self, policy: Any, discount: float) -> None:
        """Refuse a policy of other spaces, or books with another discount."""
        if not isinstance(policy, Policy):
            raise ValueError(f"policy={policy!r} does not say what its spaces are; a shield needs one from saute.load_policy")
        mine, its = self.backup.about, policy.about
        for name in ("bare", "low", "high", "choices", "start"):
            if getattr(mine, name) != getattr(its, name):
                raise ValueError(
                    f"the shield is for other spaces than the policy: {name} is {getattr(mine, name)}, not "
                    f"{getattr(its, name)}; load it from the run that the policy is of"
                )
        if its.reference is not None and not np.array_equal(np.array(its.reference, np.float32), self.reference):
            raise ValueError(
                f"the shield is for budgets {self.reference}, the policy for {its.reference}; load that of its run"
            )
        if discount != self.discount:
            raise ValueError(f"discount={discount:g}, but the shield was made for {self.discount:g}; pass that one")
