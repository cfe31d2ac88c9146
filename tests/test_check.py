"""Environments whose every number is known are looked at before training, and unsafe rewards are judged by known cases."""

from __future__ import annotations

import json
import math
import pathlib
import re
import runpy
import time
import warnings
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from learner_toys import HostSlope, Slope
from toys import KINDS, Scripted, SixTuple

import saute
from saute.algos.onpolicy import OnPolicySettings
from saute.cli.check import as_json, described
from saute.cli.main import main
from saute.core.options import options
from saute.envs.from_gym import HostEnvs
from saute.runs.advice import ENOUGH, Seen, advice, cliff, unsafe_reward_for, watched
from saute.runs.build import configured
from saute.runs.config import Experiment
from saute.runs.inspection import auto_unsafe_reward, costs_of, greediest, inspect
from saute.runs.loop import run
from saute.runs.remarks import budgets_for, errors, suggested_unsafe_reward, warnings_of


class Trade(gym.Env):
    """A safe step pays −3, an unsafe one pays 1 and costs 1; ten steps."""

    observation_space, action_space, horizon = spaces.Box(0.0, 1.0, (1,), np.float32), spaces.Discrete(2), 10

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        gym.Env.reset(self, seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        unsafe = int(action) == 1
        info = {"cost": unsafe, "other": {"size": 2.0, "drift": -1.0}}
        return np.zeros(1, np.float32), 1.0 if unsafe else -3.0, False, self.time >= 10, info


class Slow(Trade):
    """Twenty milliseconds a step."""

    def step(self, action: Any) -> Any:
        time.sleep(0.02)
        return Trade.step(self, action)


def test_costs_rewards_and_ends_are_those_of_the_environment() -> None:
    seen = inspect(Trade, episodes=40)
    unsafe = [episode.cost.sum() for episode in seen.random]
    assert [len(seen.random), len(seen.held), seen.horizon, seen.problem] == [40, 40, 10, None]
    assert all(episode.reward.sum() == 4 * paid - 30 for episode, paid in zip(seen.random, unsafe, strict=True))
    assert 4.0 < np.mean(unsafe) < 6.0, "a fair coin, ten times"
    assert costs_of(seen.held)[:2, 0].tolist() == [0.0, 10.0], "each action is held for an episode"
    best = greediest(seen)
    assert best is not None and [best.reward.sum(), best.cost.sum(), best.end] == [10.0, 10.0, "truncated"]
    assert seen.keys["cost"].kind == "b" and seen.keys["other.drift"].low == -1.0
    again = inspect(Trade, episodes=40)
    assert [one.reward.tolist() for one in again.random] == [one.reward.tolist() for one in seen.random]
    assert suggested_unsafe_reward(seen) == -4.0
    own = budgets_for(seen.random, 0)
    assert [one.budget for one in own] == np.unique(np.quantile(unsafe, (0.25, 0.5, 0.75, 0.95))).tolist()
    assert all(one.share == np.mean(np.array(unsafe) <= one.budget) for one in own)


def test_several_costs_nested_costs_vectors_and_functions() -> None:
    nested = partial(Scripted, costs=({"heat": 2.0, "wear": 1},), rewards=(-1.0, 2.0), length=4, ends="terminated", key="a")
    seen = inspect(nested, ("a.heat", "a.wear"), episodes=3)
    numbers = as_json(seen)
    assert numbers["episodes"]["random"]["terminated"] == 3 and numbers["episodes"]["random"]["mean_return"] == 2.0
    assert [numbers["episodes"]["held"]["costs"][name]["worst"] for name in ("a.heat", "a.wear")] == [8.0, 4.0]
    assert any("a.wear is a whole number" in text for text in warnings_of(seen))
    vector = inspect(partial(Scripted, costs=(np.array([1.0, 3.0]),), key="costs"), "costs", episodes=1)
    assert as_json(vector)["best"]["cost"] == {"costs[0]": 5.0, "costs[1]": 15.0}
    function = inspect(Scripted, lambda obs, action, next_obs, info: info["cost"] + float(np.abs(obs).sum() > 0), episodes=1)
    assert costs_of(function.random).tolist() == [[10.0]], "the observation before the step is at hand"
    both = inspect(Scripted, lambda obs, action, next_obs, info: [info["cost"], 2.0], episodes=1)
    assert costs_of(both.held).tolist() == [[5.0, 10.0]]


def test_a_sauteed_environment_shows_its_task_and_not_what_was_made_of_it() -> None:
    seen = inspect(lambda: saute.SauteWrapper(Scripted(rewards=(-2.0, 5.0)), budget=1.0, unsafe_reward=-50.0), episodes=2)
    assert seen.random[0].reward.tolist() == [-2.0, 5.0, -2.0, 5.0, -2.0] and costs_of(seen.random).tolist() == [[5.0], [5.0]]
    assert set(seen.keys) == {"cost"}


def test_time_runs_out_honestly() -> None:
    seen = inspect(Slow, episodes=50, seconds=0.1)
    ends = [episode.end for episode in seen.random + seen.held]
    assert ends == ["cut", "cut"] and not len(costs_of(seen.random)) and greediest(seen) is None
    numbers, text = as_json(seen), described(seen, 0.1)
    assert (
        numbers["episodes"]["random"]["mean_return"] is None and numbers["episodes"]["random"]["costs"]["cost"]["mean"] is None
    )
    assert "no episode with random actions ended within the time" in text and "cut off after 0.1 s" in text
    assert 0.0 < seen.steps_per_second <= 50.0
    endless = inspect(partial(Scripted, length=10**9), episodes=3, steps=30)
    assert [len(episode.reward) for episode in endless.random] == [30] and endless.horizon is None
    assert any("no time limit" in text for text in warnings_of(endless))


@pytest.mark.parametrize(
    ("made", "cost", "message"),
    [
        (Trade, "speed", "These were never negative: cost (0 to 1), other.size (2 to 2)"),
        (partial(Scripted, costs=(1.0, -2.0)), "cost", "cost 'cost' is -2.0; a safety cost must be finite and ≥ 0"),
        (partial(Scripted, costs=(math.nan,)), "cost", "cost 'cost' is nan"),
        (partial(Scripted, rewards=(1.0, math.nan)), "cost", "rewards or observations are not finite"),
        (partial(Scripted, key=""), "cost", "No entry of info could be one"),
    ],
)
def test_what_is_wrong_is_an_error_and_gives_no_numbers(made: Any, cost: str, message: str) -> None:
    seen = inspect(made, cost, episodes=2)
    assert any(message in text for text in errors(seen)), errors(seen)
    numbers = as_json(seen)
    assert (numbers["budgets"] == {}) == (seen.problem is not None)
    assert (numbers["unsafe_reward"] is None) == (not seen.finite)
    json.dumps(numbers, allow_nan=False)


@pytest.mark.parametrize(
    ("made", "warned"),
    [
        (partial(Scripted, space=KINDS["image"]), "observations are pictures (36, 36, 3)"),
        (partial(Scripted, space=KINDS["dict"]), "observations are a Dict: learners see them flattened, 5 numbers"),
        (partial(Scripted, costs=(0.0,)), "cost was 0 in every step"),
        (partial(Scripted, rewards=(1.0, -0.5)), "rewards fall to -0.5: with an unsafe reward of 0, overspending would pay"),
        (Trade, "cost is a bool"),
    ],
)
def test_what_is_worth_knowing(made: Any, warned: str) -> None:
    assert any(warned in text for text in warnings_of(inspect(made, episodes=2)))


def test_a_harmless_environment_has_no_warning_and_unbounded_actions_have_one() -> None:
    assert warnings_of(inspect(lambda: TimeLimit(Scripted(), 5), episodes=2)) == []

    def unbounded() -> gym.Env:
        env = Scripted()
        env.action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        return TimeLimit(env, 5)

    (text,) = warnings_of(inspect(unbounded, episodes=2))
    assert "are unbounded: sac and mbpo refuse them" in text


def test_of_six_values_the_third_is_the_cost() -> None:
    (one,) = inspect(lambda: TimeLimit(saute.from_six_tuple(SixTuple()), 3), episodes=1).random
    (same,) = inspect(SixTuple, episodes=1, steps=3).random
    assert one.cost.sum() > 0 and one.cost.tolist() == same.cost.tolist()


@pytest.mark.parametrize(
    ("rewards", "n"),
    [
        ([-3.0, 1.0], -4.0),
        ([0.0, 1.0], 0.0),
        ([5.0, 6.0], 0.0),
        ([-1.0, -1.0], -1.3),
        ([-0.03, 0.03], -0.045),
        ([-100.0, 10.0], -130.0),
    ],
)
def test_the_unsafe_reward_is_just_below_all_rewards(rewards: list[float], n: float) -> None:
    assert unsafe_reward_for(rewards) == pytest.approx(n) and (n == 0.0 or n < min(rewards))


def test_an_end_that_is_paid_once_is_worth_all_the_steps_that_it_spares() -> None:
    assert unsafe_reward_for([-3.0, 1.0], 10, terminate=True) == -40.0
    with pytest.raises(ValueError, match="time limit"):
        unsafe_reward_for([-3.0, 1.0], None, terminate=True)
    with pytest.raises(ValueError, match="0 rewards"):
        unsafe_reward_for([])


@pytest.mark.parametrize("terminate", [False, True])
def test_auto_makes_the_safe_action_better_than_overspending(terminate: bool) -> None:
    def returns(n: float) -> dict[str, float]:
        """Of the whole episode: unsafe steps as long as the budget of 2 lasts, then safe ones; or unsafe ones all along."""
        plans = {"safe": [1] * 2 + [0] * 8, "overspending": [1] * 10}
        totals = {}
        for plan, actions in plans.items():
            env = saute.SauteWrapper(Trade(), budget=2.0, unsafe_reward=n, terminate=terminate)
            env.reset(seed=0)
            totals[plan] = 0.0
            for action in actions:
                _, reward, terminated, truncated, _ = env.step(action)
                totals[plan] += float(reward)
                if terminated or truncated:
                    break
        return totals

    assert returns(0.0) == {"safe": -22.0, "overspending": 2.0}, "the default is wrong here"
    n = auto_unsafe_reward(Trade, terminate=terminate)
    assert n == (-40.0 if terminate else -4.0)
    assert returns(n) == {"safe": -22.0, "overspending": -38.0 if terminate else -30.0}


def test_auto_for_native_environments() -> None:
    n = auto_unsafe_reward(Slope())
    assert n == -1.5, "rewards are actions in [−1, 1], and both bounds are held"
    assert auto_unsafe_reward(lambda: saute.GymEnv(Slope())) == n


OKAY = Seen(lowest_reward=-1.0, worst_return=-10.0, best_return=10.0, episodes=ENOUGH, violated=True)


@pytest.mark.parametrize(
    ("seen", "n", "more", "horizon", "kinds"),
    [
        (OKAY, -2.0, {}, 100, set()),
        (OKAY, -1.0, {}, 100, set()),
        (OKAY, -0.9, {}, 100, {"pays"}),
        (OKAY, 0.0, {}, None, {"pays"}),
        (OKAY, 0.0, {"shape": False}, 100, set()),
        (OKAY._replace(lowest_reward=math.nan), 0.0, {}, 100, set()),
        (OKAY, -4.1, {}, 100, set()),
        (OKAY, -4.2, {}, 100, {"dwarfs"}),
        (OKAY, -100.0, {}, None, set()),
        (OKAY._replace(episodes=ENOUGH - 1), -100.0, {}, 101, set()),
        (OKAY._replace(violated=False), -100.0, {}, 101, set()),
        (OKAY._replace(worst_return=math.nan, best_return=math.nan), -100.0, {}, 101, set()),
        (OKAY, -100.0, {"terminate": True}, 101, set()),
        (OKAY, -2.0, {"terminate": True}, 100, {"pays"}),
        (OKAY._replace(lowest_reward=-200.0), -150.0, {}, 100, {"pays", "dwarfs"}),
    ],
)
def test_advice_is_given_exactly_when_it_should(seen: Seen, n: float, more: Any, horizon: int | None, kinds: set[str]) -> None:
    assert advice(seen, options(5.0, unsafe_reward=n, **more), horizon).keys() == kinds


def test_there_is_no_advice_for_what_is_not_sauteed() -> None:
    assert advice(OKAY._replace(lowest_reward=-99.0), None, 100) == {}


def test_the_cliff_is_counted_in_ranges_of_the_return() -> None:
    assert cliff(-1.0, -4.0, 6.0, 104) == 10.0
    assert cliff(0.0, 5.0, 10.0, 100) == 1.0 and cliff(1.0, 5.0, 10.0, 100) == 0.0
    assert math.isnan(cliff(-1.0, 3.0, 3.0, 10))


def test_numbers_of_epochs_are_gathered() -> None:
    nothing = {"lowest_reward": math.nan, "worst_return": math.nan, "best_return": math.nan, "episodes": 0.0}
    first = {"lowest_reward": -1.0, "worst_return": -3.0, "best_return": 4.0, "episodes": 5.0, "violation_rate": 0.2}
    seen = watched(watched(Seen(), [nothing, {}]), [first, first | {"lowest_reward": -2.0, "best_return": 1.0}])
    assert seen == Seen(-2.0, -3.0, 4.0, 10.0, True)
    assert watched(seen, [nothing]) == seen


@pytest.mark.parametrize(("n", "hosted"), [(0.0, False), (-1.0, False), (0.0, True)])
def test_training_warns_once_of_safe_rewards_below_the_unsafe_one(n: float, hosted: bool) -> None:
    if hosted:
        env: Any = HostEnvs(lambda: saute.SauteWrapper(HostSlope(), 3.0, unsafe_reward=n), num_envs=4)
    else:
        env = saute.saute(Slope(), 3.0, unsafe_reward=n)
    small = OnPolicySettings(steps_per_epoch=40, hidden=(4,), policy_iterations=1, value_iterations=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trained = saute.train(saute.ppo(settings=small), env, seeds=1, epochs=3)
    told = [one for one in caught if "overspending can pay" in str(one.message)]
    assert len(told) == (1 if n == 0.0 else 0) and all(one.filename == __file__ for one in told)
    for (metrics,) in trained.metrics:
        assert -1.0 <= metrics["lowest_reward"] < 0.0
        assert metrics["worst_return"] <= metrics["task_return"] <= metrics["best_return"]


def test_the_command_line_notes_it_in_one_line(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    if "Trade-v0" not in gym.registry:
        gym.register("Trade-v0", entry_point=Trade)
    asked = Experiment("Trade-v0", "ppo", budget=2.0, seeds=1, epochs=2, envs=4)
    small = {"steps_per_epoch": 40, "hidden": (4,), "policy_iterations": 1, "value_iterations": 1}
    run(configured(asked, {f"settings.{name}": value for name, value in small.items()}), tmp_path)
    (note,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]
    assert "a reward of -3, below the unsafe reward 0" in note


def test_nothing_is_safe_or_unsafe_where_nothing_is_sauteed() -> None:
    small = OnPolicySettings(steps_per_epoch=40, hidden=(4,), policy_iterations=1, value_iterations=1)
    ((metrics,),) = saute.train(saute.ppo(settings=small), Slope(), seeds=1, epochs=1).metrics
    assert math.isnan(metrics["lowest_reward"]) and math.isfinite(metrics["worst_return"])


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "saute/TwoArms-v0", "--episodes", "4", "--json"]) == 0
    numbers = json.loads(capsys.readouterr().out)
    assert numbers["time_limit"] == 20 and numbers["unsafe_reward"] == 0.0 and numbers["errors"] == []
    assert numbers["episodes"]["held"]["costs"]["cost"]["worst"] == 20.0 == numbers["best"]["cost"]["cost"]
    assert main(["check", "saute/TwoArms-v0", "--episodes", "4", "--cost", "wear"]) == 2
    told = capsys.readouterr()
    assert "whole episodes" in told.out and "never negative: cost (0 to 1)" in told.err
    assert main(["check", "saute/TwoArms-v0", "--episodes", "0"]) == main(["check", "saute/TwoArms-v0", "--cost"]) == 2
    assert main(["check", "saute/TwoArms-v0", "--cost", "math:nothing"]) == 2
    assert "module:function" in capsys.readouterr().err


def test_the_page_shows_what_the_command_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    root = pathlib.Path(__file__).parent.parent
    script, page = runpy.run_path(str(root / "scripts" / "check_page.py")), (root / "docs" / "your_task.md").read_text()
    monkeypatch.chdir(root / "examples")
    assert all(f"$ {command}\n" in page for command in script["COMMANDS"])
    command = next(command for command in script["COMMANDS"] if "Warehouse" in command)

    def timeless(text: str) -> str:
        return re.sub(r"[\d,]+ steps/s", "… steps/s", text)

    printed = script["output"](command)
    assert timeless(f"$ {command}\n{printed}\n") in timeless(page)
    assert script["page"](page, {}).count(script["BEGIN"]) == 1
