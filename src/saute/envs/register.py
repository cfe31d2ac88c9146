"""What `gym.make` and `gym.make_vec` call for the five tasks."""

from __future__ import annotations

from typing import Any

from gymnasium.vector import AutoresetMode

from saute.core.names import nearest
from saute.envs import TASKS, make_task

__all__ = ["single", "vector"]


def single(name: str, mode: str = "train", engine: str | None = None, render_mode: str | None = None, **parameters: Any) -> Any:
    """A task as a `gymnasium.Env`: `gym.make("saute/SafePendulum-v0", mode="test", engine="jax")`."""
    batch = _batch(name, mode, engine, parameters)
    from saute.envs.to_gym import GymEnv

    return GymEnv(batch, nearest(render_mode, (None, *GymEnv.metadata["render_modes"]), "render_mode"))


def vector(
    name: str,
    num_envs: int,
    mode: str = "train",
    engine: str | None = None,
    autoreset_mode: AutoresetMode | str = "NextStep",
    render_mode: str | None = None,
    max_episode_steps: int | None = None,
    **parameters: Any,
) -> Any:
    """A task as a batched `gymnasium.vector.VectorEnv`: `gym.make_vec("saute/SafePendulum-v0", num_envs=64)`."""
    if max_episode_steps is not None:  # like Gymnasium's TimeLimit around one environment, it can only shorten episodes
        parameters["horizon"] = min(max_episode_steps, parameters.get("horizon", make_task(name, mode).horizon))
    if render_mode not in (None, "rgb_array"):
        raise ValueError(f"unknown render_mode {render_mode!r} of a batch; Known: None, rgb_array")
    batch = _batch(name, mode, engine, parameters)
    from saute.envs.to_gym import GymVectorEnv

    return GymVectorEnv(batch, num_envs, autoreset_mode, render_mode)


def _batch(name: str, mode: str, engine: str | None, parameters: dict[str, Any]) -> Any:
    engines = TASKS[name].engines
    engine = nearest(engines[0] if engine is None else engine, engines, f"engine of {name}")
    task = make_task(name, mode, **parameters)
    from saute.envs.batch import JaxBatch, MujocoBatch
    from saute.envs.task import TaskEnv

    return (JaxBatch if engine == "jax" else MujocoBatch)(TaskEnv(task))
