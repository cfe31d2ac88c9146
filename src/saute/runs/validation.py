"""Which of the policies that training passes through is kept: the one whose deterministic play is best in validation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from saute.envs.from_gym import HostEnvs
from saute.runs.evaluate import Outcome, evaluator

__all__ = ["Epoch", "Judge", "Selection", "score"]

Epoch = Callable[[Any, Any], tuple[Any, dict[str, Any]]]
"""(learner, key) → (learner, metrics)."""

FIRST = 2**30
"""Validation episodes have seeds from here on: neither training nor tests come near."""


@dataclasses.dataclass(frozen=True)
class Selection:
    """Validate every so many epochs, in so many episodes of an environment that the policies are meant for."""

    env: Any
    episodes: int = 2000
    every: int = 50

    def __post_init__(self) -> None:
        if getattr(self.env, "options", None) is None:
            raise ValueError("selection needs a sautéed environment, whose budget and unsafe reward it judges by")
        for name in ("episodes", "every"):
            number = getattr(self, name)
            if not isinstance(number, int) or number < 1:
                raise ValueError(f"{name}={number!r} must be a whole number ≥ 1")
        if self.env.options.several or self.env.options.random:
            raise ValueError("selection judges by one budget; give its environment a single, fixed one")
        if self.env.horizon is None:
            raise ValueError("selection needs to know the longest episode; give its environment a TimeLimit")
        if isinstance(self.env, HostEnvs) and self.env.num_envs != self.episodes:
            raise ValueError(
                f"episodes={self.episodes}, but the environment plays {self.env.num_envs} at once; make them equal"
            )


class Selecting(NamedTuple):
    """A learner, the epochs that it has had, what its last validation gave, and the best policy that it has been through."""

    learner: Any
    epochs: Any
    validated: dict[str, Any]
    policy: Any
    best: Any


def score(outcome: Outcome, options: Any, horizon: int) -> float:
    """Mean return of the task, where an episode that overspends its budget d counts as unsafe from its first step on.

    Mean over episodes of (Σ r  if  Σ l ≤ d  else  n T), with the unsafe reward n and the horizon T.
    """
    safe = outcome.cost <= np.max(options.high)
    return float(np.where(safe, outcome.task_return, options.unsafe_reward * horizon).mean())


class Judge:
    """Validates policies of one kind, always in the same episodes."""

    def __init__(self, selection: Selection, bound: Any):
        self.selection, self.bound = selection, bound
        self.test = evaluator(bound.policy, selection.env, selection.episodes)

    def begin(self, learner: Any) -> Selecting:
        """The untrained policy is the best so far."""
        policy = self.bound.exported(learner)
        first = self.validated(policy)
        return Selecting(learner, np.int64(0), first, policy, first["validated_score"])

    def epoch(self, state: Selecting, key: Any, epoch: Epoch) -> tuple[Selecting, dict[str, Any]]:
        """An epoch of the learner and, when it is time, a validation."""
        learner, metrics = epoch(state.learner, key)
        state = state._replace(learner=learner, epochs=np.int64(state.epochs + 1))
        if state.epochs % self.selection.every == 0 and metrics["finite"]:
            state = self.judged(state)
        return state, {**metrics, **state.validated}

    def judged(self, state: Selecting) -> Selecting:
        """The learner's policy is the best if it is as good as the best before it."""
        policy = self.bound.exported(state.learner)
        latest = self.validated(policy)
        state = state._replace(validated=latest)
        better = latest["validated_score"] >= state.best
        return state._replace(policy=policy, best=latest["validated_score"]) if better else state

    def validated(self, policy: Any) -> dict[str, Any]:
        outcome, options = self.test(policy, FIRST), self.selection.env.options
        if not (np.isfinite(outcome.task_return).all() and np.isfinite(outcome.cost).all()):
            raise ValueError("validation: rewards or costs are not finite; what was trained before is kept")
        return {
            "validated_return": np.float64(outcome.task_return.mean()),
            "validated_score": np.float64(score(outcome, options, self.selection.env.horizon)),
            "validated_violations": np.int64((outcome.cost > np.max(options.high)).sum()),
        }
