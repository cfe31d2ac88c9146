"""What `saute plot trajectories` draws: episodes of the policies of run folders, as they are and as they were on the way."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from saute.cli.environments import spec_of
from saute.cli.policies import policy_of
from saute.core.errors import UserError
from saute.core.single import SauteWrapper
from saute.envs import make_task, task_named
from saute.envs.plane import Plane, cost_on, plane_of
from saute.evidence.trajectories import Field, Trajectory
from saute.runs.config import Config
from saute.runs.folder import read_config, snapshots_of, source_of
from saute.runs.outcomes import Budget
from saute.runs.policy import stored

__all__ = ["field_of", "panels"]


def field_of(env: str) -> tuple[Plane, Field]:
    """The map of a task, and what its steps cost there."""
    name = task_named(env)
    task = None if name is None else make_task(name, "test")
    plane = None if task is None else plane_of(task)
    if task is None or plane is None:
        raise UserError(
            "trajectories are drawn over a map of the cost, which only the five tasks of the paper have, and "
            f"{env} has not; use saute watch"
        )
    return plane, Field(cost_on(task, plane), plane.extent, plane.labels, plane.period, plane.goal)


def panels(
    runs: Mapping[pathlib.Path, str], plane: Plane, episodes: int, seed: int, budget: Budget
) -> dict[str, list[Trajectory]]:
    """Episodes of every seed of the runs, by epoch: of the policies that were kept on the way, and of the last ones."""
    if episodes < 1:
        raise UserError(f"--episodes {episodes} must be at least 1")
    return {
        f"{name}, epoch {epoch}" if len(runs) > 1 else f"epoch {epoch}": list(
            _episodes(file, run, plane, episodes, seed, budget)
        )
        for run, name in runs.items()
        for epoch, file in _policies(run).items()
    }


def _policies(run: pathlib.Path) -> dict[int, pathlib.Path]:
    """Epoch → file with the policies of all seeds after it."""
    place = source_of(run)
    files = [*snapshots_of(place), place / "policy.safetensors"]
    try:
        return {int(stored(file)[0]["epochs"]): file for file in files}
    except ValueError as problem:
        raise UserError(str(problem)) from None


def _episodes(
    file: pathlib.Path, run: pathlib.Path, plane: Plane, episodes: int, seed: int, budget: Budget
) -> Iterator[Trajectory]:
    """Of every seed's policy so many episodes, each from a start of its own."""
    config = read_config(run)
    with contextlib.closing(_environment(config, budget)) as env:
        for which in range(config.experiment.seeds):
            act = policy_of(f"{file}@{which}")(env)
            for start in range(seed + which * episodes, seed + (which + 1) * episodes):
                obs, info = env.reset(seed=start)
                physical: Any = env.unwrapped
                states, done = [physical.state], False
                while not done:
                    obs, _, terminated, truncated, info = env.step(act(obs))
                    states.append(physical.state)
                    done = terminated or truncated
                yield Trajectory(plane.places(np.stack(states)), info["episode_task_return"], bool(info["episode_violated"]))


def _environment(config: Config, budget: Budget) -> SauteWrapper[Any, Any]:
    """The task with its test starts, and with a budget, also for policies that do not see it."""
    asked = config.experiment
    env = gym.make(spec_of(asked.env), mode="test", disable_env_checker=True)
    return SauteWrapper(env, budget, discount=asked.discount, terminate=asked.terminate)
