"""Bad input: an error at the first chance that names the value and the fix, and changes nothing."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from toys import Scripted, SixTuple, sauted

import saute


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        (0.0, "budget=0.0 must be a positive, finite number"),
        (-3, "budget=-3 must be"),
        (float("nan"), "budget=nan must be"),
        (float("inf"), "budget=inf must be"),
        ("30", "budget='30' must be"),
        (None, "budget=None must be"),
        (True, "budget=True must be"),
        ([], "budget is empty"),
        ([1.0, -2.0], r"budget\[1\]=-2.0 must be"),
    ],
)
@pytest.mark.parametrize("wrap", ["one", "vector"])
def test_bad_budget(budget: Any, message: str, wrap: str) -> None:
    with pytest.raises(ValueError, match=message):
        _wrap(wrap, budget)


def test_bad_ranges() -> None:
    with pytest.raises(ValueError, match=r"low=5.0 > high=2.0; pass the smaller"):
        saute.uniform(5, 2)
    with pytest.raises(ValueError, match="low=0 must be a positive"):
        saute.uniform(0, 2)
    with pytest.raises(ValueError, match="high=nan must be"):
        saute.uniform(1, float("nan"))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (dict(discount=0.0), ValueError, r"discount=0.0 is outside \(0, 1\]"),
        (dict(discount=1.01), ValueError, r"discount=1.01 is outside"),
        (dict(discount=float("nan")), ValueError, "discount=nan is outside"),
        (dict(unsafe_reward=float("-inf")), ValueError, "unsafe_reward=-inf is not a finite number"),
        (dict(reference_budget=-1.0), ValueError, "reference_budget=-1.0 must be"),
        (dict(augment="no"), TypeError, "augment='no' is not a bool"),
        (dict(cost=3), TypeError, "cost=3 must be an info key"),
        (dict(cost=["a", "b"]), ValueError, r"names 2 costs for 1 budget"),
    ],
)
@pytest.mark.parametrize("wrap", ["one", "vector"])
def test_bad_options(options: dict[str, Any], error: type[Exception], message: str, wrap: str) -> None:
    with pytest.raises(error, match=message):
        _wrap(wrap, 1.0, **options)


COSTS = [
    ({}, "", "no cost: info.* has no key 'cost' .*Every step must report its cost"),
    (dict(costs=(float("nan"),)), "cost", "nan.*must be finite and ≥ 0"),
    (dict(costs=(float("inf"),)), "cost", "inf.*must be finite and ≥ 0"),
    (dict(costs=(-0.5,)), "cost", "-0.5.*must be finite and ≥ 0"),
    (dict(costs=("high",)), "cost", "'high'"),
    (dict(costs=(np.ones(2),)), "cost", "one cost per budget"),
]


@pytest.mark.parametrize(("env", "key", "message"), COSTS)
@pytest.mark.parametrize("wrap", ["one", "vector"])
def test_bad_cost_is_reported_and_not_spent(env: dict[str, Any], key: str, message: str, wrap: str) -> None:
    wrapped = _wrap(wrap, 9.0, env=dict(key=key, **env))
    wrapped.reset(seed=0)
    before = np.copy(wrapped.remaining)
    with pytest.raises(ValueError, match=message):
        wrapped.step(np.zeros((2, 1)) if wrap == "vector" else np.zeros(1))
    np.testing.assert_array_equal(wrapped.remaining, before)


@pytest.mark.parametrize("wrap", ["one", "vector"])
@pytest.mark.parametrize("cost", [np.ones(3), 1.0])
def test_several_costs_of_the_wrong_length(wrap: str, cost: Any) -> None:
    wrapped = _wrap(wrap, [1.0, 2.0], env=dict(costs=(cost,), key="costs"))
    wrapped.reset()
    with pytest.raises(ValueError, match="one cost per budget"):
        wrapped.step(np.zeros((2, 1)) if wrap == "vector" else np.zeros(1))


def test_a_cost_function_of_the_wrong_shape() -> None:
    envs = _wrap("vector", 1.0, cost=lambda o, a, n, i: 1.0)
    envs.reset()
    with pytest.raises(ValueError, match=r"returned shape \(\), expected \(2,\)"):
        envs.step(np.zeros((2, 1)))


@pytest.mark.parametrize("wrap", ["one", "vector"])
def test_step_before_reset(wrap: str) -> None:
    with pytest.raises(gym.error.ResetNeeded, match="call env"):
        _wrap(wrap, 1.0).step(np.zeros(1))


@pytest.mark.parametrize("wrap", ["one", "vector"])
@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf"), "ten", None])
def test_bad_budget_option_leaves_the_running_episode_alone(wrap: str, bad: Any) -> None:
    wrapped = _wrap(wrap, 5.0)
    wrapped.reset(seed=0)
    wrapped.step(np.zeros((2, 1)) if wrap == "vector" else np.zeros(1))
    before = np.copy(wrapped.remaining)
    with pytest.raises(ValueError, match=r'options\["budget"\]='):
        wrapped.reset(options={"budget": bad})
    np.testing.assert_array_equal(wrapped.remaining, before)
    wrapped.step(np.zeros((2, 1)) if wrap == "vector" else np.zeros(1))
    assert np.all(np.asarray(wrapped.remaining) == 3.0)


def test_wrapping_twice_is_refused_however_deep() -> None:
    with pytest.raises(ValueError, match="sautéed already"):
        saute.SauteWrapper(gym.wrappers.TimeLimit(sauted(1.0), 3), 1.0)
    inner = SyncVectorEnv([lambda: sauted(1.0)] * 2)
    with pytest.raises(ValueError, match="sautéed already"):
        saute.SauteVectorWrapper(inner, 1.0)
    with pytest.raises(ValueError, match="sautéed already"):
        saute.SauteVectorWrapper(_wrap("vector", 1.0), 1.0)


def test_six_values_name_the_converter() -> None:
    env = saute.SauteWrapper(SixTuple(), 1.0)
    env.reset()
    with pytest.raises(ValueError, match=r"returned 6 values instead of 5; .*saute.from_six_tuple"):
        env.step(np.zeros(1))
    five = saute.from_six_tuple(Scripted())
    five.reset()
    with pytest.raises(ValueError, match="returned 5 values instead of 6"):
        five.step(np.zeros(1))


def test_a_key_that_is_taken() -> None:
    space = gym.spaces.Dict({"remaining_budget": gym.spaces.Discrete(2)})
    with pytest.raises(ValueError, match="already has a key 'remaining_budget'"):
        sauted(1.0, env=dict(space=space))


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_terminate_needs_a_caller_who_resets(mode: AutoresetMode) -> None:
    with pytest.raises(ValueError, match=r"AutoresetMode.DISABLED"):
        saute.SauteVectorWrapper(SyncVectorEnv([Scripted], autoreset_mode=mode), 1.0, terminate=True)


def _wrap(kind: str, budget: Any, env: dict[str, Any] | None = None, **options: Any) -> Any:
    if kind == "one":
        return sauted(budget, env=env, **options)
    return saute.SauteVectorWrapper(SyncVectorEnv([lambda: Scripted(**(env or {}))] * 2), budget, **options)


def test_a_file_in_the_current_folder_is_not_run_in_place_of_a_package(tmp_path: pathlib.Path) -> None:
    for name in ("scipy", "optax", "rich"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('planted')")
    command = pathlib.Path(sys.executable).with_name("saute")
    done = subprocess.run([command, "pretrained"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "planted" not in done.stdout + done.stderr, done.stderr
