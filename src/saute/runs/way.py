"""Evaluation on the way: what the policies that training passes through do in test-like episodes, as they stand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jaxtyping import PyTree

from saute.core.options import Options
from saute.core.protocol import Env
from saute.core.seeds import VALIDATION
from saute.envs.from_gym import HostEnvs
from saute.learn.agent import Agent
from saute.learn.drive import Drive
from saute.runs.evaluate import Outcome, evaluator
from saute.runs.folder import Metrics
from saute.runs.report import each_named

__all__ = ["EPISODES", "Way", "way_of"]

EPISODES = 100
"""Of each seed, as many as the paper tests with."""
PARTS = ("", "worst_")
"""What is told of each cost: its mean, and the largest."""


class Way(NamedTuple):
    """A hundred validation episodes of deterministic policies, always the same ones; training notices nothing of them."""

    every: int
    """Epochs from one evaluation to the next."""
    test: Callable[[PyTree, int], Outcome]
    export: Callable[[Any], PyTree]
    """The policy of a learner as it stands, which need not be the one that validation keeps."""
    each: Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]

    def seen(self, epoch: int, seeds: Sequence[Any], metrics: Sequence[Metrics]) -> list[Metrics]:
        """The numbers of an epoch with those of its evaluation; NaN if it has none, so that all epochs have the same names."""
        if (epoch + 1) % self.every:
            return [{**one, **_numbers(one, None)} for one in metrics]
        outcomes = self.each(lambda seed: self.test(self.export(seed.state), VALIDATION.start), seeds)
        return [{**one, **_numbers(one, outcome)} for one, outcome in zip(metrics, outcomes, strict=True)]


def way_of(agent: Agent, body: Drive, env: Env | HostEnvs, ledger: Options | None, every: int) -> Way:
    return Way(every, evaluator(agent.policy, env, EPISODES, ledger), agent.export, body.each)


def _numbers(metrics: Metrics, outcome: Outcome | None) -> Metrics:
    names = each_named("cost", metrics)
    costs = [f"evaluated_{part}{name}" for part in PARTS for name in names]
    if outcome is None:
        return dict.fromkeys(["evaluated_return", "evaluated_violations", *costs], math.nan)
    paid = outcome.cost.reshape(len(outcome.cost), len(names))
    violations = math.nan if outcome.violated is None else float(outcome.violated.sum())
    told = [float(outcome.task_return.mean()), violations, *map(float, paid.mean(0)), *map(float, paid.max(0))]
    return dict(zip(["evaluated_return", "evaluated_violations", *costs], told, strict=True))
