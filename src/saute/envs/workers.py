"""Slow environments stepped in other processes: a vector environment whose parts live in Gymnasium's asynchronous one."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space

from saute.core.culprit import culprit

__all__ = ["WorkerEnvs"]


class Part(gym.Env):
    """The environments of one worker as a single one: what is a number elsewhere is an array here, and goes into the info."""

    def __init__(self, makers: Sequence[Callable[[], gym.Env]], index: int):
        self.inner = SyncVectorEnv(makers, autoreset_mode=AutoresetMode.DISABLED)
        self.observation_space, self.action_space = self.inner.observation_space, self.inner.action_space
        self.metadata, self.place = self.inner.metadata, index
        self.last: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Fresh episodes where the mask says so, seeded if there are seeds."""
        asked = options or {}
        seeds, masks = asked.get("seeds"), asked.get("masks")
        mask = None if masks is None else masks[self.place]
        if mask is not None and not mask.any():
            return self.last, {}
        rest = {name: value for name, value in asked.items() if name not in ("seeds", "masks")}
        chosen = rest if mask is None else {**rest, "reset_mask": mask}
        with self._named():
            self.last, info = self.inner.reset(seed=None if seeds is None else seeds[self.place], options=chosen or None)
        return self.last, _plain(info)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        with self._named():
            self.last, reward, terminated, truncated, info = self.inner.step(action)
        return (
            self.last,
            0.0,
            False,
            False,
            {**_plain(info), "reward": reward, "terminated": terminated, "truncated": truncated},
        )

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """An error says which of all environments failed, in its text, which is all that reaches the other process."""
        try:
            yield
        except Exception as problem:
            number = self.place * self.inner.num_envs + (culprit(problem, self.inner) or 0)
            kind = ValueError if isinstance(problem, ValueError) else RuntimeError
            raise kind(f"environment {number} failed: {type(problem).__name__}: {problem}") from problem

    def get_attributes(self, name: str) -> tuple[Any, ...]:
        return self.inner.get_attr(name)

    def close(self) -> None:
        self.inner.close()


class WorkerEnvs(VectorEnv):
    """So many environments in so many processes, each with an equal share; it behaves as `SyncVectorEnv` without autoreset."""

    def __init__(self, make: Callable[[], gym.Env], num_envs: int, workers: int):
        if not isinstance(workers, int) or workers < 1 or num_envs % workers:
            raise ValueError(f"{num_envs} environments cannot be shared by workers={workers!r}; make a multiple of it")
        share = num_envs // workers
        parts = [functools.partial(Part, [make] * share, index) for index in range(workers)]
        methods = multiprocessing.get_all_start_methods()
        # A process that is forked from one with JAX's threads may hang.
        context = "forkserver" if "forkserver" in methods else "spawn"
        one = make()  # before all others, so that one that cannot be made says so here
        self.parts = AsyncVectorEnv(parts, autoreset_mode=AutoresetMode.DISABLED, context=context)
        self.metadata = {**one.metadata, "autoreset_mode": AutoresetMode.DISABLED}
        self.spec, self.num_envs, self.workers = one.spec, num_envs, workers
        self.single_observation_space, self.single_action_space = one.observation_space, one.action_space
        self.observation_space = batch_space(one.observation_space, num_envs)
        self.action_space = batch_space(one.action_space, num_envs)
        self.envs = (one,)
        """An environment like those of the workers, to be asked for what does not change."""

    def reset(
        self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        asked = dict(options or {})
        mask = asked.pop("reset_mask", None)
        if mask is not None:
            asked["masks"] = np.reshape(mask, (self.workers, -1))
        if seed is not None:
            seeds = list(range(seed, seed + self.num_envs)) if isinstance(seed, int) else list(seed)
            share = self.num_envs // self.workers
            asked["seeds"] = [seeds[i : i + share] for i in range(0, self.num_envs, share)]
        obs, info = self._asked(lambda: self.parts.reset(options=asked or None))
        return _joined(obs), _joined(_plain(info))

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        shared = np.reshape(actions, (self.workers, -1, *np.shape(actions)[1:]))
        obs, _, _, _, info = self._asked(lambda: self.parts.step(shared))
        info = _joined(_plain(info))
        reward, terminated, truncated = (info.pop(name) for name in ("reward", "terminated", "truncated"))
        return _joined(obs), reward, terminated, truncated, info

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """An attribute of every environment."""
        return tuple(value for part in self.parts.call("get_attributes", name) for value in part)

    @property  # type: ignore[misc]
    def np_random(self) -> Any:
        return self.get_attr("np_random")

    def close_extras(self, **kwargs: object) -> None:
        self.envs[0].close()
        self.parts.close(terminate=True)

    def _asked(self, call: Callable[[], Any]) -> Any:
        """What the workers answer, or why one of them cannot."""
        try:
            return call()
        except (EOFError, ConnectionError, BrokenPipeError) as problem:
            dead = [i for i, process in enumerate(self.parts.processes) if not process.is_alive()]
            raise RuntimeError(
                f"worker {', '.join(map(str, dead)) or '?'} of {self.workers} has died ({type(problem).__name__}): it was "
                "killed, or ran out of memory; what was trained before is kept"
            ) from problem


def _plain(info: dict[str, Any]) -> dict[str, np.ndarray]:
    """The arrays of an info without Gymnasium's masks, which would stand in the way of those of the parts."""
    return {name: value for name, value in info.items() if isinstance(value, np.ndarray) and not name.startswith("_")}


def _joined(values: Any) -> Any:
    """(worker, environment, …) → (environment of all, …), however nested."""
    if isinstance(values, dict):
        return {name: _joined(part) for name, part in values.items()}
    if isinstance(values, tuple):
        return tuple(map(_joined, values))
    return np.asarray(values).reshape(-1, *np.shape(values)[2:])
