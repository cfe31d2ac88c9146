"""What a look at an environment says to someone who is about to train in it: warnings, budgets, and an unsafe reward."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from saute.runs.advice import DWARFS, cliff, unsafe_reward_for
from saute.runs.inspection import Episode, Inspection, costs_of, look_alikes, whole

__all__ = ["QUANTILES", "Suggested", "budgets_for", "errors", "named_costs", "suggested_unsafe_reward", "warnings_of"]

QUANTILES = (0.25, 0.5, 0.75, 0.95)


class Suggested(NamedTuple):
    """A budget, and which share of the random episodes spent no more than it."""

    budget: float
    share: float


def named_costs(seen: Inspection) -> list[str]:
    """One name for each cost that was read."""
    if seen.problem is not None:
        return []
    count = (seen.random + seen.held)[0].cost.shape[1]
    return list(seen.costs) if count == len(seen.costs) else [f"{seen.costs[0]}[{i}]" for i in range(count)]


def budgets_for(random: Sequence[Episode], column: int) -> list[Suggested]:
    """Quantiles of what an episode with random actions costs, each once, without those below a hundredth of the worst.

    Budgets have to be above 0, and one that is next to nothing leaves a policy no choice.
    """
    costs = costs_of(random)
    if not len(costs):
        return []
    own = costs[:, column]
    values = np.unique(np.quantile(own, QUANTILES))
    return [Suggested(float(d), float((own <= d).mean())) for d in values if d > 0.01 * own.max()]


def suggested_unsafe_reward(seen: Inspection) -> float | None:
    """The unsafe reward that fits all rewards that were seen, if these were finite."""
    return unsafe_reward_for(_rewards(seen)) if seen.finite else None


def errors(seen: Inspection) -> list[str]:
    """What has to be put right before training."""
    found = []
    if seen.problem is not None:
        alike = ", ".join(f"{name} ({key.low:.4g} to {key.high:.4g})" for name, key in look_alikes(seen).items())
        found.append(
            f"{seen.problem}. " + (f"These were never negative: {alike}" if alike else "No entry of info could be one")
        )
    if not seen.finite:
        found.append("rewards or observations are not finite; correct the environment")
    return found


def warnings_of(seen: Inspection) -> list[str]:
    """What is worth knowing before training."""
    return [*_of_spaces(seen), *_of_costs(seen), *_of_rewards(seen)]


def _of_spaces(seen: Inspection) -> Iterator[str]:
    space = seen.observation_space
    if _is_picture(space):
        yield f"observations are pictures {space.shape}: they need a learner with a convolutional net"
    elif not isinstance(space, spaces.Box) or len(space.shape) != 1:
        size = _flat_size(space)
        yield f"observations are a {type(space).__name__}: learners see them flattened" + (f", {size} numbers" if size else "")
    if isinstance(seen.action_space, spaces.Box) and not seen.action_space.is_bounded():
        yield f"actions {seen.action_space} are unbounded: sac and mbpo refuse them; give them bounds, or use ppo or trpo"
    if seen.horizon is None:
        yield "no time limit is known: episodes may go on for ever, and a cost rate per episode has no meaning; add a TimeLimit"


def _of_costs(seen: Inspection) -> Iterator[str]:
    for name in seen.costs if seen.problem is None else ():
        kind = seen.keys[name].kind if name in seen.keys else "f"
        if kind == "b":
            yield f"{name} is a bool: each step at which it is True costs 1, so that the budget is a number of steps"
        elif kind in "iu":
            yield f"{name} is a whole number: it is read as a float, and the budget counts units of it"
    for i, name in enumerate(named_costs(seen)):
        if not any(episode.cost[:, i].any() for episode in seen.random + seen.held):
            yield f"{name} was 0 in every step: neither a budget nor a broken cost can be told from that"


def _of_rewards(seen: Inspection) -> Iterator[str]:
    n = suggested_unsafe_reward(seen)
    if n is None:
        return
    lowest = float(_rewards(seen).min())
    if lowest < 0.0 and (seen.unsafe_reward is None or seen.unsafe_reward > lowest):
        used = seen.unsafe_reward or 0.0
        yield f"rewards fall to {lowest:.4g}: with an unsafe reward of {used:g}, overspending would pay"
    depth = depth_of(seen, n)
    if depth > DWARFS:
        yield (
            f"an unsafe reward below every reward seen makes a cliff {depth:.0f} times as deep as the range of the returns, "
            "because single rewards are far below the others; clip them, or choose it below the worst mean reward of an episode"
        )


def depth_of(seen: Inspection, unsafe_reward: float) -> float:
    """The cliff of an unsafe reward, in ranges of the returns of whole episodes; NaN if there are no two different ones."""
    returns = [float(episode.reward.sum()) for episode in whole(seen.random + seen.held)]
    if seen.horizon is None or not returns:
        return math.nan
    return cliff(unsafe_reward, min(returns), max(returns), seen.horizon)


def _rewards(seen: Inspection) -> np.ndarray:
    return np.concatenate([episode.reward for episode in seen.random + seen.held])


def _is_picture(space: spaces.Space[Any]) -> bool:
    return isinstance(space, spaces.Box) and len(space.shape) == 3 and space.dtype == np.uint8


def _flat_size(space: spaces.Space[Any]) -> int | None:
    try:
        return spaces.flatdim(space)
    except (NotImplementedError, ValueError):
        return None
