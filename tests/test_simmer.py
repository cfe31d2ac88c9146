"""Schedules of training budgets: sequences by hand, what training does with them, what a folder remembers, what is refused."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Any

import jax
import numpy as np
import pytest
from learner_toys import LEARNERS, WHERE, HostSlope, Slope, assert_same, hosted, slopes
from test_drive import Player

import saute
from saute.cli.train import read_train
from saute.envs.from_gym import HostEnvs
from saute.learn.drive import drive
from saute.learn.simmer import KEY, PiSchedule, QSchedule, simmered
from saute.runs.build import configured
from saute.runs.config import Config, Experiment
from saute.runs.folder import inherited
from saute.runs.loop import Run, train
from saute.runs.report import told

SMALL_PI = PiSchedule(
    low=0.4, first=0.6, levels=3, every=2, step=0.2, proportional=0.5, integral=0.1, antiwindup=0.5, window=2, smoothing=0.5
)
SMALL_Q = QSchedule(low=0.4, budgets=3, threshold=0.1, smoothing=0.5, rate=0.5, discount=0.5, greedy=1.0, initial=4.0)
PI_COSTS, PI_BUDGETS = (16.0, 4.0, 4.0, 4.0, 13.0), (6.0, 4.0, 7.7, 9.0, 10.0, 9.4)
"""Clipped below by the least budget, free, free, clipped above by the step and the full budget, and back from there."""
Q_COSTS, Q_BUDGETS = (4.0, 4.0, 0.0, 14.0, 2.0, 5.0), (4.0, 4.0, 4.0, 7.0, 4.0, 7.0, 4.0)
"""Near, near, below (up), above (down), above but up is worth more, below but down is not yet known to be worth less."""


def budgets_of(schedule: Any, costs: Any, full: Any = 10.0) -> Any:
    """What a schedule makes of the costs of one epoch after the other."""
    full = np.asarray(full)
    state, budget = schedule.init(full)
    budgets = [budget]
    for epoch, cost in enumerate(costs):
        state, budget = schedule.update(state, np.asarray(cost), full, jax.random.key(epoch))
        budgets.append(budget)
    return np.array(budgets)


def test_pi_by_hand() -> None:
    np.testing.assert_allclose(budgets_of(SMALL_PI, PI_COSTS), PI_BUDGETS, rtol=1e-12)


def test_without_antiwindup_a_correction_that_could_not_be_made_is_never_forgiven() -> None:
    """The third correction is −0.8 instead of −0.3."""
    unforgiving = budgets_of(dataclasses.replace(SMALL_PI, antiwindup=0.0), PI_COSTS)
    np.testing.assert_allclose(unforgiving[:3], [6.0, 4.0, 7.2], rtol=1e-12)


def test_q_learning_by_hand() -> None:
    np.testing.assert_allclose(budgets_of(SMALL_Q, Q_COSTS), Q_BUDGETS, rtol=1e-12)
    state, _ = SMALL_Q.init(np.asarray(10.0))
    for epoch, cost in enumerate(Q_COSTS):
        state, _ = SMALL_Q.update(state, np.asarray(cost), np.asarray(10.0), jax.random.key(epoch))
    np.testing.assert_allclose(state.values, [[[2.5, 3.5, 2.5], [2.375, 4.0, 4.0], [4.0, 4.0, 4.0]]], rtol=1e-12)


def test_sometimes_any_move_is_made() -> None:
    """Six of ten moves are drawn, two thirds of which are not the best one."""
    bold = dataclasses.replace(SMALL_Q, greedy=0.4)
    state = bold.init(np.asarray(10.0))[0]._replace(values=np.tile([0.0, 0.0, 1.0], (1, 3, 1)), place=np.ones(1, int))
    places = [int(bold.update(state, np.asarray(7.0), np.asarray(10.0), jax.random.key(i))[0].place[0]) for i in range(300)]
    assert [places.count(place) / 300 for place in range(3)] == pytest.approx([0.2, 0.2, 0.6], abs=0.08)


@pytest.mark.parametrize("schedule", [SMALL_PI, SMALL_Q], ids=["pi", "q"])
def test_each_of_several_constraints_has_a_controller(schedule: Any) -> None:
    random = np.random.default_rng(0)
    costs = random.uniform(0.0, [12.0, 5.0], (20, 2))
    both = budgets_of(schedule, costs, [10.0, 4.0])
    apart = [budgets_of(schedule, costs[:, i], full) for i, full in enumerate((10.0, 4.0))]
    np.testing.assert_allclose(both, np.stack(apart, axis=1), rtol=1e-12)
    assert len(np.unique(both[:, 0])) > 2 and (both <= [10.0, 4.0]).all() and (both >= [4.0, 1.6]).all()


def test_for_a_budget_of_35_and_800_epochs_the_numbers_are_the_papers() -> None:
    pi, q = PiSchedule().planned(800), QSchedule().planned(800)
    assert (pi.low * 35, pi.step * 35, pi.every, pi.window) == (pytest.approx(15), pytest.approx(5), 133, 100)
    assert [pi.reference(133 * i, np.asarray(35.0)) for i in range(8)] == pytest.approx([20, 23, 26, 29, 32, 35, 35, 35])
    np.testing.assert_allclose(q.levels(np.asarray(35.0)), [[15, 19, 23, 27, 31, 35]])
    assert (q.threshold * 35, q.greedy, q.discount) == (pytest.approx(2), 0.95, 0.99)


@pytest.mark.parametrize("env", [saute.saute(Slope(), 10.0), hosted(2, budget=10.0)], ids=WHERE)
def test_episodes_begin_with_less_but_violate_the_full_budget_only(env: Any) -> None:
    """Ten steps cost 10, all of the full budget, but more than the 6 that they begin with."""
    body = simmered(drive(Player(1.0), env, env.options, 6.0), SMALL_PI, np.asarray(10.0))  # type: ignore[arg-type]
    seeds = body.first([jax.random.key(0)])
    ((_, metrics),) = body.epoch(seeds, [jax.random.key(1)])
    assert metrics["budget"] == 6.0 and metrics["worst_cost"] == 10.0
    assert metrics["violation_rate"] == 0.0 and metrics["lowest_reward"] == 1.0


def test_more_than_the_full_budget_violates() -> None:
    env = saute.saute(Slope(), 8.5)
    body = simmered(drive(Player(0.9), env, env.options, 5.1), SMALL_PI, np.asarray(8.5))  # type: ignore[arg-type]
    ((_, metrics),) = body.epoch(body.first([jax.random.key(0)]), [jax.random.key(1)])
    assert metrics["violation_rate"] == 1.0


@pytest.mark.parametrize("env", [saute.saute(Slope(), 10.0), hosted(1, budget=10.0)], ids=WHERE)
def test_where_no_episode_ended_a_schedule_holds_still(env: Any) -> None:
    """An epoch has four of ten steps: the first episode ends in the third one."""
    body = simmered(drive(Player(0.5, steps_per_epoch=4, num_envs=1), env, env.options, 6.0), SMALL_PI, np.asarray(10.0))  # type: ignore[arg-type]
    seeds, done = body.first([jax.random.key(0)]), []
    for epoch in range(4):
        ((seed, _),) = body.epoch(seeds, [jax.random.key(epoch)])
        seeds = [seed]
        done.append(int(seed.schedule.epochs))
    assert done == [0, 0, 1, 1]


COMMON: dict[str, Any] = {"seeds": 2, "epochs": 4, "budget_schedule": QSchedule(greedy=0.5)}


@pytest.fixture(scope="module", params=WHERE)
def whole(request, tmp_path_factory) -> tuple[str, pathlib.Path, Run]:
    folder = tmp_path_factory.mktemp("whole")
    return request.param, folder, train(LEARNERS["ppo"], slopes("ppo", request.param), out=folder, **COMMON)


def test_every_seed_has_a_schedule_of_its_own(whole) -> None:
    run, schedule = whole[2], COMMON["budget_schedule"]
    for seed in range(2):
        state, budget = schedule.init(np.asarray(3.0))
        for epoch, numbers in enumerate(metrics[seed] for metrics in run.metrics):
            assert numbers["budget"] == np.float32(budget)
            key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), epoch + 1), KEY)
            state, budget = schedule.update(state, np.asarray(numbers["worst_cost"]), np.asarray(3.0), key)
    assert len({tuple(epoch[seed]["budget"] for epoch in run.metrics) for seed in range(2)}) == 2


def test_a_stopped_run_goes_on_bit_for_bit(whole, tmp_path) -> None:
    where, folder, run = whole

    def stop(epoch: int, metrics: Any) -> bool:
        return epoch == 1

    env = slopes("ppo", where)
    train(LEARNERS["ppo"], env, out=tmp_path, hook=stop, **COMMON)
    again = train(LEARNERS["ppo"], env, out=tmp_path, **COMMON)
    assert_same(again.states, run.states)
    for name in ("config.json", "metrics.jsonl", "policy.safetensors", "checkpoints/000004.safetensors"):
        assert (folder / name).read_bytes() == (tmp_path / name).read_bytes()


def test_other_trainings_can_begin_with_it(whole) -> None:
    _, folder, run = whole
    fresh = jax.tree.map(np.zeros_like, run.states[1])
    assert_same(inherited(folder)(fresh, 1).policy, run.states[1].policy)


def test_tests_are_at_the_full_budget(whole) -> None:
    options = whole[2].job.test_env(4).options
    assert options.high == options.low == 3.0


def test_a_schedule_is_told_and_written_down_completely() -> None:
    config = configured(Experiment("pendulum", preset="fast", budget_schedule="pi"))
    stored = json.loads(json.dumps(config.as_json()))
    assert stored["budget_schedule"] == "pi" and (stored["schedule"]["every"], stored["schedule"]["window"]) == (14, 11)
    assert Config.from_json(stored) == config
    for name in stored["schedule"]:
        with pytest.raises(ValueError, match=f"has no {name}"):
            Config.from_json({**stored, "schedule": {k: v for k, v in stored["schedule"].items() if k != name}})
    seed = {
        "episodes": 4.0, "task_return": 1.0, "cost": 2.0, "worst_cost": 20.0, "violation_rate": 0.25, "budget": 12.5,
    }  # fmt: skip
    assert told([seed, {**seed, "budget": 30.0}], 30.0)[-1] == ("begun with 12.5 to 30",)


def test_without_one_files_are_as_before() -> None:
    """Those of former versions, such as the pretrained ones, are read and known by the same digest."""
    for name in ("pendulum-saute-trpo", "pendulum-saute-mbpo"):
        file = pathlib.Path(saute.__file__).parent / "runs" / "pretrained" / name / "config.json"
        stored = json.loads(file.read_text())
        stored.pop("sha256", None)
        config = Config.from_json(stored)
        assert config.schedule is None and config.as_json() == stored


def test_the_command_line_sets_every_number() -> None:
    words = ["pendulum", "--budget-schedule", "pi", "--schedule.low", "0.5", "--schedule.every", "9", "--epochs", "40"]
    asked = read_train(words, "saute train")
    schedule = configured(asked.experiment, asked.changes).schedule
    assert schedule == dataclasses.replace(PiSchedule(), low=0.5, every=9, window=5)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"method": "vanilla"}, "--budget-schedule pi is for sautéed policies; 'vanilla' carries no budget"),
        ({"lowest_budget": 5.0}, "both choose the budgets of training"),
        ({"discount": 0.99}, "plain sums of costs, which --discount 0.99 does not give; use --discount 1"),
        ({"budget_schedule": "pid"}, "pid"),
    ],
)
def test_what_does_not_go_with_a_schedule_is_refused(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        configured(Experiment("pendulum", **{"budget_schedule": "pi", **asked}))


@pytest.mark.parametrize(
    ("env", "schedule", "message"),
    [
        (Slope(), "q", "for sautéed policies; 'vanilla' carries no budget"),
        (saute.saute(Slope(), saute.uniform(1.0, 3.0)), "q", "both choose the budgets"),
        (saute.saute(Slope(), 3.0, discount=0.9), "pi", "use --discount 1"),
        (HostEnvs(lambda: saute.SauteWrapper(HostSlope(), 3.0), 2), "pi", "sautéed one by one; pass them bare"),
        (saute.saute(Slope(), 3.0), "quick", "quick"),
        (saute.saute(Slope(), 3.0), 0.5, "budget_schedule=0.5 is no schedule"),
    ],
)
def test_ready_environments_that_do_not_go_with_a_schedule_are_refused(env: Any, schedule: Any, message: str, tmp_path) -> None:
    with pytest.raises(ValueError, match=message):
        train(LEARNERS["ppo"], env, seeds=1, epochs=1, budget_schedule=schedule, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PiSchedule(low=0.0), "low=0.0 of the budget schedule must be in \\(0, 1\\]"),
        (lambda: PiSchedule(levels=1), "levels=1 of the budget schedule must be at least 2"),
        (lambda: PiSchedule(every=0), "every=0 .* at least 1"),
        (lambda: PiSchedule(integral=-0.1), "integral=-0.1 .* finite number ≥ 0"),
        (lambda: QSchedule(greedy=1.5), "greedy=1.5 .* in \\(0, 1\\]"),
        (lambda: QSchedule(budgets=1), "budgets=1 .* at least 2"),
        (lambda: QSchedule(initial=np.inf), "initial=inf .* finite"),
    ],
)
def test_impossible_numbers_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
