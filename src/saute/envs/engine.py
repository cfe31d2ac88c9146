"""Real MuJoCo behind a task, for a whole batch of states at once."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from jaxtyping import Float

__all__ = ["MujocoEngine"]

States = Float[np.ndarray, "batch state"]
Actions = Float[np.ndarray, "batch action"]
Sensed = Float[np.ndarray, "batch sensors"]


class MujocoEngine:
    """`Physics` of any task by `mujoco.rollout`: float64, batched, threaded; a pure function of state and action.

    The constraint solver starts from zero at every call, so neither the batch, nor the thread, nor the past matters.
    """

    def __init__(self, task: Any, threads: int | None = None) -> None:
        from mujoco import mj_stateSize, mjtState

        self.task = task
        self.threads = threads
        self.model = task.model()
        self.state_size = self.model.nq + self.model.nv
        if mj_stateSize(self.model, mjtState.mjSTATE_FULLPHYSICS.value) != 1 + self.state_size:
            raise ValueError(f"{task}: the state of its model must be (qpos, qvel), without activations or plugins")
        self._pool: Any = None
        self._buffers = self._allocate(0)

    def advance(self, x: States, action: Actions) -> tuple[States, Sensed]:
        """The states after the task's substeps, and what is sensed there while the action is still held."""
        substeps = self.task.substeps
        # MuJoCo senses before it moves, hence one more substep: its sensors belong to the state which we return.
        states, sensors = self._roll(x, action, substeps + 1)
        return states[:, substeps - 1, 1:].copy(), sensors[:, substeps].copy()

    def sense(self, x: States, action: Actions) -> Sensed:
        """What is sensed in the states x while the action is held."""
        return self._roll(x, action, 1)[1][:, 0].copy()

    def close(self) -> None:
        """End the threads; the next use of the engine starts new ones."""
        if self._pool is not None:
            self._pool[0].close()
            self._pool = None

    def __reduce__(self) -> tuple[Any, ...]:
        return MujocoEngine, (self.task, self.threads)

    def _roll(self, x: States, action: Actions, steps: int) -> tuple[np.ndarray, np.ndarray]:
        from mujoco import MjData, mjtState
        from mujoco.rollout import Rollout

        count = len(x)
        if self._pool is None:
            threads = self.threads or len(os.sched_getaffinity(0))
            self._pool = Rollout(nthread=threads), [MjData(self.model) for _ in range(threads)]
        if len(self._buffers[0]) < count:
            self._buffers = self._allocate(count)
        start, control, warm, states, sensors = (buffer[:count] for buffer in self._buffers)
        start[:, 1:] = x
        control[:] = np.clip(action, -1.0, 1.0)[:, None]
        ...
