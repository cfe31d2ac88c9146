"""The dynamics model: its likelihood, bootstrap, early stopping and elites, and the environment that it makes."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from learner_toys import PointMass, cost, reward
from scipy.stats import norm

import saute
from saute.algos.mbpo import MbpoSettings
from saute.algos.pets import PetsSettings
from saute.core.native import Sauted
from saute.core.protocol import Env, spec_of
from saute.learn.model import NOTHING, Ensemble, Imagined, Known, ModelSettings, imagination, imagined, nll
from saute.learn.replay import Replay, Rows, add, create

SMALL = ModelSettings(hidden=(16, 16), batch=32, rate=5e-3, steps=40, rounds=30, patience=3)
LEARNED = Ensemble(2, 1, settings=SMALL)
INIT = jax.jit(LEARNED.init)


def transitions(count: int, seed: int = 0, noise: bool = False) -> Rows:
    """Steps of the point mass from random states, with remaining budgets; if noise, nothing about them can be predicted."""
    random = np.random.default_rng(seed)
    obs, action, remaining = random.uniform(-1, 1, (count, 2)), random.uniform(-2, 2, (count, 1)), random.uniform(0, 5, count)
    v = obs[:, 1] + 0.15 * action[:, 0]
    next_obs = np.stack([obs[:, 0] + 0.3 * v, v], axis=1)
    task_reward, paid = 1.0 - (next_obs[:, 0] - 1.0) ** 2, (next_obs[:, 0] > 0.6) * 1.0
    if noise:
        next_obs, task_reward, paid = (
            obs + random.normal(size=obs.shape),
            random.normal(size=count),
            random.uniform(0, 1, count),
        )
    rows = Rows(obs, remaining, action, task_reward, paid, next_obs, remaining - paid, np.zeros(count, bool))
    return jax.tree.map(lambda column: jnp.asarray(column, bool if column.dtype == bool else jnp.float32), rows)


def stored(rows: Rows, capacity: int = 600) -> Replay:
    return add(create(jax.tree.map(lambda column: column[0], rows), capacity), rows)


@pytest.fixture(scope="module")
def fit() -> Any:
    return jax.jit(LEARNED.fit)


@pytest.fixture(scope="module")
def fitted(fit: Any) -> Any:
    frequencies = LEARNED.frequencies(jax.random.key(1), 600)
    # Rows that are held out or not filled must never be drawn, or everything would be NaN.
    frequencies = frequencies.at[:, ::10].set(jnp.nan).at[:, 500:].set(jnp.nan)
    first = INIT(jax.random.key(0))
    return first, *fit(first, frequencies, stored(transitions(500)), jax.random.key(2))


def test_likelihood_is_scipys() -> None:
    y, mean, log_variance = np.random.default_rng(0).normal(size=(3, 50))
    expected = -norm.logpdf(y, mean, np.exp(0.5 * log_variance))
    np.testing.assert_allclose(nll(jnp.asarray(mean), jnp.asarray(log_variance), jnp.asarray(y)), expected, rtol=1e-5)


def test_deviations_stay_between_the_learned_bounds() -> None:
    parameters = INIT(jax.random.key(0))
    wild = parameters._replace(net=jax.tree.map(lambda leaf: 50.0 * leaf, parameters.net), least=parameters.least + 8.0)
    obs, action = jax.random.normal(jax.random.key(1), (100, 2)), jax.random.normal(jax.random.key(2), (100, 1))
    _, deviation = jax.jit(jax.vmap(lambda o, a: LEARNED.predict(wild, 0, o, a)))(obs, action)
    np.testing.assert_allclose([deviation.min(), deviation.max()], [np.exp(-1.0), np.exp(0.25)], rtol=0.05)


@jax.jit
def predictions(parameters: Any, rows: Rows) -> Any:
    """Means of all members for all rows."""
    of_row = jax.vmap(LEARNED.predict, in_axes=(None, None, 0, 0))
    return jax.vmap(of_row, in_axes=(None, 0, None, None))(parameters, jnp.arange(SMALL.members), rows.obs, rows.action)[0]


def test_fit_predicts_new_steps_and_its_elites_have_the_least_held_out_error(fitted: Any) -> None:
    first, parameters, metrics = fitted
    new = transitions(200, seed=1)
    errors = [np.abs(predictions(p, new)[:, :, :2] - (new.next_obs - new.obs)).mean() for p in (first, parameters)]
    assert errors[1] < 0.03 < 0.1 < errors[0]
    rows = transitions(500)
    _, outputs = LEARNED.rows(rows, None)
    scaled = (np.asarray(predictions(parameters, rows)) - np.asarray(outputs)) * np.asarray(parameters.outputs.scale)
    error = (scaled[:, ::10] ** 2).mean((1, 2))
    np.testing.assert_array_equal(parameters.elites, np.argsort(error)[:5])
    assert metrics["model_error"] == pytest.approx(np.sort(error)[:5].mean(), rel=1e-3)


def test_members_see_their_own_samples() -> None:
    frequencies = np.asarray(LEARNED.frequencies(jax.random.key(0), 5000))
    assert frequencies.mean() == pytest.approx(1.0, abs=0.02) and (frequencies == 0).mean() == pytest.approx(
        np.exp(-1), abs=0.01
    )
    assert abs(np.corrcoef(frequencies) - np.eye(7)).max() < 0.06


def test_a_member_without_rows_does_not_move_and_the_others_differ(fit: Any, fitted: Any) -> None:
    first = fitted[0]
    frequencies = LEARNED.frequencies(jax.random.key(1), 600).at[3].set(0.0)
    parameters, _ = fit(first, frequencies, stored(transitions(500)), jax.random.key(2))
    moved = [float(jnp.abs(new - old).max(axis=(1, 2))[3]) for new, old in zip(*leaves(parameters, first), strict=True)]
    assert max(moved) == 0.0 and 3 not in np.asarray(parameters.elites)
    spread = predictions(parameters, transitions(200, seed=1))[parameters.elites].std(axis=0)
    assert spread.min() > 0.0


def leaves(*parameters: Any) -> Any:
    return ([layer.weight for layer in p.net] for p in parameters)


def test_fitting_stops_early_where_there_is_nothing_to_learn(fit: Any, fitted: Any) -> None:
    _, learnt, metrics = fitted
    frequencies = LEARNED.frequencies(jax.random.key(1), 600)
    _, on_noise = fit(INIT(jax.random.key(0)), frequencies, stored(transitions(500, noise=True)), jax.random.key(2))
    assert SMALL.patience < on_noise["model_rounds"] < 15 < metrics["model_rounds"] <= SMALL.rounds
    assert on_noise["model_error"] > 0.5
    never_worse, again = fit(learnt, frequencies, stored(transitions(500)), jax.random.key(3))
    assert again["model_error"] <= metrics["model_error"] and jax.tree.structure(never_worse) == jax.tree.structure(learnt)
    assert fit._cache_size() == 1


def test_the_model_is_an_env_whose_episodes_belong_to_one_elite(fitted: Any) -> None:
    env = saute.model_env(LEARNED, fitted[1], PointMass())
    assert isinstance(env, Env) and env.horizon == 20 and env.action_space == PointMass.action_space
    states, obs = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), 200))
    assert set(np.asarray(states.member).tolist()) == set(np.asarray(fitted[1].elites).tolist())
    assert (np.abs(obs[:, 0]) <= 0.2).all()
    step = jax.jit(jax.vmap(env.step))(states, jnp.ones((200, 1)), jax.random.split(jax.random.key(1), 200))
    real = jax.vmap(lambda o: PointMass().step((o, 0), jnp.ones(1), None).obs)(obs)
    assert np.abs(step.obs - real).mean() < 0.05 and (step.cost >= 0).all() and not step.truncated.any()
    np.testing.assert_array_equal(step.state.member, states.member)


def test_imagination_spends_the_budget_exactly(fitted: Any) -> None:
    env = saute.saute(saute.model_env(LEARNED, fitted[1], PointMass()), budget=2.5, unsafe_reward=-7.0)
    state, _ = env.reset(jax.random.key(3))
    step, left = jax.jit(env.step), 2.5
    for time in range(1, 21):
        moved = step(state, jnp.full(1, 2.0), jax.random.key(time))
        # In double precision: what single precision loses in a step is spent in the next one.
        left -= float(moved.cost)
        assert moved.state.remaining == pytest.approx(left, rel=2e-7, abs=2e-7)
        assert moved.obs[2] == pytest.approx(left / 2.5, rel=1e-6)
        assert (moved.reward == -7.0) == (left < 0) and moved.truncated == (time == 20)
        state = moved.state
    assert left < 0


def test_what_is_known_is_not_learned() -> None:
    ensemble = Ensemble(2, 1, known=Known(reward, cost, lambda obs, action, new: new[0] > 0.7), settings=SMALL)
    assert ensemble.outputs == 2
    env = saute.model_env(ensemble, jax.jit(ensemble.init)(jax.random.key(0)), PointMass())
    states, _ = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), 100))
    action = jnp.ones((100, 1))
    step = jax.jit(jax.vmap(env.step))(states, action, jax.random.split(jax.random.key(1), 100))
    np.testing.assert_allclose(step.reward, 1.0 - (step.obs[:, 0] - 1.0) ** 2, rtol=1e-5)
    np.testing.assert_array_equal(step.cost, step.obs[:, 0] > 0.6)
    np.testing.assert_array_equal(step.terminated, step.obs[:, 0] > 0.7)
    assert 0 < step.terminated.sum() < step.cost.sum() < 100


TOLL = Known(cost=lambda obs, action, new: 2.0 * new[0])
"""Twice the first coordinate of where the step goes."""
MOVES = (1.0, 2.0, 4.0, 100.0)


def constants(ensemble: Ensemble, outputs: Any) -> Any:
    """Members that each expect a row of these outputs whatever they see, and are certain of it; the last one is no elite."""
    first = jax.jit(ensemble.init)(jax.random.key(0))
    expected = jnp.asarray(outputs, jnp.float32)
    *inner, last = first.net
    last = type(last)(jnp.zeros_like(last.weight), jnp.concatenate([expected, jnp.zeros_like(expected)], axis=1))
    certain = jnp.full_like(first.least, -60.0)
    return first._replace(net=(*inner, last), least=certain, most=certain, elites=jnp.arange(3, dtype=jnp.int32))


@pytest.mark.parametrize(
    ("known", "outputs", "cost", "spread"),
    [
        # Costs 2 (x + 1), 2 (x + 2), 2 (x + 4): the one of the imagining member 1 is 2 · 2.5, and std(2, 4, 8) is √(56/9).
        (TOLL, [[move, 0.0, 7.0] for move in MOVES], 5.0, np.sqrt(56 / 9)),
        # Predicted costs 3, 0 (never negative) and 9; std(3, 0, 9) is √14.
        (NOTHING, [[0.0, 0.0, 7.0, paid] for paid in (3.0, -5.0, 9.0, 100.0)], 0.0, np.sqrt(14)),
    ],
    ids=["known", "learned"],
)
@pytest.mark.parametrize("kappa", [0.0, 3.0])
def test_a_pessimist_pays_for_the_disagreement_of_the_elites(
    known: Known, outputs: Any, cost: float, spread: float, kappa: float
) -> None:
    """Whether one member imagines and asks the others, or all are there; and the budget is spent on it."""
    settings = ModelSettings(hidden=(4,), members=4, elites=3, pessimism=kappa)
    ensemble = Ensemble(2, 1, known=known, settings=settings)
    parameters, obs, action, key = constants(ensemble, outputs), jnp.array([0.5, 0.0]), jnp.zeros(1), jax.random.key(0)
    one = imagination(ensemble, parameters, jnp.asarray(1), 10, saute.saute(PointMass(), budget=50.0).options)
    step = jax.jit(one.step)(imagined(one, obs, jnp.asarray(50.0)), action, key)
    assert step.cost == pytest.approx(cost + kappa * spread, rel=1e-5)
    assert step.state.remaining == pytest.approx(50.0 - cost - kappa * spread, rel=1e-5)
    whole = saute.model_env(ensemble, parameters, PointMass())
    assert jax.jit(whole.step)(Imagined(obs, jnp.asarray(0), jnp.asarray(1)), action, key).cost == step.cost


def test_where_members_agree_a_pessimist_is_none() -> None:
    ensemble = Ensemble(2, 1, known=TOLL, settings=ModelSettings(hidden=(4,), members=4, elites=3, pessimism=5.0))
    parameters = constants(ensemble, [[2.0, 0.0, 7.0]] * 4)
    assert ensemble.disagreement(parameters, jnp.zeros(2), jnp.zeros(1)) == 0.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda m: saute.mbpo(MbpoSettings(model=m)).agent(spec_of(PointMass())), "without a budget nothing spends them"),
        (lambda m: saute.pets(PetsSettings(model=m)).agent(spec_of(PointMass())), "without a budget nothing spends them"),
        (
            lambda m: saute.pets(PetsSettings(model=m, learned_budget=True)).agent(spec_of(saute.saute(PointMass(), 5.0))),
            "a learned budget does not spend them; use",
        ),
    ],
)
def test_pessimism_that_could_not_change_anything_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"model.pessimism=1.0 raises imagined costs, but {message}"):
        make(ModelSettings(pessimism=1.0))


def test_the_papers_variant_learns_z_as_a_state_dimension() -> None:
    options = saute.saute(PointMass(), budget=5.0, unsafe_reward=-7.0).options
    ensemble = Ensemble(3, 1, learned_budget=True, settings=SMALL)
    rows = transitions(100)
    inputs, outputs = ensemble.rows(rows, options)
    np.testing.assert_allclose(inputs[:, 2], rows.remaining / 5.0, rtol=1e-6)
    np.testing.assert_allclose(outputs[:, 2], -rows.cost / 5.0, atol=1e-6)
    env = imagination(ensemble, jax.jit(ensemble.init)(jax.random.key(0)), jnp.asarray(0), 10, options)
    starts = jax.vmap(lambda obs, left: imagined(env, obs, left))(rows.obs, jnp.zeros(100))
    step = jax.jit(jax.vmap(env.step))(starts, rows.action, jax.random.split(jax.random.key(1), 100))
    assert isinstance(step.state, Sauted) and 10 < step.state.violated.sum() < 90
    np.testing.assert_array_equal(step.obs[:, 2] < 0, step.state.violated)
    np.testing.assert_array_equal(step.reward == -7.0, step.state.violated)
    np.testing.assert_allclose(step.state.remaining, 5.0 * step.obs[:, 2], rtol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden": ()}, "hidden=\\(\\).* at least one layer"),
        ({"hidden": (16, 0)}, "each of at least one unit"),
        ({"elites": 8}, "elites=8 are more than members=7"),
        ({"batch": 0}, "batch=0 .* at least 1"),
        ({"pessimism": -0.5}, "pessimism=-0.5 .* finite number ≥ 0"),
        ({"held_out": 1}, "held_out=1 leaves nothing to fit"),
    ],
)
def test_impossible_sizes_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMALL, **changes)


def test_a_model_of_other_observations_is_refused() -> None:
    with pytest.raises(ValueError, match="predicts 5 observations, but the environment has 2"):
        saute.model_env(Ensemble(5, 1), Ensemble(5, 1).init(jax.random.key(0)), PointMass())
