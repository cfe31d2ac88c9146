"""Tasks of discrete actions and of pictures, with known answers."""

from __future__ import annotations

import dataclasses
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from saute.core.protocol import Step

SIDE = 16


@dataclasses.dataclass(frozen=True)
class Arms:
    """Arm 1 pays 1 and costs 1, arm 0 pays ½: with a budget d the best return of ten steps is d + (10 − d)/2."""

    horizon: int = 10
    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, key: Any) -> tuple[Any, Any]:
        return jnp.zeros((), jnp.int32), jnp.zeros(1)

    def step(self, state: Any, action: Any, key: Any) -> Step:
        time, cost = state + 1, (action == 1).astype(jnp.float32)
        return Step(time, jnp.full(1, time / self.horizon), 0.5 + 0.5 * cost, cost, jnp.zeros((), bool), time >= self.horizon)


class CountedArms(gym.Env):
    """The same for Gymnasium, in which arms are counted from 5, and which takes nothing else."""

    observation_space, action_space, horizon = Arms.observation_space, spaces.Discrete(2, start=5), 10

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        gym.Env.reset(self, seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        self.time += 1
        cost = float(action == 6)
        return np.full(1, self.time / 10, np.float32), 0.5 + 0.5 * cost, False, self.time >= 10, {"cost": cost}


@dataclasses.dataclass(frozen=True)
class Levers:
    """Two levers of two and three positions: the last of each pays 1; in the third position, the second one also costs 1."""

    horizon: int = 10
    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = spaces.MultiDiscrete([2, 3])

    def reset(self, key: Any) -> tuple[Any, Any]:
        return jnp.zeros((), jnp.int32), jnp.zeros(1)

    def step(self, state: Any, action: Any, key: Any) -> Step:
        time, cost = state + 1, (action[1] == 2).astype(jnp.float32)
        reward = (action[0] == 1) + cost
        return Step(time, jnp.full(1, time / self.horizon), reward, cost, jnp.zeros((), bool), time >= self.horizon)


@dataclasses.dataclass(frozen=True)
class RedSide:
    """A red block is on the left or on the right of a grey picture; the arm of that side pays 1 and costs 1, the other pays ½.

    Who never pays gets 5 in ten steps, and has to look; arms that are chosen without looking cost 5. With `continuous`, the
    arm is the sign of a number.
    """

    horizon: int = 10
    continuous: bool = False
    image = (SIDE, SIDE, 3)
    observation_space = spaces.Box(0.0, 255.0, (SIDE * SIDE * 3,), np.float32)

    @property
    def action_space(self) -> spaces.Space[Any]:
        return spaces.Box(-1.0, 1.0, (1,), np.float32) if self.continuous else spaces.Discrete(2)

    def reset(self, key: Any) -> tuple[Any, Any]:
        return self._begun(key, jnp.zeros((), jnp.int32))

    def step(self, state: Any, action: Any, key: Any) -> Step:
        (time, right), over = state, state[0] + 1 >= self.horizon
        chosen = action[0] > 0 if self.continuous else action == 1
        cost = (chosen == right).astype(jnp.float32)
        return Step(*self._begun(key, time + 1), 0.5 + 0.5 * cost, cost, jnp.zeros((), bool), over)

    def _begun(self, key: Any, time: Any) -> Any:
        side_key, *keys = jax.random.split(key, 3)
        right = jax.random.bernoulli(side_key)
        down, across = (jax.random.randint(k, (), 0, n) for k, n in zip(keys, (SIDE - 4, SIDE // 2 - 4), strict=True))
        first = jnp.stack([down, across + right * SIDE // 2, 0])
        block = jnp.broadcast_to(jnp.array([255.0, 0.0, 0.0]), (4, 4, 3))
        picture = jax.lax.dynamic_update_slice(jnp.full(self.image, 100.0), block, first)
        return (time, right), picture.ravel()
