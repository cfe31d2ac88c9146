"""Adapters of Brax, Playground and gymnax on environments with their interfaces; `make worlds` tests them on the real ones."""

from __future__ import annotations

import pathlib
from types import SimpleNamespace
from typing import Any

import foreign_toys as toys
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import saute
from saute.algos.onpolicy import OnPolicySettings
from saute.core.protocol import Env, Step, spec_of
from saute.runs.evaluate import evaluate

KEY = jax.random.key(0)


def played(env: Env, actions: list[Any]) -> list[Step]:
    """The steps of one episode, compiled as one scan, which is as strict about types as training is."""
    state, _ = env.reset(KEY)

    def one(state: Any, action: Any) -> Any:
        step = env.step(state, action, KEY)
        return step.state, step

    steps = jax.lax.scan(one, state, jnp.asarray(actions))[1]
    return [jax.tree.map(lambda leaf: leaf[i], steps) for i in range(len(actions))]  # noqa: B023


def ends(steps: list[Step]) -> list[str]:
    return ["terminated" * bool(step.terminated) + "truncated" * bool(step.truncated) for step in steps]


def test_done_of_brax_terminates_and_the_horizon_truncates_and_nothing_is_reset() -> None:
    env = saute.from_brax(toys.Walk(), cost="speed", horizon=4)
    steps = played(env, [[1.0], [1.0], [1.0], [1.0]])
    assert ends(steps) == ["", "", "terminated", "terminated"]
    assert [float(step.obs[0]) for step in steps] == [1.0, 2.0, 3.0, 4.0]
    assert ends(played(env, [[0.5]] * 4)) == ["", "", "", "truncated"]
    assert ends(played(env, [[0.75]] * 4)) == ["", "", "", "terminated"]  # of both, the one that has no future
    assert [float(step.reward) for step in steps] == [1.0] * 4


def test_a_step_does_not_change_the_state_that_it_is_given() -> None:
    env = saute.from_brax(toys.Walk(), cost="safety.heat")
    state, _ = env.reset(KEY)
    before = jax.tree.map(np.array, state)
    once, again = (env.step(state, jnp.ones(1), KEY) for _ in range(2))
    jax.tree.map(np.testing.assert_array_equal, state, before)
    jax.tree.map(np.testing.assert_array_equal, once, again)
    assert not np.array_equal(once.state.state.info["rng"], state.state.info["rng"])


def test_the_length_of_episodes_is_the_configured_one() -> None:
    walk = toys.Walk()
    assert saute.from_brax(walk, cost="speed").horizon == 1000
    walk._config = SimpleNamespace(episode_length=250)
    assert saute.from_brax(walk, cost="speed").horizon == 250
    assert saute.from_brax(walk, cost="speed", horizon=7).horizon == 7
    assert saute.from_gymnax(toys.Grid(True), cost="where.x").horizon == 5
    assert saute.from_gymnax(toys.Grid(True), toys.Params(max_steps_in_episode=9), cost="where.x").horizon == 9
    for wrong in (0, True):
        with pytest.raises(ValueError, match="must be a whole number ≥ 1"):
            saute.from_brax(walk, cost="speed", horizon=wrong)


def distance(obs: Any, action: Any, next_obs: Any, info: Any) -> Any:
    return jnp.abs(next_obs[0] - obs[0]) + 10 * action[0] + 100 * info["speed"] + 1000 * info["safety"]["heat"]


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        ("speed", 0.5),
        ("safety.wear", 2.0),
        (["safety.heat", "safety.wear", "speed"], [1.0, 2.0, 0.5]),
        (("speed",), [0.5]),
        (distance, 1055.5),
        (lambda obs, action, next_obs, info: next_obs[0] > 0, 1.0),
        (lambda obs, action, next_obs, info: [next_obs[0], obs[0]], [1.0, 0.5]),
    ],
)
def test_the_cost_is_where_the_user_says(cost: Any, expected: Any) -> None:
    env = saute.from_brax(toys.Walk(), cost=cost)
    paid = played(env, [[0.5], [0.5]])[1].cost
    assert env.cost_shape == spec_of(env).cost_shape == paid.shape == np.shape(expected) and paid.dtype == jnp.float32
    np.testing.assert_allclose(paid, expected)


def test_a_cost_that_is_not_there_is_refused_with_what_there_is() -> None:
    known = r"only: both, rng, safety.heat, safety.wear, speed, steps_left"
    for cost in ("cost", "safety.cold", "speed.x", ["speed", "heat"]):
        with pytest.raises(ValueError, match=known):
            saute.from_brax(toys.Walk(), cost=cost)
    with pytest.raises(ValueError, match=r"no 'cost', only: where\.x"):
        saute.from_gymnax(toys.Grid(True))
    with pytest.raises(ValueError, match="no array of numbers; name one of its parts"):
        saute.from_brax(toys.Walk(), cost="safety")
    with pytest.raises(ValueError, match=r"has shape \(2,\); each of several keys must be one number"):
        saute.from_brax(toys.Walk(), cost=["speed", "both"])
    with pytest.raises(ValueError, match=r"has shape \(1, 2\); give one number"):
        saute.from_brax(toys.Walk(), cost=lambda obs, action, next_obs, info: info["both"][None])
    for wrong in ("", []):
        with pytest.raises(TypeError, match="must be an info key"):
            saute.from_brax(toys.Walk(), cost=wrong)


def test_a_negative_cost_is_no_number_which_stops_training_instead_of_refilling_the_budget() -> None:
    env = saute.from_brax(toys.Walk(), cost="both", horizon=5)
    assert np.isnan(played(env, [[0.5]])[0].cost).tolist() == [False, True]


def test_wrappers_that_batch_limit_or_reset_are_refused() -> None:
    for kind in (toys.AutoResetWrapper, toys.BraxAutoResetWrapper, toys.EpisodeWrapper, toys.VmapWrapper):
        with pytest.raises(ValueError, match=f"^{kind.__name__} batches, limits or resets"):
            saute.from_brax(toys.Wrapper(kind(toys.Walk())), cost="speed")
    assert saute.from_brax(toys.Wrapper(toys.Walk()), cost="speed").name == "Walk"
    grid = toys.Grid(True)
    grid._env = toys.Grid(True)
    with pytest.raises(ValueError, match="Grid wraps the steps that reset themselves"):
        saute.from_gymnax(grid, cost="where.x")
    with pytest.raises(TypeError, match="no environment of Brax or Playground: it has no action_size"):
        saute.from_brax(toys.Grid(True), cost="speed")
    with pytest.raises(TypeError, match="no environment of gymnax: it has no reset_env"):
        saute.from_gymnax(toys.Walk(), cost="speed")


def test_dictionaries_are_flattened_in_the_order_of_their_keys_or_one_entry_is_used() -> None:
    for obs, expected in ((None, [10.5, 0.5, -0.5]), ("state", [0.5, -0.5]), ("privileged_state", [10.5])):
        env = saute.from_brax(toys.Walk(nested=True), cost="speed", obs=obs)
        assert env.observation_space.shape == (len(expected),)
        np.testing.assert_array_equal(played(env, [[0.5]])[0].obs, expected)
    with pytest.raises(ValueError, match="no observation 'pixels'; this environment's are: privileged_state, state"):
        saute.from_brax(toys.Walk(nested=True), cost="speed", obs="pixels")


def test_a_state_that_grows_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a step of Walk changes what its state consists of .*news"):
        saute.from_brax(toys.Walk(grows=True), cost="speed")


@pytest.mark.parametrize("timed", [True, False])
def test_gymnax_terminates_at_the_edge_only_and_is_truncated_by_time(timed: bool) -> None:
    env = saute.from_gymnax(toys.Grid(timed), cost="where.x")
    right = played(env, [1, 1, 1, 1])
    assert ends(right) == ["", "", "terminated", "terminated"]
    assert [float(step.cost) for step in right] == [1.0, 2.0, 3.0, 4.0]
    stay = played(env, [0] * 6)
    assert ends(stay) == ["", "", "", "", "truncated", "truncated"]
    assert ends(played(env, [0, 0, 1, 1, 1]))[-1] == "terminated"
    np.testing.assert_allclose([step.obs[1] for step in stay], np.arange(1, 7) / 5)  # the picture, row by row
    longer = played(saute.from_gymnax(toys.Grid(timed), cost="where.x", horizon=8), [0] * 8)
    assert ends(longer) == [""] * 7 + ["truncated"] and [float(step.reward) for step in longer] == [1.0] * 8
    np.testing.assert_allclose([step.obs[1] for step in longer], np.arange(1, 9) / 8)


def test_spaces_of_gymnax_become_those_of_gymnasium() -> None:
    assert saute.from_gymnax(toys.Grid(True), cost="where.x").action_space == spaces.Discrete(2)
    box = SimpleNamespace(low=jnp.array([[-1.0, 0.0]]), high=2.0, shape=(1, 2), dtype=jnp.float32)
    env = saute.from_gymnax(toys.Grid(True, box), cost="where.x")
    assert env.action_space == spaces.Box(np.float32([-1, 0]), np.float32([2, 2]))
    assert float(played(env, [[1.0, 1.0]])[0].cost) == 2.0
    one = SimpleNamespace(low=-1.0, high=1.0, shape=(), dtype=jnp.float32)
    assert saute.from_gymnax(toys.Grid(True, one), cost="where.x").action_space.shape == (1,)
    for odd in (SimpleNamespace(spaces={}), SimpleNamespace(low=0, high=1, shape=(), dtype=jnp.int32)):
        odd.dtype = jnp.int32
        with pytest.raises(ValueError, match="neither a Box of floats nor Discrete"):
            saute.from_gymnax(toys.Grid(True, odd), cost="where.x")
    no_limit = toys.Grid(False)
    with pytest.raises(ValueError, match="have no max_steps_in_episode; pass horizon="):
        saute.from_gymnax(no_limit, SimpleNamespace(edge=3), cost="where.x")


ALGORITHM = saute.ppo(settings=OnPolicySettings(steps_per_epoch=10, num_envs=1, hidden=(4,)))


def test_it_trains_with_validation_and_is_evaluated() -> None:
    env = saute.saute(saute.from_gymnax(toys.Grid(True), cost="where.x"), budget=2.0)
    assert isinstance(env.env, Env)
    run = saute.train(ALGORITHM, env, seeds=1, epochs=1, selection=saute.Selection(env, episodes=3, every=1))
    outcome = evaluate(run.agent.policy, run.policies[0], env, 4)
    assert outcome.length.min() >= 3 and outcome.length.max() <= 5  # to the edge, or to the end of the time
    assert outcome.task_return.tolist() == outcome.length.tolist()
    assert outcome.violated.tolist() == (outcome.cost > 2.0).tolist()


def test_it_goes_on_bit_for_bit_in_the_middle_of_an_episode(tmp_path: pathlib.Path) -> None:
    """Episodes of 20 steps in epochs of 10: the library's state, with its key, is in the checkpoint."""
    env = saute.saute(saute.from_brax(toys.Walk(nested=True), cost="safety.heat", horizon=20), budget=2.0)
    asked = (("twice", 1), ("twice", 2), ("once", 2))
    runs = [saute.train(ALGORITHM, env, seeds=1, epochs=epochs, out=tmp_path / out) for out, epochs in asked]
    jax.tree.map(np.testing.assert_array_equal, runs[1].policies, runs[2].policies)


def test_gymnasium_users_get_them_too() -> None:
    env = saute.GymEnv(saute.from_brax(toys.Walk(), cost="safety.heat", horizon=3))
    env.reset(seed=0)
    assert [env.step(np.array([0.25]))[3] for _ in range(3)] == [False, False, True]
