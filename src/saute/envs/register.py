"""What `gym.make` and `gym.make_vec` call for our own tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gymnasium.vector import AutoresetMode

from saute.core.names import nearest
from saute.envs import TASKS, make_task

if TYPE_CHECKING:
    from saute.envs.batch import JaxBatch, TaskBatch
    from saute.envs.task import Task

__all__ = ["single", "vector"]


def single(name: str, mode: str = "train", engine: str | None = None, render_mode: str | None = None, **parameters: Any) -> Any:
    """A task as a `gymnasium.Env`: `gym.make("saute/SafePendulum-v0", mode="test", engine="python")`."""
    engines = TASKS[name].engines
    engine = nearest(engines[0] if engine is None else engine, engines, f"engine of {name}")
    task = make_task(name, mode, **parameters)
    from saute.envs.plain import Formulas, PlainEnv, Simulation
    from saute.envs.task import TaskEnv

    nearest(render_mode, (None, *PlainEnv.metadata["render_modes"]), "render_mode")
    if engine != "jax":
        return PlainEnv((Formulas if engine == "python" else Simulation)(TaskEnv(task)), render_mode)
    from saute.envs.to_gym import GymEnv

    return GymEnv(_batch(task, engine), render_mode)


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
    engines = [known for known in TASKS[name].engines if known != "python"]
    engine = nearest(engines[0] if engine is None else engine, engines, f"engine of many {name} environments")
    task = make_task(name, mode, **parameters)
    from saute.envs.to_gym import GymVectorEnv

    return GymVectorEnv(_batch(task, engine), num_envs, autoreset_mode, render_mode)


def _batch(task: Task, engine: str) -> JaxBatch | TaskBatch:
    """What steps many; a task that draws random numbers in its steps draws those of its starts from JAX's keys too."""
    from saute.envs.batch import CompiledPhysics, JaxBatch, MujocoPhysics, TaskBatch
    from saute.envs.task import Renewing, TaskEnv

    env = TaskEnv(task)
    if isinstance(task, Renewing):
        return JaxBatch(env)
    return TaskBatch((CompiledPhysics if engine == "jax" else MujocoPhysics)(env))
