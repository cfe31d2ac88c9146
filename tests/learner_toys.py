"""Environments with known answers, the first also for Gymnasium, and all learners as small as they can be."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import saute
from saute.algos.cpo import cpo
from saute.algos.mbpo import MbpoSettings, mbpo
from saute.algos.onpolicy import OnPolicySettings
from saute.algos.pets import PetsSettings, pets
from saute.algos.ppo import ppo
from saute.algos.sac import SacSettings, sac
from saute.algos.trpo import trpo
from saute.core.protocol import Step
from saute.envs.from_gym import HostEnvs
from saute.learn.constraint import lagrangian, pid
from saute.learn.model import ModelSettings
from saute.learn.planner import CemSettings

GOAL, HAZARD = 1.0, 0.6


class Stop(Exception):
    """Somewhere in the middle of an epoch."""


@dataclasses.dataclass(eq=False)
class Fuse:
    """Stops what goes through it at one of its steps; those after it are made as usual."""

    at: int | None = None
    steps: int = 0

    def __call__(self, *seen: Any) -> np.ndarray:
        self.steps += 1
        if self.steps == self.at:
            raise Stop
        return np.zeros((), np.float32)


@dataclasses.dataclass(frozen=True)
class Slope:
    """One number a per step pays a and costs a⁺, and the observation is the time.

    Without a limit the best a is the largest; with a limit on the cost of the ten steps it is a tenth of it; sautéed, the best
    return is the budget.
    """

    horizon: int = 10
    terminal: bool = False
    """Whether the end after ten steps is a terminal state instead of a time-out."""
    bad: bool = False
    """Whether the sixth reward is not a number."""
    fuse: Fuse | None = None
    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, key: Any) -> tuple[Any, Any]:
        return jnp.zeros((), jnp.int32), jnp.zeros(1)

    def step(self, state: Any, action: Any, key: Any) -> Step:
        a, time = jnp.clip(action[0], -1.0, 1.0), state + 1
        if self.fuse is not None:
            a = a + jax.pure_callback(self.fuse, jax.ShapeDtypeStruct((), jnp.float32), time, vmap_method="sequential")
        reward = jnp.where(self.bad & (time == 6), jnp.nan, a)
        over, never = time >= self.horizon, jnp.zeros((), bool)
        terminated, truncated = (over, never) if self.terminal else (never, over)
        return Step(time, jnp.full(1, time / self.horizon), reward, jnp.maximum(a, 0.0), terminated, truncated)


class HostSlope(gym.Env):
    """`Slope` for Gymnasium, with the same float32 numbers."""

    observation_space, action_space = Slope.observation_space, Slope.action_space

    def __init__(self, terminal: bool = False, horizon: int = 10, fuse: Fuse | None = None):
        self.terminal, self.horizon, self.fuse = terminal, horizon, fuse

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        gym.Env.reset(self, seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        if self.fuse is not None:
            self.fuse()
        a = np.clip(np.float32(action[0]), -1, 1)
        self.time += 1
        over = self.time >= self.horizon
        obs = np.full(1, self.time, np.float32) / np.float32(self.horizon)
        return obs, a, over and self.terminal, over and not self.terminal, {"cost": np.maximum(a, np.float32(0))}


def hosted(num_envs: int = 1, seeds: int = 1, budget: Any = 3.0, **changes: Any) -> HostEnvs:
    """Sautéed slopes on the host."""
    envs = SyncVectorEnv([partial(HostSlope, **changes)] * num_envs, autoreset_mode=AutoresetMode.DISABLED)
    return HostEnvs(saute.SauteVectorWrapper(envs, budget, unsafe_reward=-1.0), seeds=seeds)


@dataclasses.dataclass(frozen=True)
class TwoCosts:
    """A random walk of the action, with one cost for either side."""

    horizon: int = 20
    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, key: Any) -> tuple[Any, Any]:
        return jnp.zeros(2), jnp.zeros(1)

    def step(self, state: Any, action: Any, key: Any) -> Step:
        x, time = state[0] + action[0], state[1] + 1
        cost = jnp.stack([jnp.maximum(x, 0.0), jnp.maximum(-x, 0.0)])
        return Step(jnp.stack([x, time]), x[None], jnp.cos(x), cost, jnp.abs(x) > 3, time >= self.horizon)


def reward(obs: Any, action: Any, next_obs: Any) -> Any:
    """Of the point mass: 1 at the goal, after the step."""
    return 1.0 - (next_obs[0] - GOAL) ** 2


def cost(obs: Any, action: Any, next_obs: Any) -> Any:
    """Of the point mass."""
    return (next_obs[0] > HAZARD).astype(next_obs.dtype)


@dataclasses.dataclass(frozen=True)
class PointMass:
    """It pays to come to 1, and beyond 0.6 each step costs 1.

    v' = v + 0.15 a, x' = x + 0.3 v', observed as (x, v); it starts at rest between −0.2 and 0.2.
    """

    horizon: int = 20
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Box(-2.0, 2.0, (1,), np.float32)

    def reset(self, key: Any) -> tuple[Any, Any]:
        obs = jnp.stack([jax.random.uniform(key, minval=-0.2, maxval=0.2), 0.0])
        return (obs, jnp.zeros((), jnp.int32)), obs

    def step(self, state: Any, action: Any, key: Any) -> Step:
        (x, v), time = state[0], state[1] + 1
        v = v + 0.15 * jnp.clip(action[0], -2.0, 2.0)
        obs = jnp.stack([x + 0.3 * v, v])
        moved = (state[0], action, obs)
        return Step((obs, time), obs, reward(*moved), cost(*moved), jnp.zeros((), bool), time >= self.horizon)


class Constant:
    """A policy that is one number, and plays it."""

    observations = 1

    def init(self, key: Any) -> Any:
        return jnp.zeros(())

    def memory(self, count: int) -> tuple[()]:
        return ()

    def decide(self, parameters: Any, memory: tuple[()], obs: Any) -> tuple[Any, tuple[()]]:
        return jnp.broadcast_to(parameters, (len(obs), 1)), memory


def assert_same(a: Any, b: Any) -> None:
    """Bit for bit."""
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


_ON_POLICY = OnPolicySettings(
    hidden=(4,), steps_per_epoch=20, num_envs=2, value_iterations=3, policy_iterations=3, cg_iterations=3, tries=3
)
_SAC = SacSettings(
    hidden=(4,), batch=8, replay=50, random_steps=15, steps_per_epoch=20, num_envs=2, relabel=True, running_normaliser=True,
    scale_rewards=True,
)  # fmt: skip
_MODEL = ModelSettings(hidden=(4,), members=2, elites=1, batch=8, steps=3, rounds=2)
_CEM = CemSettings(horizon=3, population=4, refining=4, elites=2, iterations=2, reused=1, particles=1)
LEARNERS: dict[str, Any] = {
    "ppo": ppo(settings=dataclasses.replace(_ON_POLICY, minibatches=2, running_normaliser=True, scale_rewards=True)),
    "trpo": trpo(lagrangian(3.0), dataclasses.replace(_ON_POLICY, normalise=True, kl_epochs=4)),
    "cpo": cpo(3.0, _ON_POLICY),
    "sac": sac(pid(3.0), _SAC),
    "mbpo": mbpo(MbpoSettings(dataclasses.replace(_SAC, num_envs=1, relabel=False), _MODEL, rollouts=4, imagined=50)),
    "pets": pets(PetsSettings(_CEM, _MODEL, steps_per_epoch=20, fit_every=10, random_steps=15, replay=50)),
}
"""All learners as small as they can be, with what they may carry from epoch to epoch: multipliers, normalisers, wrapped rings,
models, plans."""
WHERE = ("native", "host")


def num_envs(name: str) -> int:
    """Environments of a seed in which a learner of these steps: those with a model step one."""
    return 1 if name in ("mbpo", "pets") else 2


def slopes(name: str, where: str, seeds: int = 1, fuse: Fuse | None = None) -> Any:
    """Sautéed slopes for one of the learners."""
    if where == "native":
        return saute.saute(Slope(fuse=fuse), 3.0, unsafe_reward=-1.0)
    return hosted(seeds * num_envs(name), seeds, fuse=fuse)
