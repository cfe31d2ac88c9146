"""From a configuration to what trains, an environment and an algorithm, and back from these to a configuration."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from saute.algos.cpo import cpo
from saute.algos.mbpo import Mbpo, MbpoSettings, mbpo
from saute.algos.onpolicy import OnPolicy, OnPolicySettings
from saute.algos.pets import Pets, PetsSettings, pets
from saute.algos.ppo import ppo
from saute.algos.sac import Sac, SacSettings, sac
from saute.algos.trpo import trpo
from saute.core.cost import CostSource
from saute.core.native import SauteEnv
from saute.core.native import saute as sauted
from saute.core.options import BudgetLike, Options, options, uniform
from saute.core.protocol import Env
from saute.core.vector import SauteVectorWrapper
from saute.envs import TASKS, make_task
from saute.envs.from_gym import HostEnvs
from saute.envs.task import TaskEnv
from saute.learn.constraint import Free, Pid
from saute.runs.config import Budget, BudgetSchedule, Changes, Config, Experiment, check_drawer, check_schedule, completed
from saute.runs.inspection import auto_unsafe_reward
from saute.runs.presets import PRESETS, changed
from saute.runs.source import IN_PYTHON, Source, Trainable, found, named
from saute.runs.validation import Selection

__all__ = ["Algorithm", "algorithm_of", "configured", "described", "environment_of", "ledger_of", "planned", "selection_of"]

Algorithm = OnPolicy | Sac | Mbpo | Pets


def configured(
    asked: Experiment,
    changes: Changes | None = None,
    source: Source | None = None,
    own: tuple[Any, Any] | None = None,
) -> Config:
    """The experiment by value; an own environment is made and stepped once, to know its longest episode and its costs.

    What is wrong with the names is said before.
    """
    config = completed(asked, changes, own=own)
    source = source or named(config.experiment.env, config.experiment.cost)
    horizon = make_task(source.name).horizon if source.name in TASKS else _looked_at(config, source).horizon
    config = completed(asked, changes, horizon, own)
    if config.experiment.unsafe_reward == "auto":
        chosen = auto_unsafe_reward(_one_of(source), asked.seed, asked.terminate)
        config = changed(config, "experiment.unsafe_reward", chosen)
    return config


def planned(
    algorithm: str | Algorithm,
    env: Trainable,
    cost: CostSource,
    method: str | None,
    changes: Changes | None = None,
    **asked: Any,
) -> tuple[Config, Source]:
    """The configuration of a training in Python, and what makes its environments."""
    source = found(env, cost)
    carried, budget = source.options, asked.pop("budget")
    if carried is not None and budget is not None:
        raise ValueError(f"budget={budget!r} cannot be set: the environment is sautéed already, with a budget of its own")
    if carried is not None:
        asked |= _asked_of(carried)
    else:
        asked |= {"budget": None} if budget is None else _budgets(options(budget))
    if isinstance(source.ready, VectorEnv | HostEnvs):
        asked["envs"] = source.ready.num_envs // getattr(source.ready, "seeds", 1)
    key = source.cost_name if not isinstance(cost, str) else cost
    own = None
    if isinstance(algorithm, str):
        method = method or "saute"
        if carried is not None and "saute" not in method.split("+"):
            method = "saute" if method == "vanilla" else f"saute+{method}"
    else:
        own = (algorithm.settings, _with_limits(algorithm.constraint, asked["budget"]))
        method = _method(algorithm, carried is not None or method == "saute")
    name = algorithm if isinstance(algorithm, str) else algorithm.name
    return configured(Experiment(source.name, name, method, cost=key, **asked), changes, source, own), source


def _one_of(source: Source) -> Any:
    """One environment, or a function that makes one, to be looked at."""
    if source.make is not None:
        return source.make
    bare = source.bare("train", 1, ())
    if isinstance(bare, VectorEnv | HostEnvs):
        raise ValueError('unsafe_reward="auto" needs a function that makes one environment; pass it instead of a vector')
    return bare


def _budgets(chosen: Options) -> dict[str, Budget | None]:
    """What a configuration keeps of the budgets: the highest of each and, if they are drawn, the lowest."""
    high, low = (tuple(end.tolist()) if chosen.several else float(end) for end in (chosen.high, chosen.low))
    return {"budget": high, "lowest_budget": low if chosen.random else None}


def _asked_of(chosen: Options) -> dict[str, Any]:
    """What a configuration keeps of the options that an environment was sautéed with."""
    names = ("discount", "unsafe_reward", "augment", "shape", "terminate")
    return {**_budgets(chosen), **{name: getattr(chosen, name) for name in names}}


def _with_limits(constraint: Any, budget: Budget | None) -> Any:
    """A constraint with one limit takes those of the other costs from their budgets."""
    if not isinstance(budget, tuple) or constraint.limit is None or isinstance(constraint.limit, tuple):
        return constraint
    if constraint.limit != budget[0]:
        raise ValueError(
            f"the limit {constraint.limit:g} is not the first of the budgets {budget}; give one limit per cost, as a list"
        )
    return dataclasses.replace(constraint, limit=budget)


def _method(algorithm: Algorithm, is_sauted: bool) -> str:
    """What the command line would call it."""
    multiplier = "pid" if isinstance(algorithm.constraint, Pid) else "lagrangian"
    parts = (["saute"] if is_sauted else []) + ([] if isinstance(algorithm.constraint, Free) else [multiplier])
    return "+".join(parts) or "vanilla"


def _looked_at(config: Config, source: Source) -> Env | HostEnvs:
    """One environment, in which a step has shown that its costs can be read."""
    shape = config.experiment.cost_shape
    bare = source.bare("train", 1, shape)
    if not isinstance(bare, VectorEnv):
        return bare
    one = HostEnvs(bare, cost=source.key, constraints=(len(shape) and shape[0]) or None)
    if source.make is not None:
        one.reset(0)
        one.step(np.stack([one.action_space.sample()] * one.num_envs))
        one.envs.close()
    return one


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
    config: Config, mode: str = "train", num_envs: int | None = None, budget: Budget | None = None, source: Source | None = None
) -> Env | HostEnvs:
    """The environment, sautéed if the method says so: JAX-native where that exists, else Gymnasium's on the host.

    At another budget than the run's own, a policy goes on seeing it relative to that: z₀ = d / d_ref.
    """
    asked, training = config.experiment, mode == "train"
    source = source or named(asked.env, asked.cost)
    seeds = asked.seeds if training and num_envs is None and _side_by_side(config, source) else 1
    count = num_envs or seeds * (asked.envs or 1)
    bare = source.bare(mode, count, asked.cost_shape, asked.workers if training else 0, **(config.task if training else {}))
    is_sauted = getattr(bare, "options", None) is not None or (isinstance(bare, VectorEnv) and bare.metadata.get("saute"))
    if is_sauted and budget is not None:
        raise ValueError(f"budget={budget!r} cannot be set: the environment that was given is sautéed already")
    chosen = _options(config, training, budget)
    if isinstance(bare, VectorEnv | HostEnvs):
        seeds = bare.seeds if isinstance(bare, HostEnvs) else seeds
        if not asked.sauted or is_sauted:
            constraints = asked.cost_shape[0] if asked.cost_shape else None
            return bare if isinstance(bare, HostEnvs) else HostEnvs(bare, cost=source.key, seeds=seeds, constraints=constraints)
        vector, key = (bare.envs, "cost") if isinstance(bare, HostEnvs) else (bare, source.key)
        return HostEnvs(SauteVectorWrapper(vector, cost=key, **chosen), seeds=seeds)
    return sauted(bare, **chosen) if asked.sauted and not is_sauted else bare


def selection_of(config: Config, source: Source | None = None) -> Selection | None:
    """How the policy to keep is chosen, if the configuration says so: by test starts, which are not those of any test."""
    if config.validation is None:
        return None
    env = environment_of(config, "test", config.validation, source=source)
    return Selection(env, config.validation, config.validation_every)


def ledger_of(env: Env | HostEnvs, algorithm: Algorithm, budget: BudgetLike | None, discount: float = 1.0) -> Options | None:
    """The budget that episodes are held against: the one that they carry, or that is asked for, or the limit, or the task's."""
    carried = getattr(env, "options", None)
    if carried is not None:
        return carried
    known = [budget, algorithm.constraint.limit, getattr(env, "budget", None)]
    first = next((one for one in known if one is not None), None)
    return None if first is None else options(first, discount=discount)


def described(
    algorithm: Algorithm,
    env: Env | HostEnvs,
    ledger: Options | None,
    selection: Selection | None,
    schedule: BudgetSchedule | None = None,
    **numbers: Any,
) -> Config:
    """The configuration of a training in Python, as the command line would have written it."""
    chosen: Options | None = getattr(env, "options", None)
    name, task = _name(env)
    held: dict[str, Any] = {} if ledger is None else _asked_of(ledger)
    if chosen is None:
        held = {name: held[name] for name in ("budget", "discount") if name in held}
    elif not np.array_equal(chosen.reference, chosen.high):
        name = f"{IN_PYTHON}{name.removeprefix(IN_PYTHON)}"
    envs = env.num_envs // env.seeds if isinstance(env, HostEnvs) else None
    method = _method(algorithm, chosen is not None)
    asked = Experiment(name, algorithm.name, method, preset=PRESETS[0], envs=envs, **held, **numbers)
    check_drawer(asked)
    if schedule is not None:
        check_schedule(asked)
        schedule = schedule.planned(numbers["epochs"])
    validation = {} if selection is None else {"validation": selection.episodes, "validation_every": selection.every}
    return Config(asked, algorithm.settings, algorithm.constraint, task, schedule=schedule, **validation)  # type: ignore[arg-type]


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


def _options(config: Config, training: bool, budget: Budget | None) -> dict[str, Any]:
    asked, unsafe = config.experiment, config.training_unsafe_reward
    high: Any = asked.budget if budget is None else budget
    if training and asked.lowest_budget is not None:
        highs = high if isinstance(high, tuple) else (high,)
        lows = np.broadcast_to(asked.lowest_budget, len(highs)).tolist()
        ranges = [uniform(low, end) for low, end in zip(lows, highs, strict=True)]
        high = ranges if isinstance(high, tuple) else ranges[0]
    return {
        "budget": high,
        "reference_budget": asked.budget,
        "discount": asked.discount,
        "unsafe_reward": unsafe if training and unsafe is not None else asked.unsafe_reward,
        "augment": asked.augment,
        "shape": asked.shape,
        "terminate": asked.terminate,
    }


def _side_by_side(config: Config, source: Source) -> bool:
    """Whether every seed has environments of its own.

    MuJoCo steps a large batch faster than several small ones; users' environments would only be more, so theirs take turns,
    unless their episodes go on from epoch to epoch.
    """
    asked, settings = config.experiment, config.settings
    if asked.env in TASKS:
        return isinstance(settings, OnPolicySettings)
    if source.make is None:
        return False
    horizon = _looked_at(config, source).horizon
    return horizon is None or settings.steps_per_epoch // (asked.envs or 1) < horizon
