"""Policies on a plant: without JAX, with the same actions, and with books for what can go wrong there."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import subprocess
import sys
from typing import Any

import gymnasium as gym
import jax
import numpy as np
import pytest

import saute
from saute.algos.pets import pets
from saute.core.protocol import spec_of
from saute.runs import pretrained
from saute.runs.policy import load_policy
from saute.runs.trained import policy_description, save_policies
from saute.serve.budgeted import BudgetedPolicy

PENDULUM = "pretrained:pendulum-saute-trpo"


def test_everything_on_a_plant_needs_no_jax(tmp_path: pathlib.Path) -> None:
    code = f"""
import sys
for name in ("jax", "jaxlib", "jaxtyping", "optax", "scipy", "filelock", "mujoco"):
    sys.modules[name] = None  # as if it were not installed
import saute
from gymnasium import spaces
from saute.cli.main import main
keeper = saute.BudgetedPolicy(saute.load_policy({PENDULUM!r}, on_nan="brake", brake=[0.5]), on_empty="hold")
keeper.begin(30.0)
seen = saute.flat(spaces.Dict({{"angle": spaces.Box(-1.0, 1.0, (2,)), "speed": spaces.Box(-8.0, 8.0, (1,))}}))
obs = seen.one({{"angle": [1.0, 0.0], "speed": [0.0]}})
print(keeper.act(obs).shape, keeper.spend(0.5), main(["export", {PENDULUM!r}, "--format", "c"]))
try: saute.load_policy({PENDULUM!r}, backend="jax")
except ModuleNotFoundError as missing: print(missing.name)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert lines[1:] == ["(1,) 29.5 0", "jax"] and lines[0].startswith("wrote policy.c"), done.stdout + done.stderr


def observations(policy: Any, rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(rows, policy.about.bare)), rng.uniform(0.0, policy.reference[0], rows)


@pytest.mark.parametrize("name", pretrained.names())
def test_numpy_and_jax_give_the_same_actions(name: str) -> None:
    """To what float32 has: JAX's own actions are as far from those in float64."""
    ours, theirs = (load_policy(f"pretrained:{name}", backend=backend) for backend in ("auto", "jax"))
    obs, left = observations(ours, 500)
    expected = theirs(obs, left)
    np.testing.assert_allclose(ours(obs, left), expected, rtol=0, atol=3e-6)
    np.testing.assert_allclose([ours(*row) for row in zip(obs, left, strict=True)], expected, rtol=0, atol=5e-6)
    assert ours(obs[0], left[0]).dtype == theirs(obs[0], left[0]).dtype == np.float32


def test_actions_are_drawn_from_the_same_distribution() -> None:
    for name in ("pendulum-saute-trpo", "pendulum-saute-sac"):
        ours, theirs = (load_policy(f"pretrained:{name}", backend=backend) for backend in ("numpy", "jax"))
        obs = np.tile([0.9, 0.3, 1.0], (20_000, 1))
        one, other = ours(obs, 30.0, np.random.default_rng(0)), theirs(obs, 30.0, jax.random.key(0))
        np.testing.assert_allclose(one.mean(), other.mean(), atol=0.02)
        np.testing.assert_allclose(np.quantile(one, [0.1, 0.5, 0.9]), np.quantile(other, [0.1, 0.5, 0.9]), atol=0.04)
    with pytest.raises(TypeError, match=r"is not a np.random.Generator; pass one, or load the policy with backend='jax'"):
        ours(obs[0], 30.0, jax.random.key(0))


def test_a_planner_needs_jax_and_says_so(tmp_path: pathlib.Path, capsys) -> None:
    env = saute.saute(saute.envs.pendulum())
    agent = pets().agent(spec_of(env))
    parameters = agent.export(agent.init(jax.random.key(0)))
    save_policies(tmp_path / "policy.safetensors", [parameters], policy_description(spec_of(env), agent.policy, 1))
    with pytest.raises(ValueError, match=r"is a planner \(PETS\), which imagines with JAX; load it with backend='jax'"):
        load_policy(tmp_path, backend="numpy")
    assert saute.cli.main.main(["export", str(tmp_path), "--format", "c", "--out", str(tmp_path / "policy.c")]) == 2
    assert "is a planner (PETS), which imagines and has no net" in capsys.readouterr().err
    code = f"""
import sys
sys.modules["jax"] = None  # as if it were not installed
import saute
try: saute.load_policy({str(tmp_path)!r})
except ModuleNotFoundError as missing: print(missing)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert "is a planner (PETS): it needs jax, which is not installed: pip install 'saute[train]'" in said


# Books


def remaining(obs: Any, remaining: Any) -> Any:
    """A policy that shows what it is told."""
    return remaining


def test_a_cost_that_is_not_reported_is_refused_or_assumed() -> None:
    keeper = BudgetedPolicy(remaining)
    keeper.begin(3.0)
    keeper.act(None)
    with pytest.raises(gym.error.ResetNeeded, match=r"act was called twice .* call spend\(cost\), 0\.0 if there was none"):
        keeper.act(None)
    with pytest.raises(ValueError, match=r"cost=nan must be finite and ≥ 0; pass missing_cost=… to book that where it is NaN"):
        keeper.spend(float("nan"))
    assert keeper.spend(1.0) == 2.0 and keeper.act(None) == 2.0, "what was refused was not booked"
    keeper = BudgetedPolicy(remaining, 0.5, missing_cost=1.0)
    keeper.begin(3.0)
    assert [keeper.act(None), keeper.act(None), keeper.spend(float("nan"))] == [3.0, 4.0, 6.0]
    for bad in (-1.0, float("inf")):
        with pytest.raises(ValueError, match="must be finite"):
            keeper.spend(bad)
    keeper.begin(5.0)
    assert keeper.act(None) == 5.0, "a new episode owes nothing"


def test_missing_costs_of_several_constraints() -> None:
    keeper = BudgetedPolicy(remaining, missing_cost=[1.0, 0.5])
    keeper.begin([3.0, 2.0])
    keeper.act(None)
    assert keeper.act(None).tolist() == [2.0, 1.5]
    assert keeper.spend([0.5, float("nan")]).tolist() == [1.5, 1.0]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, "policy"),
        ({"on_empty": "hold"}, "policy 1.0"),
        ({"on_empty": "backup", "backup": lambda obs, remaining: f"backup {remaining}"}, "backup -1.0"),
        ({"on_empty": lambda obs, remaining: f"{obs} {remaining}"}, "obs -1.0"),
    ],
)
def test_who_acts_when_the_budget_is_gone(asked: dict[str, Any], expected: str) -> None:
    keeper = BudgetedPolicy(lambda obs, remaining: f"policy {remaining}", **asked)
    keeper.begin(2.0)
    for cost, action in ((1.0, "policy 2.0"), (1.0, "policy 1.0"), (0.0, "policy 0.0")):
        assert keeper.act("obs") == action, "to have spent exactly all of it is allowed"
        keeper.spend(cost)
    keeper.begin(2.0)
    keeper.spend(1.0)
    keeper.act("obs")
    keeper.spend(2.0)
    assert keeper.act("obs").startswith(expected) and keeper.violated


def test_nothing_can_be_held_before_the_first_action() -> None:
    keeper = BudgetedPolicy(remaining, on_empty="hold")
    keeper.begin(1.0)
    keeper.spend(2.0)
    with pytest.raises(gym.error.ResetNeeded, match="gone before the first action, so there is none to hold"):
        keeper.act(None)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"discount": 0.0}, r"discount=0\.0 is outside \(0, 1\]"),
        ({"on_empty": "hodl"}, "unknown on_empty 'hodl'; did you mean 'hold'"),
        ({"on_empty": "backup"}, "pass both on_empty='backup' and a policy"),
        ({"backup": remaining}, "pass both on_empty='backup' and a policy"),
        ({"missing_cost": -1.0}, r"missing_cost=-1\.0 must be finite and ≥ 0"),
    ],
)
def test_odd_books_are_refused(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BudgetedPolicy(remaining, **asked)


def test_budgets_that_the_policy_does_not_know_are_refused_at_once() -> None:
    keeper = BudgetedPolicy(load_policy(PENDULUM))
    with pytest.raises(ValueError, match=r"budget=\[30.0, 5.0\] does not fit the policy, which observes 1 budget"):
        keeper.begin([30.0, 5.0])


def test_a_policy_that_sees_no_budget_can_have_books_too() -> None:
    policy = load_policy(PENDULUM)
    blind = dataclasses.replace(policy, about=policy.about._replace(reference=None))
    keeper = BudgetedPolicy(blind)
    keeper.begin(1.0)
    assert keeper.act(np.zeros(4)).shape == (1,) and keeper.spend(0.5) == 0.5


def test_the_loop_and_the_node_of_the_guide() -> None:
    page = (pathlib.Path(__file__).parents[1] / "docs/deployment.md").read_text()
    loop, node = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    done = subprocess.run([sys.executable, "-c", loop], capture_output=True, text=True, check=True)
    left, violated = done.stdout.split()
    assert 0.0 <= float(left) < 30.0 and violated == "False"
    compile(node, "node", "exec")
