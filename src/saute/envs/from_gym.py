"""Any Gymnasium environment for training on the host: batched, with the cost and the remaining budget as plain fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from saute.core.cost import check_source, read_batch
from saute.core.native import Sauted
from saute.core.options import Options
from saute.core.protocol import Step

__all__ = ["HostEnvs"]

LIMITS = ("_max_episode_steps", "horizon")
"""Where Gymnasium's TimeLimit, and environments with a limit of their own, keep it."""


class HostEnvs:
    """A vector environment that never resets itself: `reset`, `step` and `restart`.

    `envs` is a `VectorEnv` with AutoresetMode.DISABLED, or a function that makes one environment; sautéed or not, as a vector
    or each by itself. They serve one seed of a training after the other or, for environments that are fast in large batches
    and for episodes that are longer than an epoch, all its `seeds` side by side, each of which then has an equal part of them.
    """

    def __init__(self, envs: VectorEnv | Callable[[], gym.Env], num_envs: int = 1, cost: str = "cost", seeds: int = 1):
        if not isinstance(envs, VectorEnv):
            envs = SyncVectorEnv([envs] * num_envs, autoreset_mode=AutoresetMode.DISABLED)
        if envs.metadata.get("autoreset_mode") is not AutoresetMode.DISABLED:
            raise ValueError(
                f"{envs} resets itself ({envs.metadata.get('autoreset_mode')}); make it with AutoresetMode.DISABLED, "
                "so that the last observation of an episode is not lost"
            )
        space = envs.single_observation_space
        if not isinstance(space, spaces.Box) or len(space.shape) != 1:
            raise ValueError(f"observations {space} are not a vector; flatten them with gymnasium.wrappers.FlattenObservation")
        if not isinstance(seeds, int) or seeds < 1 or envs.num_envs % seeds:
            raise ValueError(f"{envs.num_envs} environments cannot be parted among seeds={seeds!r}; make a multiple of it")
        self.envs = envs
        self.num_envs = envs.num_envs
        self.seeds = seeds
        self.horizon = _horizon(envs)
        self.options = _options(envs)
        self.observation_space: spaces.Box = space
        self.action_space = envs.single_action_space
        # A sautéed environment has read the cost already, wherever it was, and gives it under this name.
        self._source = "cost" if self.options is not None else check_source(cost, 1, False)
        self._everyone = np.ones(self.num_envs, bool)
        self._remaining: np.ndarray = np.zeros((self.num_envs, *self.cost_shape))

    def reset(self, seed: int | list[int] | None = None) -> np.ndarray:
        """First observations of fresh episodes in all environments, seeded by one number, or by one each."""
        return self._begun(*self.envs.reset(seed=cast(Any, seed)), self._everyone)

    def restart(self, ended: np.ndarray) -> np.ndarray:
        """Observations after fresh episodes have begun in the environments that ended."""
        return self._begun(*self.envs.reset(options={"reset_mask": ended}), ended)

    def step(self, actions: np.ndarray) -> Step:
        """The transition of every environment."""
        obs, reward, terminated, truncated, info = self.envs.step(actions)
        cost = read_batch(self._source, self.cost_shape, info, self._everyone)  # type: ignore[arg-type]
        state = None
        if self.options is not None:
            self._remaining = np.array(info["remaining"], np.float64)
            state = self.state._replace(task_reward=np.asarray(info["task_reward"], np.float64), violated=info["violated"])
        return Step(state, _single(obs), np.asarray(reward, np.float64), cost, terminated, truncated)

    @property
    def cost_shape(self) -> tuple[int, ...]:
        """Shape of one environment's cost."""
        return () if self.options is None else self.options.budget_shape

    @property
    def state(self) -> Any:
        """What sautéed environments carry along with their last observations; bare ones carry nothing that we know."""
        if self.options is None:
            return None
        zeros = np.zeros(self.num_envs)
        return Sauted(None, self._remaining.copy(), np.zeros_like(self._remaining), zeros, zeros > 0)

    @property
    def budget(self) -> float | None:
        """The task's own budget, if it has one."""
        return getattr(getattr(self.envs.unwrapped, "env", None), "budget", None)

    def _begun(self, obs: np.ndarray, info: Mapping[str, Any], fresh: np.ndarray) -> np.ndarray:
        if self.options is not None:
            self._remaining = self._remaining.copy()
            self._remaining[fresh] = np.asarray(info["remaining"], np.float64)[fresh]
        return _single(obs)


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
    each: Sequence[gym.Env] = getattr(bare, "envs", ())
    specs = [envs.spec, *(env.spec for env in each)]
    limits = [spec.max_episode_steps for spec in specs if spec is not None]
    limits += [env.get_wrapper_attr(name) for env in each for name in LIMITS if env.has_wrapper_attr(name)]
    limits += [getattr(getattr(env.unwrapped, "env", None), "horizon", None) for env in each]
    return min((int(limit) for limit in limits if limit), default=None)


def _single(values: Any) -> np.ndarray:
    return np.asarray(values, dtype=np.float32)
