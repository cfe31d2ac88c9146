"""What `saute train` runs: an environment, an optimiser and a method by name, composed."""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
from collections.abc import Callable
from typing import Any

import gymnasium as gym
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from saute.algos.cpo import cpo
from saute.algos.mbpo import Mbpo, MbpoSettings, mbpo
from saute.algos.onpolicy import Algorithm, Settings
from saute.algos.pets import Pets, PetsSettings, pets
from saute.algos.ppo import ppo
from saute.algos.sac import Sac, SacSettings, sac
from saute.algos.trpo import trpo
from saute.core.native import saute as sauted
from saute.core.options import as_budget, uniform
from saute.core.vector import SauteVectorWrapper
from saute.envs import TASKS, make_task, nearest
from saute.envs.from_gym import HostEnvs
from saute.envs.task import TaskEnv
from saute.learn.constraint import Constraint, cvar, lagrangian, none, pid, tail_weights
from saute.runs.presets import PRESETS, Preset, preset_of
from saute.runs.validation import Selection

__all__ = ["ALGORITHMS", "METHODS", "Experiment", "algorithm_of", "environment_of", "selection_of"]

ALGORITHMS = ("ppo", "trpo", "cpo", "sac", "mbpo", "pets")
ON_POLICY = {"ppo", "trpo", "cpo"}
MODEL_BASED = {"mbpo", "pets"}
ENDLESS = {"pendulum", "reacher"}
"""Tasks whose episodes only end at the horizon, which is all that a learned model knows about ends."""
METHODS = ("vanilla", "saute", "lagrangian", "pid", "cvar", "cvar-tail")
MULTIPLIERS = {"lagrangian", "pid", "cvar", "cvar-tail"}


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One training, by names; complete, so that a run folder can be continued and repeated from it."""

    env: str
    """pendulum, double_pendulum, reacher, point, car, or any Gymnasium id with costs (module:Id-v0 imports the module)."""
    algo: str = "trpo"
    """ppo, trpo, cpo, sac, mbpo or pets."""
    method: str = "saute"
    """vanilla, saute, lagrangian, pid, cvar, cvar-tail (CVaR in the cost advantage too), or combined: saute+lagrangian."""
    budget: float | None = None
    """Safety budget of an episode; by default the task's own."""
    unsafe_reward: float | None = None
    """Reward of every step once the budget is overspent; by default the task's own."""
    lowest_budget: float | None = None
    """Draw the budget of every training episode between this and the budget, so that one policy serves all of them."""
    augment: bool = True
    """Whether a sautéed policy observes its remaining budget."""
    shape: bool = True
    """Whether the reward of a sautéed task becomes the unsafe reward once the budget is overspent."""
    relabel: bool = False
    """Whether half of every replayed batch gets fresh remaining budgets, for sac."""
    learned_budget: bool = False
    """Whether the model of mbpo or pets learns the remaining budget as a state dimension, as in the paper, instead of it being
    computed."""
    seeds: int = 5
    """Seeds to train at once."""
    epochs: int | None = None
    """Epochs; by default the preset's number for the task."""
    preset: str = "paper"
    """paper, or fast: settings that come to an equally good policy in a fraction of the time."""
    seed: int = 0
    """The first seed; the others count on."""
    envs: int = 20
    """Environments of a seed side by side, for those that are not JAX-native; mbpo and pets step one."""
    learner: Preset | None = None
    """The settings behind the preset's name, filled in by `checked`, so that a run folder does not depend on the name."""

    def checked(self) -> Experiment:
        """The same with every default filled in, or an error that names what is wrong."""
        nearest(self.algo, ALGORITHMS, "algorithm")
        nearest(self.preset, PRESETS, "preset")
        for part in self.parts:
            nearest(part, METHODS, "method")
        if len(self.parts & MULTIPLIERS) > 1:
            raise ValueError(f"method {self.method!r} names two multipliers; choose one of {', '.join(sorted(MULTIPLIERS))}")
        if self.algo == "cpo" and self.parts & MULTIPLIERS:
            raise ValueError(f"cpo has a constraint of its own; method {self.method!r} would add another, use vanilla or saute")
        if self.algo == "sac" and self.parts & {"cvar", "cvar-tail"}:
            raise ValueError(
                f"sac knows no whole episodes, so method {self.method!r} is for ppo and trpo; use lagrangian or pid"
            )
        if self.algo in MODEL_BASED and self.parts & MULTIPLIERS:
            raise ValueError(f"{self.algo} has no multiplier, as method {self.method!r} asks for; use vanilla or saute")
        name = self.env.replace("-", "_")
        if name not in TASKS and ":" not in self.env:
            nearest(self.env, [*TASKS, *gym.registry], "environment")
        if self.algo in MODEL_BASED and name in TASKS and name not in ENDLESS:
            raise ValueError(
                f"{self.algo} trains on {' and '.join(sorted(ENDLESS))}, and other environments whose episodes end by time"
                f" only, not on {self.env}; use sac, or in Python saute.{self.algo}(known=Known(terminated=…))"
            )
        task = make_task(name) if name in TASKS else None
        budget = self.budget if self.budget is not None or task is None else task.budget
        budget = None if budget is None else as_budget(budget, (), "budget")
        if not 0 <= self.seed < 2**31:
            raise ValueError(f"--seed {self.seed} must be a whole number from 0 to 2³¹ − 1")
        if budget is None and (self.parts != {"vanilla"} or self.algo == "cpo"):
            raise ValueError(f"{self.env} has no budget of its own; pass --budget, in the units of its cost")
        if self.lowest_budget is not None and "saute" not in self.parts:
            raise ValueError(
                f"--lowest-budget {self.lowest_budget} is for sautéed policies; method {self.method!r} sees no budget"
            )
        if self.relabel and (self.algo != "sac" or "saute" not in self.parts):
            raise ValueError(f"--relabel is for sac with method saute, not for {self.algo} with {self.method}")
        if self.learned_budget and (self.algo not in MODEL_BASED or "saute" not in self.parts):
            raise ValueError(f"--learned-budget is for mbpo and pets with method saute, not for {self.algo} with {self.method}")
        unsafe, envs = self.unsafe_reward, self.envs
        learner = self.learner or preset_of(self.preset, name, self.algo, self.method)
        if self.learner is None and unsafe is not None:
            learner = learner._replace(unsafe_reward=None)
        if not _native(name) and not isinstance(learner.settings, Settings):
            envs = 1 if self.algo in MODEL_BASED else envs
            if self.learner is None:
                learner = _with_whole_episodes(learner, name if task is not None else self.env, envs)
        if self.relabel and isinstance(learner.settings, SacSettings):
            learner = learner._replace(settings=dataclasses.replace(learner.settings, relabel=True))
        if self.learned_budget and isinstance(learner.settings, MbpoSettings | PetsSettings):
            learner = learner._replace(settings=_learning_budgets(learner.settings))
        return dataclasses.replace(
            self,
            env=name if task is not None else self.env,
            budget=budget,
            unsafe_reward=unsafe if unsafe is not None else (0.0 if task is None else task.unsafe_reward),
            epochs=self.epochs if self.epochs is not None else learner.epochs,
            envs=envs,
            learner=learner,
        )

    def as_json(self) -> dict[str, Any]:
        """Plain values, that `from_json` takes."""
        learner = None
        if self.learner is not None:
            learner = {name: value for name, value in self.learner._asdict().items() if value is not None}
            learner["settings"] = json.loads(json.dumps(dataclasses.asdict(learner["settings"])))
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(Experiment)} | {"learner": learner}

    @staticmethod
    def from_json(values: dict[str, Any]) -> Experiment:
        kinds = {"env": str, "algo": str, "method": str, "preset": str, "seeds": int, "epochs": int, "seed": int, "envs": int}
        for name, kind in kinds.items():
            if name in values and not isinstance(values[name], kind):
                raise ValueError(f"{name} is {values[name]!r}, expected {kind.__name__}")
        learner = values.get("learner")
        if learner is not None:
            kind = {"sac": SacSettings, "mbpo": MbpoSettings, "pets": PetsSettings}.get(values["algo"], Settings)
            learner = Preset(**learner | {"settings": _rebuilt(kind(), learner["settings"])})
        return Experiment(**values | {"learner": learner})

    @property
    def steps_per_epoch(self) -> int:
        """Steps of each seed in an epoch."""
        learner = self.learner or preset_of(self.preset, self.env, self.algo, self.method)
        return learner.settings.steps_per_epoch

    @property
    def parts(self) -> set[str]:
        """The methods that are combined, as in saute+lagrangian."""
        return set(self.method.split("+"))


def _rebuilt(default: Any, value: Any) -> Any:
    """Settings, and those within them, from JSON, which has lists for tuples."""
    if dataclasses.is_dataclass(default):
        return dataclasses.replace(
            default,  # type: ignore[type-var]
            **{name: _rebuilt(getattr(default, name, None), part) for name, part in value.items()},
        )
    return tuple(value) if isinstance(default, tuple) else value


def algorithm_of(experiment: Experiment) -> Algorithm | Sac | Mbpo | Pets:
    """The optimiser with its settings and its constraint."""
    learner = experiment.learner or preset_of(experiment.preset, experiment.env, experiment.algo, experiment.method)
    limit, paper_reacher = experiment.budget or 0.0, (experiment.preset, experiment.env) == ("paper", "reacher")
    if isinstance(learner.settings, MbpoSettings):
        return mbpo(learner.settings, limit=experiment.budget)
    if isinstance(learner.settings, PetsSettings):
        return pets(learner.settings, limit=experiment.budget)
    if isinstance(learner.settings, SacSettings):
        # Soft actor-critic measures the cost in units of its limit.
        multipliers: dict[str, Callable[[], Constraint]] = {
            "lagrangian": lambda: lagrangian(1.0, through_softplus=True),
            "pid": lambda: pid(1.0),
        }
        chosen = next((make() for part, make in multipliers.items() if part in experiment.parts), none())
        return sac(chosen, learner.settings, experiment.budget)
    if experiment.algo == "cpo":
        return cpo(limit, learner.settings)
    constraints: dict[str, Callable[[], Constraint]] = {
        "lagrangian": lambda: lagrangian(limit, rate=3e-2 if paper_reacher else 5e-2),
        "pid": lambda: pid(limit),
        "cvar": lambda: lagrangian(limit, statistic=cvar(0.01)),
        "cvar-tail": lambda: lagrangian(limit, statistic=cvar(0.01), weigh=tail_weights(0.01)),
    }
    chosen = next((make() for part, make in constraints.items() if part in experiment.parts), none())
    if experiment.algo == "ppo":
        return ppo(chosen, learner.settings, rate=learner.rate, iterations=learner.iterations)
    return trpo(chosen, learner.settings, tries=15 if paper_reacher and "lagrangian" in experiment.parts else 10)


def environment_of(experiment: Experiment, mode: str = "train", num_envs: int | None = None) -> Any:
    """The environment, sautéed if the method says so: JAX-native where that exists, else Gymnasium's on the host."""
    low, high = experiment.lowest_budget, experiment.budget
    options: dict[str, Any] = {
        "budget": high if low is None or high is None or mode == "test" else uniform(low, high),
        "unsafe_reward": experiment.unsafe_reward,
        "augment": experiment.augment,
        "shape": experiment.shape,
    }
    parameters = {}
    if mode == "train" and experiment.learner is not None:
        keepout, unsafe = experiment.learner.keepout, experiment.learner.unsafe_reward
        parameters = {} if keepout is None else {"hazard_keepout": keepout}
        options |= {} if unsafe is None else {"unsafe_reward": unsafe}
    if _native(experiment.env):
        env = TaskEnv(make_task(experiment.env, mode, **parameters))
        return sauted(env, **options) if "saute" in experiment.parts else env
    # MuJoCo steps a large batch faster than several small ones; users' environments would only be more, so theirs take turns.
    together = experiment.env in TASKS and experiment.algo in ON_POLICY and mode == "train" and num_envs is None
    seeds = experiment.seeds if together else 1
    envs = _vector(experiment.env, num_envs or seeds * experiment.envs, mode, **parameters)
    return HostEnvs(SauteVectorWrapper(envs, **options) if "saute" in experiment.parts else envs, seeds=seeds)


def selection_of(experiment: Experiment) -> Selection | None:
    """How the policy to keep is chosen, if the experiment says so: by test starts, which are not those of any test."""
    episodes = None if experiment.learner is None else experiment.learner.validation
    return None if episodes is None else Selection(environment_of(experiment, "test", num_envs=episodes), episodes)


def _native(name: str) -> bool:
    return "jax" in TASKS.get(name, ("", "", ()))[2]


def _with_whole_episodes(preset: Preset, env: str, num_envs: int) -> Preset:
    """As many steps in all, but an epoch, which begins with fresh episodes, is long enough to end them in every environment."""
    settings = preset.settings
    one = HostEnvs(_vector(env, 1, "train"))
    one.envs.close()
    if one.horizon is None:
        raise ValueError(f"the longest episode of {env} is not known; register it with max_episode_steps")
    block = settings.fit_every if isinstance(settings, PetsSettings) else 1
    episodes = num_envs * block * math.ceil(one.horizon / block)
    steps = episodes * math.ceil(settings.steps_per_epoch / episodes)
    changed: Any = {"steps_per_epoch": steps}
    if isinstance(settings, SacSettings):
        changed["num_envs"] = num_envs
    if isinstance(settings, MbpoSettings):
        changed = {"sac": dataclasses.replace(settings.sac, **changed)}
    # A model is fitted when an epoch begins, so those that only fill the replay do not count.
    random = settings.sac.random_steps if isinstance(settings, MbpoSettings) else 0
    epochs = math.ceil(random / steps) + math.ceil((preset.epochs * settings.steps_per_epoch - random) / steps)
    return preset._replace(epochs=epochs, settings=dataclasses.replace(settings, **changed))


def _learning_budgets(settings: MbpoSettings | PetsSettings) -> MbpoSettings | PetsSettings:
    """The paper's variant, in which budgets are not known well enough to be relabelled."""
    if isinstance(settings, PetsSettings):
        return dataclasses.replace(settings, learned_budget=True)
    return dataclasses.replace(settings, learned_budget=True, sac=dataclasses.replace(settings.sac, relabel=False))


def _vector(name: str, num_envs: int, mode: str, **parameters: Any) -> Any:
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
