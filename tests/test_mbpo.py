"""MBPO: what is imagined, how it is mixed with what is real, a point mass solved and kept safe."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from learner_toys import PointMass, cost, reward

import saute
from saute.algos.mbpo import MbpoSettings, mbpo
from saute.algos.sac import SacSettings
from saute.core.protocol import spec_of
from saute.learn.drive import drive, window_of
from saute.learn.model import Known, ModelSettings
from saute.learn.replay import Rows
from saute.runs.build import algorithm_of, configured
from saute.runs.config import Config, Experiment
from saute.runs.evaluate import evaluate

SAC = SacSettings(
    hidden=(32, 32), batch=64, replay=1000, random_steps=100, steps_per_epoch=100, rate=3e-3, averaging=0.02, discount=0.9,
    updates_per_step=4, temperature_rate=1e-2, value_scale=5.0,
)  # fmt: skip
MODEL = ModelSettings(hidden=(16,), batch=32, rate=1e-2, steps=20, rounds=10)
SMALL = MbpoSettings(SAC, MODEL, rollouts=20, length=2, imagined=4000)
KNOWN = Known(reward, cost)
SAUTED = saute.saute(PointMass(), budget=4.0, unsafe_reward=-1.0)


@pytest.mark.parametrize("learned_budget", [False, True])
@pytest.mark.parametrize("env", [PointMass(), SAUTED], ids=["vanilla", "sauted"])
def test_it_fits_environments_with_and_without_a_budget(env: Any, learned_budget: bool) -> None:
    agent = mbpo(dataclasses.replace(SMALL, learned_budget=learned_budget)).agent(spec_of(env))
    state = jax.eval_shape(agent.init, jax.random.key(0))
    after, fitted = jax.eval_shape(agent.begin, state, jax.random.key(0))
    assert jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, state) and set(fitted) == {"model_error", "model_rounds"}
    assert window_of(agent.settings, env) == (1, 100, True)


@pytest.fixture(scope="module")
def trained() -> Any:
    """The agent, its state after ten epochs, and the numbers of each."""
    agent = mbpo(dataclasses.replace(SMALL, sac=dataclasses.replace(SAC, relabel=True)), KNOWN).agent(spec_of(SAUTED))
    body, numbers = drive(agent, SAUTED), []
    seeds = body.first([jax.random.key(0)])
    for i in range(10):
        ((seed, metrics),) = body.epoch(seeds, [jax.random.key(i)])
        seeds = [seed]
        numbers.append({name: float(value) for name, value in metrics.items()})
    return agent, seeds[0].state, numbers


@pytest.mark.slow
def test_a_sauted_point_mass_is_brought_near_its_goal_and_keeps_its_budget(trained: Any) -> None:
    agent, state, _ = trained
    outcome = evaluate(agent.policy, agent.export(state), SAUTED, 20)
    # Staying at the start earns less than 1, and going to the goal, as without a budget, costs more than 10.
    assert (outcome.cost <= 4.0).all() and outcome.task_return.min() > 8.0


@pytest.mark.slow
def test_every_step_is_replayed_and_the_imagined_ones_fill_their_ring(trained: Any) -> None:
    _, state, numbers = trained
    assert int(state.sac.steps) == int(state.sac.replay.size) == 1000 and int(state.imagined.size) == 4000
    assert numbers[-1]["model_error"] < 0.01 and numbers[-1]["episodes"] == 1


@pytest.mark.slow
def test_before_the_first_fit_there_are_no_numbers_of_one(trained: Any) -> None:
    for name in ("model_error", "model_rounds", "critic_loss"):
        assert np.isnan([epoch[name] for epoch in trained[2]]).tolist() == [True] + [False] * 9


@pytest.fixture(scope="module")
def imagined(trained: Any) -> Rows:
    """Forty steps: two of each of twenty rollouts, four in the world of each of five members."""
    agent, state, _ = trained
    return jax.tree.map(np.asarray, jax.jit(agent.imagine)(state, jax.random.key(0)))


@pytest.mark.slow
def test_imagined_rollouts_branch_off_from_real_states_and_go_on_from_there(trained: Any, imagined: Rows) -> None:
    timed = jax.tree.map(lambda column: column.reshape(5, 2, 4, *column.shape[1:]), imagined)
    first, second = Rows(*(c[:, 0] for c in timed)), Rows(*(c[:, 1] for c in timed))
    real = np.asarray(trained[1].sac.replay.rows.obs)
    np.testing.assert_array_equal(np.abs(first.obs.reshape(-1, 1, 2) - real[None]).sum(-1).min(1), 0.0)
    np.testing.assert_array_equal(second.obs, first.next_obs)
    np.testing.assert_array_equal(second.remaining, first.next_remaining)


@pytest.mark.slow
def test_imagined_steps_spend_exactly_and_follow_what_is_known(imagined: Rows) -> None:
    rows = imagined
    assert rows.obs.shape == (40, 2) and not rows.terminated.any()
    np.testing.assert_array_equal(rows.next_remaining, rows.remaining - rows.cost)
    np.testing.assert_array_equal(rows.cost, rows.next_obs[:, 0] > 0.6)
    np.testing.assert_allclose(rows.task_reward, 1.0 - (rows.next_obs[:, 0] - 1.0) ** 2, atol=1e-6)
    expected = rows.obs[:, 1] + 0.15 * 2.0 * rows.action[:, 0]
    np.testing.assert_allclose(rows.next_obs[:, 1], expected, atol=0.1)


@pytest.mark.slow
def test_a_rollout_that_ends_begins_anew_at_its_start(trained: Any) -> None:
    known = Known(reward, cost, lambda obs, action, new: jnp.ones((), bool))
    agent = mbpo(dataclasses.replace(SMALL, length=3), known).agent(spec_of(SAUTED))
    rows = jax.jit(agent.imagine)(trained[1], jax.random.key(0))
    starts, left = np.asarray(rows.obs).reshape(5, 3, 4, 2), np.asarray(rows.remaining).reshape(5, 3, 4)
    np.testing.assert_array_equal(starts[:, 1:], starts[:, :1].repeat(2, axis=1))
    np.testing.assert_array_equal(left[:, 1:], left[:, :1].repeat(2, axis=1))
    assert rows.terminated.all() and len(np.unique(starts[..., 0])) > 3


@pytest.mark.parametrize("real", [0.0, 0.25, 1.0])
def test_batches_have_their_share_of_real_steps(real: float) -> None:
    agent = mbpo(dataclasses.replace(SMALL, real=real)).agent(spec_of(SAUTED))
    state = agent.init(jax.random.key(0))
    lived, dreamt = (
        ring._replace(rows=ring.rows._replace(terminated=jnp.full(ring.capacity, is_real)), size=jnp.asarray(ring.capacity))
        for ring, is_real in ((state.sac.replay, True), (state.imagined, False))
    )
    draw_key, budget_key = jax.random.split(jax.random.key(0))
    batch = agent.batch(lived, dreamt, agent.lots(draw_key), budget_key)
    assert batch.obs.shape == (64, 3) and float(batch.terminated.mean()) == real


@pytest.mark.parametrize("algo", ["mbpo", "pets"])
@pytest.mark.parametrize("method", ["vanilla", "saute"])
def test_experiments_by_name_survive_their_file(algo: str, method: str) -> None:
    config = configured(Experiment("pendulum", algo=algo, method=method))
    again = Config.from_json(config.as_json())
    assert again == config and algorithm_of(again).settings == algorithm_of(config).settings
    assert algorithm_of(again).name == algo and config.epochs * config.settings.steps_per_epoch <= 10_000


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
        (lambda: configured(Experiment("pendulum", algo="mbpo", method="lagrangian")), "mbpo has no multiplier"),
        (lambda: configured(Experiment("double_pendulum", algo="pets")), "pets trains on pendulum and reacher"),
        (lambda: configured(Experiment("car", algo="mbpo")), "not on car"),
    ],
)
def test_what_does_not_fit_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
