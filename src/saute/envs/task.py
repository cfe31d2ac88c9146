"""What a task is, and how a task becomes an `Env`: physics, then sensors, then the clock."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Float, Int, PRNGKeyArray

from saute.core.protocol import Step
from saute.envs.formula import Scalar, Source, Truth, where

__all__ = ["Clocked", "Modelled", "Renewing", "Task", "TaskEnv", "outcome"]

State = Float[Array, " state"]
Action = Float[Array, " action"]
Sensors = Float[Array, " sensors"]
Observation = Float[Array, " obs"]
if not TYPE_CHECKING:  # on the host, the same formulas take floats: see `saute.envs.formula`
    State, Action, Sensors, Observation = (kind | tuple[float, ...] for kind in (State, Action, Sensors, Observation))


@runtime_checkable
class Task(Protocol):
    """The start, observation, reward and cost of a task, as pure functions of its physical state x, a vector."""

    mode: str
    horizon: int
    budget: float
    unsafe_reward: float
    state_size: int
    observation_size: int
    action_size: int

    def start(self, source: Source) -> State: ...
    def observe(self, x: State, sensors: Sensors) -> Observation: ...
    def reward(self, x: State, action: Action, x_next: State) -> Scalar: ...
    def cost(self, x: State, action: Action, x_next: State) -> Scalar: ...
    def terminated(self, x_next: State) -> Truth: ...


@runtime_checkable
class Modelled(Task, Protocol):
    """A task that MuJoCo can step."""

    def model(self) -> Any:
        """The same physics as a compiled `mujoco.MjModel`; its sensors are, in order, those that `observe` takes."""

    @property
    def substeps(self) -> int:
        """MuJoCo steps per action."""


@runtime_checkable
class Renewing(Task, Protocol):
    """A task that draws random numbers in its steps, as for a goal that moves on; only compiled, since those are JAX's."""

    def renew(self, x_next: State, key: PRNGKeyArray) -> State: ...


class Clocked(NamedTuple):
    """The state of a `TaskEnv`: the physical state, and how many steps have been made."""

    physical: Float[Any, "*batch state"]
    time: Int[Any, "*batch"]


def outcome(task: Any, x: State, action: Action, x_next: State, sensors: Sensors, time: Int[Array, ""] | int) -> Step:
    """All that follows from a step x → x_next of the physics; `truncated` at the horizon, unless terminated."""
    terminated = task.terminated(x_next)
    return Step(
        state=Clocked(x_next, time),
        obs=task.observe(x_next, sensors),
        reward=task.reward(x, action, x_next),
        cost=task.cost(x, action, x_next),
        terminated=terminated,
        truncated=where(terminated, False, time >= task.horizon),
    )


@dataclasses.dataclass(frozen=True)
class TaskEnv:
    """A task as a JAX-native `Env`; its physics are `advance(x, action)`, and `sense(x, action)` while the action is held."""

    task: Any

    @property
    def horizon(self) -> int:
        return self.task.horizon

    @property
    def budget(self) -> float:
        return self.task.budget

    @property
    def unsafe_reward(self) -> float:
        return self.task.unsafe_reward

    @property
    def observation_space(self) -> spaces.Box:
        return spaces.Box(-np.inf, np.inf, (self.task.observation_size,), np.float32)

    @property
    def action_space(self) -> spaces.Box:
        limit = getattr(self.task, "action_limit", 1.0)
        return spaces.Box(-limit, limit, (self.task.action_size,), np.float32)

    def reset(self, key: PRNGKeyArray) -> tuple[Clocked, Float[Array, " obs"]]:
        return self.start_from(self.task.start(key))

    def start_from(self, x: State) -> tuple[Clocked, Float[Array, " obs"]]:
        """Begin an episode in the given physical state."""
        rest = jnp.zeros(self.task.action_size, x.dtype)
        return Clocked(x, jnp.zeros((), jnp.int32)), self.task.observe(x, self.task.sense(x, rest))

    def step(self, state: Clocked, action: Action, key: PRNGKeyArray | None = None) -> Step:
        x_next = self.task.advance(state.physical, action)
        if isinstance(self.task, Renewing):
            if key is None:
                raise ValueError(f"{type(self.task).__name__} draws random numbers in its steps; pass a key to step")
            x_next = self.task.renew(x_next, key)
        return outcome(self.task, state.physical, action, x_next, self.task.sense(x_next, action), state.time + 1)
