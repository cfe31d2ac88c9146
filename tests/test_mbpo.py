"""MBPO: what is imagined, how it is mixed with what is real, a point mass solved and kept safe, one trace, resume."""

from __future__ import annotations

import dataclasses
import shutil
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from model_toys import PointMass, compile_once, cost, reward

import saute
from saute.algos.mbpo import MbpoSettings, mbpo
from saute.algos.sac import SacSettings
from saute.learn.ensemble import Known, ModelSettings
from saute.learn.replay import Rows
from saute.runs import loop as training
from saute.runs.config import Experiment, algorithm_of
from saute.runs.evaluate import evaluate

SAC = SacSettings(
    hidden=(32, 32), batch=64, replay=1000, random_steps=100, steps_per_epoch=100, rate=3e-3, averaging=0.02, discount=0.9,
    updates_per_step=4, temperature_rate=1e-2, value_scale=5.0,
)  # fmt: skip
MODEL = ModelSettings(hidden=(16,), batch=32, rate=1e-2, steps=20, looks=10)
SMALL = MbpoSettings(SAC, MODEL, rollouts=20, length=2, imagined=4000)
KNOWN = Known(reward, cost)


@pytest.mark.parametrize("learned_budget", [False, True])
@pytest.mark.parametrize("env", [PointMass(), saute.saute(PointMass(), budget=4.0)], ids=["vanilla", "sauted"])
def test_it_fits_environments_with_and_without_a_budget(env: Any, learned_budget: bool) -> None:
    settings = dataclasses.replace(SMALL, learned_budget=learned_budget)
    bound = mbpo(settings).bind(env.observation_space, env.action_space, getattr(env, "options", None))
    learner = jax.eval_shape(bound.init, jax.random.key(0))
    after, metrics, episodes = jax.eval_shape(lambda l, k: bound.epoch(env, l, k), learner, jax.random.key(0))
    assert jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, learner)
    assert episodes.cost.shape == (100, 1) and set(metrics) >= {"model_error", "critic_loss"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: Any) -> Any:
    """A whole training, and one that goes on from its checkpoint before the last epoch, with the same compiled program."""
    folder = tmp_path_factory.mktemp("run")
    env = saute.saute(PointMass(), budget=4.0, unsafe_reward=-1.0)
    algorithm = mbpo(dataclasses.replace(SMALL, sac=dataclasses.replace(SAC, relabel=True)), KNOWN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "compiled_epoch", compile_once(training.compiled_epoch))
        whole = saute.train(algorithm, env, seeds=1, epochs=10, out=folder / "whole", checkpoint_seconds=0.0)
        shutil.copytree(folder / "whole", folder / "cut")
        (folder / "cut" / "checkpoints" / "000010.safetensors").unlink()
        resumed = saute.train(algorithm, env, seeds=1, epochs=10, out=folder / "cut")
    return env, folder, whole, resumed


@pytest.mark.slow
def test_a_sauted_point_mass_is_brought_near_its_goal_and_keeps_its_budget(run: Any) -> None:
    env, _, whole, _ = run
    bound, learner, metrics = whole.bound, whole.learners[0], whole.metrics[-1][0]
    outcome = evaluate(bound.policy, bound.exported(learner), env, 20)
    # Staying at the start earns less than 1, and going to the goal, as without a budget, costs more than 10.
    assert (outcome.cost <= 4.0).all() and outcome.task_return.min() > 8.0
    assert int(learner.sac.steps) == int(learner.sac.replay.size) == 1000 and int(learner.imagined.size) == 4000
    assert metrics["model_error"] < 0.01 and metrics["episodes"] == 5


@pytest.mark.slow
def test_a_run_is_resumed_bit_for_bit(run: Any) -> None:
    _, folder, whole, resumed = run
    for a, b in zip(jax.tree.leaves(whole.learners), jax.tree.leaves(resumed.learners), strict=True):
        np.testing.assert_array_equal(a, b)
    assert whole.metrics == resumed.metrics and resumed.metrics[-1] != resumed.metrics[-2]
    assert (folder / "whole" / "policy.safetensors").read_bytes() == (folder / "cut" / "policy.safetensors").read_bytes()
    assert saute.load_policy(folder / "cut")(np.zeros(2), remaining=2.0).shape == (1,)


@pytest.mark.slow
def test_imagined_steps_branch_off_from_real_ones_and_spend_exactly(run: Any) -> None:
    bound, learner = run[2].bound, run[2].learners[0]
    rows = jax.tree.map(np.asarray, jax.jit(bound.imagine)(learner, jax.random.key(0)))
    assert rows.obs.shape == (40, 2) and not rows.terminated.any()
    timed = jax.tree.map(lambda column: column.reshape(5, 2, 4, *column.shape[1:]), rows)
    first, second = Rows(*(c[:, 0] for c in timed)), Rows(*(c[:, 1] for c in timed))
    real = np.asarray(learner.sac.replay.rows.obs)
    distances = np.abs(first.obs.reshape(-1, 1, 2) - real[None]).sum(-1).min(1)
    np.testing.assert_array_equal(distances, 0.0)
    np.testing.assert_array_equal(rows.next_remaining, rows.remaining - rows.cost)
    np.testing.assert_array_equal(second.obs, first.next_obs)
    np.testing.assert_array_equal(second.remaining, first.next_remaining)
    np.testing.assert_array_equal(rows.cost, rows.next_obs[:, 0] > 0.6)
    np.testing.assert_allclose(rows.task_reward, 1.0 - (rows.next_obs[:, 0] - 1.0) ** 2, atol=1e-6)
    expected = rows.obs[:, 1] + 0.15 * 2.0 * rows.action[:, 0]
    np.testing.assert_allclose(rows.next_obs[:, 1], expected, atol=0.1)


@pytest.mark.slow
def test_a_rollout_that_ends_begins_anew_at_its_start(run: Any) -> None:
    env, _, whole, _ = run
    known = Known(reward, cost, lambda obs, action, new: jnp.ones((), bool))
    bound = mbpo(dataclasses.replace(SMALL, length=3), known).bind(env.observation_space, env.action_space, env.options)
    rows = jax.jit(bound.imagine)(whole.learners[0], jax.random.key(0))
    starts, left = np.asarray(rows.obs).reshape(5, 3, 4, 2), np.asarray(rows.remaining).reshape(5, 3, 4)
    np.testing.assert_array_equal(starts[:, 1:], starts[:, :1].repeat(2, axis=1))
    np.testing.assert_array_equal(left[:, 1:], left[:, :1].repeat(2, axis=1))
    assert rows.terminated.all() and len(np.unique(starts[..., 0])) > 3


@pytest.mark.slow
@pytest.mark.parametrize("real", [0.0, 0.25, 1.0])
def test_batches_have_their_share_of_real_steps(run: Any, real: float) -> None:
    env, _, whole, _ = run
    bound = mbpo(dataclasses.replace(SMALL, real=real)).bind(env.observation_space, env.action_space, env.options)
    lived, dreamt = (
        ring._replace(rows=ring.rows._replace(terminated=jnp.full(ring.capacity, is_real)))
        for ring, is_real in ((whole.learners[0].sac.replay, True), (whole.learners[0].imagined, False))
    )
    assert float(bound._batch(lived, dreamt, jax.random.key(0)).terminated.mean()) == real


@pytest.mark.parametrize("algo", ["mbpo", "pets"])
@pytest.mark.parametrize("method", ["vanilla", "saute"])
def test_experiments_by_name_survive_their_file(algo: str, method: str) -> None:
    experiment = Experiment("pendulum", algo=algo, method=method).checked()
    again = Experiment.from_json(experiment.as_json())
    assert again == experiment and algorithm_of(again).settings == algorithm_of(experiment).settings
    assert algorithm_of(again).name == algo and experiment.epochs * algorithm_of(again).settings.steps_per_epoch <= 10_000


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dataclasses.replace(SMALL, rollouts=21), "rollouts=21 .* elites=5"),
        (lambda: dataclasses.replace(SMALL, imagined=30), "imagined=30, rollouts=20, length=2"),
        (lambda: dataclasses.replace(SMALL, real=1.5), "real=1.5 is a fraction"),
        (lambda: dataclasses.replace(SMALL, sac=dataclasses.replace(SAC, num_envs=2)), "num_envs=2"),
        (lambda: dataclasses.replace(SMALL, sac=dataclasses.replace(SAC, random_steps=5)), "random_steps=5"),
        (
            lambda: dataclasses.replace(SMALL, learned_budget=True, sac=dataclasses.replace(SAC, relabel=True)),
            "use one of them",
        ),
        (lambda: Experiment("pendulum", algo="mbpo", method="lagrangian").checked(), "mbpo has no multiplier"),
        (lambda: Experiment("double_pendulum", algo="pets").checked(), "pets trains on pendulum and reacher"),
        (lambda: Experiment("car", algo="mbpo").checked(), "not on car"),
    ],
)
def test_what_does_not_fit_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
