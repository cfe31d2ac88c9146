"""Evaluation on the way: its numbers are those of tests, it changes nothing, and training that stops goes on with it."""

from __future__ import annotations

import math
import pathlib
from typing import Any

import numpy as np
import pytest
from learner_toys import HostSlope, Slope, TwoCosts, assert_same, hosted

import saute
from saute.algos.onpolicy import OnPolicySettings
from saute.algos.trpo import trpo
from saute.cli.main import main
from saute.core.seeds import VALIDATION
from saute.evidence.plots import training_curves
from saute.runs.config import Config, Experiment, completed
from saute.runs.evaluate import evaluate
from saute.runs.folder import read_metrics
from saute.runs.loop import Run, train
from saute.runs.way import EPISODES

SMALL = OnPolicySettings(hidden=(16, 16), steps_per_epoch=400, value_iterations=20)
SAUTED = saute.saute(Slope(), budget=3.0, unsafe_reward=-1.0)
COMMON: dict[str, Any] = {"seeds": 2, "epochs": 5, "evaluate_every": 2}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, Run]:
    folder = tmp_path_factory.mktemp("whole")
    return folder, train(trpo(settings=SMALL), SAUTED, out=folder, **COMMON)


def test_training_is_the_same_with_and_without(whole: tuple[pathlib.Path, Run]) -> None:
    without = train(trpo(settings=SMALL), SAUTED, **COMMON | {"evaluate_every": None})
    assert_same(whole[1].states, without.states)
    assert_same(whole[1].policies, without.policies)
    plain = [[{k: v for k, v in seed.items() if not k.startswith("evaluated")} for seed in epoch] for epoch in whole[1].metrics]
    assert plain == without.metrics


def test_training_on_the_host_is_the_same_with_and_without() -> None:
    def made(**asked: Any) -> Run:
        settings = {"hidden": (8,), "steps_per_epoch": 100, "value_iterations": 5}
        return train("trpo", HostSlope, budget=3.0, unsafe_reward=-11.0, settings=settings, seeds=2, epochs=3, **asked)

    looking, without = made(evaluate_every=1), made()
    assert_same(looking.states, without.states)
    assert all(seed["evaluated_return"] > -11 for epoch in looking.metrics for seed in epoch)


def test_the_numbers_are_those_of_validation_episodes_of_the_policy_as_it_stands(whole: tuple[pathlib.Path, Run]) -> None:
    seen = [[not math.isnan(seed["evaluated_return"]) for seed in epoch] for epoch in whole[1].metrics]
    assert seen == [[False] * 2, [True] * 2, [False] * 2, [True] * 2, [False] * 2]
    four = train(trpo(settings=SMALL), SAUTED, **COMMON | {"epochs": 4})
    for policy, numbers in zip(four.policies, four.metrics[-1], strict=True):
        outcome = evaluate(four.agent.policy, policy, SAUTED, EPISODES, VALIDATION.start)
        assert outcome.violated is not None
        wanted = (outcome.task_return.mean(), outcome.cost.mean(), outcome.cost.max(), outcome.violated.sum())
        names = ("evaluated_return", "evaluated_cost", "evaluated_worst_cost", "evaluated_violations")
        assert tuple(numbers[name] for name in names) == pytest.approx(wanted)


def test_a_stopped_training_goes_on_with_it(whole: tuple[pathlib.Path, Run], tmp_path: pathlib.Path) -> None:
    def stop(epoch: int, metrics: Any) -> None:
        if epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(trpo(settings=SMALL), SAUTED, out=tmp_path, hook=stop, **COMMON)
    train(trpo(settings=SMALL), SAUTED, out=tmp_path, **COMMON)
    for name in ("metrics.jsonl", "policy.safetensors", "checkpoints/000005.safetensors"):
        assert (whole[0] / name).read_bytes() == (tmp_path / name).read_bytes()


def test_each_of_several_costs_has_its_numbers() -> None:
    settings = {"hidden": (8,), "steps_per_epoch": 40, "value_iterations": 2}
    env = saute.saute(TwoCosts(), budget=[3.0, 2.0])
    run = train("trpo", env, settings=settings, seeds=1, epochs=1, evaluate_every=1)
    told = {name for name in run.metrics[0][0] if name.startswith("evaluated")}
    assert {"evaluated_cost_0", "evaluated_cost_1", "evaluated_worst_cost_0", "evaluated_worst_cost_1"} < told


def test_environments_that_training_needs_itself_are_left_alone() -> None:
    with pytest.raises(ValueError, match="evaluate_every needs environments beside those of training; pass a name"):
        train(trpo(settings=SMALL), hosted(4), seeds=1, epochs=1, evaluate_every=1)
    with pytest.raises(ValueError, match="evaluate_every=0 must be a whole number"):
        train(trpo(settings=SMALL), SAUTED, seeds=1, epochs=1, evaluate_every=0)


def test_a_configuration_without_it_is_as_before() -> None:
    plain = completed(Experiment("pendulum"))
    assert "evaluate_every" not in plain.as_json() and Config.from_json(plain.as_json()) == plain
    asked = completed(Experiment("pendulum", evaluate_every=3))
    assert Config.from_json(asked.as_json()).experiment.evaluate_every == 3


def test_curves_are_of_the_evaluations_where_all_runs_have_them(whole: tuple[pathlib.Path, Run]) -> None:
    metrics = read_metrics(whole[0])
    figure = training_curves({"a": metrics}, 3.0)
    axes = [axis for part in (figure, *figure.subfigs) for axis in part.axes]
    titles = [axis.get_title() for axis in axes]
    assert titles[:3] == ["mean return of tests", "mean cost of tests", "largest cost of tests"]
    line = axes[0].lines[0]
    assert list(line.get_xdata()) == [2, 4]
    np.testing.assert_allclose(line.get_ydata(), [np.mean([one["evaluated_return"] for one in metrics[i]]) for i in (1, 3)])
    bare = [[{k: v for k, v in seed.items() if not k.startswith("evaluated")} for seed in epoch] for epoch in metrics]
    mixed = training_curves({"a": metrics, "b": bare}, 3.0)
    assert "mean task return" in [axis.get_title() for part in (mixed, *mixed.subfigs) for axis in part.axes]


def test_the_command_line_has_it(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "pendulum", "--evaluate-every", "0", "--out", str(tmp_path / "run")]) == 2
    assert "--evaluate-every 0 must be at least 1" in capsys.readouterr().err
