"""Many copies of one environment, stepped in one call from the host: compiled JAX or real MuJoCo, always in float64."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree, UInt

from saute.core.masks import along
from saute.core.native import Sauted
from saute.core.protocol import Env, Step
from saute.envs.engine import MujocoEngine
from saute.envs.task import Action, Clocked, State, Task, TaskEnv, outcome

__all__ = ["JaxBatch", "Keyed", "MujocoBatch", "merge"]

RawKey = UInt[Array, " 2"]
double = functools.partial(jax.enable_x64, True)


class Keyed(NamedTuple):
    """The state of a batch in NumPy: one random key and one state per environment."""

    keys: UInt[Any, "*batch 2"]
    state: PyTree


def keys_of(seeds: Sequence[int]) -> UInt[np.ndarray, "batch 2"]:
    """One random key per seed, as raw data: to pass typed keys takes several times as long as a step."""
    with double():
        return np.asarray(jax.vmap(lambda seed: jax.random.key_data(jax.random.key(seed)))(jnp.asarray(seeds)))


def merge(mask: np.ndarray, new: PyTree, old: PyTree) -> PyTree:
    """New entries of a batch where the mask is set, old ones elsewhere."""
    return jax.tree.map(lambda a, b: np.where(along(mask, a), a, b), new, old)


class JaxBatch:
    """A batch of any JAX-native `Env`, one compiled call per step."""

    def __init__(self, env: Env):
        self.env = env
        self._restart = jax.jit(jax.vmap(functools.partial(_restart, env)))
        self._step = jax.jit(jax.vmap(functools.partial(_step, env)))
        self._place = jax.jit(jax.vmap(env.start_from)) if isinstance(env, TaskEnv) else None

    def begin(self, seeds: Sequence[int]) -> tuple[Keyed, np.ndarray]:
        """Begin episodes, each from its own seed."""
        keys = keys_of(seeds)
        with double():
            state, obs = jax.eval_shape(jax.vmap(lambda key: self.env.reset(jax.random.wrap_key_data(key))), keys)
        state, obs = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), (state, obs))
        return self.restart(Keyed(keys, state), obs, np.ones(len(seeds), bool))

    def restart(self, batch: Keyed, obs: np.ndarray, mask: np.ndarray) -> tuple[Keyed, np.ndarray]:
        """Begin new episodes where the mask is set; all other environments stay as they are."""
        with double():
            return _on_host(self._restart(batch, obs, mask))

    def place(self, batch: Keyed, x: np.ndarray, mask: np.ndarray) -> tuple[Keyed, np.ndarray]:
        """Begin episodes in the given physical states where the mask is set."""
        if self._place is None:
            raise ValueError(f'{type(self.env).__name__} cannot start from a physical state; reset it without options["state"]')
        with double():
            state, obs = _on_host(self._place(x))
        return Keyed(batch.keys, merge(mask, state, batch.state)), obs

    def step(self, batch: Keyed, actions: np.ndarray) -> tuple[Keyed, Step]:
        with double():
            keys, step = _on_host(self._step(batch, actions))
        return Keyed(keys, step.state), step

    def physical(self, batch: Keyed) -> np.ndarray:
        """The physical states x, one row per environment."""
        state = batch.state.state if isinstance(batch.state, Sauted) else batch.state
        return state.physical.copy()

    def close(self) -> None:
        """Nothing to release."""

    def __reduce__(self) -> tuple[Any, ...]:
        return JaxBatch, (self.env,)


class MujocoBatch:
    """A batch of a task that real MuJoCo steps; starts, observations, rewards and costs are the task's own."""

    def __init__(self, env: TaskEnv):
        self.env = env
        self.engine = MujocoEngine(env.task)
        self._start = jax.jit(jax.vmap(functools.partial(_start, env.task)))
        self._observe = jax.jit(jax.vmap(env.task.observe))
        self._outcome = jax.jit(jax.vmap(functools.partial(outcome, env.task)))

    def begin(self, seeds: Sequence[int]) -> tuple[Keyed, np.ndarray]:
        n, task = len(seeds), self.env.task
        empty = Clocked(np.zeros((n, task.state_size)), np.zeros(n, np.int32))
        return self.restart(Keyed(keys_of(seeds), empty), np.zeros((n, task.observation_size)), np.ones(n, bool))

    def restart(self, batch: Keyed, obs: np.ndarray, mask: np.ndarray) -> tuple[Keyed, np.ndarray]:
        with double():
            keys, x = _on_host(self._start(batch.keys))
        batch, fresh = self.place(Keyed(merge(mask, keys, batch.keys), batch.state), x, mask)
        return batch, np.where(mask[:, None], fresh, obs)

    def place(self, batch: Keyed, x: np.ndarray, mask: np.ndarray) -> tuple[Keyed, np.ndarray]:
        x = np.where(mask[:, None], x, batch.state.physical)
        sensors = np.zeros((len(x), self.engine.model.nsensordata))
        sensors[mask] = self.engine.sense(x[mask], np.zeros((int(mask.sum()), self.env.task.action_size)))
        with double():
            obs = _on_host(self._observe(x, sensors))
        return Keyed(batch.keys, Clocked(x, np.where(mask, 0, batch.state.time))), obs

    def step(self, batch: Keyed, actions: np.ndarray) -> tuple[Keyed, Step]:
        x, time = batch.state.physical, batch.state.time + 1
        x_next, sensors = self.engine.advance(x, actions)
        with double():
            step = _on_host(self._outcome(x, actions, x_next, sensors, time))
        return Keyed(batch.keys, step.state), step

    def physical(self, batch: Keyed) -> np.ndarray:
        return batch.state.physical.copy()

    def close(self) -> None:
        self.engine.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return MujocoBatch, (self.env,)


def _restart(env: Env, batch: Keyed, obs: Float[Array, " obs"], fresh: Bool[Array, ""]) -> tuple[Keyed, Float[Array, " obs"]]:
    key, draw = _split(batch.keys)
    state, first = env.reset(draw)
    reset = (Keyed(key, state), first)
    return jax.tree.map(lambda new, old: jnp.where(fresh, new, old), reset, (batch, obs))


def _step(env: Env, batch: Keyed, action: Action) -> tuple[RawKey, Step]:
    key, draw = _split(batch.keys)
    return key, env.step(batch.state, action, draw)


def _start(task: Task, key: RawKey) -> tuple[RawKey, State]:
    key, draw = _split(key)
    return key, task.start(draw)


def _on_host(tree: PyTree) -> PyTree:
    """Writable NumPy copies; unlike JAX arrays they stay float64 when they are pickled outside of double precision."""
    return jax.tree.map(np.array, tree)


def _split(data: RawKey) -> tuple[RawKey, PRNGKeyArray]:
    """The next raw key of a random stream, and a typed key to draw from now."""
    key, draw = jax.random.split(jax.random.wrap_key_data(data))
    return jax.random.key_data(key), draw
