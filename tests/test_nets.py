"""Nets on any batch; normalised observations: what is taken out, what stays, and that exported policies absorb it exactly."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from choosing_toys import CountedArms, Levers
from gymnasium import spaces
from learner_toys import assert_same

import saute
from saute.algos.onpolicy import OnPolicySettings
from saute.envs.from_gym import HostEnvs
from saute.learn.nets import init_mlp, mlp, normaliser, policy_for, product
from saute.learn.stream import bounded
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


@pytest.mark.parametrize("sizes", [(3, 8), (8, 2), (6, 6), (1, 1)])
def test_the_gradients_of_a_product_are_those_of_plain_multiplication(sizes: tuple[int, int]) -> None:
    """However the factors are turned; also of a stack of products, as that of several cost critics."""
    x, weight, slope = (
        jax.random.normal(jax.random.key(i), shape) for i, shape in enumerate(((7, sizes[0]), sizes, (7, sizes[1])))
    )
    plain, found = (jax.vjp(times, x, weight) for times in (jnp.matmul, product))
    np.testing.assert_array_equal(found[0], plain[0])
    for mine, expected in zip(found[1](slope), plain[1](slope), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-5, atol=1e-6)

    def cost(times: Any) -> Any:
        return jax.grad(lambda stack: jnp.sum(jax.vmap(lambda w: times(x, w) ** 2)(stack)))(jnp.stack([weight, -weight]))

    np.testing.assert_allclose(cost(product), cost(jnp.matmul), rtol=1e-4, atol=1e-5)


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


CHOICES = (2, 3, 4)


def test_several_actions_are_drawn_each_by_itself() -> None:
    """Against the joint distribution, of all 24 combinations."""
    policy = policy_for(spaces.Box(-1.0, 1.0, (2,)), spaces.MultiDiscrete(CHOICES), (8,))
    obs = jax.random.normal(jax.random.key(0), (5, 2))
    old, new = (policy.distribution(jax.tree.map(lambda x: 3 * x, policy.init(jax.random.key(i))), obs) for i in (1, 2))
    every = jnp.array(list(itertools.product(*map(range, CHOICES))))
    p, q = (np.array([[policy.log_prob(d, a) for a in every] for d in dist], np.float64) for dist in (old, new))
    np.testing.assert_allclose(np.exp(p).sum(1), 1.0, rtol=1e-5)
    first = jax.nn.softmax(old[:, :2])
    np.testing.assert_allclose(np.exp(p).reshape(5, 2, 12).sum(2), first, rtol=1e-4)
    np.testing.assert_allclose(policy.divergence(old, new), (np.exp(p) * (p - q)).sum(1), rtol=1e-4)
    np.testing.assert_array_equal(policy.mode(old), every[p.argmax(1)])
    drawn = policy.sample(jnp.broadcast_to(old[0], (20_000, 9)), jax.random.key(3))
    assert drawn.shape == (20_000, 3)
    met = np.bincount(np.ravel_multi_index(np.asarray(drawn).T, CHOICES), minlength=24) / 20_000
    np.testing.assert_allclose(met, np.exp(p[0]), atol=0.02)
    np.testing.assert_allclose(policy.log_prob(old, every[:5]), p[np.arange(5), np.arange(5)], rtol=1e-5)


@pytest.mark.parametrize("name", ["ppo", "trpo", "cpo"])
def test_several_actions_are_learned_within_the_budget(name: str) -> None:
    """Without a cost 10 are to be had; the costly position of the second lever would pay as much again."""
    settings = OnPolicySettings(hidden=(8,), steps_per_epoch=500, value_iterations=20, policy_rate=3e-3, target_kl=0.05)
    algorithm = saute.cpo(1.0, settings) if name == "cpo" else getattr(saute, name)(settings=settings)
    env = saute.saute(Levers(), budget=0.5, unsafe_reward=-1.0)
    run = train(algorithm, env, seeds=1, epochs=25)
    outcome = evaluate(run.agent.policy, run.policies[0], env, 5)
    assert (outcome.cost == 0.0).all() and (outcome.task_return == 10.0).all()


def test_discrete_actions_are_counted_from_their_start() -> None:
    assert bounded(spaces.Discrete(3), jnp.array([0, 2])).tolist() == [0, 2]
    assert bounded(spaces.Discrete(3, start=-1), jnp.array([0, 2])).tolist() == [-1, 1]
    assert bounded(spaces.MultiDiscrete([2, 3], start=[4, 1]), np.array([[1, 2]])).tolist() == [[5, 3]]
    settings = OnPolicySettings(hidden=(4,), steps_per_epoch=40, value_iterations=2, policy_iterations=2)
    envs = HostEnvs(CountedArms, 2)
    run = train(saute.ppo(settings=settings), envs, seeds=1, epochs=1)
    assert 0.0 < run.metrics[0][0]["cost"] < 10.0, "both arms were drawn, and the environment refused none"


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
