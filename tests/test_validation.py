"""Choosing the policy to keep: the score against a table, the best on the way, and training that stops and goes on."""

from __future__ import annotations

import pathlib
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from learner_toys import Constant, Slope, assert_same, hosted

import saute
from saute.algos.onpolicy import OnPolicySettings
from saute.algos.trpo import trpo
from saute.core.options import options
from saute.core.seeds import VALIDATION
from saute.learn.drive import Drive, Training
from saute.runs.build import configured, environment_of, selection_of
from saute.runs.config import Experiment
from saute.runs.evaluate import Outcome, evaluate
from saute.runs.loop import Run, train
from saute.runs.validation import Selection, score, validated

SMALL = OnPolicySettings(hidden=(16, 16), steps_per_epoch=400, value_iterations=20)
SAUTED = saute.saute(Slope(), budget=3.0, unsafe_reward=-1.0)


def test_an_unsafe_episode_counts_as_unsafe_from_its_first_step_on() -> None:
    cost, violated = np.array([0.0, 20.0, 21.0]), np.array([False, False, True])
    outcome = Outcome(np.array([1.0, 2.0, 3.0]), cost, np.array([5, 6, 7]), cost, violated)
    assert score(outcome, options(20.0, unsafe_reward=-1.0), 200) == (1.0 + 2.0 - 200.0) / 3.0


def passing_through(actions: list[float], selection: Selection) -> tuple[list[tuple[float, int]], float]:
    """A training whose policies are these numbers, one after the other: what is best after each epoch, and what is exported."""
    later = iter(actions[1:])

    def epoch(seeds: Any, keys: Any) -> list[Any]:
        return [(Training(np.float32(next(later))), {"finite": True}) for _ in seeds]

    plain = Drive(
        lambda keys: [Training(np.float32(actions[0]))], epoch, lambda one: one.state, lambda of, seeds: list(map(of, seeds))
    )
    body, seen = validated(plain, selection, Constant()), []
    (seed,) = body.first([None])  # type: ignore[list-item]
    for _ in actions[1:]:
        ((seed, metrics),) = body.epoch([seed], [None])  # type: ignore[list-item]
        seen.append((float(seed.policy), int(metrics["validated_violations"])))
    return seen, float(body.export(seed))


def test_the_best_policy_on_the_way_is_kept_and_an_unsafe_one_never() -> None:
    """Ten steps of a pay 10 a and cost 10 a⁺; the budget is 3."""
    seen, kept = passing_through([-1.0, 0.1, 0.25, 0.2, 0.9, 0.25, -0.5], Selection(SAUTED, 4, 1))
    assert seen == [(pytest.approx(0.1), 0), (0.25, 0), (0.25, 0), (0.25, 4), (0.25, 0), (0.25, 0)]
    assert kept == 0.25


def test_between_validations_nothing_is_chosen_but_the_last_policy_always_has_its_chance() -> None:
    seen, kept = passing_through([-1.0, 0.1, 0.2, 0.25], Selection(SAUTED, 4, 2))
    assert [policy for policy, _ in seen] == [-1.0, pytest.approx(0.2), pytest.approx(0.2)]
    assert kept == 0.25


def test_environments_on_the_host_are_validated_alike() -> None:
    policies = [0.25, 0.9, 0.1]
    native, host = (passing_through(policies, Selection(env, 4, 1)) for env in (SAUTED, hosted(4)))
    assert native == host


def test_a_policy_that_plays_nan_is_not_validated() -> None:
    with pytest.raises(ValueError, match="validation: rewards or costs are not finite"):
        passing_through([0.1, float("nan")], Selection(SAUTED, 4, 1))


COMMON: dict[str, Any] = {"seeds": 2, "epochs": 9, "selection": Selection(SAUTED, 16, 2)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[pathlib.Path, Run]:
    folder = tmp_path_factory.mktemp("whole")
    return folder, train(trpo(settings=SMALL), SAUTED, out=folder, **COMMON)


@pytest.mark.parametrize("seed", range(2))
def test_what_is_kept_is_the_policy_with_the_best_validation(whole, seed: int) -> None:
    _, run = whole
    seen = [epoch[seed]["validated_score"] for epoch in run.metrics[1::2]]
    assert len(set(seen)) > 1, "the policies differ"
    kept, last = (
        score(evaluate(run.agent.policy, one, SAUTED, 16, VALIDATION.start), SAUTED.options, SAUTED.horizon)
        for one in (run.policies[seed], run.agent.export(run.states[seed]))
    )
    assert kept == max(*seen, last)


@pytest.mark.parametrize("seed", range(2))
def test_what_is_saved_is_what_is_kept(whole, seed: int) -> None:
    folder, run = whole
    mean = run.agent.policy.decide(run.policies[seed], (), jnp.array([[0.0, 1.0]]))[0]
    kept = np.clip(mean[0], -1, 1)
    assert saute.load_policy(folder, seed=seed, backend="jax")([0.0], remaining=3.0) == kept
    np.testing.assert_allclose(saute.load_policy(folder, seed=seed)([0.0], remaining=3.0), kept, rtol=0.0, atol=1e-6)


def test_training_is_the_same_with_and_without_selection(whole) -> None:
    assert_same(whole[1].states, train(trpo(settings=SMALL), SAUTED, **COMMON | {"selection": None}).states)


def test_a_stopped_run_remembers_its_best_policy(whole, tmp_path) -> None:
    def stop(epoch: int, metrics: Any) -> None:
        if epoch == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(trpo(settings=SMALL), SAUTED, out=tmp_path, hook=stop, **COMMON)
    train(trpo(settings=SMALL), SAUTED, out=tmp_path, **COMMON)
    for name in ("metrics.jsonl", "policy.safetensors", "checkpoints/000009.safetensors"):
        assert (whole[0] / name).read_bytes() == (tmp_path / name).read_bytes()


def test_sauted_policies_of_point_are_chosen_by_validation_and_not_by_starts_of_training() -> None:
    selection = selection_of(configured(Experiment("point", preset="fast")))
    assert selection is not None and (selection.episodes, selection.every) == (10_000, 50)
    assert selection.env == environment_of(configured(Experiment("point")), "test")


@pytest.mark.parametrize(
    "other", [Experiment("point", preset="fast", method="pid"), Experiment("point"), Experiment("reacher", preset="fast")]
)
def test_others_are_not(other: Experiment) -> None:
    assert selection_of(configured(other)) is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((Slope(),), "selection needs a sautéed environment"),
        ((SAUTED, 0), "episodes=0 must be a whole number ≥ 1"),
        ((SAUTED, 5, 2.5), "every=2.5 must be a whole number ≥ 1"),
        ((hosted(4), 5), "episodes=5, but the environment plays 4 at once"),
    ],
)
def test_what_cannot_be_validated_is_said(arguments, message) -> None:
    with pytest.raises(ValueError, match=message):
        Selection(*arguments)


def test_random_budgets_are_validated_by_what_each_episode_carries() -> None:
    """Ten steps of 0.2 cost 2: half of the budgets between 1 and 3 are smaller, so half of the episodes are worth −10."""
    env = saute.saute(Slope(), budget=saute.uniform(1.0, 3.0), unsafe_reward=-1.0)
    (_, violations), *_ = passing_through([0.2, 0.2], Selection(env, 400, 1))[0]
    assert 160 < violations < 240
