"""Any Gymnasium environment for the host-side collector: batched, with the cost as a first-class field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from saute.core.cost import check_source, read_batch
from saute.core.native import Sauted
from saute.core.protocol import Step
from saute.core.vector import SauteVectorWrapper

__all__ = ["HostEnvs"]


class HostEnvs:
    """A vector environment that never resets itself: `reset`, `step` and `restart`, on float32 arrays.

    `envs` is a `VectorEnv` with AutoresetMode.DISABLED, or a function that makes one environment; sautéed or not. They serve
    one seed of a training after the other or, for environments that are fast in large batches, all its `seeds` side by side,
    each of which then has an equal part of them.
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
        self.options = envs.options if isinstance(envs, SauteVectorWrapper) else None
        self.observation_space: spaces.Box = space
        self.action_space = envs.single_action_space
        self._source = check_source(cost, 1, False)
        self._everyone = np.ones(self.num_envs, bool)

    def reset(self, seed: int | list[int] | None = None) -> np.ndarray:
        """First observations of fresh episodes in all environments, seeded by one number, or by one each."""
        return _single(self.envs.reset(seed=cast(Any, seed))[0])

    def restart(self, ended: np.ndarray) -> np.ndarray:
        """Observations after fresh episodes have begun in the environments that ended."""
        return _single(self.envs.reset(options={"reset_mask": ended})[0])

    def step(self, actions: np.ndarray) -> tuple[Step, np.ndarray]:
        """The transition of every environment, and its reward before shaping."""
        obs, reward, terminated, truncated, info = self.envs.step(self._bounded(actions))
        cost = _single(read_batch(self._source, self.cost_shape, info, self._everyone))  # type: ignore[arg-type]
        earned = _single(info.get("task_reward", reward))
        state = self.state
        state = None if state is None else state._replace(task_reward=earned, violated=info["violated"])
        return Step(state, _single(obs), _single(reward), cost, terminated, truncated), earned

    @property
    def cost_shape(self) -> tuple[int, ...]:
        """Shape of one environment's cost."""
        return () if self.options is None else self.options.budget_shape

    @property
    def state(self) -> Sauted | None:
        """What sautéed environments carry along with their last observations; bare ones carry nothing that we know."""
        if not isinstance(self.envs, SauteVectorWrapper):
            return None
        return Sauted(None, _single(self.envs.remaining), np.zeros(self.num_envs, np.float32), np.zeros(self.num_envs, bool))

    def _bounded(self, actions: np.ndarray) -> np.ndarray:
        space = self.action_space
        return np.clip(actions, space.low, space.high) if isinstance(space, spaces.Box) else actions


def _horizon(envs: VectorEnv) -> int | None:
    """The time limit of an episode, if one is known."""
    bare = envs.unwrapped
    if hasattr(bare, "env"):
        return getattr(bare.env, "horizon", None)
    each = getattr(bare, "envs", ())
    specs = [envs.spec, *(env.spec for env in each)]
    limits = [spec.max_episode_steps for spec in specs if spec is not None]
    return next((limit for limit in [*limits, *(getattr(env.unwrapped, "horizon", None) for env in each)] if limit), None)


def _single(values: Any) -> np.ndarray:
    return np.asarray(values, dtype=np.float32)
