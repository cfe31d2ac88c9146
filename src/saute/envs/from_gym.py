"""Any Gymnasium environment for training on the host: batched, with the cost and the remaining budget as plain fields."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from saute.core.cost import CostSource, check_batch, check_source, read, read_batch, read_function
from saute.core.culprit import name_culprit
from saute.core.limits import limit_of
from saute.core.native import Sauted
from saute.core.observation import kept
from saute.core.options import Options
from saute.core.protocol import Step
from saute.core.six_tuple import five_of
from saute.envs.flatten import flat
from saute.envs.workers import WorkerEnvs

__all__ = ["HostEnvs", "Priced", "vector_of"]

CARRIED = ("remaining", "task_reward", "violated")
"""What a sautéed environment tells in its info besides the cost."""


class Priced(gym.Wrapper):
    """An environment whose info has its cost as floats, wherever the environment itself has it, and little else.

    So costs that are integers in one step and not in the next are never cut, as Gymnasium's vector environments do, which take
    the type of an entry from the first one; and a function of (obs, action, next_obs, info), nested keys and steps of six
    values, whose third is the cost, all come to the same.
    """

    def __init__(self, env: gym.Env, cost: CostSource = "cost", shape: tuple[int, ...] = ()):
        gym.Wrapper.__init__(self, env)
        self.sauted = bool(env.metadata.get("saute"))
        if self.sauted:  # it has read the cost already, and gives it under this name
            cost, shape = "cost", env.get_wrapper_attr("options").budget_shape
        self.source, self.shape, self._obs = cost, shape, None
        self.key = "costs" if shape and not self.sauted else "cost"

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        self._remember(obs)
        return obs, {"remaining": _float(info["remaining"])} if self.sauted else {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = five_of(self.env.step(action))
        told = {self.key: read(self.source, self.shape, self._obs, action, obs, info)}
        if self.sauted:
            told |= {name: _float(info[name]) for name in CARRIED}
        self._remember(obs)
        return obs, float(reward), terminated, truncated, told

    def _remember(self, obs: Any) -> None:
        if callable(self.source):
            self._obs = kept(obs)


def vector_of(
    make: Callable[[], gym.Env], num_envs: int, cost: CostSource = "cost", shape: tuple[int, ...] = (), workers: int = 0
) -> VectorEnv:
    """So many environments as one, stepped here or in other processes; their info has `cost`, or several `costs`, as floats."""
    priced = functools.partial(_priced, make, cost, shape)
    if workers:
        return WorkerEnvs(priced, num_envs, workers)
    return SyncVectorEnv([priced] * num_envs, autoreset_mode=AutoresetMode.DISABLED)


def _priced(make: Callable[[], gym.Env], cost: CostSource, shape: tuple[int, ...]) -> Priced:
    return Priced(make(), cost, shape)


class HostEnvs:
    """A vector environment that never resets itself, with flat observations: `reset`, `step` and `restart`.

    `envs` is a `VectorEnv` with AutoresetMode.DISABLED, or a function that makes one environment; sautéed or not, as a vector
    or each by itself. They serve one seed of a training after the other or, for environments that are fast in large batches
    and for episodes that are longer than an epoch, all its `seeds` side by side, each of which then has an equal part of them.

    Args:
        envs: the environments, or a function that makes one of them.
        num_envs: how many to make.
        cost: as for `SauteWrapper`; of a vector environment, a function is given whole batches. Several keys are several costs.
        seeds: how many seeds of a training share the environments.
        workers: processes that step them, for environments that are slow; 0 steps them here.
        constraints: how many costs one key or function gives; None for one cost, which is a number.
    """

    def __init__(
        self,
        envs: VectorEnv | Callable[[], gym.Env],
        num_envs: int = 1,
        cost: CostSource = "cost",
        seeds: int = 1,
        workers: int = 0,
        constraints: int | None = None,
    ):
        if constraints is None and not callable(cost) and not isinstance(cost, str):
            constraints = len(cost)
        self._source = check_source(cost, constraints or 1, constraints is not None)
        shape: tuple[int, ...] = () if constraints is None else (constraints,)
        if not isinstance(envs, VectorEnv):
            envs, self._source = vector_of(envs, num_envs, self._source, shape, workers), "costs" if shape else "cost"
        elif workers:
            raise ValueError(f"workers={workers} need a function that makes one environment; a vector is stepped where it is")
        if envs.metadata.get("autoreset_mode") is not AutoresetMode.DISABLED:
            raise ValueError(
                f"{envs} resets itself ({envs.metadata.get('autoreset_mode')}); make it with AutoresetMode.DISABLED, "
                "so that the last observation of an episode is not lost"
            )
        if not isinstance(seeds, int) or seeds < 1 or envs.num_envs % seeds:
            raise ValueError(f"{envs.num_envs} environments cannot be parted among seeds={seeds!r}; make a multiple of it")
        self.envs = envs
        self.num_envs = envs.num_envs
        self.seeds = seeds
        self.horizon = _horizon(envs)
        self.options = _options(envs)
        self._flat = flat(envs.single_observation_space)
        self.observation_space, self.image = self._flat.space, self._flat.image
        self.action_space = envs.single_action_space
        if self.options is not None:
            self._source, shape = "cost", self.options.budget_shape
        self.cost_shape = shape
        """Shape of one environment's cost."""
        self._everyone = np.ones(self.num_envs, bool)
        self._remaining: np.ndarray = np.zeros((self.num_envs, *shape))
        self._obs: Any = None

    def reset(self, seed: int | list[int] | None = None, budgets: np.ndarray | None = None) -> np.ndarray:
        """First observations of fresh episodes in all environments, seeded by one number, or by one each.

        If budgets are given, one for each environment, episodes of sautéed environments begin with these.
        """
        options = None if budgets is None else {"budget": budgets}
        obs, info = self._asked(lambda: self.envs.reset(seed=cast(Any, seed), options=options))
        return self._begun(obs, info, self._everyone)

    def restart(self, ended: np.ndarray, budgets: np.ndarray | None = None) -> np.ndarray:
        """Observations after fresh episodes have begun in the environments that ended."""
        options = {"reset_mask": ended} | ({} if budgets is None else {"budget": budgets})
        obs, info = self._asked(lambda: self.envs.reset(options=options))
        return self._begun(obs, info, ended)

    def step(self, actions: np.ndarray) -> Step:
        """The transition of every environment."""
        obs, reward, terminated, truncated, info = self._asked(lambda: self.envs.step(actions))
        cost = self._cost(actions, obs, info)
        self._obs = kept(obs) if callable(self._source) else None
        state = None
        if self.options is not None:
            self._remaining = np.array(info["remaining"], np.float64)
            state = self.state._replace(task_reward=np.asarray(info["task_reward"], np.float64), violated=info["violated"] > 0)
        return Step(state, self._flat.batch(obs, self.num_envs), np.asarray(reward, np.float64), cost, terminated, truncated)

    @property
    def state(self) -> Any:
        """What sautéed environments carry along with their last observations; bare ones carry nothing that we know."""
        if self.options is None:
            return None
        zeros = np.zeros(self.num_envs)
        return Sauted(None, self._remaining.copy(), np.zeros_like(self._remaining), zeros, zeros > 0)

    @property
    def sauted_together(self) -> bool:
        """Whether they are sautéed as one vector, which can be told the budgets that episodes begin with."""
        return getattr(self.envs, "options", None) is not None

    @property
    def budget(self) -> float | None:
        """The task's own budget, if it has one."""
        return getattr(getattr(self.envs.unwrapped, "env", None), "budget", None)

    def _asked(self, call: Callable[[], Any]) -> Any:
        """What the environments answer; an error says which of them failed."""
        try:
            return call()
        except Exception as problem:
            name_culprit(problem, self.envs)
            raise

    def _cost(self, actions: np.ndarray, obs: Any, info: Mapping[str, Any]) -> np.ndarray:
        if not callable(self._source):
            return read_batch(self._source, self.cost_shape, info, self._everyone)
        cost = read_function(self._source, (self.num_envs, *self.cost_shape), self._obs, actions, obs, info)
        return check_batch(cost, self._source)

    def _begun(self, obs: Any, info: Mapping[str, Any], fresh: np.ndarray) -> np.ndarray:
        self._obs = kept(obs) if callable(self._source) else None
        if self.options is not None:
            self._remaining = self._remaining.copy()
            self._remaining[fresh] = np.asarray(info["remaining"], np.float64)[fresh]
        return self._flat.batch(obs, self.num_envs)


def _options(envs: VectorEnv) -> Options | None:
    """What the environments were sautéed with: together, as one vector, or each by itself and all alike."""
    if not envs.metadata.get("saute"):
        return None
    together = getattr(envs, "options", None)
    if together is not None:
        return together
    each: Sequence[Options] = envs.get_attr("options")  # type: ignore[attr-defined]
    different = {repr(one) for one in each}
    if len(different) > 1:
        raise ValueError(
            f"the environments are sautéed differently ({', '.join(sorted(different))}); give all the same options"
        )
    return each[0]


def _horizon(envs: VectorEnv) -> int | None:
    """The time limit of an episode, if one is known: the task's own, or the tightest of Gymnasium's."""
    bare = envs.unwrapped
    if hasattr(bare, "env"):
        return getattr(bare.env, "horizon", None)
    limits = [None if envs.spec is None else envs.spec.max_episode_steps, *map(limit_of, getattr(bare, "envs", ()))]
    return min((limit for limit in limits if limit), default=None)


def _float(value: npt.ArrayLike) -> Any:
    """A float, or an array of them, for an entry of the info, whose type Gymnasium takes from the first environment."""
    return np.asarray(value, np.float64)[()]
