"""Choosing the policy to keep: the score against a table, the best on the way, and training that stops and goes on."""

from __future__ import annotations

import pathlib
import types
from typing import Any

import jax
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from sac_toys import HostSlope, Slope

import saute
from saute.algos.onpolicy import Settings
from saute.algos.trpo import trpo
from saute.core.vector import SauteVectorWrapper
from saute.envs.from_gym import HostEnvs
from saute.runs.config import Experiment, environment_of, selection_of
from saute.runs.evaluate import Outcome, evaluate
from saute.runs.loop import Run, train
from saute.runs.validation import FIRST, Judge, Selection, score

SMALL = Settings(hidden=(16, 16), steps_per_epoch=400, value_iterations=20)


def test_an_unsafe_episode_counts_as_unsafe_from_its_first_step_on() -> None:
    options = types.SimpleNamespace(high=20.0, unsafe_reward=-1.0)
    outcome = Outcome(np.array([1.0, 2.0, 3.0]), np.array([0.0, 20.0, 21.0]), np.array([5, 6, 7]))
    assert score(outcome, options, 200) == (1.0 + 2.0 - 200.0) / 3.0


class Constant:
    """A policy that is one number, and plays it."""

    def distribution(self, parameters: Any, obs: Any) -> Any:
        return jax.numpy.broadcast_to(parameters, (len(obs), 1))

    def mode(self, distribution: Any) -> Any:
        return distribution


def passing_through(actions: list[float], every: int) -> tuple[list[Any], Any, Judge]:
    """A training whose policies are these numbers, one after the other."""
    bound = types.SimpleNamespace(policy=Constant(), exported=lambda learner: learner)
    judge = Judge(Selection(saute.saute(Slope(), budget=3.0, unsafe_reward=-1.0), 4, every), bound)
    state, states = judge.begin(np.float32(actions[0])), []
    for action in actions[1:]:
        state, metrics = judge.epoch(state, None, lambda *_, action=action: (np.float32(action), {"finite": True}))
        states.append((float(state.policy), metrics["validated_violations"]))
    return states, state, judge


def test_the_best_policy_on_the_way_is_kept_and_an_unsafe_one_never() -> None:
    """Ten steps of a pay 10 a and cost 10 a⁺; the budget is 3."""
    states, *_ = passing_through([-1.0, 0.1, 0.25, 0.2, 0.9, 0.25, -0.5], every=1)
    assert states == [
        (pytest.approx(0.1), 0),
        (0.25, 0),
        (0.25, 0),
        (0.25, 4),
        (0.25, 0),
        (0.25, 0),
    ]


def test_between_validations_nothing_is_chosen_but_the_last_policy_always_has_its_chance() -> None:
    states, state, judge = passing_through([-1.0, 0.1, 0.2, 0.25], every=2)
    assert [policy for policy, _ in states] == [-1.0, pytest.approx(0.2), pytest.approx(0.2)]
    assert judge.judged(state).policy == 0.25


SAUTED = saute.saute(Slope(), budget=3.0, unsafe_reward=-1.0)
COMMON: dict[str, Any] = {"seeds": 2, "epochs": 9, "selection": Selection(SAUTED, 16, 2)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[pathlib.Path, Run]:
    folder = tmp_path_factory.mktemp("whole")
    return folder, train(trpo(settings=SMALL), SAUTED, out=folder, **COMMON)


def test_what_is_saved_is_the_policy_with_the_best_validation(whole) -> None:
    folder, run = whole
    for i in range(2):
        seen = [epoch[i]["validated_score"] for epoch in run.metrics[1::2]]
        assert len(set(seen)) > 1, "the policies differ"
        kept, last = (
            score(evaluate(run.bound.policy, one, SAUTED, 16, FIRST), SAUTED.options, SAUTED.horizon)
            for one in (run.policies[i], run.bound.exported(run.learners[i].learner))
        )
        assert kept == max(*seen, last) and max(seen) == run.learners[i].best
        mean = run.bound.policy.distribution(run.policies[i], np.array([[0.0, 1.0]], np.float32))[0]
        assert saute.load_policy(folder, seed=i)([0.0], remaining=3.0) == np.clip(mean[0], -1, 1)


def test_training_is_the_same_with_and_without_selection(whole) -> None:
    last = train(trpo(settings=SMALL), SAUTED, **COMMON | {"selection": None})
    for chosen, plain in zip(whole[1].learners, last.learners, strict=True):
        assert all(jax.tree.leaves(jax.tree.map(np.array_equal, chosen.learner, plain)))


def test_a_stopped_run_remembers_its_best_policy(whole, tmp_path) -> None:
    def stop(epoch: int, metrics: Any) -> None:
        if epoch == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(trpo(settings=SMALL), SAUTED, out=tmp_path, report=stop, **COMMON)
    train(trpo(settings=SMALL), SAUTED, out=tmp_path, **COMMON)
    for name in ("metrics.jsonl", "policy.safetensors", "checkpoints/000009.safetensors"):
        assert (whole[0] / name).read_bytes() == (tmp_path / name).read_bytes()


def hosted(count: int) -> HostEnvs:
    made = SyncVectorEnv([HostSlope] * count, autoreset_mode=AutoresetMode.DISABLED)
    return HostEnvs(SauteVectorWrapper(made, budget=3.0, unsafe_reward=-1.0))


def test_environments_on_the_host_are_validated_alike() -> None:
    bound = types.SimpleNamespace(policy=Constant(), exported=lambda learner: learner)
    native = Selection(saute.saute(Slope(), budget=3.0, unsafe_reward=-1.0), 4)
    for action in (0.25, 0.9):
        judged = [Judge(s, bound).validated(np.float32(action)) for s in (native, Selection(hosted(4), 4))]
        assert judged[0] == pytest.approx(judged[1])


def test_only_sauted_policies_of_point_are_chosen_by_validation() -> None:
    selection = selection_of(Experiment("point", preset="fast").checked())
    assert selection is not None and (selection.episodes, selection.every) == (10_000, 50)
    assert selection.env == environment_of(Experiment("point").checked(), "test"), "not the starts of training"
    for other in (Experiment("point", preset="fast", method="pid"), Experiment("point"), Experiment("reacher", preset="fast")):
        assert selection_of(other.checked()) is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((Slope(),), "selection needs a sautéed environment"),
        ((saute.saute(Slope(), budget=3.0), 0), "episodes=0 must be a whole number ≥ 1"),
        ((saute.saute(Slope(), budget=3.0), 5, 2.5), "every=2.5 must be a whole number ≥ 1"),
        ((saute.saute(Slope(), budget=saute.uniform(1.0, 3.0)),), "give its environment a single, fixed one"),
        ((hosted(4), 5), "episodes=5, but the environment plays 4 at once"),
    ],
)
def test_what_cannot_be_validated_is_said(arguments, message) -> None:
    with pytest.raises(ValueError, match=message):
        Selection(*arguments)


def test_a_policy_that_plays_nan_is_not_judged() -> None:
    with pytest.raises(ValueError, match="validation: rewards or costs are not finite"):
        passing_through([0.1, float("nan")], every=1)
