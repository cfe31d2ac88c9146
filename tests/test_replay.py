"""The ring against a list, and relabelled transitions against those collected with that budget."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from learner_toys import Slope, TwoCosts

import saute
from saute.core.protocol import Step
from saute.learn.replay import Batch, Replay, Rows, add, create, lots, picked, relabel, sample, sauted


@pytest.mark.parametrize("counts", [(1, 1, 1), (3, 3, 3, 3), (5, 1, 4, 5), (2, 5, 5, 3, 4, 1)])
def test_the_ring_keeps_the_newest_rows_also_across_its_end(counts: tuple[int, ...]) -> None:
    replay, kept, first = create({"x": jnp.zeros(2), "n": jnp.zeros((), jnp.int32)}, 5), [], 0
    for count in counts:
        numbers = np.arange(first, first + count)
        replay = jax.jit(add)(replay, {"x": jnp.stack([numbers, -numbers], 1), "n": jnp.asarray(numbers)})
        kept, first = [*kept, *numbers][-5:], first + count
        assert int(replay.size) == len(kept) and int(replay.position) == first % 5
        assert sorted(np.asarray(replay.rows["n"])[: len(kept)]) == sorted(kept)
        np.testing.assert_array_equal(replay.rows["x"][:, 0], replay.rows["n"])
        np.testing.assert_array_equal(replay.rows["x"][:, 1], -replay.rows["n"])


def test_samples_are_uniform_over_what_is_filled() -> None:
    replay = add(create(jnp.zeros(()), 100), 1.0 + jnp.arange(4))
    drawn = np.asarray(sample(replay, jax.random.key(0), 4000))
    values, counts = np.unique(drawn, return_counts=True)
    np.testing.assert_array_equal(values, [1, 2, 3, 4])
    assert (np.abs(counts - 1000) < 150).all()


@pytest.mark.parametrize("size", [1, 2, 3, 1000, 2**16, 100_003])
def test_samples_are_those_of_randint_though_their_bits_are_drawn_before(size: int) -> None:
    replay, key = Replay(jnp.arange(100_003), jnp.asarray(0), jnp.asarray(size, jnp.int32)), jax.random.key(size)
    expected = jax.random.randint(key, (500,), 0, size)
    np.testing.assert_array_equal(jax.jit(picked)(replay, lots(key, 500)), expected)
    np.testing.assert_array_equal(sample(replay, key, 500), expected)


def test_too_many_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="6 rows do not fit a replay of 5"):
        add(create(jnp.zeros(()), 5), jnp.zeros(6))


SAUTED = {
    "discounted": lambda: saute.saute(saute.envs.pendulum(), 20.0, discount=0.97, unsafe_reward=-2.0),
    "random": lambda: saute.saute(saute.envs.pendulum(), saute.uniform(5.0, 100.0), reference_budget=50.0),
    "blind": lambda: saute.saute(Slope(), 0.5, augment=False),
    "unshaped": lambda: saute.saute(Slope(), 0.5, shape=False),
    "two": lambda: saute.saute(TwoCosts(), [4.0, 6.0], unsafe_reward=-1.0),
}


def bare_rows(obs: Any, state: Any, action: Any, step: Any, size: int) -> Rows:
    return Rows(
        obs[:, :size],
        state.remaining,
        action,
        step.state.task_reward,
        step.cost,
        step.obs[:, :size],
        step.state.remaining,
        step.terminated,
    )


def assert_same(batch: Batch, obs: Any, step: Step, exact: bool) -> None:
    # A discount is a division, which the compiler may merge with that by the reference budget: one unit in the last place.
    compare = np.testing.assert_array_equal if exact else partial(np.testing.assert_allclose, rtol=3e-7)
    compare(batch.obs, obs)
    compare(batch.next_obs, step.obs)
    np.testing.assert_array_equal(batch.reward, step.reward)
    np.testing.assert_array_equal(batch.terminated, step.terminated)


@pytest.mark.parametrize("name", ["random", "discounted", "two"])
def test_relabelled_transitions_equal_those_collected_with_that_budget(name: str) -> None:
    env = SAUTED[name]()
    options, size = env.options, env.env.observation_space.shape[0]

    def one(carry: Any, key: Any) -> Any:
        state, obs = carry
        keys, action = jax.random.split(key, 50), jax.random.uniform(key, (50, 1), minval=-1.0)
        step = jax.vmap(env.step)(state, action, keys)
        rows = relabel(bare_rows(obs, state, action, step, size), key, options, -0.1, 1.0)
        # Another budget owes nothing that rounding lost of the first one.
        begun = state._replace(remaining=rows.remaining, lost=jnp.zeros_like(state.lost))
        collected = jax.vmap(env.step)(begun, action, keys)
        return (step.state, step.obs), (sauted(rows, options), collected)

    keys = jax.random.split(jax.random.key(0), 50)
    batch, step = jax.jit(lambda: jax.lax.scan(one, jax.vmap(env.reset)(keys), keys[:15])[1])()
    assert_same(batch, batch.obs, step, exact=options.discount == 1.0)
    assert 50 < int(step.state.violated.sum()) < 700, "both safe and overspent transitions were compared"


@pytest.mark.parametrize("name", SAUTED)
def test_relabelled_starts_equal_resets_with_that_budget(name: str) -> None:
    env = SAUTED[name]()
    options, size = env.options, env.env.observation_space.shape[0]
    keys, action = jax.random.split(jax.random.key(3), 50), jnp.linspace(-1, 1, 50)[:, None]

    @jax.jit
    def both() -> Any:
        state, obs = jax.vmap(env.reset)(keys)
        step = jax.vmap(env.step)(state, action, keys)
        rows = bare_rows(obs, state, action, step, size)
        again = relabel(rows, keys[0], options, 0.01, 2.0)
        state, other_obs = jax.vmap(env.reset)(keys, again.remaining)
        other = jax.vmap(env.step)(state, action, keys)
        return (sauted(rows, options), obs, step), (sauted(again, options), other_obs, other)

    for batch, obs, step in both():
        assert_same(batch, obs, step, exact=options.discount == 1.0)


def test_a_violation_ends_the_episode_only_if_the_options_say_so() -> None:
    env = saute.saute(TwoCosts(), [1.0, 1.0], terminate=True)
    rows = Rows(*(jnp.zeros((2, 1)), jnp.ones((2, 2)), jnp.zeros((2, 1)), jnp.zeros(2), jnp.zeros((2, 2)), jnp.zeros((2, 1))),
                jnp.array([[0.0, 1.0], [-0.5, 1.0]]), jnp.zeros(2, bool))  # fmt: skip
    np.testing.assert_array_equal(sauted(rows, env.options).terminated, [False, True])
    np.testing.assert_array_equal(sauted(rows, saute.saute(TwoCosts(), [1.0, 1.0]).options).terminated, [False, False])
