"""PETS: the search against known optima, the noise, a point mass solved and kept safe, planners from files."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from learner_toys import PointMass, cost, reward

import saute
from saute.algos.pets import PetsSettings, pets
from saute.core.protocol import spec_of
from saute.learn.drive import drive, window_of
from saute.learn.model import Known, ModelSettings
from saute.learn.planner import CemSettings, Plan, cem, coloured_basis
from saute.runs.evaluate import evaluate

ICEM = CemSettings(horizon=8, population=60, refining=40, elites=8, iterations=4, reused=3)
THOROUGH = dataclasses.replace(ICEM, population=200, refining=200, elites=20, iterations=12)
PLAIN = dataclasses.replace(THOROUGH, colour=0.0, reused=0)
SMALL = PetsSettings(
    ICEM, ModelSettings(hidden=(16,), batch=32, rate=1e-2, steps=20, rounds=10), steps_per_epoch=40, fit_every=20,
    random_steps=40, replay=200,
)  # fmt: skip
KNOWN = Known(reward, cost)
SAUTED = saute.saute(PointMass(), budget=4.0, unsafe_reward=-1.0)


def blank(settings: CemSettings, actions: int) -> Plan:
    zero = jnp.zeros((settings.horizon, actions))
    return Plan(zero, zero, jnp.zeros((settings.reused, *zero.shape)), zero)


@pytest.mark.parametrize("settings", [PLAIN, THOROUGH])
def test_the_search_finds_the_optimum_of_a_quadratic_within_the_bounds(settings: CemSettings) -> None:
    target = jnp.stack([jnp.linspace(-0.7, 0.6, 8), jnp.full(8, 1.5)], axis=1)

    def score(candidates: Any) -> Any:
        return -jnp.sum((candidates - target) ** 2, axis=(1, 2))

    search = jax.jit(lambda key: cem(score, blank(settings, 2), key, settings))
    plan, again, other = (search(jax.random.key(seed)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(plan.best, again.best)
    assert (np.abs(plan.best) <= 1.0).all() and (plan.best != other.best).any()
    nothing, found, best = score(jnp.stack([jnp.zeros_like(target), plan.best, jnp.clip(target, -1.0, 1.0)]))
    assert best - found < 0.02 * (best - nothing)
    np.testing.assert_allclose(plan.mean, plan.best, atol=0.2)


def test_the_search_goes_on_from_a_plan_and_never_forgets_what_it_kept() -> None:
    needle = jnp.full((8, 1), 0.987654)
    start = blank(ICEM, 1)._replace(reused=jnp.stack([needle, -needle, 0 * needle]))
    plan = cem(lambda candidates: jnp.all(candidates == needle, axis=(1, 2)) * 1.0, start, jax.random.key(0), ICEM)
    np.testing.assert_array_equal(plan.best, needle)
    shifted = Plan(*(jnp.arange(8.0)[:, None],) * 2, jnp.arange(8.0)[None, :, None], jnp.arange(8.0)[:, None]).shifted()
    np.testing.assert_array_equal(shifted.best[:, 0], [1, 2, 3, 4, 5, 6, 7, 7])
    np.testing.assert_array_equal(shifted.reused[0, :, 0], [1, 2, 3, 4, 5, 6, 7, 7])


@pytest.mark.parametrize("horizon", [1, 7, 20])
def test_noise_has_unit_variance_and_its_colour(horizon: int) -> None:
    white, red = coloured_basis(horizon, 0.0), coloured_basis(horizon, 2.0)
    np.testing.assert_allclose(white.T @ white, np.eye(horizon), atol=1e-5)
    np.testing.assert_allclose(np.diag(red.T @ red), 1.0, atol=1e-5)
    assert horizon < 3 or (np.diag(red.T @ red, 1) > 0.5).all()
    power = (np.abs(np.fft.rfft(red, axis=1)) ** 2).sum(0)
    np.testing.assert_allclose(power[2:4] / power[1:2], [2.0**-2, 3.0**-2][: max(0, len(power) - 2)], rtol=0.4)


@pytest.mark.parametrize("env", [PointMass(), saute.saute(PointMass(), 4.0)], ids=["vanilla", "sauted"])
def test_it_fits_environments_with_and_without_a_budget(env: Any) -> None:
    agent = pets(SMALL).agent(spec_of(env))
    state = jax.eval_shape(agent.init, jax.random.key(0))
    acted = jax.eval_shape(agent.act, state, agent.memory(1), jnp.zeros((1, agent.policy.observations)), jax.random.key(0))
    assert acted.action.shape == (1, 1) and jax.tree.map(jnp.shape, acted.memory) == jax.tree.map(jnp.shape, agent.memory(1))
    assert window_of(agent.settings, env) == (1, 40, True)


@pytest.fixture(scope="module")
def trained() -> Any:
    """The agent, its state after four epochs on a sautéed point mass, and the numbers of each."""
    agent = pets(SMALL, KNOWN).agent(spec_of(SAUTED))
    body, numbers = drive(agent, SAUTED), []
    seeds = body.first([jax.random.key(0)])
    for i in range(4):
        ((seed, metrics),) = body.epoch(seeds, [jax.random.key(i)])
        seeds = [seed]
        numbers.append({name: float(value) for name, value in metrics.items()})
    return agent, seeds[0].state, numbers


@pytest.mark.slow
def test_a_sauted_point_mass_keeps_its_budget_and_uses_it(trained: Any) -> None:
    agent, state, numbers = trained
    outcome = evaluate(agent.policy, agent.export(state), SAUTED, 10)
    # Staying at the start earns less than 1, and going to the goal, as without a budget, costs more than 10.
    assert (outcome.cost <= 4.0).all() and outcome.task_return.min() > 10.0
    assert numbers[-1]["model_error"] < 0.01 and int(state.steps) == 160


@pytest.mark.slow
def test_the_replay_has_what_happened(trained: Any) -> None:
    rows = jax.tree.map(lambda column: np.asarray(column[:160]), trained[1].replay.rows)
    np.testing.assert_array_equal(rows.next_remaining, rows.remaining - rows.cost)
    np.testing.assert_array_equal(rows.remaining[::20], 4.0)
    np.testing.assert_allclose(rows.task_reward, 1.0 - (rows.next_obs[:, 0] - 1.0) ** 2, rtol=1e-5)


@pytest.mark.slow
def test_the_planner_of_a_run_acts_from_its_file(tmp_path: pathlib.Path) -> None:
    tiny = dataclasses.replace(SMALL, planner=dataclasses.replace(ICEM, iterations=2), learned_budget=True)
    run = saute.train(pets(tiny), SAUTED, seeds=1, epochs=2, out=tmp_path)
    policy, planner = saute.load_policy(tmp_path), run.agent.policy
    obs, left = np.array([[0.5, 0.2], [0.0, 0.0]], np.float32), np.array([3.0, 1.0], np.float32)
    acted = policy(obs, remaining=left)
    plan = jax.jit(planner.distribution)(run.policies[0], jnp.concatenate([obs, left[:, None] / 4.0], axis=1))
    np.testing.assert_allclose(acted, planner.mode(plan), atol=1e-5)
    drawn = planner.sample(plan, jax.random.key(0))
    assert drawn.shape == (2, 1) and (np.abs(drawn) <= 2.0).all() and (drawn != acted).any()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dataclasses.replace(ICEM, horizon=0), "horizon=0 .* at least 1"),
        (lambda: dataclasses.replace(ICEM, elites=50), "elites=50, refining=40.* must not fall"),
        (lambda: dataclasses.replace(SMALL, fit_every=0), "fit_every=0 must be at least 1"),
        (lambda: dataclasses.replace(SMALL, planner=dataclasses.replace(ICEM, particles=6)), "particles=6 .* elites=5"),
        (lambda: dataclasses.replace(SMALL, random_steps=3), "random_steps=3 .* held-out"),
        (lambda: saute.train(pets(SMALL), saute.saute(PointMass(), 4.0, augment=False)), "augment=False hides"),
        (lambda: saute.train(pets(SMALL, KNOWN), PointMass(), out="never-made"), "known functions cannot be saved"),
    ],
)
def test_what_does_not_fit_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
