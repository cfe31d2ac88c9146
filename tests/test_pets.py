"""PETS: the search against known optima, the noise, a point mass solved and kept safe, one trace, resume, run folders."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from model_toys import PointMass, compile_once, cost, reward

import saute
from saute.algos.pets import PetsSettings, pets
from saute.learn.ensemble import Known, ModelSettings
from saute.learn.planner import CemSettings, Plan, cem, coloured_basis
from saute.runs import loop as training
from saute.runs.evaluate import evaluate

ICEM = CemSettings(horizon=8, population=60, refining=40, elites=8, iterations=4, kept=3)
THOROUGH = dataclasses.replace(ICEM, population=200, refining=200, elites=20, iterations=12)
PLAIN = dataclasses.replace(THOROUGH, colour=0.0, kept=0)
SMALL = PetsSettings(
    ICEM, ModelSettings(hidden=(16,), batch=32, rate=1e-2, steps=20, looks=10), steps_per_epoch=40, fit_every=20,
    random_steps=40, replay=200,
)  # fmt: skip
KNOWN = Known(reward, cost)


def blank(settings: CemSettings, actions: int) -> Plan:
    zero = jnp.zeros((settings.horizon, actions))
    return Plan(zero, zero, jnp.zeros((settings.kept, *zero.shape)), zero)


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
    start = blank(ICEM, 1)._replace(kept=jnp.stack([needle, -needle, 0 * needle]))
    plan = cem(lambda candidates: jnp.all(candidates == needle, axis=(1, 2)) * 1.0, start, jax.random.key(0), ICEM)
    np.testing.assert_array_equal(plan.best, needle)
    shifted = Plan(*(jnp.arange(8.0)[:, None],) * 2, jnp.arange(8.0)[None, :, None], jnp.arange(8.0)[:, None]).shifted()
    np.testing.assert_array_equal(shifted.best[:, 0], [1, 2, 3, 4, 5, 6, 7, 7])
    np.testing.assert_array_equal(shifted.kept[0, :, 0], [1, 2, 3, 4, 5, 6, 7, 7])


@pytest.mark.parametrize("horizon", [1, 7, 20])
def test_noise_has_unit_variance_and_its_colour(horizon: int) -> None:
    white, red = coloured_basis(horizon, 0.0), coloured_basis(horizon, 2.0)
    np.testing.assert_allclose(white.T @ white, np.eye(horizon), atol=1e-5)
    np.testing.assert_allclose(np.diag(red.T @ red), 1.0, atol=1e-5)
    assert horizon < 3 or (np.diag(red.T @ red, 1) > 0.5).all()
    power = (np.abs(np.fft.rfft(red, axis=1)) ** 2).sum(0)
    np.testing.assert_allclose(power[2:4] / power[1:2], [2.0**-2, 3.0**-2][: max(0, len(power) - 2)], rtol=0.4)


def trained(env: Any, settings: PetsSettings, epochs: int, known: Known = KNOWN) -> Any:
    bound = pets(settings, known).bind(env.observation_space, env.action_space, getattr(env, "options", None))
    traces: list[int] = []

    def epoch(learner: Any, key: Any) -> Any:
        traces.append(1)
        return bound.epoch(env, learner, key)

    learner, run = jax.jit(bound.init)(jax.random.key(0)), jax.jit(epoch)
    for i in range(epochs):
        learner, metrics, _ = run(learner, jax.random.key(i))
    assert len(traces) == 1 and metrics["model_error"] < 0.01 and int(learner.steps) == 40 * epochs
    return bound, learner


def test_it_fits_environments_without_a_budget_too() -> None:
    bound = pets(SMALL).bind(PointMass.observation_space, PointMass.action_space)
    learner = jax.eval_shape(bound.init, jax.random.key(0))
    after, _, episodes = jax.eval_shape(lambda l, k: bound.epoch(PointMass(), l, k), learner, jax.random.key(0))
    assert jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, learner) and episodes.cost.shape == (40, 1)


@pytest.mark.slow
def test_a_sauted_point_mass_keeps_its_budget_and_uses_it() -> None:
    env = saute.saute(PointMass(), budget=4.0, unsafe_reward=-1.0)
    bound, learner = trained(env, SMALL, 4)
    outcome = evaluate(bound.policy, learner.model, env, 10)
    # Staying at the start earns less than 1, and going to the goal, as without a budget, costs more than 10.
    assert (outcome.cost <= 4.0).all() and outcome.task_return.min() > 10.0
    # The replay has what happened: true rewards, and budgets that were spent by exactly the cost.
    rows = jax.tree.map(lambda column: np.asarray(column[:160]), learner.replay.rows)
    np.testing.assert_array_equal(rows.next_remaining, rows.remaining - rows.cost)
    np.testing.assert_array_equal(rows.remaining[::20], 4.0)
    np.testing.assert_allclose(rows.task_reward, 1.0 - (rows.next_obs[:, 0] - 1.0) ** 2, rtol=1e-5)


@pytest.mark.slow
def test_a_run_is_resumed_bit_for_bit_and_its_planner_acts_from_the_file(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "compiled_epoch", compile_once(training.compiled_epoch))
    env = saute.saute(PointMass(), budget=4.0, unsafe_reward=-1.0)
    tiny = dataclasses.replace(SMALL, planner=dataclasses.replace(ICEM, iterations=2), learned_budget=True)
    whole = saute.train(pets(tiny), env, seeds=1, epochs=3, out=tmp_path / "whole", checkpoint_seconds=0.0)
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    (tmp_path / "cut" / "checkpoints" / "000003.safetensors").unlink()
    resumed = saute.train(pets(tiny), env, seeds=1, epochs=3, out=tmp_path / "cut")
    for a, b in zip(jax.tree.leaves(whole.learners), jax.tree.leaves(resumed.learners), strict=True):
        np.testing.assert_array_equal(a, b)
    policy, planner = saute.load_policy(tmp_path / "cut"), whole.bound.policy
    obs, left = np.array([[0.5, 0.2], [0.0, 0.0]], np.float32), np.array([3.0, 1.0], np.float32)
    acted = policy(obs, remaining=left)
    plan = jax.jit(planner.distribution)(whole.learners[0].model, jnp.concatenate([obs, left[:, None] / 4.0], axis=1))
    np.testing.assert_allclose(acted, planner.mode(plan), atol=1e-5)
    drawn = planner.sample(plan, jax.random.key(0))
    assert drawn.shape == (2, 1) and (np.abs(drawn) <= 2.0).all() and (drawn != acted).any()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dataclasses.replace(ICEM, horizon=0), "horizon=0 .* at least 1"),
        (lambda: dataclasses.replace(ICEM, elites=50), "elites=50, refining=40.* must not fall"),
        (lambda: dataclasses.replace(SMALL, fit_every=30), "fit_every=30 does not divide steps_per_epoch=40"),
        (lambda: dataclasses.replace(SMALL, planner=dataclasses.replace(ICEM, particles=6)), "particles=6 .* elites=5"),
        (lambda: dataclasses.replace(SMALL, random_steps=3), "random_steps=3 .* held-out"),
        (lambda: saute.train(pets(SMALL), saute.saute(PointMass(), 4.0, augment=False)), "augment=False hides"),
        (lambda: saute.train(pets(SMALL, KNOWN), PointMass(), out="never-made"), "known functions cannot be saved"),
    ],
)
def test_what_does_not_fit_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
