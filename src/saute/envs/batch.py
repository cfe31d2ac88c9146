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
from saute.envs.task import Action, Clocked, TaskEnv, outcome

__all__ = ["CompiledPhysics", "JaxBatch", "Keyed", "MujocoPhysics", "TaskBatch", "merge"]

RawKey = UInt[Array, " 2"]
Generators = Sequence[np.random.Generator]
double = functools.partial(jax.enable_x64, True)


class Keyed(NamedTuple):
    """The state of a `JaxBatch` in NumPy: one random key and one state per environment."""

    keys: UInt[Any, "*batch 2"]
    state: PyTree


def key_of(generator: np.random.Generator) -> UInt[np.ndarray, " 2"]:
    """A random key from a generator, as raw data: to pass typed keys takes several times as long as a step."""
    return np.array(divmod(int(generator.integers(2**63)), 2**32), np.uint32)


def merge(mask: np.ndarray, new: PyTree, old: PyTree) -> PyTree:
    """New entries of a batch where the mask is set, old ones elsewhere."""
    return jax.tree.map(lambda a, b: np.where(along(mask, a), a, b), new, old)


class JaxBatch:
    """A batch of any JAX-native `Env`, one compiled call per step; it draws from JAX's keys, as training does."""

    def __init__(self, env: Env):
        self.env = env
        self._restart = jax.jit(jax.vmap(functools.partial(_restart, env)))
        self._step = jax.jit(jax.vmap(functools.partial(_step, env)))
        self._place = jax.jit(jax.vmap(env.start_from)) if isinstance(env, TaskEnv) else None

    def restart(
        self, batch: Keyed | None, obs: np.ndarray, mask: np.ndarray, rngs: Generators, anew: np.ndarray
    ) -> tuple[Keyed, np.ndarray]:
        """Begin new episodes where the mask is set, and before that a new stream of random numbers where `anew` is."""
        if batch is None:
            batch, obs = jax.tree.map(lambda leaf: np.zeros((len(mask), *leaf.shape), leaf.dtype), self._shapes)
        keys = batch.keys.copy()
        for i in np.flatnonzero(anew).tolist():
            keys[i] = key_of(rngs[i])
        with double():
            return _on_host(self._restart(Keyed(keys, batch.state), obs, mask))

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

    @functools.cached_property
    def _shapes(self) -> tuple[Keyed, Any]:
        """Shapes and types of the state and of the observation of one environment."""
        raw = jax.ShapeDtypeStruct((2,), np.uint32)
        with double():
            state, obs = jax.eval_shape(lambda key: self.env.reset(jax.random.wrap_key_data(key)), raw)
        return Keyed(raw, state), obs

    def __reduce__(self) -> tuple[Any, ...]:
        return JaxBatch, (self.env,)


class CompiledPhysics:
    """The formulas of a task, compiled for a batch."""

    def __init__(self, env: TaskEnv):
        self.env = env
        self._observe = jax.jit(jax.vmap(lambda x: env.start_from(x)[1]))
        self._step = jax.jit(jax.vmap(env.step))

    def observe(self, x: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """What is observed where episodes begin in the states x; the rows outside of the mask do not matter."""
        with double():
            return np.array(self._observe(x))

    def step(self, state: Clocked, actions: np.ndarray) -> Step:
        with double():
            return _on_host(self._step(state, actions))

    def close(self) -> None:
        """Nothing to release."""

    def __reduce__(self) -> tuple[Any, ...]:
        return CompiledPhysics, (self.env,)


class MujocoPhysics:
    """Real MuJoCo moves and senses; observations, rewards and costs are the task's own, compiled."""

    def __init__(self, env: TaskEnv):
        self.env = env
        self.engine = MujocoEngine(env.task)
        self._observe = jax.jit(jax.vmap(env.task.observe))
        self._outcome = jax.jit(jax.vmap(functools.partial(outcome, env.task)))

    def observe(self, x: np.ndarray, mask: np.ndarray) -> np.ndarray:
        sensors = np.zeros((len(x), self.engine.model.nsensordata))
        sensors[mask] = self.engine.sense(x[mask], np.zeros((int(mask.sum()), self.env.task.action_size)))
        with double():
            return np.array(self._observe(x, sensors))

    def step(self, state: Clocked, actions: np.ndarray) -> Step:
        x_next, sensors = self.engine.advance(state.physical, actions)
        with double():
            return _on_host(self._outcome(state.physical, actions, x_next, sensors, state.time + 1))

    def close(self) -> None:
        self.engine.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return MujocoPhysics, (self.env,)


class TaskBatch:
    """A batch of one of our own tasks, whose starts come from NumPy's generators, as those of a single environment do."""

    def __init__(self, physics: CompiledPhysics | MujocoPhysics):
        self.physics = physics
        self.env = physics.env

    def restart(
        self, batch: Clocked | None, obs: np.ndarray, mask: np.ndarray, rngs: Generators, anew: np.ndarray
    ) -> tuple[Clocked, np.ndarray]:
        n, task = len(mask), self.env.task
        if batch is None:
            batch, obs = Clocked(np.zeros((n, task.state_size)), np.zeros(n, np.int32)), np.zeros((n, task.observation_size))
        x = batch.physical.copy()
        for i in np.flatnonzero(mask).tolist():
            x[i] = task.start(rngs[i])
        batch, fresh = self.place(batch, x, mask)
        return batch, np.where(mask[:, None], fresh, obs)

    def place(self, batch: Clocked, x: np.ndarray, mask: np.ndarray) -> tuple[Clocked, np.ndarray]:
        x = np.where(mask[:, None], x, batch.physical)
        return Clocked(x, np.where(mask, 0, batch.time)), self.physics.observe(x, mask)

    def step(self, batch: Clocked, actions: np.ndarray) -> tuple[Clocked, Step]:
        step = self.physics.step(batch, actions)
        return step.state, step

    def physical(self, batch: Clocked) -> np.ndarray:
        return batch.physical.copy()

    def close(self) -> None:
        self.physics.close()


def _restart(env: Env, batch: Keyed, obs: Float[Array, " obs"], fresh: Bool[Array, ""]) -> tuple[Keyed, Float[Array, " obs"]]:
    key, draw = _split(batch.keys)
    state, first = env.reset(draw)
    reset = (Keyed(key, state), first)
    return jax.tree.map(lambda new, old: jnp.where(fresh, new, old), reset, (batch, obs))


def _step(env: Env, batch: Keyed, action: Action) -> tuple[RawKey, Step]:
    key, draw = _split(batch.keys)
    return key, env.step(batch.state, action, draw)


def _on_host(tree: PyTree) -> PyTree:
    """Writable NumPy copies; unlike JAX arrays they stay float64 when they are pickled outside of double precision."""
    return jax.tree.map(np.array, tree)


def _split(data: RawKey) -> tuple[RawKey, PRNGKeyArray]:
    """The next raw key of a random stream, and a typed key to draw from now."""
    key, draw = jax.random.split(jax.random.wrap_key_data(data))
    return jax.random.key_data(key), draw
