"""Where the environments of a run come from: a name, or whatever a user has at hand in Python."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable
from typing import Any, NamedTuple, TypeGuard

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.vector import AutoresetMode, VectorEnv

from saute.core.cost import CostSource
from saute.core.errors import UserError
from saute.core.modules import module_named
from saute.core.names import nearest
from saute.core.options import Options
from saute.core.protocol import Env
from saute.core.six_tuple import five_of
from saute.envs import is_native, make_task, task_named
from saute.envs.from_gym import HostEnvs, vector_of
from saute.envs.task import TaskEnv

__all__ = ["IN_PYTHON", "Source", "Trainable", "found", "imported", "is_ready", "made", "modules_in", "named", "refuse_modules"]

IN_PYTHON = "python:"
"""Before the name of what was given in Python, and so cannot be made again from its name."""
Trainable = str | gym.Env | VectorEnv | HostEnvs | Env | Callable[[], gym.Env]
"""What a user may train on: a name, an environment, a vector of them, or a class or function that makes one."""


class Source(NamedTuple):
    """What makes the environments of a run, or the only one that there is."""

    name: str
    """As the configuration has it: enough to make them again, unless it begins with `python:`."""
    make: Callable[[], gym.Env] | None = None
    ready: Any = None
    """An `Env`, `HostEnvs` or a vector environment, which cannot be made again or in other numbers."""
    cost: CostSource = "cost"

    @property
    def cost_name(self) -> str | tuple[str, ...]:
        """As the configuration has it."""
        if callable(self.cost):
            return f"{IN_PYTHON}{getattr(self.cost, '__name__', type(self.cost).__name__)}"
        return self.cost if isinstance(self.cost, str) else tuple(self.cost)

    @property
    def options(self) -> Options | None:
        """What the environments were sautéed with, if they were when they were given."""
        if isinstance(self.ready, VectorEnv):
            return HostEnvs(self.ready).options
        if self.make is None:
            return getattr(self.ready, "options", None)
        one = self.make()
        chosen = one.get_wrapper_attr("options") if one.metadata.get("saute") else None
        one.close()
        return chosen

    @property
    def key(self) -> CostSource:
        """Where the info of the vector has the cost: environments that are made here have it under its usual name."""
        return self.cost if self.make is None else "cost"

    def bare(
        self, mode: str, num_envs: int, shape: tuple[int, ...], workers: int = 0, **task: Any
    ) -> Env | HostEnvs | VectorEnv:
        """Environments that are not sautéed yet, unless those that were given are; their costs have this shape."""
        if self.ready is not None:
            return self.ready
        if is_native(self.name):
            return TaskEnv(make_task(self.name, mode, **task))
        if self.make is None:
            from saute.envs.register import vector

            return vector(self.name, num_envs, mode, autoreset_mode=AutoresetMode.DISABLED, **task)
        try:
            return vector_of(self.make, num_envs, self.cost, shape, workers)
        except Exception as problem:
            raise ValueError(f"{self.name} cannot be made: {problem}") from problem


def named(name: str, cost: CostSource = "cost") -> Source:
    """A task, a Gymnasium id, or module:Id, whose module is imported."""
    if name.startswith(IN_PYTHON):
        given = name.removeprefix(IN_PYTHON)
        raise ValueError(
            f"{given} was given in Python and cannot be made again from its name; name one with --env module:Id-v0"
        )
    if isinstance(cost, str) and cost.startswith(IN_PYTHON):
        given = cost.removeprefix(IN_PYTHON)
        raise ValueError(f"the cost {given} was a function in Python; name an environment that has it in its info with --env")
    task = task_named(name)
    if task is not None:
        return Source(task)
    module, _, id = name.rpartition(":")
    if module:
        try:
            module_named(module)
        except Exception as problem:
            raise ValueError(
                f"cannot import {module!r} ({problem}); run from the folder that holds it, or install it"
            ) from problem
    nearest(id, gym.registry, "environment")
    return Source(name, functools.partial(made, name), cost=imported(cost))


def made(env: str | EnvSpec, **asked: Any) -> gym.Env:
    """What `gym.make` makes, also of steps with six values, and in processes that have not imported its module."""
    if isinstance(env, str):
        module, _, id = env.rpartition(":")
        if module:
            module_named(module)
        env = gym.spec(id)
    if env.entry_point is not None:
        env = dataclasses.replace(env, entry_point=functools.partial(_of_five, env.entry_point))
    return gym.make(env, **asked)


def _of_five(entry: Any, **asked: Any) -> gym.Env:
    """An environment whose steps have five values before Gymnasium's own wrappers see them, which take no others."""
    env: Any = (load_env_creator(entry) if isinstance(entry, str) else entry)(**asked)
    step = env.step
    env.step = lambda action: five_of(step(action))
    return env


def imported(cost: CostSource) -> CostSource:
    """The function of a cost that is called module:function; everything else as it is."""
    if not isinstance(cost, str) or ":" not in cost:
        return cost
    module, _, name = cost.partition(":")
    try:
        return getattr(module_named(module), name)
    except Exception as problem:
        raise ValueError(f"cost {cost!r} cannot be imported ({problem}); pass a key of info, or module:function") from problem


def modules_in(*names: str) -> list[str]:
    """The modules that names of environments and costs begin with."""
    return sorted({name.rpartition(":")[0] for name in names if ":" in name and not name.startswith(IN_PYTHON)})


def refuse_modules(run: str | os.PathLike[str], *names: str) -> None:
    """Refuse to import what only a run folder names, since it may come from a stranger, and importing runs code."""
    modules = modules_in(*names)
    if modules:
        raise UserError(
            f"{run} names the module {', '.join(modules)}, whose code would run here; if you trust the folder and the module, "
            "pass --trust"
        )


def is_ready(env: object) -> TypeGuard[Env | HostEnvs]:
    """Whether learners can train on it as it is; a class or a Gymnasium environment may have what an `Env` has, and is none."""
    return isinstance(env, HostEnvs) or (isinstance(env, Env) and not isinstance(env, gym.Env | VectorEnv | type))


def found(env: Trainable, cost: CostSource = "cost") -> Source:
    """Whatever was given: a name, an environment, a function that makes one, a vector environment, or a JAX-native `Env`."""
    if not isinstance(cost, str) and not callable(cost):
        cost = tuple(cost)
    if isinstance(env, str):
        return named(env, cost)
    if isinstance(env, gym.Env):
        return _of_instance(env, cost)
    name = f"{IN_PYTHON}{getattr(env, '__name__', type(env).__name__)}"
    if is_ready(env) or isinstance(env, VectorEnv):
        return Source(name, ready=env, cost=cost)
    if callable(env):
        return Source(name, env, cost=cost)
    raise TypeError(
        f"{env!r} is not an environment; pass a task or Gymnasium id, an environment, a function that makes one, a vector "
        "environment, or a JAX-native Env"
    )


def _of_instance(env: gym.Env, cost: CostSource) -> Source:
    """One environment can be made again by its spec, wrappers included; without one there is only itself."""
    spec = env.spec
    if spec is None:
        return Source(f"{IN_PYTHON}{type(env.unwrapped).__name__}", ready=HostEnvs(lambda: env, cost=cost), cost=cost)
    plain = not spec.kwargs and not spec.additional_wrappers
    return Source(spec.id if plain else f"{IN_PYTHON}{spec.id}", functools.partial(made, spec), cost=cost)
