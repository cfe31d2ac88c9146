"""Environments with the interfaces of Brax and of gymnax, and known answers; `tests/worlds` has the real ones."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class State:
    """As Brax has it: what a step reports is part of the state."""

    pipeline_state: Any
    obs: Any
    reward: Any
    done: Any
    metrics: dict[str, Any]
    info: dict[str, Any]

    def replace(self, **changes: Any) -> State:
        return dataclasses.replace(self, **changes)


class Walk:
    """x moves by the action and falls at 3; the reward is Python's 1.0, and the info is written in place, as in some tasks."""

    action_size = 1

    def __init__(self, nested: bool = False, grows: bool = False):
        self.nested, self.grows = nested, grows

    @property
    def unwrapped(self) -> Walk:
        return self

    def reset(self, rng: Any) -> State:
        x = jnp.zeros(())
        info = {"rng": rng, "steps_left": jnp.ones(()), "safety": {"heat": x, "wear": x}, "both": jnp.zeros(2)}
        return State(x, self._obs(x), x, x, {"speed": x}, info)

    def step(self, state: State, action: Any) -> State:
        x = state.pipeline_state + action[0]
        state.info["rng"] = jax.random.split(state.info["rng"])[0]
        state.info["safety"] = {"heat": jnp.abs(x), "wear": 2 * jnp.abs(x)}
        state.info["both"] = jnp.stack([x, -x])
        if self.grows:
            state.info["news"] = x
        done = (x >= 3.0).astype(jnp.float32)
        return state.replace(pipeline_state=x, obs=self._obs(x), reward=1.0, done=done, metrics={"speed": action[0]})

    def _obs(self, x: Any) -> Any:
        return {"state": jnp.stack([x, -x]), "privileged_state": x[None] + 10.0} if self.nested else jnp.stack([x, -x])


class Wrapper:
    """As Brax's: what it does not have is the inner environment's."""

    def __init__(self, env: Any):
        self.env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)


class AutoResetWrapper(Wrapper):
    pass


class BraxAutoResetWrapper(Wrapper):
    pass


class EpisodeWrapper(Wrapper):
    pass


class VmapWrapper(Wrapper):
    pass


@dataclasses.dataclass(frozen=True)
class Params:
    """As gymnax has them."""

    edge: int = 3
    max_steps_in_episode: int = 5

    def replace(self, **changes: Any) -> Params:
        return dataclasses.replace(self, **changes)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class GridState:
    x: Any
    time: Any


class Grid:
    """Action 1 moves right, 0 stays; x ends at the edge. The observation is a 2 × 2 picture of x and of the share of the time.

    As gymnax before 1.0, `done` is also true when the time is over, and a step after that has no reward; since 1.0 it is not.
    """

    name = "Grid-v0"
    default_params = Params()

    def __init__(self, timed: bool, space: Any = None):
        self.timed, self.space = timed, space or SimpleNamespace(n=2, shape=(), dtype=jnp.int32)

    def action_space(self, params: Params) -> Any:
        return self.space

    def reset_env(self, key: Any, params: Params) -> tuple[Any, GridState]:
        state = GridState(x=0, time=0)  # numbers of Python, as there
        return self._obs(state, params), state

    def step_env(self, key: Any, state: GridState, action: Any, params: Params) -> Any:
        reward = 1.0 - self._done(state, params)
        state = GridState(state.x + jnp.sum(action).astype(int), state.time + 1)
        return self._obs(state, params), state, reward, self._done(state, params), {"where": {"x": state.x}}

    def step(self, *args: Any) -> Any:
        raise AssertionError("gymnax resets itself in `step`, which must not be used")

    reset = step

    def _obs(self, state: GridState, params: Params) -> Any:
        share = jnp.asarray(state.time / params.max_steps_in_episode)
        return jnp.stack([jnp.asarray(state.x, float), share, 0 * share, 0 * share]).reshape(2, 2)

    def _done(self, state: GridState, params: Params) -> Any:
        over = jnp.asarray(state.time >= params.max_steps_in_episode)
        return (state.x >= params.edge) | (over if self.timed else jnp.zeros_like(over))
