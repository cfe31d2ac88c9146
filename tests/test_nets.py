"""Nets on any batch; normalised observations: what is taken out, what stays, and that exported policies absorb it exactly."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import saute
from saute.algos.onpolicy import Settings
from saute.learn.nets import init_mlp, mlp, normaliser, policy_for
from saute.runs.evaluate import evaluate
from saute.runs.loop import train


@pytest.mark.parametrize("batch", [(), (3,), (2, 4), (0,)])
def test_a_net_takes_any_batch_and_gives_each_row_what_numpy_gives_it(batch: tuple[int, ...]) -> None:
    net = init_mlp(jax.random.key(0), (5, 8, 2))
    x = np.random.default_rng(0).normal(size=(*batch, 5)).astype(np.float32)
    expected = np.tanh(x @ net[0].weight + net[0].bias) @ net[1].weight + net[1].bias
    assert mlp(net, x).shape == (*batch, 2)
    np.testing.assert_allclose(mlp(net, x), expected, rtol=1e-5, atol=1e-6)


def test_normaliser_takes_out_mean_and_deviation_but_not_of_the_budget() -> None:
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal([5.0, -3.0, 9.81, 0.2], [2.0, 0.01, 0.0, 0.1], (50, 40, 4)), jnp.float32)
    seen = normaliser(x, untouched=1)(x).reshape(-1, 4)
    np.testing.assert_allclose(seen[:, :2].mean(0), 0.0, atol=1e-3)
    np.testing.assert_allclose(seen[:, :2].std(0), 1.0, atol=1e-3)
    # A constant becomes 0, not noise blown up.
    np.testing.assert_allclose(seen[:, 2], 0.0, atol=1e-4)
    np.testing.assert_array_equal(seen[:, 3], x.reshape(-1, 4)[:, 3])


@pytest.mark.parametrize("space", [spaces.Box(-1.0, 1.0, (2,)), spaces.Discrete(3)])
def test_the_exported_policy_gives_for_plain_observations_what_training_gave_for_normalised_ones(space) -> None:
    key = jax.random.key(0)
    x = 10.0 + 3.0 * jax.random.normal(key, (20, 5))
    inputs = normaliser(x, untouched=1)
    net = init_mlp(key, (5, 16, 16, 1))
    np.testing.assert_allclose(mlp(inputs.absorbed(net), x), mlp(net, inputs(x)), rtol=1e-4, atol=1e-5)
    policy = policy_for(spaces.Box(-np.inf, np.inf, (5,)), space, (16, 16))
    parameters = policy.init(key)
    plain = policy.distribution(policy.absorb(parameters, inputs), x)
    for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(policy.distribution(parameters, inputs(x))), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_training_saves_the_policy_for_plain_observations(tmp_path) -> None:
    settings = Settings(hidden=(16, 16), steps_per_epoch=400, value_iterations=5, normalise=True)
    env = saute.saute(saute.envs.pendulum())
    run = train(saute.trpo(settings=settings), env, seeds=1, epochs=2, out=tmp_path)
    learner = run.learners[0]
    assert learner.normaliser.mean[-1] == 0.0 and learner.normaliser.scale[-1] == 1.0, "z is never touched"
    assert (jnp.abs(learner.normaliser.scale[:3] - 1.0) > 1e-3).all()
    loaded = saute.load_policy(tmp_path)
    obs = np.array([[0.3, 0.9, 2.0], [-1.0, 0.0, -4.0]], np.float32)
    seen = learner.normaliser(jnp.concatenate([obs, jnp.full((2, 1), 0.5)], 1))
    wanted = run.bound.policy.mode(run.bound.policy.distribution(learner.policy, seen))
    np.testing.assert_allclose(loaded(obs, remaining=15.0), np.clip(wanted, -1, 1), rtol=1e-4, atol=1e-5)
    again = train(saute.trpo(settings=settings), env, seeds=1, epochs=3, out=tmp_path)
    whole = train(saute.trpo(settings=settings), env, seeds=1, epochs=3)
    for a, b in zip(jax.tree.leaves(again.learners), jax.tree.leaves(whole.learners), strict=True):
        np.testing.assert_array_equal(a, b)
    plain = evaluate(run.bound.policy, run.bound.exported(learner), env, 5)
    assert np.isfinite(plain.task_return).all()
