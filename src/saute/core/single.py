"""The Sauté transformation for one Gymnasium environment; plug-and-play for every RL library."""

from __future__ import annotations

import copy
import functools
import math
import sys
import warnings
from types import FrameType
from typing import Any, cast

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from saute.budget import observe, safe, spend
from saute.budget import shape as shaped
from saute.core.cost import CostSource, check_source, read
from saute.core.gauge import paint
from saute.core.observation import KEY, augmented_space, augmenter
from saute.core.options import as_budget, options

__all__ = ["SauteWrapper"]


INFINITE = math.inf


class SauteWrapper(gym.Wrapper, RecordConstructorArgs):
    """Carries the remaining safety budget in the observation and makes every reward worthless once it is overspent.

    w₀ = d, w' = (w − l)/γ, r̃ = r if w' ≥ 0 else n, observed z = w/d_ref (Sootla et al., ICML 2022).

    Args:
        env: an environment that reports a cost l ≥ 0 on every step; put time limits inside, observation normalisers too.
        budget: d in units of the cost; a sequence for several constraints; `saute.uniform(low, high)` to draw it anew
            for every episode. `reset(options={"budget": d})` sets it for one episode.
        discount: γ ∈ (0, 1] of the cost.
        unsafe_reward: the reward n of every step at and after a violation; choose it below every safe reward.
        reference_budget: d_ref, by default the budget, or the upper end of its range.
        augment: False leaves the observation as it is (an ablation of the paper).
        shape: False leaves the reward as it is (an ablation of the paper).
        terminate: True ends the episode at a violation.
        cost: an info key (dotted for nested ones), a sequence of keys, or a function (obs, action, next_obs, info) → l.
            Several constraints read `info["costs"]` by default.

    Every info has `cost`, `task_reward`, `remaining` and `violated`; the last one of an episode also `episode_cost`,
    `episode_task_return` (undiscounted sums) and `episode_violated`.

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
        env: gym.Env,
        budget: Any,
        *,
        discount: float = 1.0,
        unsafe_reward: float = 0.0,
        reference_budget: Any = None,
        augment: bool = True,
        shape: bool = True,
        terminate: bool = False,
        cost: CostSource = "cost",
    ):
        chosen = dict(
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
        self._remaining: Any = None
        self._obs: Any = None
        self._rng: np.random.Generator | None = None
        self._shows = env.render_mode == "human" and hasattr(env.unwrapped, "overlay")
        if self._shows:
            cast(Any, env.unwrapped).overlay = self._with_gauge
        self._fast = self._unpacked()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode with its full budget; `options={"budget": d}` chooses the budget of this episode."""
        if self._remaining is None and self.options.augment:
            warn_if_normalised()
        budget, options = take_budget(options, self.options.budget_shape)
        obs, info = self.env.reset(seed=seed, options=options)
        if self.options.random and (seed is not None or self._rng is None):
            # A child of the environment's own generator: as reproducible, and the starts stay those of the bare environment.
            self._rng = self.env.np_random.spawn(1)[0]
        self._remaining = self._draw() if budget is None else budget
        self._episode_cost = np.zeros(self.options.constraints) if self.options.several else 0.0
        self._episode_task_return = 0.0
        self._obs = copy.deepcopy(obs)
        if self._shows:
            self.env.unwrapped.render()
        return self._observe(obs), {**info, "remaining": np.copy(self._remaining) if self.options.several else self._remaining}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        remaining = self._remaining
        if remaining is None:
            raise gym.error.ResetNeeded("step was called before reset; call env.reset() to begin an episode with its budget")
        result = self.env.step(action)
        try:
            obs, task_reward, terminated, truncated, info = result
        except ValueError:
            message = f"step returned {len(result)} values instead of 5; wrap the environment in saute.from_six_tuple"
            raise ValueError(message) from None
        key, several, discount, reference, unsafe_reward, shape, terminate, shows, head, scratch, last, copied = self._fast
        cost = info.get(key)
        if type(cost) is not float or not 0.0 <= cost < INFINITE:  # the usual case is read and checked here, without a call
            cost = read(self._source, self.options.budget_shape, self._obs, action, obs, info)
            info["cost"] = cost
        remaining = spend(remaining, cost, discount)
        is_safe = safe(remaining)
        info["remaining"] = remaining
        if several:
            is_safe = bool(is_safe.all())
            info["remaining"] = remaining.copy()
        info["task_reward"], info["violated"] = task_reward, not is_safe

        self._episode_task_return += float(task_reward)
        self._episode_cost = self._episode_cost + cost
        self._remaining = remaining
        if key is None:
            self._obs = copy.deepcopy(obs)  # a cost function must see it as it was, whatever is done to the array later
        reward = task_reward
        if not is_safe:
            if shape:
                reward = shaped(task_reward, is_safe, unsafe_reward)
            if terminate:
                terminated, truncated = True, False
        if terminated or truncated:
            info["episode_cost"] = self._episode_cost
            info["episode_task_return"] = self._episode_task_return
            info["episode_violated"] = not is_safe
        if shows:
            self.env.unwrapped.render()
        if head is not None:
            head[...] = obs
            scratch[last] = observe(remaining, reference)
            return copied(), reward, terminated, truncated, info
        return self._observe(obs), reward, terminated, truncated, info

    def render(self) -> Any:
        """The environment's own picture, with a gauge of the remaining budget if it is an RGB frame."""
        frame = self.env.render()
        return self._with_gauge(frame) if isinstance(frame, np.ndarray) else frame

    @property
    def remaining(self) -> Any:
        """Remaining budget w in units of the cost, or None before the first reset."""
        return self._remaining.copy() if isinstance(self._remaining, np.ndarray) else self._remaining

    def _with_gauge(self, frame: np.ndarray) -> np.ndarray:
        if self._remaining is None:
            return frame
        return paint(frame, observe(self._remaining, self.options.reference))

    def _unpacked(self) -> tuple[Any, ...]:
        """What `step` needs, in one place, since looking each up would take as long as everything else that it does."""
        o = self.options
        memory: tuple[Any, ...] = (None,) * 4
        if o.augment and not o.several and isinstance(self._augment, functools.partial):
            scratch, last, _ = self._augment.args
            memory = scratch[:last], scratch, last, scratch.copy
        key = "cost" if self._source == "cost" else None
        return key, o.several, o.discount, o.reference, o.unsafe_reward, o.shape, o.terminate, self._shows, *memory

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy writes into its own scratch memory: a copied view would no longer look into it."""
        self.__dict__.update(state)
        self._fast = self._unpacked()

    def _observe(self, obs: Any) -> Any:
        return self._augment(obs, observe(self._remaining, self.options.reference)) if self.options.augment else obs

    def _draw(self) -> Any:
        if self._rng is None:
            return self.options.draw(0.0)
        return self.options.draw(self._rng.random(self.options.constraints) if self.options.several else self._rng.random())


def take_budget(options: dict[str, Any] | None, shape: tuple[int, ...]) -> tuple[Any, dict[str, Any] | None]:
    """The validated budget of the next episode, if there is one, and the options meant for the wrapped environment."""
    if not options or "budget" not in options:
        return None, options
    rest = {key: value for key, value in options.items() if key != "budget"}
    return as_budget(options["budget"], shape, 'options["budget"]'), rest or None


def refuse_twice(env: Any) -> None:
    """An environment may be sautéed once: a second budget of the same cost would be spent on the shaped reward."""
    if getattr(env, "metadata", None) and env.metadata.get("saute"):
        raise ValueError(
            f"{env} is sautéed already; wrap it once, and pass budget=[d1, d2] with cost=[key1, key2] for several constraints"
        )


def warn_if_normalised() -> None:
    """Warn when the reset comes from an observation normaliser above, whose running statistics would rescale z."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        caller = frame.f_locals.get("self")
        name = type(caller).__name__
        if name in _NORMALISERS and _rescales(caller):
            warnings.warn(
                f"{name} is above the Sauté wrapper and will rescale the remaining budget z, so that its zero moves. Normalise "
                "inside (SauteWrapper(NormalizeObservation(env), …)), or use VecNormalize(norm_obs=False)",
                UserWarning,
                stacklevel=3,
            )
            return
        frame = frame.f_back


def _rescales(normaliser: Any) -> bool:
    keys = getattr(normaliser, "norm_obs_keys", None)
    return getattr(normaliser, "norm_obs", True) and (keys is None or KEY in keys)


_NORMALISERS = {"NormalizeObservation", "VecNormalize", "VectorEnvNormObs"}
