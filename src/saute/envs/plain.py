"""One environment of a task in plain Python floats: nothing is compiled, and one step is faster than any compiled call."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from saute.envs.engine import MujocoEngine
from saute.envs.shown import Shown, checked_actions, physical_option, shaped
from saute.envs.task import TaskEnv, outcome

__all__ = ["Formulas", "PlainEnv", "Simulation"]

Numbers = Any
"""A tuple of floats, where formulas are written for arrays."""


class Formulas:
    """The formulas of a task as its physics."""

    def __init__(self, env: TaskEnv):
        self.env = env

    def advance(self, x: Numbers, action: Numbers) -> tuple[Numbers, Numbers]:
        """The next state, and what is sensed there while the action is still held."""
        x_next = self.env.task.advance(x, action)
        return x_next, self.env.task.sense(x_next, action)

    def sense(self, x: Numbers, action: Numbers) -> Numbers:
        return self.env.task.sense(x, action)

    def close(self) -> None:
        """Nothing to release."""


class Simulation:
    """MuJoCo as the physics of a task."""

    def __init__(self, env: TaskEnv):
        self.env = env
        self.engine = MujocoEngine(env.task, threads=1)

    def advance(self, x: Numbers, action: Numbers) -> tuple[Numbers, Numbers]:
        x_next, sensors = self.engine.advance(np.array([x]), np.array([action]))
        return tuple(x_next[0].tolist()), tuple(sensors[0].tolist())

    def sense(self, x: Numbers, action: Numbers) -> Numbers:
        return tuple(self.engine.sense(np.array([x]), np.array([action]))[0].tolist())

    def close(self) -> None:
        self.engine.close()


class PlainEnv(Shown):
    """A task as one `gymnasium.Env` with `info["cost"]`; its start states come from the environment's `np_random`."""

    def __init__(self, physics: Formulas | Simulation, render_mode: str | None = None):
        Shown.__init__(self, physics.env, render_mode)
        self.physics = physics
        self.task = physics.env.task
        self._x: Numbers | None = None
        self._time = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode; `options={"state": x}` begins it in the physical state x."""
        given = physical_option(options, self.env, ()) if options else None
        gym.Env.reset(self, seed=seed)
        drawn = self.task.start(self.np_random)
        self._x = x = drawn if given is None else tuple(given.tolist())
        self._time = 0
        self._show()
        return np.array(self.task.observe(x, self.physics.sense(x, (0.0,) * self.task.action_size))), {}

    def step(self, action: npt.ArrayLike) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        x = self._x
        if x is None:
            raise gym.error.ResetNeeded("step was called before reset; call env.reset() to begin an episode")
        numbers: Numbers = tuple(shaped(action, self.action_space.shape).tolist())
        if not all(map(math.isfinite, numbers)):
            checked_actions(action, self.action_space.shape)
        x_next, sensors = self.physics.advance(x, numbers)
        self._time += 1
        self._x = x_next
        _, obs, reward, cost, terminated, truncated = outcome(self.task, x, numbers, x_next, sensors, self._time)
        self._show()
        return np.array(obs), reward, terminated, truncated, {"cost": cost}

    @property
    def state(self) -> np.ndarray:
        """The physical state x, in the form that `reset(options={"state": x})` takes."""
        if self._x is None:
            raise gym.error.ResetNeeded("there is no state before reset; call env.reset() to begin an episode")
        return np.array(self._x)

    def close(self) -> None:
        Shown.close(self)
        self.physics.close()
