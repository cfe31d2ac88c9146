"""From a configuration to what trains, an environment and an algorithm, and back from these to a configuration."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

import gymnasium as gym
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from saute.algos.cpo import cpo
from saute.algos.mbpo import Mbpo, MbpoSettings, mbpo
from saute.algos.onpolicy import OnPolicy, OnPolicySettings
from saute.algos.pets import Pets, PetsSettings, pets
from saute.algos.ppo import ppo
from saute.algos.sac import Sac, SacSettings, sac
from saute.algos.trpo import trpo
from saute.core.names import nearest
from saute.core.native import SauteEnv
from saute.core.native import saute as sauted
from saute.core.options import BudgetLike, Options, options, uniform
from saute.core.protocol import Env
from saute.core.vector import SauteVectorWrapper
from saute.envs import TASKS, is_native, make_task
from saute.envs.from_gym import HostEnvs
from saute.envs.task import TaskEnv
from saute.learn.constraint import Free, Pid
from saute.runs.config import IN_PYTHON, Changes, Config, Experiment, completed
from saute.runs.presets import PRESETS
from saute.runs.validation import Selection

__all__ = ["Algorithm", "algorithm_of", "configured", "described", "environment_of", "ledger_of", "selection_of"]

Algorithm = OnPolicy | Sac | Mbpo | Pets


def configured(asked: Experiment, changes: Changes | None = None) -> Config:
    """The experiment by value; an environment that is not JAX-native is made once, to know how long its episodes are."""
    name = asked.env.replace("-", "_")
    if name in TASKS:
        return completed(asked, changes, make_task(name).horizon)
    if ":" not in asked.env and asked.env not in gym.registry:
        return completed(asked, changes)
    one = HostEnvs(_vector(asked.env, 1, "train"))
    one.envs.close()
    return completed(asked, changes, one.horizon)


def algorithm_of(config: Config) -> Algorithm:
    """The optimiser with its settings and its constraint."""
    settings, constraint = config.settings, config.constraint
    if isinstance(settings, MbpoSettings):
        return mbpo(settings)
    if isinstance(settings, PetsSettings):
        return pets(settings)
    if isinstance(settings, SacSettings):
        return sac(constraint, settings)
    if config.experiment.algo == "cpo":
        return cpo(constraint.limit or 0.0, settings)
    return {"ppo": ppo, "trpo": trpo}[config.experiment.algo](constraint, settings)


def environment_of(
    config: Config, mode: str = "train", num_envs: int | None = None, budget: float | None = None
) -> Env | HostEnvs:
    """The environment, sautéed if the method says so: JAX-native where that exists, else Gymnasium's on the host.

    At another budget than the run's own, a policy goes on seeing it relative to that: z₀ = d / d_ref.
    """
    asked, training = config.experiment, mode == "train"
    if asked.env.startswith(IN_PYTHON):
        raise ValueError(
            f"{asked.env.removeprefix(IN_PYTHON)} was given in Python and cannot be made again from its name; evaluate it there"
        )
    parameters = config.task if training else {}
    if is_native(asked.env):
        env = TaskEnv(make_task(asked.env, mode, **parameters))
        return sauted(env, **_options(config, training, budget)) if asked.sauted else env
    seeds = asked.seeds if training and num_envs is None and _side_by_side(config) else 1
    envs = _vector(asked.env, num_envs or seeds * (asked.envs or 1), mode, **parameters)
    return HostEnvs(SauteVectorWrapper(envs, **_options(config, training, budget)) if asked.sauted else envs, seeds=seeds)


def selection_of(config: Config) -> Selection | None:
    """How the policy to keep is chosen, if the configuration says so: by test starts, which are not those of any test."""
    if config.validation is None:
        return None
    return Selection(environment_of(config, "test", config.validation), config.validation, config.validation_every)


def ledger_of(env: Env | HostEnvs, algorithm: Algorithm, budget: BudgetLike | None, discount: float = 1.0) -> Options | None:
    """The budget that episodes are held against: the one that they carry, or that is asked for, or the limit, or the task's."""
    carried = getattr(env, "options", None)
    if carried is not None:
        return carried
    known = [budget, algorithm.constraint.limit, getattr(env, "budget", None)]
    first = next((one for one in known if one is not None), None)
    return None if first is None else options(first, discount=discount)


def described(
    algorithm: Algorithm, env: Env | HostEnvs, ledger: Options | None, selection: Selection | None, **numbers: Any
) -> Config:
    """The configuration of a training in Python, as the command line would have written it."""
    chosen: Options | None = getattr(env, "options", None)
    multiplier = "pid" if isinstance(algorithm.constraint, Pid) else "lagrangian"
    parts = (["saute"] if chosen is not None else []) + ([] if isinstance(algorithm.constraint, Free) else [multiplier])
    name, task = _name(env)
    sauted_with: dict[str, Any] = {}
    if chosen is not None and not chosen.several:
        sauted_with = {"lowest_budget": float(chosen.low) if chosen.random else None, "unsafe_reward": chosen.unsafe_reward}
    if chosen is not None:
        sauted_with |= {"augment": chosen.augment, "shape": chosen.shape, "terminate": chosen.terminate}
        usual = not chosen.several and chosen.reference == chosen.high
        name = name if usual else f"{IN_PYTHON}{name.removeprefix(IN_PYTHON)}"
    asked = Experiment(
        name,
        algorithm.name,
        "+".join(parts) or "vanilla",
        budget=None if ledger is None or ledger.several else float(ledger.high),
        discount=1.0 if ledger is None else ledger.discount,
        preset=PRESETS[0],
        envs=env.num_envs // env.seeds if isinstance(env, HostEnvs) else None,
        **sauted_with,
        **numbers,
    )
    validation = {} if selection is None else {"validation": selection.episodes, "validation_every": selection.every}
    return Config(asked, algorithm.settings, algorithm.constraint, task, **validation)  # type: ignore[arg-type]


def _name(env: Env | HostEnvs) -> tuple[str, dict[str, Any]]:
    """By what name the environment can be made again, and with which parameters."""
    bare = env.env if isinstance(env, SauteEnv) else env
    if isinstance(bare, TaskEnv):
        task = bare.task
        known = next((name for name in TASKS if type(make_task(name)) is type(task)), None)
        if known is not None and task.mode == "train":
            usual = make_task(known)
            own = {field.name: getattr(task, field.name) for field in dataclasses.fields(task)}
            return known, {name: value for name, value in own.items() if value != getattr(usual, name)}
    if isinstance(bare, HostEnvs) and bare.envs.spec is not None and not bare.envs.spec.kwargs:
        return bare.envs.spec.id, {}
    return f"{IN_PYTHON}{type(bare).__name__}", {}


def _options(config: Config, training: bool, budget: float | None) -> dict[str, Any]:
    asked, unsafe = config.experiment, config.training_unsafe_reward
    high: Any = asked.budget if budget is None else budget
    random = training and asked.lowest_budget is not None
    return {
        "budget": uniform(asked.lowest_budget, high) if random and asked.lowest_budget is not None else high,
        "reference_budget": asked.budget,
        "discount": asked.discount,
        "unsafe_reward": unsafe if training and unsafe is not None else asked.unsafe_reward,
        "augment": asked.augment,
        "shape": asked.shape,
        "terminate": asked.terminate,
    }


def _side_by_side(config: Config) -> bool:
    """Whether every seed has environments of its own.

    MuJoCo steps a large batch faster than several small ones; users' environments would only be more, so theirs take turns,
    unless their episodes go on from epoch to epoch.
    """
    asked, settings = config.experiment, config.settings
    if asked.env in TASKS:
        return isinstance(settings, OnPolicySettings)
    one = HostEnvs(_vector(asked.env, 1, "train"))
    one.envs.close()
    return one.horizon is None or settings.steps_per_epoch // (asked.envs or 1) < one.horizon


def _vector(name: str, num_envs: int, mode: str, **parameters: Any) -> VectorEnv:
    if name in TASKS:
        from saute.envs.register import vector

        return vector(name, num_envs, mode, autoreset_mode=AutoresetMode.DISABLED, **parameters)
    if ":" in name:
        module, name = name.split(":", 1)
        try:
            importlib.import_module(module)
        except Exception as problem:
            raise ValueError(
                f"cannot import {module!r} ({problem}); run from the folder that holds it, or install it"
            ) from problem
    nearest(name, gym.registry, "environment")
    try:
        return SyncVectorEnv([lambda: gym.make(name)] * num_envs, autoreset_mode=AutoresetMode.DISABLED)
    except Exception as problem:
        raise ValueError(f"{name} cannot be made: {problem}") from problem
