"""Looking at an environment before training: what its episodes are like, what they cost, how fast they are.

Nothing is learned here: actions are random, or one action is held for a whole episode, and the best episode of both stands for
greed. All numbers are of these episodes.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from saute.core.cost import CostSource, read
from saute.core.limits import limit_of
from saute.core.six_tuple import five_of
from saute.runs.advice import unsafe_reward_for

__all__ = ["Episode", "Inspection", "Key", "auto_unsafe_reward", "costs_of", "greediest", "inspect", "look_alikes", "whole"]

OURS = {"remaining", "task_reward", "violated", "episode_cost", "episode_task_return", "episode_violated"}
"""What a sautéed environment adds to `info`."""


class Episode(NamedTuple):
    """One episode, step by step."""

    reward: np.ndarray
    """Of the task, before any shaping."""
    cost: np.ndarray
    """Steps × costs; no column if the cost could not be read."""
    end: str
    """terminated, truncated, or cut where looking had to stop."""


@dataclasses.dataclass
class Key:
    """What a numeric entry of `info` was like."""

    kind: str
    """NumPy's: b for bool, i and u for whole numbers, f for others."""
    low: float
    high: float


class Inspection(NamedTuple):
    """What was seen of an environment."""

    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    horizon: int | None
    """The time limit, if one is known."""
    budget: float | None
    """The environment's own, if it has one; the unsafe reward too."""
    unsafe_reward: float | None
    costs: tuple[str, ...]
    """Names of the costs, as they were asked for."""
    random: list[Episode]
    held: list[Episode]
    """In which one action is held from the first step to the last."""
    steps_per_second: float
    """Of one environment, with its resets."""
    keys: dict[str, Key]
    """The numeric entries of `info`, dotted if nested."""
    problem: str | None
    """Why the cost could not be read."""
    finite: bool
    """Whether all rewards and observations were."""


@dataclasses.dataclass
class _Notes:
    """What is kept while looking: time spent in the environment, entries of `info`, and the first thing wrong with the cost."""

    source: CostSource
    shape: tuple[int, ...] | None = None
    keys: dict[str, Key] = dataclasses.field(default_factory=dict)
    problem: str | None = None
    finite: bool = True
    seconds: float = 0.0
    steps: int = 0


def inspect(
    make_env: Callable[[], gym.Env],
    cost: CostSource = "cost",
    *,
    episodes: int = 50,
    seed: int = 0,
    seconds: float = math.inf,
    steps: float = math.inf,
) -> Inspection:
    """Play so many episodes with random actions, then as many in each of which one action is held.

    Episode i begins from `seed` + i. Looking stops after so many `seconds`, half of them for random actions, and after so many
    `steps` of either; an episode that is cut off by this is kept, and marked.
    """
    env, notes = make_env(), _Notes(cost)
    try:
        env.action_space.seed(seed)
        env.reset(seed=seed)
        env.step(env.action_space.sample())  # what is compiled at first is not part of the speed
        began = time.perf_counter()
        freely = _plays(env, notes, (_sampled(env.action_space) for _ in range(episodes)), seed, began + seconds / 2, steps)
        actions = [_repeated(action) for action in _to_hold(env.action_space, episodes)]
        held = _plays(env, notes, iter(actions), seed, began + seconds, steps)
        return Inspection(
            env.observation_space,
            env.action_space,
            limit_of(env),
            *_own(env),
            (cost,) if isinstance(cost, str) else (getattr(cost, "__name__", "cost"),) if callable(cost) else tuple(cost),
            freely,
            held,
            notes.steps / notes.seconds if notes.seconds else math.nan,
            notes.keys,
            notes.problem,
            notes.finite,
        )
    finally:
        env.close()


def auto_unsafe_reward(source: Any, seed: int = 0, terminate: bool = False) -> float:
    """The unsafe reward that fits a function that makes a Gymnasium environment, or a JAX-native `Env`, from a short look.

    The look is 20 episodes with random actions and 20 with held ones, at most 5000 steps either way: it depends on the seed,
    not on the speed of the machine.
    """

    def native() -> gym.Env:
        from saute.envs.to_gym import GymEnv

        return GymEnv(source)

    seen = inspect(source if callable(source) else native, _free, episodes=20, seed=seed, steps=5000)
    if not seen.finite:
        raise ValueError('unsafe_reward="auto": rewards or observations are not finite; correct the environment')
    return unsafe_reward_for(np.concatenate([episode.reward for episode in seen.random + seen.held]), seen.horizon, terminate)


def whole(episodes: Sequence[Episode]) -> list[Episode]:
    """Those that came to their end."""
    return [episode for episode in episodes if episode.end != "cut"]


def costs_of(episodes: Sequence[Episode]) -> np.ndarray:
    """Σ l of each whole episode, episodes × costs."""
    return np.array([episode.cost.sum(0) for episode in whole(episodes)])


def greediest(seen: Inspection) -> Episode | None:
    """The whole episode with the best return, however it was played."""
    return max(whole(seen.random + seen.held), key=lambda episode: float(episode.reward.sum()), default=None)


def look_alikes(seen: Inspection) -> dict[str, Key]:
    """Entries of `info` that could be costs: finite numbers that were never negative, those ever above 0 first."""
    possible = {name: key for name, key in seen.keys.items() if key.low >= 0.0 and key.high < math.inf}
    return dict(sorted(possible.items(), key=lambda item: item[1].high == 0.0))


def _free(obs: object, action: object, next_obs: object, info: object) -> float:
    """The cost where only rewards are asked for."""
    return 0.0


def _plays(env: gym.Env, notes: _Notes, ways: Iterator[Iterator[Any]], seed: int, until: float, steps: float) -> list[Episode]:
    played: list[Episode] = []
    left = steps
    for i, actions in enumerate(ways):
        if left <= 0 or (played and time.perf_counter() >= until):
            break
        played.append(_play(env, notes, actions, seed + i, until, left))
        left -= len(played[-1].reward)
    return played


def _play(env: gym.Env, notes: _Notes, actions: Iterator[Any], seed: int, until: float, steps: float) -> Episode:
    """One episode, cut off where there is no more time, or no step left."""
    rewards, costs, end = list[float](), list[Any](), "cut"
    began = time.perf_counter()
    obs, _ = env.reset(seed=seed)
    notes.seconds += time.perf_counter() - began
    for action in actions:
        before = copy.deepcopy(obs) if callable(notes.source) else None
        began = time.perf_counter()
        obs, reward, terminated, truncated, info = five_of(env.step(action))
        now = time.perf_counter()
        notes.seconds += now - began
        notes.steps += 1
        sauted = bool(env.metadata.get("saute"))
        rewards.append(float(info["task_reward"] if sauted else reward))
        notes.finite = notes.finite and math.isfinite(rewards[-1]) and _is_finite(obs)
        _note_keys(notes.keys, info, "", OURS if sauted else set())
        if notes.problem is None:
            costs.append(_cost(notes, before, action, obs, info))
        if terminated or truncated:
            end = "terminated" if terminated else "truncated"
            break
        if now >= until or len(rewards) >= steps:
            break
    paid = np.array(costs, float).reshape(len(rewards), -1) if notes.problem is None else np.empty((len(rewards), 0))
    return Episode(np.array(rewards), paid, end)


def _cost(notes: _Notes, before: object, action: object, obs: object, info: Mapping[str, Any]) -> Any:
    """The cost of a step; what is wrong with it is noted instead."""
    try:
        if notes.shape is None:
            notes.shape = _shape(notes.source, before, action, obs, info)
        return read(notes.source, notes.shape, before, action, obs, info)
    except ValueError as problem:
        notes.problem = str(problem)
        return math.nan


def _shape(source: CostSource, before: object, action: object, obs: object, info: Mapping[str, Any]) -> tuple[int, ...]:
    """One cost, or as many as there are keys, or numbers behind the only key or from the function."""
    if not isinstance(source, str) and not callable(source):
        return (len(source),)
    value = np.asarray(info.get(source, 0.0) if isinstance(source, str) else source(before, action, obs, info))
    return value.shape if value.ndim == 1 and value.size > 1 else ()


def _note_keys(keys: dict[str, Key], info: Mapping[str, Any], prefix: str, skip: set[str]) -> None:
    """Kind, least and largest value of every numeric entry, also of nested ones."""
    for name, value in info.items():
        if isinstance(value, Mapping):
            _note_keys(keys, value, f"{prefix}{name}.", set())
        elif isinstance(value, bool | int | float | np.generic | np.ndarray) and name not in skip:
            array = np.asarray(value)
            if array.dtype.kind not in "biuf" or array.ndim > 1 or array.size == 0:
                continue
            low, high = float(array.min()), float(array.max())
            key = keys.setdefault(f"{prefix}{name}", Key(array.dtype.kind, low, high))
            key.low, key.high = float(np.minimum(key.low, low)), float(np.maximum(key.high, high))  # NaN stays NaN


def _is_finite(obs: object) -> bool:
    return not isinstance(obs, np.ndarray) or obs.dtype.kind != "f" or bool(np.isfinite(obs).all())


def _sampled(space: spaces.Space[Any]) -> Iterator[Any]:
    while True:
        yield space.sample()


def _repeated(action: Any) -> Iterator[Any]:
    while True:
        yield copy.copy(action)


def _to_hold(space: spaces.Space[Any], count: int) -> list[Any]:
    """Every discrete action, or the bounds and the middle of continuous ones; then random ones, until there are enough."""
    chosen: list[Any] = []
    if isinstance(space, spaces.Discrete):
        chosen = [space.start + i for i in range(min(int(space.n), count))]
    elif isinstance(space, spaces.Box) and space.is_bounded():
        middle = (space.low.astype(float) + space.high) / 2
        chosen = [space.low, space.high, middle.astype(space.dtype)]
    return [*chosen, *(space.sample() for _ in range(count))][:count]


def _own(env: gym.Env) -> tuple[float | None, float | None]:
    """Budget and unsafe reward of a task that has them."""
    task = getattr(env.unwrapped, "env", env.unwrapped)
    return getattr(task, "budget", None), getattr(task, "unsafe_reward", None)
