"""Nets on any batch; normalised observations: what is taken out, what stays, and that exported policies absorb it exactly."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from learner_toys import assert_same

import saute
from saute.algos.onpolicy import OnPolicySettings
from saute.learn.nets import init_mlp, mlp, normaliser, policy_for
from saute.runs.evaluate import evaluate
from saute.runs.loop import train


@pytest.mark.parametrize("batch", [(), (3,), (2, 4), (0,)])
def test_a_net_takes_any_batch_and_gives_each_row_what_numpy_gives_it(batch: tuple[int, ...]) -> None:
    net = init_mlp(jax.random.key(0), (5, 8, 2))
    x = np.random.default_rng(0).normal(size=(*batch, 5)).astype(np.float32)
    expected = np.tanh(x @ net[0].weight + net[0].bias) @ net[1].weight + net[1].bias
    found = mlp(net, jnp.asarray(x))
    assert found.shape == (*batch, 2)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


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


@pytest.fixture(scope="module")
def normalised(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Two epochs, and a third one that goes on from their folder."""
    folder, env = tmp_path_factory.mktemp("run"), saute.saute(saute.envs.pendulum())
    algorithm = saute.trpo(settings=OnPolicySettings(hidden=(16, 16), steps_per_epoch=400, value_iterations=5, normalise=True))
    run = train(algorithm, env, seeds=1, epochs=2, out=folder)
    loaded = saute.load_policy(folder)
    return env, run, loaded, train(algorithm, env, seeds=1, epochs=3, out=folder), train(algorithm, env, seeds=1, epochs=3)


def test_the_budget_is_never_normalised(normalised: Any) -> None:
    inputs = normalised[1].states[0].normaliser
    assert inputs.mean[-1] == 0.0 and inputs.scale[-1] == 1.0
    assert (jnp.abs(inputs.scale[:3] - 1.0) > 1e-3).all()


def test_training_saves_the_policy_for_plain_observations(normalised: Any) -> None:
    env, run, loaded, *_ = normalised
    obs = np.array([[0.3, 0.9, 2.0], [-1.0, 0.0, -4.0]], np.float32)
    seen = run.states[0].normaliser(jnp.concatenate([obs, jnp.full((2, 1), 0.5)], 1))
    wanted = run.agent.policy.decide(run.states[0].policy, (), seen)[0]
    np.testing.assert_allclose(loaded(obs, remaining=15.0), np.clip(wanted, -1, 1), rtol=1e-4, atol=1e-5)
    assert np.isfinite(evaluate(run.agent.policy, run.policies[0], env, 5).task_return).all()


def test_a_resumed_training_keeps_its_normaliser(normalised: Any) -> None:
    *_, resumed, whole = normalised
    assert_same(resumed.states, whole.states)
