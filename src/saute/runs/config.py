"""What a run is: asked for by names in an `Experiment`, written down by values in a `Config`, which depends on no name."""

from __future__ import annotations

import dataclasses
import json
import math
import typing
from collections.abc import Mapping
from typing import Any, Literal, cast

import gymnasium as gym

from saute.algos.mbpo import MbpoSettings
from saute.algos.onpolicy import OnPolicySettings
from saute.algos.pets import PetsSettings
from saute.algos.sac import SacSettings
from saute.core.names import nearest
from saute.core.options import as_budget
from saute.core.seeds import TRAINING
from saute.core.typed import rebuilt
from saute.envs import TASKS, is_native, make_task, task_named
from saute.learn.constraint import Free, Lagrangian, Pid
from saute.learn.simmer import PiSchedule, QSchedule
from saute.runs.checkpoint import config_digest
from saute.runs.presets import OWN, PRESETS, Changes, changed, changes_of

__all__ = [
    "ALGORITHMS",
    "METHODS",
    "SCHEDULES",
    "Budget",
    "BudgetSchedule",
    "Config",
    "Experiment",
    "check_drawer",
    "check_schedule",
    "completed",
]

Settings = OnPolicySettings | SacSettings | MbpoSettings | PetsSettings
Controller = Free | Lagrangian | Pid
Budget = float | tuple[float, ...]
"""One number, or one per constraint."""

SETTINGS: dict[str, type[Settings]] = {
    "ppo": OnPolicySettings,
    "trpo": OnPolicySettings,
    "cpo": OnPolicySettings,
    "sac": SacSettings,
    "mbpo": MbpoSettings,
    "pets": PetsSettings,
}
ALGORITHMS = tuple(SETTINGS)
MODEL_BASED = {"mbpo", "pets"}
ENDLESS = {"pendulum", "reacher"}
"""Tasks whose episodes only end at the horizon, which is all that a learned model knows about ends."""
MULTIPLIERS: dict[str, type[Controller]] = {"lagrangian": Lagrangian, "pid": Pid, "cvar": Lagrangian, "cvar-tail": Lagrangian}
METHODS = ("vanilla", "saute", *MULTIPLIERS)
CONTROLLERS: dict[str, type[Controller]] = {"free": Free, "lagrangian": Lagrangian, "pid": Pid}
BudgetSchedule = PiSchedule | QSchedule
SCHEDULES: dict[str, type[BudgetSchedule]] = {"pi": PiSchedule, "q": QSchedule}
MOST_ENVS = 20
MOST_SEEDS = 1000
LATER = {"budget_schedule", "schedule", "evaluate_every", "shield"}
"""Entries that former versions did not have, and that say nothing if they are null."""
LONGEST_WHOLE = 100_000
"""Longer episodes are not waited for: an epoch ends before they do."""


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One training, by names."""

    env: str
    """pendulum, double_pendulum, reacher, point, car, or any Gymnasium id with costs (module:Id-v0 imports the module)."""
    algo: str = "trpo"
    """ppo, trpo, cpo, sac, mbpo or pets."""
    method: str = "saute"
    """vanilla, saute, lagrangian, pid, cvar, cvar-tail (CVaR in the cost advantage too), or combined: saute+lagrangian."""
    budget: Budget | None = None
    """Safety budget of an episode, one number per constraint; by default the task's own."""
    cost: str | tuple[str, ...] = "cost"
    """Where the info of an own environment has its cost: a key, dotted for nested ones (safety.total), or a key per budget."""
    discount: float = 1.0
    """Discount γ of the cost: the budget is for Σ γᵗ l_t."""
    unsafe_reward: float | Literal["auto"] | None = None
    """Reward of every step once the budget is overspent; by default the task's own, or 0; auto: from random episodes."""
    lowest_budget: Budget | None = None
    """Draw the budget of every training episode between this and the budget, so that one policy serves all of them."""
    augment: bool = True
    """Whether a sautéed policy observes its remaining budget."""
    shape: bool = True
    """Whether the reward of a sautéed task becomes the unsafe reward once the budget is overspent."""
    terminate: bool = False
    """Whether an episode of a sautéed task ends once the budget is overspent."""
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
    """paper, fast: settings that come to an equally good policy in a fraction of the time, short: fast for fewer epochs,
    quick: fast, but sac on the pendulum in half the steps, or FILE.toml of saute sweep."""
    seed: int = 0
    """The first seed; the others count on."""
    envs: int | None = None
    """Environments of a seed side by side, for those that are not JAX-native; by default as many as whole episodes fit into
    an epoch, 20 at most; mbpo and pets step one."""
    workers: int = 0
    """Processes that step environments which are not JAX-native, for slow ones; 0 steps them in this one."""
    budget_schedule: Literal["pi", "q"] | None = None
    """Begin training with small budgets and work up to the full one, as Simmer does: by a PI controller, or by Q-learning."""
    evaluate_every: int | None = None
    """Test the policy as it stands every so many epochs, in 100 validation episodes; the numbers go to metrics.jsonl."""

    @property
    def parts(self) -> set[str]:
        """The methods that are combined, as in saute+lagrangian."""
        return set(self.method.split("+"))

    @property
    def sauted(self) -> bool:
        return "saute" in self.parts

    @property
    def costs(self) -> tuple[str, ...]:
        """The names of its costs, also if there is only one."""
        return self.cost if isinstance(self.cost, tuple) else (self.cost,)

    @property
    def cost_shape(self) -> tuple[int, ...]:
        """Of the cost of one step: () for one constraint, (m,) for several."""
        several = self.budget if isinstance(self.budget, tuple) else () if isinstance(self.cost, str) else self.cost
        return (len(several),) if several else ()


@dataclasses.dataclass(frozen=True)
class Config:
    """A run by value: every number that shapes it, so that a run folder can be continued and repeated from it."""

    experiment: Experiment
    """With every default filled in."""
    settings: Settings
    constraint: Controller
    task: dict[str, float] = dataclasses.field(default_factory=dict)
    """Parameters of the task in training that are not its own."""
    training_unsafe_reward: float | None = None
    """Unsafe reward of training, where it is not the experiment's, by which policies are validated and tested."""
    validation: int | None = None
    """Episodes of a validation by which the best policy on the way is kept; by default the last one is."""
    validation_every: int = 50
    """Epochs from one validation to the next."""
    schedule: BudgetSchedule | None = None
    """How the budget of training episodes is chosen, if the experiment asks for it."""
    shield: str | None = None
    """SHA-256 of the shield that training is under, if it is; the run folder has a copy of its file."""

    @property
    def epochs(self) -> int:
        return self.experiment.epochs or 1

    @property
    def digest(self) -> str:
        """By which policies and checkpoints know their configuration."""
        return config_digest(self.as_json())

    def as_json(self) -> dict[str, Any]:
        """Plain values, that `from_json` takes."""
        own = type(self.constraint)
        kind = next((name for name, made in CONTROLLERS.items() if own is made), own.__name__)
        values = dataclasses.asdict(self)
        values |= {"constraint": {"kind": kind} | values["constraint"]}
        return _without_later(json.loads(json.dumps(values.pop("experiment") | values)))

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Config:
        """The same configuration again; values that could not be ours are refused."""
        values = _with_later(values)
        asked = {field.name for field in dataclasses.fields(Experiment)}
        experiment = rebuilt(Experiment, {name: value for name, value in values.items() if name in asked}, "the experiment")
        _check_method(experiment)
        for name in ("budget", "lowest_budget"):
            number = getattr(experiment, name)
            if number is not None:
                _numbers(number, name)
        hints = typing.get_type_hints(Config)
        parts = {"experiment", "settings", "constraint", "schedule"}
        own = {field.name for field in dataclasses.fields(Config)} - parts
        unknown = values.keys() - asked - own - parts
        if unknown:
            raise ValueError(f"unknown entries {', '.join(sorted(unknown))}; was it written by another version of saute?")
        controller = dict(values["constraint"])
        kind = CONTROLLERS[nearest(controller.pop("kind"), CONTROLLERS, "constraint")]
        return Config(
            experiment,
            settings=rebuilt(SETTINGS[experiment.algo], values["settings"], "settings"),
            constraint=rebuilt(kind, controller, "constraint"),
            schedule=None
            if experiment.budget_schedule is None
            else rebuilt(SCHEDULES[experiment.budget_schedule], values["schedule"], "schedule"),
            **{name: rebuilt(hints[name], values[name], name) for name in own},
        )


def completed(
    asked: Experiment,
    changes: Changes | None = None,
    horizon: int | None = None,
    own: tuple[Settings, Controller] | None = None,
) -> Config:
    """The experiment by value, or an error that names what is wrong.

    `changes` are those to the preset, by dotted names; `own` settings and constraint stand in the place of a preset. `horizon`
    is the longest episode of an environment that is not JAX-native, if it is known: then an epoch is long enough for a whole
    episode in each of its environments.
    """
    _check_method(asked)
    task = _check_env(asked)
    budget = asked.budget if asked.budget is not None or task is None else task.budget
    budget = None if budget is None else _numbers(budget, "budget")
    _check_budget(asked, budget)
    _check_costs(asked, budget)
    check_schedule(asked)
    check_drawer(asked)
    name = asked.env if task is None else task_named(asked.env) or asked.env
    known = OWN if task is None else name
    preset = changes_of(asked.preset, known, asked.algo, asked.parts) if own is None else {}
    chosen = {"epochs": 300} | preset | dict(changes or {})
    epochs = chosen.pop("epochs")
    unsafe = asked.unsafe_reward
    if unsafe is not None:
        chosen.pop("training_unsafe_reward", None)
    config = Config(
        dataclasses.replace(
            asked,
            env=name,
            budget=budget,
            cost=asked.cost if isinstance(asked.cost, str) or len(asked.cost) > 1 else asked.cost[0],
            lowest_budget=None if asked.lowest_budget is None else _numbers(asked.lowest_budget, "lowest_budget"),
            unsafe_reward=unsafe if unsafe is not None else (0.0 if task is None else task.unsafe_reward),
        ),
        *(own or (SETTINGS[asked.algo](), _controller(asked, budget))),
    )
    if asked.budget_schedule is not None:
        config = changed(config, "schedule", SCHEDULES[asked.budget_schedule]())
    for dotted, value in chosen.items():
        config = changed(config, dotted, value)
    config, epochs = _whole_episodes(_with_budgets(config), epochs, horizon)
    config = changed(config, "experiment.epochs", epochs if asked.epochs is None else asked.epochs)
    return config if config.schedule is None else changed(config, "schedule", config.schedule.planned(config.epochs))


def _check_method(asked: Experiment) -> None:
    nearest(asked.algo, ALGORITHMS, "algorithm")
    nearest(asked.preset, PRESETS, "preset")
    for part in asked.parts:
        nearest(part, METHODS, "method")
    multipliers = asked.parts & MULTIPLIERS.keys()
    if len(multipliers) > 1:
        raise ValueError(f"method {asked.method!r} names two multipliers; choose one of {', '.join(sorted(MULTIPLIERS))}")
    if asked.algo == "cpo" and multipliers:
        raise ValueError(f"cpo has a constraint of its own; method {asked.method!r} would add another, use vanilla or saute")
    if asked.algo == "sac" and multipliers & {"cvar", "cvar-tail"}:
        raise ValueError(f"sac knows no whole episodes, so method {asked.method!r} is for ppo and trpo; use lagrangian or pid")
    if asked.algo in MODEL_BASED and multipliers:
        raise ValueError(f"{asked.algo} has no multiplier, as method {asked.method!r} asks for; use vanilla or saute")
    if asked.relabel and (asked.algo != "sac" or not asked.sauted):
        raise ValueError(f"--relabel is for sac with method saute, not for {asked.algo} with {asked.method}")
    if asked.learned_budget and (asked.algo not in MODEL_BASED or not asked.sauted):
        raise ValueError(f"--learned-budget is for mbpo and pets with method saute, not for {asked.algo} with {asked.method}")
    for name in ("seeds", "epochs", "envs", "evaluate_every"):
        number = getattr(asked, name)
        if number is not None and number < 1:
            raise ValueError(f"--{name.replace('_', '-')} {number} must be at least 1")
    if asked.seeds > MOST_SEEDS:
        raise ValueError(f"--seeds {asked.seeds} must be at most {MOST_SEEDS}; train the others into another folder")
    if asked.workers < 0:
        raise ValueError(f"--workers {asked.workers} must be at least 0")
    if asked.seed < 0:
        raise ValueError(f"--seed {asked.seed} must be at least 0")


def _check_env(asked: Experiment) -> Any:
    """The task, if the environment is one of ours."""
    name = task_named(asked.env)
    if name is None:
        if ":" not in asked.env:  # a module, or an environment that was given in Python
            nearest(asked.env, [*TASKS, *gym.registry], "environment")
        return None
    if asked.algo in MODEL_BASED and name not in ENDLESS:
        raise ValueError(
            f"{asked.algo} trains on {' and '.join(sorted(ENDLESS))}, and other environments whose episodes end by time"
            f" only, not on {asked.env}; use sac, or in Python saute.{asked.algo}(known=Known(terminated=…))"
        )
    return make_task(name)


def _numbers(value: object, name: str) -> Budget:
    """Positive numbers: one by itself, several as a tuple."""
    if value == ():
        raise ValueError(f"{name} is empty; pass one positive number per constraint")
    if not isinstance(value, tuple | list) or len(value) == 1:
        return as_budget(value[0] if isinstance(value, tuple | list) else value, (), name)
    return tuple(as_budget(value, (len(value),), name).tolist())


def _check_costs(asked: Experiment, budget: Budget | None) -> None:
    """As many costs as budgets, before anything is made."""
    keys = 1 if isinstance(asked.cost, str) else len(asked.cost)
    budgets = len(budget) if isinstance(budget, tuple) else 1
    several = keys > 1 or (budgets > 1 and asked.cost != "cost")
    if several and keys != budgets and budget is not None:
        raise ValueError(
            f"{budgets} budget(s) for {keys} cost(s): pass one budget per cost, for example --budget 30 5 --cost heat wear"
        )
    name = task_named(asked.env)
    if asked.cost != "cost" and name is not None:
        raise ValueError(f"--cost {asked.cost} is for own environments; {asked.env} has a cost of its own")
    if asked.workers and name is not None and is_native(name):
        raise ValueError(
            f"--workers {asked.workers} is for Gymnasium environments; {asked.env} is compiled, and uses all cores"
        )
    lowest = len(asked.lowest_budget) if isinstance(asked.lowest_budget, tuple) else 1
    if asked.lowest_budget is not None and lowest not in (1, budgets):
        raise ValueError(f"--lowest-budget has {lowest} numbers for {budgets} budget(s); pass one, or one each")


def _check_budget(asked: Experiment, budget: Budget | None) -> None:
    if not 0.0 < asked.discount <= 1.0:
        raise ValueError(f"--discount {asked.discount} is outside (0, 1]; use 1 to count every cost fully, as the paper does")
    if budget is None and (asked.parts != {"vanilla"} or asked.algo == "cpo"):
        raise ValueError(f"{asked.env} has no budget of its own; pass --budget, in the units of its cost")
    if asked.lowest_budget is not None and not asked.sauted:
        raise ValueError(f"--lowest-budget {asked.lowest_budget} is for sautéed policies; {asked.method!r} sees no budget")
    constrained = asked.algo == "cpo" or asked.parts & MULTIPLIERS.keys()
    if asked.discount != 1.0 and constrained:
        raise ValueError(
            f"--discount {asked.discount} is for budgets of the Sauté MDP; {asked.algo} with {asked.method} holds the plain "
            "sum of costs below its limit, use --discount 1"
        )


def check_schedule(asked: Experiment) -> None:
    """Refuse a schedule of budgets where there is no single budget that it could work up to."""
    schedule = asked.budget_schedule
    if schedule is None:
        return
    nearest(schedule, SCHEDULES, "budget schedule")
    if not asked.sauted:
        raise ValueError(f"--budget-schedule {schedule} is for sautéed policies; {asked.method!r} carries no budget")
    if asked.lowest_budget is not None:
        raise ValueError(
            f"--budget-schedule {schedule} and --lowest-budget {asked.lowest_budget} both choose the budgets of training "
            "episodes; use one of them"
        )
    if asked.discount != 1.0:
        raise ValueError(
            f"--budget-schedule {schedule} compares the budget with plain sums of costs, which --discount {asked.discount} "
            "does not give; use --discount 1"
        )


def check_drawer(asked: Experiment) -> None:
    """Refuse seeds that tests or validation have; folders of former versions, which may have them, can still be read."""
    if asked.seed + asked.seeds > TRAINING.stop:
        raise ValueError(
            f"--seed {asked.seed} with --seeds {asked.seeds} goes beyond the last seed of training, {TRAINING.stop - 1:,}; "
            "choose a smaller one, since those above are for tests and validation"
        )


def _without_later(values: dict[str, Any]) -> dict[str, Any]:
    """Without the entries that former versions did not have, where they say nothing: so the files of those stay valid."""
    values = {name: value for name, value in values.items() if name not in LATER or value is not None}
    model = values["settings"].get("model", {})
    if model.get("pessimism") == 0.0:
        del model["pessimism"]
    return values


def _with_later(values: Mapping[str, Any]) -> dict[str, Any]:
    """With these entries again."""
    settings = dict(values["settings"])
    if "model" in settings:
        settings["model"] = {"pessimism": 0.0, **settings["model"]}
    return {**dict.fromkeys(LATER - {"schedule"}), **values, "settings": settings}


def _controller(asked: Experiment, budget: Budget | None) -> Controller:
    if asked.algo == "cpo":
        return Free(cast(Any, budget))
    kind = next((MULTIPLIERS[part] for part in MULTIPLIERS if part in asked.parts), None)
    return Free() if kind is None else kind(cast(Any, budget))


def _with_budgets(config: Config) -> Config:
    """With what is asked for by name of the budgets in the settings."""
    asked = config.experiment
    if asked.relabel:
        config = changed(config, "settings.relabel", True)
    if asked.learned_budget:
        # The paper's variant, in which budgets are not known well enough to be relabelled.
        if isinstance(config.settings, MbpoSettings):
            config = changed(config, "settings.sac.relabel", False)
        config = changed(config, "settings.learned_budget", True)
    return config


def _whole_episodes(config: Config, epochs: int, horizon: int | None) -> tuple[Config, int]:
    """With as many environments as whole episodes fit into an epoch; if not one does, with longer epochs, and fewer of them."""
    asked, settings = config.experiment, config.settings
    if is_native(asked.env):
        return config, epochs
    if horizon is None or horizon > LONGEST_WHOLE:
        envs = asked.envs or (1 if not isinstance(settings, OnPolicySettings) else MOST_ENVS)
        return changed(config, "experiment.envs", envs), epochs
    envs = 1 if asked.algo in MODEL_BASED else asked.envs or min(MOST_ENVS, max(1, settings.steps_per_epoch // horizon))
    steps = envs * max(horizon, settings.steps_per_epoch // envs)
    # A model is fitted when an epoch begins, so those that only fill the replay do not count.
    random = settings.sac.random_steps if isinstance(settings, MbpoSettings) else 0
    fewer = math.ceil(random / steps) + math.ceil((epochs * settings.steps_per_epoch - random) / steps)
    shrinks = getattr(settings, "kl_epochs", None)
    if shrinks is not None:
        config = changed(config, "settings.kl_epochs", max(1, round(shrinks * fewer / epochs)))
    prefix = "settings.sac." if isinstance(settings, MbpoSettings) else "settings."
    config = changed(changed(config, "experiment.envs", envs), prefix + "steps_per_epoch", steps)
    if isinstance(settings, SacSettings):
        config = changed(config, "settings.num_envs", envs)
    return config, fewer
