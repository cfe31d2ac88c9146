"""Soft actor-critic: every part of an update against NumPy, the squashed density, probes, what is replayed."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from learner_toys import Slope, TwoCosts

import saute
from saute.algos.sac import SacAgent, SacSettings, sac, td_target
from saute.core.protocol import Spec, spec_of
from saute.learn.constraint import lagrangian, pid
from saute.learn.drive import Drive, drive
from saute.learn.nets import SquashedGaussian, squashed_for
from saute.learn.replay import Batch, sauted
from saute.runs.evaluate import evaluate

TINY = SacSettings(hidden=(4,), batch=6, replay=50, random_steps=10, steps_per_epoch=20, temperature_rate=5e-2, value_scale=2.0)
SMALL = SacSettings(
    hidden=(32, 32), batch=64, replay=5000, random_steps=100, steps_per_epoch=100, num_envs=10, rate=3e-3, averaging=0.02,
    discount=0.9, cost_discount=0.9, updates_per_step=0.5, temperature_rate=1e-2,
)  # fmt: skip
OBS, ACTION = spaces.Box(-1.0, 1.0, (2,), np.float32), spaces.Box(-1.0, 1.0, (1,), np.float32)


def test_log_prob_is_the_density_of_the_squashed_action() -> None:
    policy, μ, σ = SquashedGaussian(1, (-1.0,), (1.0,)), 0.3, 0.7
    a, h = np.linspace(-0.98, 0.98, 41), 1e-6
    Φ = np.vectorize(lambda a: 0.5 * math.erfc(-(math.atanh(a) - μ) / σ / math.sqrt(2)))
    density = (Φ(a + h) - Φ(a - h)) / (2 * h)
    dist = jnp.full((41, 1), μ), jnp.full((41, 1), math.log(σ))
    np.testing.assert_allclose(np.exp(policy.log_prob(dist, jnp.arctanh(a)[:, None])), density, rtol=2e-4)


def test_log_prob_stays_finite_where_tanh_is_one() -> None:
    policy = SquashedGaussian(1, (-1.0,), (1.0,))
    u = jnp.array([[-30.0], [30.0]])
    value, gradient = jax.value_and_grad(lambda m: policy.log_prob((u + m, jnp.zeros((2, 1))), u).sum())(0.0)
    assert value == pytest.approx(2 * (2 * (30 - math.log(2)) - 0.5 * math.log(2 * math.pi)), rel=1e-5)
    assert np.isfinite(gradient)


def test_actions_fill_the_bounds_of_their_space() -> None:
    policy = squashed_for(OBS, spaces.Box(np.array([-2.0, 0.0]), np.array([4.0, 1.0]), dtype=np.float64), (4,))
    wide = jnp.array([[-50.0, -50.0], [50.0, 50.0], [0.0, 0.0]])
    np.testing.assert_allclose(policy.mode((wide, wide)), [[-2, 0], [4, 1], [1, 0.5]], atol=1e-6)
    drawn = policy.sample((jnp.zeros((1000, 2)), jnp.ones((1000, 2))), jax.random.key(0))
    assert (drawn >= jnp.array([-2.0, 0.0])).all() and (drawn <= jnp.array([4.0, 1.0])).all()


def test_time_outs_have_a_future_and_terminals_do_not() -> None:
    reward, value = jnp.array([1.0, 2.0]), jnp.array([10.0, 10.0])
    np.testing.assert_allclose(td_target(reward, jnp.array([False, True]), value, 0.9), [10.0, 2.0])


def net(layers: Any, x: np.ndarray) -> np.ndarray:
    (w1, b1), (w2, b2) = [(np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in layers]
    return np.maximum(x @ w1 + b1, 0) @ w2 + b2


def draw(layers: Any, obs: np.ndarray, key: Any) -> tuple[np.ndarray, np.ndarray]:
    mean, log_std = np.split(net(layers, obs), 2, axis=1)
    ε = np.asarray(jax.random.normal(key, mean.shape), np.float64)
    u = mean + np.exp(log_std) * ε
    log_prob = -0.5 * ε**2 - log_std - 0.5 * np.log(2 * np.pi) - np.log(1 - np.tanh(u) ** 2)
    return np.tanh(u), log_prob.sum(axis=1)


def value(layers: Any, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
    return net(layers, np.concatenate([obs, action], axis=1))[:, 0]


def first_adam_step(loss: Any, layers: Any, rate: float) -> list[np.ndarray]:
    """θ − η g/(|g| + ε), with g by central differences in float64."""
    leaves, structure = jax.tree.flatten(jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), layers))
    stepped = []
    for i, leaf in enumerate(leaves):
        gradient = np.zeros_like(leaf)
        for index in np.ndindex(*leaf.shape):
            ends = []
            for h in (1e-6, -1e-6):
                moved = leaf.copy()
                moved[index] += h
                ends.append(loss(jax.tree.unflatten(structure, [*leaves[:i], moved, *leaves[i + 1 :]])))
            gradient[index] = (ends[0] - ends[1]) / 2e-6
        stepped.append(np.where(np.abs(gradient) < 1e-7, leaf, leaf - rate * np.sign(gradient)))
    return stepped


def lagrangian_agent() -> SacAgent:
    """Whose unit of cost is 1/4."""
    agent = sac(lagrangian(3.0), TINY).agent(Spec(OBS, ACTION, horizon=10))
    # d(1 − γᵀ)/((1 − γ)T) of a limit of 3 for ten steps.
    assert agent.unit_cost == pytest.approx(3.0 * (1 - 0.99**10) / (0.01 * 10)) and agent.constraint == lagrangian(1.0)
    return dataclasses.replace(agent, unit_cost=0.25)


@pytest.fixture(scope="module")
def updated() -> Any:
    """One update of a Lagrangian learner on a made-up batch."""
    agent = lagrangian_agent()
    random = np.random.default_rng(0)
    batch = Batch(
        *(random.uniform(-1, 1, (6, 2)), random.uniform(-1, 1, (6, 1)), random.normal(size=6), random.uniform(0, 1, 6)),
        next_obs=random.uniform(-1, 1, (6, 2)),
        terminated=np.array([False, True, False, False, True, False]),
    )
    before = agent.init(jax.random.key(1))
    other = agent.init(jax.random.key(2))
    before = before._replace(target_critics=other.critics, target_cost_critic=other.cost_critic, log_temperature=jnp.log(0.3))
    arrays = jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype if leaf.dtype == bool else jnp.float32), batch)
    after, metrics = jax.jit(agent.update)(before, arrays, agent.noise(jax.random.key(7), 6))
    return before, after, metrics, batch, jax.random.split(jax.random.key(7))


def assert_leaves(found: Any, expected: list[np.ndarray]) -> None:
    for a, b in zip(jax.tree.leaves(found), expected, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)


def test_critics_take_the_soft_td_step(updated: Any) -> None:
    before, after, metrics, batch, (next_key, _) = updated
    action, log_prob = draw(before.policy, batch.next_obs, next_key)
    next_value = 2.0 * np.minimum(*(value(q, batch.next_obs, action) for q in before.target_critics)) - 0.3 * log_prob
    y = (batch.reward + 0.99 * ~batch.terminated * next_value) / 2.0
    losses = [np.mean((value(q, batch.obs, batch.action) - y) ** 2) for q in before.critics]
    assert metrics["critic_loss"] == pytest.approx(sum(losses), rel=1e-4)
    for old, new in zip(before.critics, after.critics, strict=True):
        loss = lambda q: np.mean((value(q, batch.obs, batch.action) - y) ** 2)  # noqa: E731
        assert_leaves(new, first_adam_step(loss, old, 5e-4))


def test_cost_critic_learns_the_cost_in_units_of_the_limit(updated: Any) -> None:
    before, after, _, batch, (next_key, _) = updated
    action, _ = draw(before.policy, batch.next_obs, next_key)
    y = batch.cost / 0.25 + 0.99 * ~batch.terminated * value(before.target_cost_critic, batch.next_obs, action)
    loss = lambda q: np.mean((value(q, batch.obs, batch.action) - y) ** 2)  # noqa: E731
    assert_leaves(after.cost_critic, first_adam_step(loss, before.cost_critic, 5e-4))


def test_policy_and_multiplier_step(updated: Any) -> None:
    before, after, metrics, batch, (_, policy_key) = updated
    action, _ = draw(before.policy, batch.obs, policy_key)
    constraint = lagrangian(1.0)
    costs = value(after.cost_critic, batch.obs, action)
    _, β = constraint.update(constraint.init(), jnp.asarray(costs), jnp.ones(6, bool))
    assert metrics["multiplier"] == pytest.approx(float(β), rel=1e-5)

    def loss(policy: Any) -> float:
        action, log_prob = draw(policy, batch.obs, policy_key)
        least = 2.0 * np.minimum(*(value(q, batch.obs, action) for q in after.critics))
        return np.mean(0.3 * log_prob - least + float(β) * value(after.cost_critic, batch.obs, action))

    assert_leaves(after.policy, first_adam_step(loss, before.policy, 5e-4))


def test_targets_follow_slowly(updated: Any) -> None:
    before, after, _, _, _ = updated
    for name, live in (("target_critics", after.critics), ("target_cost_critic", after.cost_critic)):
        expected = jax.tree.map(lambda old, new: 0.995 * old + 0.005 * new, getattr(before, name), live)
        assert_leaves(getattr(after, name), jax.tree.leaves(expected))


def test_temperature_follows_adam_towards_the_target_entropy(updated: Any) -> None:
    state, _, _, batch, _ = updated
    arrays = jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype if leaf.dtype == bool else jnp.float32), batch)
    agent, log_α, m, v = lagrangian_agent(), math.log(0.3), 0.0, 0.0
    update = jax.jit(agent.update)
    for t in range(1, 5):
        state, metrics = update(state, arrays, agent.noise(jax.random.key(t), 6))
        gradient = float(metrics["entropy"]) + 1.0
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        log_α -= 0.05 * (m / (1 - 0.9**t)) / (math.sqrt(v / (1 - 0.999**t)) + 1e-8)
        assert state.log_temperature == pytest.approx(log_α, abs=1e-5)


def trained(algorithm: Any, env: Any, epochs: int) -> tuple[Drive, Any, list[dict[str, Any]]]:
    """The driver, the state of a seed, and the numbers of its epochs."""
    body, numbers = drive(algorithm.agent(spec_of(env)), env), []
    seeds = body.first([jax.random.key(0)])
    for i in range(epochs):
        ((seed, metrics),) = body.epoch(seeds, [jax.random.key(i)])
        seeds = [seed]
        numbers.append(metrics)
    return body, seeds[0].state, numbers


def test_unconstrained_probe() -> None:
    algorithm = sac(settings=SMALL)
    _, state, numbers = trained(algorithm, Slope(), 30)
    assert evaluate(algorithm.agent(spec_of(Slope())).policy, state.policy, Slope(), 10).task_return.mean() > 9.0
    assert int(numbers[-1]["episodes"]) == 10 and int(state.steps) == 3000


def test_sauted_probe_spends_its_budget_and_no_more() -> None:
    env = saute.saute(Slope(), budget=3.0, unsafe_reward=-1.0)
    algorithm = sac(settings=dataclasses.replace(SMALL, relabel=True))
    _, state, _ = trained(algorithm, env, 60)
    outcome = evaluate(algorithm.agent(spec_of(env)).policy, state.policy, env, 10)
    assert (outcome.cost <= 3.0).all() and outcome.task_return.mean() > 2.0


@pytest.mark.parametrize(
    "constraint", [lagrangian(3.0, through_softplus=True), pid(3.0, proportional=1.0, integral=0.01)], ids=["lagrangian", "pid"]
)
def test_constrained_probe_comes_to_the_limit_and_not_beyond(constraint: Any) -> None:
    _, _, numbers = trained(sac(constraint, SMALL), Slope(), 80)
    assert 1.0 < np.mean([float(values["cost"]) for values in numbers[-20:]]) < 4.0


def test_before_the_first_update_there_are_no_numbers_of_one() -> None:
    _, _, numbers = trained(sac(pid(3.0), dataclasses.replace(TINY, random_steps=25)), Slope(), 3)
    for name in ("critic_loss", "value", "entropy", "temperature", "multiplier", "cost_value"):
        assert np.isnan([float(values[name]) for values in numbers]).tolist() == [True, False, False]
    assert all(values["finite"] and values["episodes"] == 1 for values in numbers)


@pytest.fixture(scope="module", params=[False, True], ids=["time-out", "terminal"])
def replayed(request: pytest.FixtureRequest) -> Any:
    """Two episodes of ten steps in the replay of an environment, whose end is terminal or not."""
    env = saute.saute(Slope(terminal=request.param), budget=3.0, unsafe_reward=-1.0)
    state = trained(sac(settings=TINY), env, 2)[1]
    return (
        request.param,
        env,
        jax.tree.map(lambda column: np.asarray(column[:20]), state.replay.rows),
        np.tile(np.arange(10), 2),
    )


def test_the_replay_has_what_happened_never_the_next_reset(replayed: Any) -> None:
    terminal, _, rows, time = replayed
    np.testing.assert_allclose(rows.obs[:, 0], time / 10)
    np.testing.assert_allclose(rows.next_obs[:, 0], (time + 1) / 10)
    np.testing.assert_array_equal(rows.terminated, terminal & (time == 9))
    np.testing.assert_array_equal(rows.task_reward, rows.action[:, 0])


def test_the_replay_has_the_remaining_budgets(replayed: Any) -> None:
    _, env, rows, time = replayed
    np.testing.assert_array_equal(rows.remaining[time == 0], 3.0)
    # Rounding that a step has lost is paid in the next one.
    np.testing.assert_allclose(rows.next_remaining, rows.remaining - rows.cost, atol=5e-7)
    np.testing.assert_array_equal(rows.next_remaining[time < 9], rows.remaining[time > 0])
    seen = sauted(jax.tree.map(jnp.asarray, rows), env.options)
    np.testing.assert_array_equal(seen.reward < -1 + 1e-6, rows.next_remaining < 0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sac(settings=dataclasses.replace(TINY, relabel=True)).agent(Spec(OBS, ACTION)), "the environment has none"),
        (lambda: sac(lagrangian(3.0)).agent(Spec(OBS, ACTION)), "a limit of 3 per episode needs the length T of an episode"),
        (lambda: sac().agent(Spec(OBS, spaces.MultiDiscrete([2, 3]))), "takes one, use ppo, trpo or cpo"),
        (lambda: sac().agent(Spec(OBS, spaces.Box(-np.inf, np.inf, (1,)))), "are unbounded"),
        (lambda: sac().agent(Spec(spaces.Discrete(2), ACTION)), "are not a vector"),
        (
            lambda: sac(lagrangian(3.0)).agent(spec_of(saute.saute(TwoCosts(), [1.0, 1.0]))),
            "sac has one limit 3, but a step of the environment has 2 costs; give one limit per cost",
        ),
        (
            lambda: sac(settings=dataclasses.replace(TINY, relabel=True)).agent(
                spec_of(saute.saute(Slope(), 3.0, terminate=True))
            ),
            "terminate=True hides",
        ),
    ],
)
def test_what_does_not_fit_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
