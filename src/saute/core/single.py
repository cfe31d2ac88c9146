"""The Sauté transformation for one Gymnasium environment, for use with every RL library."""

from __future__ import annotations

import copy
import dataclasses
import sys
import warnings
from types import FrameType
from typing import Any, cast

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.core import ActType, ObsType
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorEnv
from gymnasium.wrappers import TimeLimit

from saute.budget import observe, safe, spend
from saute.budget import shape as shaped
from saute.core.cost import CostSource, check_source, read
from saute.core.gauge import paint
from saute.core.names import similar
from saute.core.observation import augmented_space, augmenter, kept
from saute.core.options import BudgetLike, as_budget, options

__all__ = ["SauteWrapper"]


BEFORE_RESET = "step was called before reset"


@dataclasses.dataclass(slots=True)
class _Episode:
    """What the wrapper keeps of the running episode; `obs` only if the cost is a function of it."""

    remaining: Any
    cost: Any
    task_return: float
    obs: Any


class SauteWrapper(gym.Wrapper[Any, ActType, ObsType, ActType], RecordConstructorArgs):
    """Puts the remaining safety budget into the observation, and makes every reward worthless once it is overspent.

    w₀ = d, w' = (w − l)/γ, r̃ = r if w' ≥ 0 else n, observed z = w/d_ref (Sootla et al., ICML 2022).

    Args:
        env: an environment that reports a cost l ≥ 0 on every step; time limits and normalisers of observations go inside.
        budget: d in the units of the cost; a sequence for several constraints; `saute.uniform(low, high)` to draw a new one
            for every episode. `reset(options={"budget": d})` sets it for one episode.
        discount: γ ∈ (0, 1] of the cost.
        unsafe_reward: the reward n of every step at and after a violation; choose it below every safe reward.
        reference_budget: d_ref; by default the budget, or the upper end of its range.
        augment: False leaves the observation as it is (an ablation of the paper).
        shape: False leaves the reward as it is (an ablation of the paper).
        terminate: True ends the episode at a violation.
        cost: an info key (dotted for nested ones), a sequence of keys, or a function (obs, action, next_obs, info) → l.
            Several constraints read `info["costs"]` by default.

    The info of every step has `cost`, `task_reward`, `remaining` and `violated`; that of an episode's last step also has
    `episode_cost`, `episode_task_return` (undiscounted sums) and `episode_violated`.

    Example:
        >>> import gymnasium as gym, saute
        >>> env = saute.SauteWrapper(gym.make("saute/TwoArms-v0"), budget=2.0)
        >>> obs, info = env.reset(seed=0)
        >>> for _ in range(3):
        ...     obs, reward, terminated, truncated, info = env.step([1.0])
        ...     print(reward, info["task_reward"], info["remaining"], info["violated"])
        1.0 1.0 1.0 False
        1.0 1.0 0.0 False
        0.0 1.0 -1.0 True
    """

    def __init__(
        self,
        env: gym.Env[ObsType, ActType],
        budget: BudgetLike,
        *,
        discount: float = 1.0,
        unsafe_reward: float = 0.0,
        reference_budget: npt.ArrayLike | None = None,
        augment: bool = True,
        shape: bool = True,
        terminate: bool = False,
        cost: CostSource = "cost",
    ):
        chosen: dict[str, Any] = dict(
            discount=discount,
            unsafe_reward=unsafe_reward,
            reference_budget=reference_budget,
            augment=augment,
            shape=shape,
            terminate=terminate,
        )
        refuse_twice(env)
        self.options = options(budget, **chosen)
        self._source = check_source(cost, self.options.constraints, self.options.several)
        RecordConstructorArgs.__init__(self, budget=budget, cost=cost, **chosen)
        gym.Wrapper.__init__(self, env)
        self.metadata = {**env.metadata, "saute": True}
        if augment:
            self.observation_space = augmented_space(env.observation_space, self.options.constraints)
            self._augment = augmenter(env.observation_space, self.options.budget_shape)
        self._budget_shape = self.options.budget_shape  # kept, because `step` must be fast
        self._episode: _Episode | None = None
        self._unknown = BEFORE_RESET
        """Why the remaining budget is unknown; empty if it is known."""
        self._rng: np.random.Generator | None = None
        self._shows = env.render_mode == "human" and hasattr(env.unwrapped, "overlay")
        if self._shows:
            cast(Any, env.unwrapped).overlay = self._with_gauge

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode with its full budget; `options={"budget": d}` chooses the budget of this episode."""
        chosen = self.options
        budget, options = take_budget(options, self._budget_shape)
        if self._unknown == BEFORE_RESET:
            _warn_of_time_limit()
        self._unknown = "the last reset failed"  # until it has not
        obs, info = self.env.reset(seed=seed, options=options)
        if chosen.random and (seed is not None or self._rng is None):
            # A child of the environment's generator: reproducible too, and it does not change the environment's starts.
            self._rng = self.env.np_random.spawn(1)[0]
        remaining = self._draw() if budget is None else budget
        spent = np.zeros(self._budget_shape) if chosen.several else 0.0
        self._episode = _Episode(remaining, spent, 0.0, kept(obs) if callable(self._source) else None)
        self._unknown = ""
        if self._shows:
            self.env.unwrapped.render()
        if chosen.augment:
            obs = self._augment(obs, observe(remaining, chosen.reference))
        return obs, {**info, "remaining": self.remaining}

    def step(self, action: ActType) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        episode, chosen, budget_shape = self._episode, self.options, self._budget_shape
        if self._unknown or episode is None:
            raise gym.error.ResetNeeded(f"{self._unknown}; call env.reset() to begin an episode with its budget")
        self._unknown = "the last step failed, so that its cost is not known"  # until its cost is read
        result: Any = self.env.step(action)
        try:
            obs, task_reward, terminated, truncated, info = result
        except ValueError:
            message = f"step returned {len(result)} values instead of 5; wrap the environment in saute.from_six_tuple"
            raise ValueError(message) from None
        cost = read(self._source, budget_shape, episode.obs, action, obs, info)
        self._unknown = ""
        episode.remaining = remaining = spend(episode.remaining, cost, chosen.discount)
        is_safe = bool(safe(remaining).all()) if budget_shape else safe(remaining)
        episode.cost = episode.cost + cost
        earned = float(task_reward)
        episode.task_return += earned
        if episode.obs is not None:
            episode.obs = kept(obs)  # for the cost function, even if the array is changed later

        info["cost"], info["task_reward"], info["violated"] = cost, earned, not is_safe
        info["remaining"] = remaining.copy() if budget_shape else remaining
        reward = task_reward
        if not is_safe:
            reward = shaped(task_reward, is_safe, chosen.unsafe_reward) if chosen.shape else task_reward
            if chosen.terminate:
                terminated, truncated = True, False
        if terminated or truncated:
            info["episode_cost"] = episode.cost
            info["episode_task_return"] = episode.task_return
            info["episode_violated"] = not is_safe
        if self._shows:
            self.env.unwrapped.render()
        if chosen.augment:
            obs = self._augment(obs, observe(remaining, chosen.reference))
        return obs, reward, terminated, truncated, info

    def render(self) -> Any:
        """The environment's own picture, with a gauge of the remaining budget if it is an RGB frame."""
        frame = self.env.render()
        return self._with_gauge(frame) if isinstance(frame, np.ndarray) else frame

    @property
    def remaining(self) -> Any:
        """The remaining budget w in the units of the cost, or None before the first reset."""
        return None if self._episode is None else copy.copy(self._episode.remaining)

    def _with_gauge(self, frame: np.ndarray) -> np.ndarray:
        return frame if self._episode is None else paint(frame, observe(self._episode.remaining, self.options.reference))

    def _draw(self) -> Any:
        if self._rng is None:
            return self.options.draw(0.0)
        return self.options.draw(self._rng.random(self.options.constraints) if self.options.several else self._rng.random())


def take_budget(options: dict[str, Any] | None, shape: tuple[int, ...]) -> tuple[Any, dict[str, Any] | None]:
    """The checked budget in `options`, if there is one, and the options that are for the wrapped environment."""
    if not options:
        return None, options
    for key in options:
        if isinstance(key, str) and key != "budget" and similar(key, ["budget"]):
            warnings.warn(f'reset has no option {key!r} for a budget; did you mean options={{"budget": …}}?', stacklevel=3)
    if "budget" not in options:
        return None, options
    rest = {key: value for key, value in options.items() if key != "budget"}
    return as_budget(options["budget"], shape, 'options["budget"]'), rest or None


def _warn_of_time_limit() -> None:
    """Warn if a `TimeLimit` around the wrapper calls its reset; only the calls themselves know what stands around."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and isinstance(caller := frame.f_locals.get("self"), gym.Wrapper):
        if isinstance(caller, TimeLimit):
            text = (
                "a TimeLimit outside SauteWrapper ends episodes unseen: their last info has no episode_cost, no "
                "episode_task_return and no episode_violated; put the limit inside, SauteWrapper(TimeLimit(env, "
                "max_episode_steps=…), …), or leave max_episode_steps out where an id is registered"
            )
            return warnings.warn(text, stacklevel=4)
        frame = frame.f_back


def refuse_twice(env: gym.Env[Any, Any] | VectorEnv[Any, Any, Any]) -> None:
    """Refuse an environment that is sautéed already: the second wrapper would take the shaped reward for the task's."""
    if getattr(env, "metadata", None) and env.metadata.get("saute"):
        raise ValueError(
            f"{env} is sautéed already; wrap it once, and pass budget=[d1, d2] with cost=[key1, key2] for several constraints"
        )
