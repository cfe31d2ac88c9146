"""Environments as people bring them, one for each row of the table in docs/your_task.md, and what each learner makes of it."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

import saute

__all__ = ["LEARNERS", "ROWS", "SMALL", "WORLDS", "Plant", "assert_as_written", "cell", "heat_of"]

LEARNERS = ("ppo", "trpo", "cpo", "sac", "mbpo", "pets")


class Plant(gym.Env):
    """The action is the reward; above 0 a step heats by 1, a whole number, and every step wears by a quarter."""

    def __init__(self, obs: str = "box", act: str = "box", steps: int | None = 20, six: bool = False, falls: bool = False):
        self.kind, self.acts, self.steps, self.six, self.falls, self.time = obs, act, steps, six, falls, 0
        self.observation_space = {
            "box": spaces.Box(-1.0, 1.0, (2,)),
            "dict": spaces.Dict({"gear": spaces.Discrete(3), "speed": spaces.Box(-1.0, 1.0, (2,))}),
            "discrete": spaces.Discrete(20, start=5),
            "image": spaces.Box(0, 255, (16, 16, 1), np.uint8),
        }[obs]
        self.action_space = {
            "box": spaces.Box(-1.0, 1.0, (1,)),
            "discrete": spaces.Discrete(3),
            "multi": spaces.MultiDiscrete([3, 2]),
        }[act]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        gym.Env.reset(self, seed=seed)
        self.time = 0
        return self._observed(), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        push = float(np.ravel(action)[0]) - (self.acts != "box")
        heat = 1 if push > 0 else 0
        info = {"cost": heat, "heat": heat, "wear": 0.25, "safety": {"total": heat}}
        fell = self.falls and bool(self.np_random.random() < 0.1)
        out = self.steps is not None and self.time >= self.steps
        ends = fell or (self.steps is None and self.time >= 30)
        return (self._observed(), push, heat, ends, out, info) if self.six else (self._observed(), push, ends, out, info)

    def _observed(self) -> Any:
        share = self.time % 20 / 20
        numbers = np.array([share, 0.5], np.float32)
        if self.kind == "dict":
            return {"gear": self.time % 3, "speed": numbers}
        if self.kind == "discrete":
            return 5 + self.time % 20
        return np.full((16, 16, 1), int(255 * share), np.uint8) if self.kind == "image" else numbers


def _long() -> gym.Env:
    return gym.wrappers.TimeLimit(Plant(steps=None), 1000)


def heat_of(obs: Any, action: Any, next_obs: Any, info: dict[str, Any]) -> float:
    """A cost function."""
    return float(info["heat"])


def _plant(**kinds: Any) -> Callable[[], gym.Env]:
    return functools.partial(Plant, **kinds)


def _jax(name: str) -> Any:
    """The smallest tasks of other JAX libraries."""
    if name == "brax":
        from brax import envs

        return saute.from_brax(
            envs.get_environment("inverted_pendulum", backend="spring"),
            cost=lambda obs, action, next_obs, info: abs(next_obs[0]) > 0.1,
            horizon=20,
        )
    import gymnax

    env, params = gymnax.make("CartPole-v1")
    return saute.from_gymnax(env, params, cost=lambda obs, action, next_obs, info: abs(next_obs[0]) > 0.1, horizon=20)


ROWS: dict[str, dict[str, Any]] = {
    "Box observations": {"env": _plant()},
    "Dict observations": {"env": _plant(obs="dict")},
    "Discrete observations": {"env": _plant(obs="discrete")},
    "images": {"env": _plant(obs="image")},
    "discrete actions": {"env": _plant(act="discrete")},
    "several discrete actions": {"env": _plant(act="multi")},
    "T = 1000": {"env": _plant(steps=1000), "budget": 100.0},
    "no time limit": {"env": _plant(steps=None)},
    "early termination": {"env": _plant(falls=True)},
    "two costs": {"env": _plant(), "budget": [5.0, 6.0], "cost": ["heat", "wear"]},
    "γ < 1": {"env": _plant(), "discount": 0.9},
    "nested key": {"env": _plant(), "cost": "safety.total"},
    "cost function": {"env": _plant(), "cost": heat_of},
    "six-tuple": {"env": _plant(six=True)},
    "random budget": {"env": _plant(), "budget": saute.uniform(2.0, 5.0)},
    "workers": {"env": _plant(), "envs": 2, "workers": 2},
}
WORLDS = {"Brax": {"env": functools.partial(_jax, "brax")}, "gymnax": {"env": functools.partial(_jax, "gymnax")}}

SMALL: dict[str, dict[str, Any]] = {
    **{algo: {"steps_per_epoch": 40, "hidden": (8,), "value_iterations": 2} for algo in ("ppo", "trpo", "cpo")},
    "sac": {"steps_per_epoch": 40, "hidden": (8,), "random_steps": 20, "batch": 8, "replay": 2000},
    "mbpo": {
        "sac.hidden": (8,), "sac.random_steps": 20, "sac.steps_per_epoch": 40, "sac.batch": 8, "sac.replay": 2000,
        "model.elites": 1, "model.members": 2, "model.hidden": (8,), "model.rounds": 2, "rollouts": 4, "imagined": 50,
    },
    "pets": {
        "steps_per_epoch": 40, "random_steps": 20, "fit_every": 20, "replay": 2000, "planner.horizon": 3,
        "model.elites": 1, "model.members": 2, "model.hidden": (8,), "model.rounds": 2,
    },
}  # fmt: skip


def cell(algo: str, env: Any, budget: Any = 5.0, **asked: Any) -> str:
    """What one epoch of a learner comes to: it trains, with numbers that were measured, or it is refused with a reason."""
    method = "vanilla" if algo == "cpo" else "saute"
    given = env() if getattr(env, "func", None) is _jax else env
    try:
        quiet: dict[str, Any] = {"seeds": 1, "epochs": 1, "advise": lambda text: None}
        run = saute.train(algo, given, budget=budget, method=method, settings=SMALL[algo], **quiet, **asked)
    except ValueError as problem:
        return f"refused: {problem}"
    (last,) = run.metrics[-1]
    ended = last["episodes"] > 0
    known = [last[name] for name in ("task_return", "violation_rate")]
    assert (np.isfinite(known).all() and 0 <= known[1] <= 1) if ended else np.isnan(known).all(), last
    assert len(run.evaluate(2).outcomes[0].task_return) == 2
    return "trains"


def _table() -> dict[str, list[str]]:
    """The cells of the table in the page, by row."""
    page = pathlib.Path(__file__).parent.parent / "docs" / "your_task.md"
    lines = [line for line in page.read_text().splitlines() if line.startswith("| ")]
    start = next(i for i, line in enumerate(lines) if line.startswith("| your environment"))
    rows = [[part.strip() for part in line.strip("|").split("|")] for line in lines[start + 1 :]]
    return {name: cells for name, *cells in rows if len(cells) == len(LEARNERS)}


def assert_as_written(row: str, algo: str, got: str) -> None:
    """What happened is what the page says."""
    written = _table()[row][LEARNERS.index(algo)]
    assert got == "trains" if written == "trains" else written.removeprefix("refused: ") in got, (written, got)
