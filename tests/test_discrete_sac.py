"""Soft actor-critic with discrete actions: soft Q by iteration, the exact gradient of the policy, probes with a budget."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from choosing_toys import Arms, RedSide
from gymnasium import spaces

import saute
from saute.algos.mbpo import mbpo
from saute.algos.pets import pets
from saute.algos.sac import SacAgent, SacSettings, sac
from saute.core.protocol import Spec, spec_of
from saute.learn.constraint import Free, lagrangian, pid
from saute.learn.drive import drive
from saute.learn.nets import Categorical
from saute.learn.replay import Batch
from saute.learn.soft import Enumerated
from saute.runs.evaluate import evaluate

STATES, ACTIONS, γ, γ_cost, α = 3, 2, 0.8, 0.7, 0.3
TABLE = SacSettings(
    hidden=(), batch=6, replay=10, rate=1e-2, temperature_rate=0.0, averaging=0.1, discount=γ, cost_discount=γ_cost
)
SMALL = SacSettings(
    hidden=(32, 32), batch=64, replay=5000, random_steps=200, steps_per_epoch=200, num_envs=20, rate=3e-3, averaging=0.02,
    discount=0.95, cost_discount=0.95, updates_per_step=0.5, temperature_rate=1e-2,
)  # fmt: skip


def table_agent(constraint: Any) -> SacAgent:
    """Whose nets are tables, since states are observed as unit vectors; costs are in their own units."""
    spec = Spec(spaces.Box(0.0, 1.0, (STATES,), np.float32), spaces.Discrete(ACTIONS), horizon=10)
    return dataclasses.replace(sac(constraint, TABLE).agent(spec), unit_cost=1.0)


@pytest.fixture(scope="module")
def mdp() -> tuple[Batch, np.ndarray]:
    """All transitions of a small MDP, and the next state of each; one of them is terminal."""
    random, state = np.random.default_rng(0), np.repeat(np.arange(STATES), ACTIONS)
    following = np.array([1, 2, 2, 0, 1, 0])
    reward, cost = random.normal(size=6).astype(np.float32), random.uniform(0, 1, 6).astype(np.float32)
    one_hot, terminated = jnp.eye(STATES), jnp.array([False] * 5 + [True])
    action = jnp.tile(jnp.arange(ACTIONS, dtype=jnp.int32), STATES)
    rows = (one_hot[state], action, jnp.asarray(reward), jnp.asarray(cost), one_hot[following], terminated)
    return Batch(*rows), following


def log_sum(q: np.ndarray) -> np.ndarray:
    return α * np.log(np.exp(q / α).sum(1))


def test_q_values_are_the_fixed_point_of_soft_iteration(mdp: Any) -> None:
    batch, following = mdp
    reward, cost, going = (np.asarray(one, np.float64) for one in (batch.reward, batch.cost, ~batch.terminated))
    q = np.zeros((STATES, ACTIONS))
    for _ in range(300):
        q = (reward + γ * going * log_sum(q)[following]).reshape(STATES, ACTIONS)
    π = np.exp((q - log_sum(q)[:, None]) / α)
    q_cost = np.zeros((STATES, ACTIONS))
    for _ in range(300):
        q_cost = (cost + γ_cost * going * (π * q_cost).sum(1)[following]).reshape(STATES, ACTIONS)

    # The limit makes it learn the costs, and λ = 0 leaves the policy as it is.
    agent = table_agent(Free(3.0))
    state = agent.init(jax.random.key(0))._replace(log_temperature=jnp.log(α), replay=None)
    keys = jax.random.split(jax.random.key(1), 4000)
    state, metrics = jax.jit(
        lambda state: jax.lax.scan(lambda s, k: agent.update(s, batch, agent.noise(k, STATES)), state, keys)
    )(state)
    for (layer,) in state.critics:
        np.testing.assert_allclose(layer.weight + layer.bias, q, atol=1e-2)
    np.testing.assert_allclose(state.cost_critic[0].weight + state.cost_critic[0].bias, q_cost, atol=1e-2)
    found = agent.policy.distribution(state.policy, jnp.eye(STATES))
    np.testing.assert_allclose(np.exp(found), π, atol=1e-2)
    # Each state is twice in the batch.
    assert metrics["entropy"][-1] == pytest.approx(-(π * np.log(π)).sum(1).mean(), abs=1e-2)
    assert metrics["value"][-1] == pytest.approx((π * q).sum(1).mean(), abs=1e-2)
    assert metrics["cost_value"][-1] == pytest.approx((π * q_cost).sum(1).mean(), abs=1e-2)


def test_the_temperature_does_not_wait_for_a_policy_that_has_no_gradient_left(mdp: Any) -> None:
    """With logits of ±100 it stays as it is; α is that at which softmax(Q/α) has the target entropy, found by bisection."""
    batch, following = mdp
    reward, going = (np.asarray(one, np.float64) for one in (batch.reward, ~batch.terminated))
    agent = table_agent(Free())
    agent = dataclasses.replace(agent, settings=dataclasses.replace(TABLE, temperature_rate=1e-2))
    first, q, (low, high) = np.array([0, 1, 0]), np.zeros((STATES, ACTIONS)), (1e-3, 10.0)
    for _ in range(300):
        q = (reward + γ * going * q[following, first[following]]).reshape(STATES, ACTIONS)
    for _ in range(40):
        α = math.sqrt(low * high)
        log_π = q / α - np.logaddexp(*(q.T / α))[:, None]
        low, high = (low, α) if -(np.exp(log_π) * log_π).sum(1).mean() > agent.weighing.target_entropy else (α, high)

    state = agent.init(jax.random.key(0))._replace(replay=None)
    (layer,) = state.policy
    sure = (layer._replace(weight=200.0 * jnp.eye(ACTIONS)[first] - 100.0, bias=jnp.zeros(ACTIONS)),)
    keys = jax.random.split(jax.random.key(1), 4000)
    run = jax.jit(lambda state: jax.lax.scan(lambda s, k: agent.update(s, batch, agent.noise(k, STATES)), state, keys))
    state, metrics = run(state._replace(policy=sure))
    assert metrics["temperature"][-1] == pytest.approx(α, rel=0.02) and metrics["entropy"][-1] == 0.0


def test_the_gradient_of_the_policy_is_exact(mdp: Any) -> None:
    """∂/∂logitₖ of Σ π g with g = α log π − Q + β Q_c is πₖ(gₖ − Σ π g)."""
    batch, _ = mdp
    agent = table_agent(lagrangian(3.0))
    state = agent.init(jax.random.key(3))._replace(log_temperature=jnp.log(α))
    loss = agent._policy_loss(state, state.critics, state.cost_critic, batch, ())
    gradient, (_, β, *_) = jax.grad(loss, has_aux=True)(state.policy)
    tables = [np.asarray(net[0].weight, np.float64) for net in (state.policy, *state.critics, state.cost_critic)]
    logits, first, second, q_cost = tables
    log_π = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    π = np.exp(log_π)
    _, expected_β = agent.constraint.update(state.constraint, jnp.asarray((π * q_cost).sum(1)), jnp.ones(STATES, bool))
    assert β == pytest.approx(float(expected_β), rel=1e-5) and β > 0.5
    g = α * log_π - np.minimum(first, second) + float(β) * q_cost
    expected = π * (g - (π * g).sum(1, keepdims=True)) / STATES
    np.testing.assert_allclose(gradient[0].weight, expected, atol=1e-6)
    np.testing.assert_allclose(gradient[0].bias, expected.sum(0), atol=1e-6)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_the_target_entropy_is_that_of_a_policy_that_explores_three_times_in_a_hundred(n: int) -> None:
    p = np.array([0.97, *[0.03 / (n - 1)] * (n - 1)]) if n > 1 else np.ones(1)
    assert Enumerated(Categorical(1, n)).target_entropy == pytest.approx(-(p * np.log(p)).sum())
    assert Enumerated(Categorical(1, n)).target_entropy <= math.log(n)


def test_first_actions_are_uniform_then_they_are_the_policys() -> None:
    agent = sac(settings=TABLE).agent(Spec(spaces.Box(0.0, 1.0, (1,), np.float32), spaces.Discrete(4)))
    state, obs = agent.init(jax.random.key(0)), jnp.ones((4000, 1))
    first = agent.act(state, (), obs, jax.random.key(1))
    assert first.action.dtype == jnp.int32 and (np.abs(np.bincount(first.action, minlength=4) - 1000) < 120).all()
    np.testing.assert_array_equal(first.action, first.extras)
    sure = jax.tree.map(lambda leaf: jnp.zeros_like(leaf).at[..., 2].set(20.0), state.policy)
    later = agent.act(state._replace(policy=sure, steps=jnp.array(5000)), (), obs, jax.random.key(1))
    assert set(np.asarray(later.action)) == {2}


def trained(algorithm: Any, env: Any, epochs: int) -> tuple[Any, list[Any], np.ndarray]:
    """The agent, the states of two seeds, and the mean costs of their epochs."""
    agent, costs = algorithm.agent(spec_of(env)), []
    body, keys = drive(agent, env), [jax.random.key(100 + seed) for seed in range(2)]
    seeds = body.first(keys)
    for i in range(epochs):
        seeds, numbers = zip(*body.epoch(seeds, [jax.random.fold_in(key, i) for key in keys]), strict=True)
        costs.append([float(values["cost"]) for values in numbers])
    return agent, [seed.state for seed in seeds], np.array(costs)


@pytest.mark.parametrize("relabel", [False, True])
def test_sauted_probe_buys_with_its_budget_and_never_overspends(relabel: bool) -> None:
    """5 are to be had without a cost, 6.5 with the whole budget."""
    env = saute.saute(Arms(), budget=3.0, unsafe_reward=-1.0)
    agent, states, _ = trained(sac(settings=dataclasses.replace(SMALL, relabel=relabel)), env, 40)
    outcomes = [evaluate(agent.policy, agent.export(state), env, 10) for state in states]
    assert all((outcome.cost <= 3.0).all() for outcome in outcomes)
    assert np.mean([outcome.task_return.mean() for outcome in outcomes]) > 5.2
    rows = states[0].replay.rows
    assert rows.action.dtype == jnp.int32 and rows.action.shape == (5000,)
    np.testing.assert_array_equal(rows.cost, rows.action)


def test_constrained_probe_comes_to_the_limit_on_average() -> None:
    """The critic weighs an endless future, in which 3(1 − γᵀ) every T steps come to what 3 in T steps come to.

    Reward and cost are proportional here, so that no single policy is best, and the multiplier swings: the mean is known.
    """
    _, _, costs = trained(sac(pid(3.0, proportional=1.0, integral=0.01), SMALL), Arms(), 60)
    np.testing.assert_allclose(costs[20:].mean(), 3.0 * (1 - 0.95**10), atol=0.3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sac().agent(Spec(Arms.observation_space, spaces.MultiDiscrete([2, 3]))), "takes one, use ppo, trpo or cpo"),
        (lambda: mbpo().agent(spec_of(Arms())), "needs continuous ones"),
        (lambda: pets().agent(spec_of(Arms())), "needs continuous ones"),
        (lambda: mbpo().agent(spec_of(RedSide(continuous=True))), r"pictures \(16, 16, 3\)"),
        (lambda: pets().agent(spec_of(RedSide(continuous=True))), r"pictures \(16, 16, 3\)"),
    ],
)
def test_what_does_not_fit_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
