"""The page about the architecture is true: its examples train as they stand there, and every file that it names exists."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from counting_toys import HostToll, Toll

import saute
from saute.algos.onpolicy import OnPolicySettings
from saute.envs.from_gym import HostEnvs
from saute.envs.task import TaskEnv
from saute.learn.agent import Acted, unchanged
from saute.learn.constraint import FREE, Free, mean
from saute.learn.nets import Categorical, Gaussian, policy_for
from saute.learn.returns import advantages
from saute.runs.loop import train

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "architecture.md"
GIVEN = dict(
    dataclasses=dataclasses, jax=jax, jnp=jnp, optax=optax, Acted=Acted, unchanged=unchanged, FREE=FREE, Free=Free, mean=mean,
    Categorical=Categorical, Gaussian=Gaussian, policy_for=policy_for, advantages=advantages,
)  # fmt: skip


def added(name: str) -> Any:
    """A class that the page adds, made from its own text."""
    for block in re.findall(r"```diff\n(.*?)```", PAGE.read_text(), re.S):
        lines = [line[1:] for line in block.splitlines() if line.startswith("+") and not line.startswith("+++")]
        text = "\n".join(line for line in lines if not line.lstrip().startswith('"'))
        if f"class {name}" in text:
            made = dict(GIVEN)
            exec(text, made)
            return made[name]
    raise LookupError(name)


def test_the_task_of_the_page_can_be_learned() -> None:
    env = saute.saute(TaskEnv(added("Cart")()))
    assert env.options.high == 5.0
    settings = OnPolicySettings(hidden=(16,), steps_per_epoch=2000, value_iterations=20)
    metrics = train(saute.ppo(settings=settings), env, seeds=1, epochs=8).metrics
    assert metrics[-1][0]["task_return"] > metrics[0][0]["task_return"] and metrics[0][0]["episodes"] == 20


def test_the_learner_of_the_page_learns_on_native_and_host_tasks_and_resumes(tmp_path: pathlib.Path) -> None:
    reinforce = added("Reinforce")()

    class Paying(Toll):
        def step(self, state: Any, action: Any, key: Any) -> Any:
            return Toll.step(self, state, action, key)._replace(reward=action[0])

    metrics = train(reinforce, saute.saute(Paying(), budget=20.0), seeds=2, epochs=40).metrics
    assert min(seed["task_return"] for seed in metrics[-1]) > 8.0, "of at most 10"
    assert train(reinforce, HostEnvs(HostToll, 400), seeds=1, epochs=1, budget=9.0).metrics[0][0]["violation_rate"] == 1.0
    whole = train(reinforce, Paying(), seeds=1, epochs=3, out=tmp_path / "whole")
    for epochs in (1, 3):
        halves = train(reinforce, Paying(), seeds=1, epochs=epochs, out=tmp_path / "halves")
    for a, b in zip(jax.tree.leaves(whole.states), jax.tree.leaves(halves.states), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_constraint_of_the_page_steers() -> None:
    settings = OnPolicySettings(hidden=(4,), steps_per_epoch=40, value_iterations=1)
    run = train(saute.trpo(added("Staircase")(9.0), settings), Toll(), seeds=1, epochs=3)
    assert [epoch[0]["multiplier"] for epoch in run.metrics] == pytest.approx([0.1, 0.2, 0.3])


def test_every_file_that_the_page_names_exists() -> None:
    links = re.findall(r"\]\((\.\./src/[^)]+)\)", PAGE.read_text())
    assert len(links) > 10 and all((PAGE.parent / link).exists() for link in links)
    rooms = {path.name for path in (PAGE.parents[1] / "src" / "saute").iterdir() if (path / "__init__.py").exists()}
    assert rooms == {"core", "serve", "envs", "learn", "algos", "evidence", "runs", "paper", "cli"}
    assert all(f"| `{room}` |" in PAGE.read_text() for room in rooms), "every room is on the map"
