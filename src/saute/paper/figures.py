"""Figures and tables of the paper as data: which runs each compares, at which budgets, and what was published."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from saute.paper.published import PUBLISHED as BY_OTHERS
from saute.runs.config import Experiment
from saute.runs.presets import Changes

__all__ = ["ARTIFACTS", "BENCHMARK", "EQUAL", "SAFER", "Artifact", "Row", "artifact_of", "seeds_at_laptop"]


class Row(NamedTuple):
    """One box of a figure, or one line of a table."""

    label: str
    experiment: Experiment
    budget: float
    """The budget at which the policies are tested."""
    published: str = "–"
    """Task and safety as the paper prints them, where it prints numbers."""
    paper_epochs: int | None = None
    """Epochs in the paper, if they differ from its other experiments on the task."""
    most_episodes: int | None = None
    """Most test episodes per seed, for a method that is slow to test."""
    presets: Mapping[str, str] = MappingProxyType({})
    """Preset by scale, if it is not the usual preset of the scale."""
    changes: Mapping[str, Changes] = MappingProxyType({})
    """Changes to the preset by scale."""
    note: str = ""
    """What is different from the other rows."""


class Artifact(NamedTuple):
    """A figure or table: its title, what the paper says with it, and its rows."""

    title: str
    claim: str
    rows: tuple[Row, ...]


def _rows(env: str, budget: float, *methods: tuple[str, str, str] | tuple[str, str, str, str]) -> tuple[Row, ...]:
    return tuple(
        Row(label, Experiment(env, algo=algo, method=method), budget, published[0] if published else "–")
        for label, algo, method, *published in methods
    )


def _pole(label: str, budget: float, test: float | None = None, lowest: float | None = None) -> Row:
    """Sauté on the double pendulum, trained at a budget, or at random budgets from `lowest` up to it, and tested at `test`."""
    experiment = Experiment("double_pendulum", budget=budget, lowest_budget=lowest)
    return _short(Row(label, experiment, budget if test is None else test))


def _short(row: Row) -> Row:
    """The same row with the short preset at laptop scale, which has fewer epochs than the fast one."""
    return row._replace(presets={"laptop": "short"})


def _against(label: str, rows: Sequence[Row]) -> tuple[Row, ...]:
    """The rows, all with the short preset at laptop scale; the one of this label as well as we can, and then like the others.

    Only the latter is compared with its baselines: it has their starts, their steps, no selection, and the task's own n.
    """
    both = {label: lambda row: (row._replace(note=TUNED), _short(row)._replace(label=f"{label}{EQUAL}", note=ALIKE))}
    return tuple(one for row in rows for one in both.get(row.label, lambda row: (_short(row),))(row))


def _family(algo: str) -> tuple[tuple[str, str, str], ...]:
    name = algo.upper()
    return ((f"Vanilla {name}", algo, "vanilla"), (f"Sauté {name}", algo, "saute"), (f"{name}-L", algo, "lagrangian"))


EQUAL = ", as its baselines"
TUNED = "as well as we can: by the fast preset, where its baselines have the short one"
ALIKE = "with the starts, the steps and the settings of its baselines, and the task's own n"
SCALED_FOR = 200.0
"""The n for which the presets scale the values that are learned; those of a larger n are as many times larger."""
SEEDS = {"pendulum": 20, "reacher": 20, "double_pendulum": 10}
"""Seeds of a run at laptop scale, as many as two cores can afford; on other tasks five."""
SLOW = {"sac": 10, "mbpo": 10, "pets": 10}
"""At most so many of learners that take longer."""
NARROW, WIDE = {"settings.hidden": (64, 64)}, {"settings.hidden": (256, 256), "experiment.seeds": 5}
CPO, PID, CVAR = ("CPO", "cpo", "vanilla"), ("PID-L", "trpo", "pid"), ("CVaR-L", "trpo", "cvar")
TABLE = ("Vanilla", "trpo", "vanilla"), ("Sauté", "trpo", "saute"), CPO, ("TRPO-L", "trpo", "lagrangian"), CVAR, PID
PUBLISHED = {
    "reacher": (
        "−60.85±.10; 18.15, 19.14, 19.36",
        "−61.35±.44; 4.51, 8.78, 9.12",
        "−60.88±.10; 9.95, 11.69, 13.18",
        "−61.15±.44; 6.44, 12.44, 14.85",
        "−60.91±.11; 7.81, 13.90, 17.41",
        "−61.17±.13; 5.68, 10.02, 10.94",
    ),
    "point": (
        "2.89±.47; 16.18, 52.00, 55.08",
        "2.77±.59; .19, 0, 0",
        "2.93±.49; 17.92, 52.00, 58.04",
        "2.96±.45; 19.21, 52.00, 55.05",
        "2.90±.48; .93, 0, 33.02",
        "2.90±.60; 18.24, 52.00, 59.78",
    ),
    "car": (
        "2.96±.46; 19.88, 52.00, 68.02",
        "2.81±.45; .22, 0, 0",
        "2.91±.46; 16.75, 53.00, 73.00",
        "2.91±.47; 16.65, 51.00, 64.07",
        "2.72±.64; 1.02, 0, 39.00",
        "2.91±.61; 13.72, 48.00, 83.00",
    ),
}
ABLATED_N = {
    0.0: "−61.47, −74.87, −86.67; 32.49, 37.56, 39.68",
    10.0: "−64.34, −71.68, −83.01; 36.84, 38.38, 39.47",
    100.0: "−72.65, −79.29, −91.18; 35.91, 37.71, 39.69",
    1e3: "−80.24, −83.95, −89.16; 37.05, 38.15, 39.40",
    1e4: "−67.24, −78.95, −86.73; 36.94, 38.09, 39.50",
    1e5: "−67.19, −76.42, −85.81; 36.22, 37.92, 39.45",
}


def _table(env: str, budget: float) -> tuple[Row, ...]:
    rows = _rows(env, budget, *((*method, published) for method, published in zip(TABLE, PUBLISHED[env], strict=True)))
    return _against("Sauté", rows)


def _ablation(env: str, budget: float) -> tuple[Row, ...]:
    return (
        Row("Sauté", Experiment(env, budget=budget), budget),
        Row("no state augmentation", Experiment(env, budget=budget, augment=False), budget),
        Row("no cost shaping", Experiment(env, budget=budget, shape=False), budget),
    )


ARTIFACTS: dict[str, Artifact] = {
    "pendulum-trpo": Artifact(
        "Pendulum, TRPO family (figure 1)",
        "Sauté never violates; the Lagrangians and CPO do.",
        _rows("pendulum", 30.0, *_family("trpo"), PID, CPO),
    ),
    "pendulum-ppo": Artifact(
        "Pendulum, PPO family (figure 1)",
        "Sauté never violates; the Lagrangian does.",
        _rows("pendulum", 30.0, *_family("ppo")),
    ),
    "pendulum-sac": Artifact(
        "Pendulum, SAC family (figure 1)",
        "Sauté never violates; the Lagrangian does.",
        _rows("pendulum", 30.0, *_family("sac")),
    ),
    "sac-narrow": Artifact(
        "Pendulum, SAC with narrow networks (appendix)",
        "Sauté stays preferable with 64×64 networks; 256×256 perform better. The last row differs in the width, and has fewer "
        "seeds at laptop scale.",
        (
            *(row._replace(changes={"paper": NARROW}) for row in _rows("pendulum", 30.0, *_family("sac"))),
            Row("Sauté SAC 256×256", Experiment("pendulum", algo="sac", budget=30.0), 30.0, changes={"laptop": WIDE}),
        ),
    ),
    "model-based": Artifact(
        "Pendulum, MBPO and PETS (figure 3)",
        "Sauté never violates, at some loss of return.",
        (
            *_rows("pendulum", 30.0, *_family("mbpo")[:2]),
            *(row._replace(most_episodes=25) for row in _rows("pendulum", 30.0, *_family("pets")[:2])),
        ),
    ),
    "double-pendulum": Artifact(
        "Double pendulum (figure 2)",
        "Sauté never violates; TRPO-L and CPO spread widely.",
        _against("Sauté TRPO", _rows("double_pendulum", 40.0, *_family("trpo"), CPO)),
    ),
    "generalisation": Artifact(
        "One policy for many budgets, double pendulum (figure 4)",
        "A policy trained with random budgets is safe at each; one trained at 60 need not be.",
        (
            *(_pole(f"baseline {d:g}", d) for d in (40.0, 60.0, 80.0)),
            *(_pole(f"naïve 60 → {d:g}", 60.0, d) for d in (40.0, 80.0)),
            *(_pole(f"zero-shot {d:g}", 100.0, d, lowest=5.0) for d in (40.0, 60.0, 80.0)),
        ),
    ),
    "ablation-pendulum": Artifact(
        "Without parts of Sauté, pendulum (figure 5)", "Both parts are needed.", _ablation("pendulum", 30.0)
    ),
    "ablation-double-pendulum": Artifact(
        "Without parts of Sauté, double pendulum (figure 5)",
        "Both parts are needed.",
        tuple(map(_short, _ablation("double_pendulum", 40.0))),
    ),
    "ablation-n": Artifact(
        "The unsafe reward −n, double pendulum (table; published: 5 %, mean, 95 % of task and of safety)",
        "Safe for every n; the return is best for n near 1000.",
        tuple(
            _short(
                Row(
                    f"n = {n:g}",
                    Experiment("double_pendulum", budget=40.0, unsafe_reward=-n),
                    40.0,
                    text,
                    paper_epochs=600,
                    changes={"laptop": {"settings.value_scale": 50.0 * max(1.0, n / SCALED_FOR)}},
                )
            )
            for n, text in ABLATED_N.items()
        ),
    ),
    "reacher": Artifact("Reacher (figure 6, table)", "Only Sauté has no violations.", _table("reacher", 10.0)),
    "point": Artifact("Point goal (figure 6, table)", "Sauté has few or no violations, others many.", _table("point", 20.0)),
    "car": Artifact(
        "Car goal (figure 6, table)",
        "Sauté has few or no violations, others many. At laptop scale CVaR-L has 8 % of the paper's steps and earns less.",
        _table("car", 20.0),
    ),
}


def _safer(env: str, budget: float) -> tuple[Row, ...]:
    """Sauté, and Sauté with schedules of budgets, ten seeds each or more."""
    asked = Experiment(env, budget=budget, seeds=10)
    return (
        Row("Sauté TRPO", asked, budget),
        Row("Simmer, PI", dataclasses.replace(asked, budget_schedule="pi"), budget),
        Row("Simmer, Q-learning", dataclasses.replace(asked, budget_schedule="q"), budget),
    )


def _pessimistic(kappa: float) -> Row:
    changes = {"settings.model.pessimism": kappa}
    experiment = Experiment("pendulum", algo="mbpo", budget=30.0)
    return Row(f"MBPO, κ = {kappa:g}", experiment, 30.0, changes=dict.fromkeys(("smoke", "laptop", "paper"), changes))


SAFER: dict[str, Artifact] = {
    "safer-pendulum": Artifact("Safer while learning: pendulum", "", _safer("pendulum", 30.0)),
    "safer-double-pendulum": Artifact(
        "Safer while learning: double pendulum", "", tuple(map(_short, _safer("double_pendulum", 40.0)))
    ),
    "safer-models": Artifact("Safer while learning: pessimistic models", "", tuple(map(_pessimistic, (0.0, 1.0, 3.0)))),
}
"""Beyond the paper: how often training itself violates. The first row is what the others are compared with."""


ROBOTS = {
    "HalfCheetah": "half_cheetah_velocity",
    "Hopper": "hopper_velocity",
    "Walker2d": "walker2d_velocity",
    "Swimmer": "swimmer_velocity",
    "Ant": "ant_velocity",
    "Humanoid": "humanoid_velocity",
}


def _benchmark(task: str, env: str) -> tuple[Row, ...]:
    """Every kind of method on a task, beside the published column of the same kind."""
    methods = (
        ("vanilla PPO", "ppo", "vanilla", "PPO"),
        ("Sauté PPO", "ppo", "saute", "PPO-Sauté"),
        ("PPO-L", "ppo", "lagrangian", "PPO-Lag"),
        ("PPO with PID", "ppo", "pid", "PID"),
        ("CPO", "cpo", "vanilla", "CPO"),
    )
    published = BY_OTHERS[task]
    return tuple(
        Row(f"{task}, {label}", Experiment(env, algo, method, budget=25.0), 25.0, f"{column}: {published[column]}")
        for label, algo, method, column in methods
    )


ALL_BUDGETS = Row(
    "PointGoal1, Sauté PPO, all budgets",
    Experiment("point_goal1", "ppo", "saute", budget=25.0, lowest_budget=1.0),
    25.0,
    f"PPO-Sauté: {BY_OTHERS['PointGoal1']['PPO-Sauté']}",
    changes={"laptop": {"training_unsafe_reward": -0.2}},
)
"""Its training episodes begin with any budget from 1 on, so that it has seen what little is left."""


def _of_any_budget(task: str, budget: float) -> Row:
    """One policy for budgets from 5 to 100, tested at one of them; what was published is for 25 only."""
    experiment = Experiment(ROBOTS[task], "sac", "saute", budget=100.0, lowest_budget=5.0)
    known = f"SAC-Lag: {BY_OTHERS[task]['SAC-Lag']}" if budget == 25.0 else "–"
    return Row(f"{task}, Sauté SAC, all budgets, at {budget:g}", experiment, budget, known)


SOFT = {
    "HalfCheetah": tuple(_of_any_budget("HalfCheetah", budget) for budget in (10.0, 25.0, 50.0)),
    "Hopper": (
        Row(
            "Hopper, Sauté SAC",
            Experiment("hopper_velocity", "sac", "saute", budget=25.0),
            25.0,
            f"SAC-Lag: {BY_OTHERS['Hopper']['SAC-Lag']}",
        ),
    ),
}
"""Sauté with soft actor-critic, beside the only off-policy method that was published."""


BENCHMARK: dict[str, Artifact] = {
    "velocity": Artifact(
        "Velocity: Gymnasium's robots below a speed",
        "",
        tuple(row for task, env in ROBOTS.items() for row in (*_benchmark(task, env), *SOFT.get(task, ()))),
    ),
    "navigation": Artifact(
        "Navigation: PointGoal1 without its vase", "", (*_benchmark("PointGoal1", "point_goal1"), ALL_BUDGETS)
    ),
}
"""Beyond the paper: the tasks that the field compares on."""


def seeds_at_laptop(asked: Experiment) -> int:
    """How many seeds a row has there: as many as it asks for, or as its task and its learner can afford."""
    return max(asked.seeds, min(SEEDS.get(asked.env, 0), SLOW.get(asked.algo, max(SEEDS.values()))))


def artifact_of(name: str) -> Artifact:
    """The paper's, or one of those beyond it."""
    return (ARTIFACTS | SAFER | BENCHMARK)[name]
