"""`saute check`: what an environment is like before anything is trained in it."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import Annotated, Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from saute.cli.environments import spec_of
from saute.cli.options import shown_as
from saute.core import tables
from saute.core.errors import UserError
from saute.core.progress import Meter, progress
from saute.core.tables import columns
from saute.runs.inspection import Episode, Inspection, costs_of, greediest, inspect, look_alikes, whole
from saute.runs.remarks import QUANTILES, budgets_for, errors, named_costs, suggested_unsafe_reward, warnings_of
from saute.runs.source import imported, made

__all__ = ["Check", "as_json", "check", "described"]


@dataclasses.dataclass(frozen=True)
class Check:
    """Look at an environment before training: what it is, what it costs, how fast it is, which budget and unsafe reward fit."""

    env: Annotated[str, shown_as("ENV")]
    """pendulum, double_pendulum, reacher, point, car, or any Gymnasium id (module:Id-v0 imports the module)."""
    cost: Annotated[tuple[str, ...], shown_as("KEY [KEY ...]")] = ("cost",)
    """Keys of info with the costs, dotted if nested, or module:function of (obs, action, next_obs, info)."""
    episodes: Annotated[int, shown_as("N")] = 50
    """Episodes with random actions, and as many in each of which one action is held."""
    seconds: Annotated[float, shown_as("S")] = 20.0
    """Stop looking after so many seconds."""
    seed: Annotated[int, shown_as("N")] = 0
    """Seed of the first episode; the others count on."""
    json: bool = False
    """Print all numbers as JSON instead."""


def check(options: Check) -> None:
    if not options.cost:
        raise UserError("--cost names nothing; pass a key of info, or leave it out for 'cost'")
    if options.episodes < 1 or not options.seconds > 0:
        raise UserError(f"--episodes {options.episodes} must be at least 1, and --seconds {options.seconds:g} above 0")
    spec = spec_of(options.env)
    try:
        with progress(Meter("", 0, f"looking, for {options.seconds:g} s at most")):
            seen = inspect(
                lambda: _made(spec),
                imported(options.cost[0]) if len(options.cost) == 1 else options.cost,
                episodes=options.episodes,
                seed=options.seed,
                seconds=options.seconds,
            )
    except (ValueError, gym.error.Error) as problem:
        raise UserError(f"{options.env} cannot be looked at: {problem}") from problem
    print(tables.as_json(as_json(seen)) if options.json else f"{options.env}\n\n{described(seen, options.seconds)}")
    wrong = errors(seen)
    if wrong:
        raise UserError("; ".join(wrong))


def described(seen: Inspection, seconds: float = math.inf) -> str:
    """The look as text for people."""
    played = columns(_played(seen), right=(1, 2))
    if any(episode.end == "cut" for episode in seen.random + seen.held):
        played += (
            f"\n\ncut off after {seconds:g} s, half of them for each way of acting; only steps count then, not the episode"
        )
    warned = "\n".join(f"warning: {text}" for text in warnings_of(seen))
    return "\n\n".join(filter(None, [columns(_what(seen)), played, columns(_suggested(seen)), warned]))


def as_json(seen: Inspection) -> dict[str, Any]:
    """The look as plain values; null where nothing was measured."""
    ways = {"random": seen.random, "held": seen.held}
    names = named_costs(seen)
    best = greediest(seen)
    values = {
        "observation_space": str(seen.observation_space),
        "action_space": str(seen.action_space),
        "time_limit": seen.horizon,
        "steps_per_second": seen.steps_per_second,
        "own_budget": seen.budget,
        "own_unsafe_reward": seen.unsafe_reward,
        "episodes": {way: _numbers(episodes, names) for way, episodes in ways.items()},
        "best": None
        if best is None
        else {"return": float(best.reward.sum()), "cost": dict(zip(names, _sums(best), strict=True))},
        "budgets": {name: [one._asdict() for one in budgets_for(seen.random, i)] for i, name in enumerate(names)},
        "unsafe_reward": suggested_unsafe_reward(seen),
        "look_like_costs": {name: [key.low, key.high] for name, key in look_alikes(seen).items()},
        "warnings": warnings_of(seen),
        "errors": errors(seen),
    }
    return json.loads(tables.as_json(values))


def _made(spec: gym.envs.registration.EnvSpec) -> gym.Env:
    try:
        return made(spec, disable_env_checker=True)
    except Exception as problem:
        raise UserError(f"{spec.id} cannot be made: {problem}") from problem


def _what(seen: Inspection) -> list[tuple[str, str]]:
    limit = "none known" if seen.horizon is None else f"{seen.horizon} steps"
    speed = "not measured" if math.isnan(seen.steps_per_second) else f"{seen.steps_per_second:,.0f} steps/s of one environment"
    return [
        ("observations", _space(seen.observation_space)),
        ("actions", _space(seen.action_space)),
        ("time limit", limit),
        ("speed", speed),
    ]


def _space(space: spaces.Space[Any]) -> str:
    if isinstance(space, spaces.Dict):
        return "; ".join(f"{name}: {_space(part)}" for name, part in space.spaces.items())
    if not isinstance(space, spaces.Box):
        return str(space)
    low, high = np.unique(space.low), np.unique(space.high)
    bounds = f"[{low[0]:.4g}, {high[0]:.4g}]" if len(low) == len(high) == 1 else f"between {low[0]:.4g} and {high[-1]:.4g}"
    return f"{' × '.join(map(str, space.shape)) or 'one'} × {space.dtype} {bounds}"


def _played(seen: Inspection) -> list[tuple[str, str, str]]:
    """What the episodes were like, a row per number, a column per way of acting."""
    names = named_costs(seen)
    random, held = _numbers(seen.random, names), _numbers(seen.held, names)
    rows = [("", "random actions", "one action held")]
    rows += [(label, _shown(random[name]), _shown(held[name])) for name, label in LABELS.items()]
    for cost in names:
        one, other = random["costs"][cost], held["costs"][cost]
        rows += [(label.format(cost), _shown(one[name]), _shown(other[name])) for name, label in COST_LABELS.items()]
    return rows


LABELS = {
    "episodes": "whole episodes",
    "terminated": "  ended by termination",
    "truncated": "  ended by the time limit",
    "cut": "cut off",
    "steps": "steps",
    "length": "length, mean",
    "lowest_reward": "reward of a step, lowest",
    "highest_reward": "  highest",
    "mean_return": "return, mean",
    "lowest_return": "  lowest",
    "highest_return": "  highest",
}
COST_LABELS = {
    "step_mean": "{} of a step, mean",
    "step_highest": "  highest",
    "mean": "{} of an episode, mean",
    **{f"{q:g}": f"  {100 * q:.0f} % quantile" for q in QUANTILES},
    "worst": "  worst",
}


def _numbers(episodes: Sequence[Episode], names: Sequence[str]) -> dict[str, Any]:
    """Everything that is measured of some episodes, by name; None where nothing was."""
    done, ends = whole(episodes), [episode.end for episode in episodes]
    returns, lengths = [float(one.reward.sum()) for one in done], [len(one.reward) for one in done]
    rewards = [float(reward) for one in episodes for reward in one.reward]
    return {
        "episodes": len(done),
        **{end: ends.count(end) for end in ("terminated", "truncated", "cut")},
        "steps": len(rewards),
        "length": _mean(lengths),
        "lowest_reward": min(rewards, default=None),
        "highest_reward": max(rewards, default=None),
        "mean_return": _mean(returns),
        "lowest_return": min(returns, default=None),
        "highest_return": max(returns, default=None),
        "costs": {name: _of_cost(episodes, i) for i, name in enumerate(names)},
    }


def _of_cost(episodes: Sequence[Episode], column: int) -> dict[str, float | None]:
    steps = [float(cost) for one in episodes for cost in one.cost[:, column]]
    totals = [float(one.cost[:, column].sum()) for one in whole(episodes)]
    return {
        "step_mean": _mean(steps),
        "step_highest": max(steps, default=None),
        "mean": _mean(totals),
        **{f"{q:g}": float(np.quantile(totals, q)) if totals else None for q in QUANTILES},
        "worst": max(totals, default=None),
    }


def _suggested(seen: Inspection) -> list[tuple[str, str]]:
    rows, best = [], greediest(seen)
    names = named_costs(seen)
    if best is not None:
        paid = ", ".join(f"{name} {total:.4g}" for name, total in zip(names, _sums(best), strict=True))
        rows.append(("best return", f"{best.reward.sum():.4g}" + (f", at {paid}" if paid else "")))
    for i, name in enumerate(names):
        rows.append((f"budget for {name}", _budgets(seen, i)))
    rows.append(("unsafe reward", _unsafe(seen)))
    return rows


def _budgets(seen: Inspection, i: int) -> str:
    own = "" if seen.budget is None else f"the task's own is {seen.budget:g}. "
    possible, whole_ones = budgets_for(seen.random, i), costs_of(seen.random)
    if not len(whole_ones):
        return own + "no episode with random actions ended within the time, so there is no cost of one to go by"
    worst = max(float(part[:, i].max()) for part in (whole_ones, costs_of(seen.held)) if len(part))
    if not possible:
        return own + f"random actions cost next to nothing, the worst episode {worst:.4g}: a budget below that would matter"
    some = ", ".join(f"{one.budget:.4g} ({100 * one.share:.0f} %)" for one in possible)
    return own + f"suggested {some}, so many of the random episodes keep it; no episode seen cost more than {worst:.4g}"


def _unsafe(seen: Inspection) -> str:
    own = "" if seen.unsafe_reward is None else f"the task's own is {seen.unsafe_reward:g}. "
    n = suggested_unsafe_reward(seen)
    if n is None:
        return own + "none suggested, because rewards are not finite"
    if n == 0.0:
        return own + "suggested 0: no reward seen was below it"
    total = "" if seen.horizon is None else f"; overspending at once is worth {n * seen.horizon:.4g}"
    return own + f"suggested {n:g}: below every reward seen, by a quarter of their range{total}"


def _sums(episode: Episode) -> list[float]:
    return episode.cost.sum(0).tolist()


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if len(values) else None


def _shown(number: float | None) -> str:
    return "–" if number is None else f"{number:,}" if isinstance(number, int) else f"{number:.4g}"
