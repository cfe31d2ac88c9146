"""Real MuJoCo as the physics of a task, for a whole batch of states at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from saute.core.extras import needed
from saute.core.machine import cores
from saute.envs.task import Modelled

__all__ = ["MujocoEngine"]

States = Float[np.ndarray, "batch state"]
Actions = Float[np.ndarray, "batch action"]
Sensed = Float[np.ndarray, "batch sensors"]


class MujocoEngine:
    """Physics of any task by `mujoco.rollout`: float64, batched, threaded; a pure function of state and action.

    The constraint solver starts from zero at every call, so the result depends neither on the batch, nor on the thread,
    nor on earlier calls.
    """

    def __init__(self, task: Modelled, threads: int | None = None) -> None:
        try:
            from mujoco import mj_stateSize, mjtState
        except ModuleNotFoundError as missing:
            problem = needed(f"the physics of {type(task).__name__}", missing)
            raise ModuleNotFoundError(problem or str(missing), name=missing.name) from missing

        self.task = task
        self.threads = threads
        self.model = task.model()
        self._size = 1 + self.model.nq + self.model.nv
        if mj_stateSize(self.model, mjtState.mjSTATE_FULLPHYSICS.value) != self._size:
            raise ValueError(f"the model of {task} has more state than qpos and qvel: remove activations and plugins")
        self._pool: Any = None
        # MuJoCo senses before it moves: the sensors of one more substep are those of the state that we return.
        self._steps = task.substeps + (self.model.nsensordata > 0)
        self._outputs = self._allocate(0, self._steps)

    def advance(self, x: States, action: Actions) -> tuple[States, Sensed]:
        """The states after the task's substeps, and what the sensors read there while the action is still held."""
        last = self.task.substeps
        if len(self._outputs[0]) != len(x):
            self._outputs = self._allocate(len(x), self._steps)
        states, sensors = self._roll(x, action, *self._outputs)
        return states[:, last - 1, 1:].copy(), sensors[:, -1].copy()

    def sense(self, x: States, action: Actions) -> Sensed:
        """What the sensors read in the states x while the action is held."""
        outputs = self._allocate(len(x), 1)
        return (self._roll(x, action, *outputs) if self.model.nsensordata else outputs)[1][:, 0]

    def close(self) -> None:
        """End the threads; the next use of the engine starts new ones."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def __reduce__(self) -> tuple[Any, ...]:
        return MujocoEngine, (self.task, self.threads)

    def _allocate(self, batch: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
        return np.empty((batch, steps, self._size)), np.empty((batch, steps, self.model.nsensordata))

    def _roll(self, x: States, action: Actions, states: np.ndarray, sensors: np.ndarray) -> Any:
        """Hold the actions from the states x, at time 0, for as many MuJoCo steps as the outputs have rows."""
        if not len(x):  # `mujoco.rollout` crashes on an empty batch
            return states, sensors
        if self._pool is None:
            from mujoco import MjData
            from mujoco.rollout import Rollout

            threads = self.threads or cores()
            self._pool, self._data = Rollout(nthread=threads), [MjData(self.model) for _ in range(threads)]
        start = np.concatenate([np.zeros((len(x), 1)), x], axis=1)
        control = np.clip(np.asarray(action, float), -1.0, 1.0)[:, None]
        warmstart = np.zeros((len(x), self.model.nv))
        return self._pool.rollout(
            self.model, self._data, start, control, initial_warmstart=warmstart, state=states, sensordata=sensors
        )
