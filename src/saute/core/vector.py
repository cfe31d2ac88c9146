"""The Sauté transformation for a Gymnasium vector environment, in every autoreset mode."""

from __future__ import annotations

from typing import Any, cast

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from saute import budget as B
from saute.core.cost import CostSource, check_batch, check_source, read_batch, read_function
from saute.core.culprit import name_culprit
from saute.core.gauge import paint
from saute.core.masks import along, masked
from saute.core.observation import augmented_space, augmenter, batch_augmenter, kept
from saute.core.options import BudgetLike, options
from saute.core.single import BEFORE_RESET, refuse_twice, take_budget

__all__ = ["SauteVectorWrapper"]

Observations = np.ndarray | dict[str, Any] | tuple[Any, ...]
"""Observations of all environments: an array, or a Dict or Tuple of them, as the space says."""


class SauteVectorWrapper(VectorWrapper):
    """`SauteWrapper` for a vector environment, with one remaining budget per sub-environment (and constraint).

    The arguments are those of `SauteWrapper`; a `cost` function is called once, with whole batches. `info` has the same
    entries as batches, with Gymnasium's `_key` masks. In every autoreset mode the last observation of an episode has that
    episode's own remaining budget (in SAME_STEP it is in `info["final_obs"]`), its last cost is counted, and the next episode
    starts with a full budget. `info["remaining"]` belongs to the returned observation; `cost`, `task_reward` and `violated`
    belong to the step just made. `terminate=True` needs AutoresetMode.DISABLED: an environment that this wrapper ends must be
    reset by the caller.

    Example:
        >>> import gymnasium as gym, numpy as np, saute
        >>> envs = saute.SauteVectorWrapper(gym.make_vec("saute/TwoArms-v0", num_envs=2), budget=2.0)
        >>> obs, info = envs.reset(seed=0)
        >>> obs, reward, terminated, truncated, info = envs.step(np.array([[1.0], [-1.0]]))
        >>> info["remaining"]
        array([1., 2.])
    """

    def __init__(
        self,
        env: VectorEnv,
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
        refuse_twice(env)
        self.options = options(
            budget,
            discount=discount,
            unsafe_reward=unsafe_reward,
            reference_budget=reference_budget,
            augment=augment,
            shape=shape,
            terminate=terminate,
        )
        self._source = check_source(cost, self.options.constraints, self.options.several)
        VectorWrapper.__init__(self, env)
        self.autoreset_mode = AutoresetMode(env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))
        if terminate and self.autoreset_mode is not AutoresetMode.DISABLED:
            raise ValueError(
                f"terminate=True in mode {self.autoreset_mode.value} cannot reset the environments that it ends; use "
                "AutoresetMode.DISABLED, or put SauteWrapper around each sub-environment"
            )
        self.metadata = {**env.metadata, "saute": True}
        if augment:
            bare = env.single_observation_space
            self._augment, self._augment_one = batch_augmenter(bare), augmenter(bare, (self.options.constraints,))
            self.single_observation_space = augmented_space(bare, self.options.constraints)
            self.observation_space = batch_space(self.single_observation_space, env.num_envs)
        n, m = env.num_envs, self.options.constraints
        self._nobody = self._ended = np.zeros(n, bool)
        self._remaining, self._episode_cost, self._episode_task_return = np.full((n, m), np.nan), np.zeros((n, m)), np.zeros(n)
        self._obs: Any = None
        self._rngs: list[np.random.Generator] = []
        self._unknown = BEFORE_RESET
        """Why the remaining budgets are unknown; empty if they are known."""

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin episodes with full budgets, in all environments or in those of `options["reset_mask"]`."""
        n = len(self._remaining)
        budget, options = take_budget(options, (n, *self.options.budget_shape))
        mask = np.array((options or {}).get("reset_mask", ~self._nobody))
        if self._unknown and not mask.all():
            rest = np.flatnonzero(~mask).tolist()
            raise gym.error.ResetNeeded(f"{self._unknown}, so the budgets of envs {rest} are not known; reset all of them")
        self._unknown = "the last reset failed"  # until it has not
        try:
            # A copy, because Gymnasium removes the mask from the options that it gets.
            obs, info = self.env.reset(seed=cast(Any, seed), options=None if options is None else dict(options))
        except Exception as problem:
            name_culprit(problem, self.env)
            raise
        if self.options.random and (seed is not None or not self._rngs):
            self._spawn(mask if not isinstance(seed, list | tuple) else mask & [s is not None for s in seed])
        self._begin(mask, budget)
        self._unknown = ""
        self._obs = kept(obs) if callable(self._source) else None
        return self._observe(obs), masked(info, mask, remaining=self._report(self._remaining))

    def step(self, actions: object) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        chosen = self.options
        self._refuse_unknown()
        self._unknown = "the last step failed, so that its costs are not known"  # until they are read
        try:
            obs, task_reward, terminated, truncated, info = self.env.step(actions)
        except Exception as problem:
            name_culprit(problem, self.env)
            raise
        restarted = self._ended if self.autoreset_mode is AutoresetMode.NEXT_STEP else self._nobody
        ended = terminated | truncated
        cost = self._read_cost(actions, obs, info, ended, restarted)
        self._unknown = ""
        self._remaining = B.spend(self._remaining, cost, chosen.discount)
        is_safe = restarted | (B.safe(self._remaining).all(-1) if chosen.several else B.safe(self._remaining)[:, 0])
        self._episode_cost += cost
        self._episode_task_return += task_reward
        self._begin(restarted)

        reward = B.shape(task_reward, is_safe, chosen.unsafe_reward) if chosen.shape else task_reward.copy()
        if chosen.terminate:
            terminated, truncated = terminated | ~is_safe, truncated & is_safe
            ended = terminated | truncated
        paid = cost if chosen.several else cost[:, 0]
        masked(info, ~restarted, cost=paid, task_reward=task_reward, violated=~is_safe)
        masked(info, ~self._nobody, remaining=self._report(self._remaining))
        if np.count_nonzero(ended):
            self._finish(info, ended, ~is_safe)
        self._ended = ended
        if callable(self._source):
            self._obs = kept(obs)
        return self._observe(obs), reward, terminated, truncated, info

    def render(self) -> Any:
        """The pictures of the environments, with a gauge of the remaining budget on each RGB frame."""
        frames = self.env.render()
        if frames is None or self._unknown == BEFORE_RESET:
            return frames
        levels = B.observe(self._remaining, self.options.reference)
        return tuple(paint(f, z) if isinstance(f, np.ndarray) else f for f, z in zip(frames, levels, strict=True))

    @property
    def remaining(self) -> Any:
        """The remaining budgets in the units of the cost, one row per environment, or None before the first reset."""
        return None if self._unknown == BEFORE_RESET else self._report(self._remaining)

    def _refuse_unknown(self) -> None:
        """Refuse a step if the budgets are unknown, or if this wrapper itself has ended an episode."""
        reason = self._unknown
        if self.options.terminate and self._ended.any():
            reason = f"envs {np.flatnonzero(self._ended).tolist()} have ended"
        if reason:
            raise gym.error.ResetNeeded(f"{reason}, so the budgets are not known; call envs.reset()")

    def _read_cost(
        self, actions: object, obs: Observations, info: dict[str, Any], ended: np.ndarray, restarted: np.ndarray
    ) -> np.ndarray:
        """The costs (env, constraint) of this step; 0 where an episode only restarted, since no step was made there."""
        n, m = self._remaining.shape
        shape, same_step = self.options.budget_shape, self.autoreset_mode is AutoresetMode.SAME_STEP
        if callable(self._source):
            next_obs, seen = obs, info
            if same_step and ended.any():
                next_obs, seen = _with_final(obs, info["final_obs"], ended), _with_final_info(info, ended)
            cost = read_function(self._source, (n, *shape), self._obs, actions, next_obs, seen)
            return check_batch(np.where(restarted[:, None], 0.0, cost.reshape(n, m)), self._source)
        cost = read_batch(self._source, shape, info, ~(ended if same_step else restarted))
        if same_step:
            # Environments that ended report their reset at the top level, and their last step only in final_info.
            cost += read_batch(self._source, shape, info.get("final_info", {}), ended)
        return cost.reshape(n, m)

    def _finish(self, info: dict[str, Any], ended: np.ndarray, violated: np.ndarray) -> None:
        """Report the episodes that ended; in SAME_STEP also their last step, before they get full budgets again."""
        totals = {
            "episode_cost": self._report(self._episode_cost),
            "episode_task_return": self._episode_task_return.copy(),
            "episode_violated": violated.copy(),
        }
        masked(info, ended.copy(), **totals)
        if self.autoreset_mode is not AutoresetMode.SAME_STEP:
            return
        last = {key: info[key].copy() for key in ("cost", "task_reward", "remaining", "violated", *totals)}
        info["final_info"] = masked(info.get("final_info", {}), ended.copy(), **last)
        if self.options.augment:
            info["final_obs"] = self._augment_final(info["final_obs"], ended)
        self._begin(ended)
        info["remaining"] = self._report(self._remaining)

    def _augment_final(self, final_obs: Observations, ended: np.ndarray) -> Any:
        z = B.observe(self._remaining, self.options.reference)
        if not (isinstance(final_obs, np.ndarray) and final_obs.dtype == object):
            return self._augment(final_obs, z)
        augmented = np.full(self.num_envs, None, dtype=object)
        for env in np.flatnonzero(ended):
            augmented[env] = self._augment_one(final_obs[env], z[env])
        return augmented

    def _begin(self, mask: np.ndarray, budget: np.ndarray | None = None) -> None:
        """Give full budgets to the environments of a mask."""
        if not np.count_nonzero(mask):  # five times faster than `any`, and at most steps no episode begins
            return
        if budget is None:
            budget = self.options.draw(self._uniforms(mask) if self.options.random else 0.0)
            self._remaining[mask] = budget
        else:
            self._remaining[mask] = np.reshape(budget, self._remaining.shape)[mask]
        self._episode_cost[mask] = 0.0
        self._episode_task_return[mask] = 0.0
        self._ended = self._ended & ~mask

    def _spawn(self, mask: np.ndarray) -> None:
        """One generator per environment: a child of its own generator if it has one, else of the vector environment's."""
        own = self.env.np_random
        fresh = own.spawn(self.num_envs) if isinstance(own, np.random.Generator) else [rng.spawn(1)[0] for rng in own]
        self._rngs = [new if chosen else old for new, old, chosen in zip(fresh, self._rngs or fresh, mask, strict=True)]

    def _uniforms(self, mask: np.ndarray) -> np.ndarray:
        return np.stack([self._rngs[env].random(self.options.constraints) for env in np.flatnonzero(mask)])

    def _observe(self, obs: Observations) -> Any:
        return self._augment(obs, B.observe(self._remaining, self.options.reference)) if self.options.augment else obs

    def _report(self, values: np.ndarray) -> np.ndarray:
        """A copy for info, without the constraint axis if there is only one constraint."""
        return values.copy() if self.options.several else values[:, 0].copy()


def _with_final(obs: Observations, final_obs: Observations, ended: np.ndarray) -> Any:
    """The observations after the step; for the environments that ended they are in `final_obs`."""
    return _replace(obs, ended, [_row(final_obs, env) for env in np.flatnonzero(ended)])


def _row(batch: Observations, env: int | np.integer) -> Any:
    if isinstance(batch, dict):
        return {key: _row(value, env) for key, value in batch.items()}
    return tuple(_row(value, env) for value in batch) if isinstance(batch, tuple) else batch[env]


def _replace(batch: Observations, ended: np.ndarray, rows: list[Any]) -> Any:
    """A copy of a batch, which may be nested, with new rows for the environments that ended."""
    if isinstance(batch, dict):
        return {key: _replace(value, ended, [row[key] for row in rows]) for key, value in batch.items()}
    if isinstance(batch, tuple):
        return tuple(_replace(value, ended, [row[i] for row in rows]) for i, value in enumerate(batch))
    replaced = batch.copy()
    replaced[ended] = np.asarray(rows)
    return replaced


def _with_final_info(info: dict[str, Any], ended: np.ndarray) -> dict[str, Any]:
    """The infos of the step; for the environments that ended they are in `final_info`."""

    def merged(now: dict[str, Any], last: dict[str, Any]) -> dict[str, Any]:
        entries = dict(now)
        for key, value in last.items():
            if isinstance(value, dict):
                entries[key] = merged(now.get(key, {}), value)
            elif isinstance(value, np.ndarray):
                kept = now.get(key, np.zeros_like(value))
                entries[key] = np.where(along(ended, value), value, kept)
        return entries

    return merged(info, info.get("final_info", {}))
