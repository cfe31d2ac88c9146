"""Which of the policies that training passes through is kept: the one whose deterministic play is best in validation."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from saute.core.options import Options
from saute.core.protocol import Env
from saute.core.seeds import VALIDATION
from saute.envs.from_gym import HostEnvs
from saute.learn.agent import Decider, named
from saute.learn.drive import Drive, Training
from saute.runs.evaluate import Outcome, evaluator

__all__ = ["Selection", "score", "validated"]


@dataclasses.dataclass(frozen=True)
class Selection:
    """Validate every so many epochs, in so many episodes of an environment that the policies are meant for."""

    env: Any
    episodes: int = 2000
    every: int = 50

    def __post_init__(self) -> None:
        if getattr(self.env, "options", None) is None:
            raise ValueError("selection needs a sautéed environment, whose budget and unsafe reward it validates by")
        for name in ("episodes", "every"):
            number = getattr(self, name)
            if not isinstance(number, int) or number < 1:
                raise ValueError(f"{name}={number!r} must be a whole number ≥ 1")
        if self.env.horizon is None:
            raise ValueError("selection needs to know the longest episode; give its environment a TimeLimit")
        if isinstance(self.env, HostEnvs) and self.env.num_envs != self.episodes:
            raise ValueError(
                f"episodes={self.episodes}, but the environment plays {self.env.num_envs} at once; make them equal"
            )


class Selecting(NamedTuple):
    """A seed, the epochs that it has had, what its last validation gave, and the best policy that it has been through."""

    training: Training
    epochs: np.int64
    validated: dict[str, Any]
    policy: PyTree
    best: np.float64

    @property
    def state(self) -> PyTree:
        return self.training.state


def score(outcome: Outcome, options: Options, horizon: int) -> float:
    """Mean return of the task, where an episode that overspends its budget counts as unsafe from its first step on.

    Mean over episodes of (Σ r  if safe  else  n T), with the unsafe reward n and the horizon T.
    """
    assert outcome.violated is not None
    return float(np.where(outcome.violated, options.unsafe_reward * horizon, outcome.task_return).mean())


def validated(body: Drive, selection: Selection, policy: Decider) -> Drive:
    """The same training, which validates its policies on the way, always in the same episodes, and exports the best."""
    env: Env | HostEnvs = selection.env
    test = evaluator(policy, env, selection.episodes)

    def numbers(parameters: PyTree) -> dict[str, Any]:
        outcome = test(parameters, VALIDATION.start)
        if not (np.isfinite(outcome.task_return).all() and np.isfinite(outcome.cost).all()):
            raise ValueError("validation: rewards or costs are not finite; what was trained before is kept")
        assert outcome.violated is not None
        each = outcome.violated_each
        return {
            "validated_return": np.float64(outcome.task_return.mean()),
            "validated_score": np.float64(score(outcome, selection.env.options, selection.env.horizon)),
            "validated_violations": np.int64(outcome.violated.sum()),
            **({} if each is None else named("validated_violations", each.sum(0))),
        }

    def begun(training: Training) -> Selecting:
        """The untrained policy is the best so far."""
        parameters = body.export(training)
        first = numbers(parameters)
        return Selecting(training, np.int64(0), first, parameters, first["validated_score"])

    def tested(seed: Selecting) -> Selecting:
        """The policy is the best if it is as good as the best before it."""
        parameters = body.export(seed.training)
        latest = numbers(parameters)
        seed = seed._replace(validated=latest)
        better = latest["validated_score"] >= seed.best
        return seed._replace(policy=parameters, best=latest["validated_score"]) if better else seed

    def after(one: tuple[Selecting, Training, dict[str, Any]]) -> tuple[Selecting, dict[str, Any]]:
        before, training, metrics = one
        seed = before._replace(training=training, epochs=np.int64(before.epochs + 1))
        if seed.epochs % selection.every == 0 and metrics["finite"]:
            seed = tested(seed)
        return seed, {**metrics, **seed.validated}

    def epoch(seeds: Sequence[Selecting], keys: Sequence[PRNGKeyArray]) -> list[tuple[Selecting, dict[str, Any]]]:
        trained = body.epoch([seed.training for seed in seeds], keys)
        return body.each(after, [(seed, *one) for seed, one in zip(seeds, trained, strict=True)])

    return body._replace(
        first=lambda keys: body.each(begun, body.first(keys)), epoch=epoch, export=lambda seed: tested(seed).policy
    )
