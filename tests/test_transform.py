"""saute.saute on JAX-native environments agrees number for number with SauteWrapper on their Gymnasium form."""

from __future__ import annotations

import dataclasses
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import saute
from saute.core.protocol import Env, Step


@dataclasses.dataclass(frozen=True)
class Walk:
    """A line on which position is the reward and moving costs; with two constraints, moving left costs apart."""

    constraints: int = 1
    horizon: int = 9
    budget = 3.0
    unsafe_reward = -2.0
    observation_space = spaces.Box(-10.0, 10.0, (2,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, key: Any) -> tuple[Any, Any]:
        x = jax.random.uniform(key)
        return (x, jnp.zeros((), int)), jnp.stack([x, x])

    def step(self, state: Any, action: Any, key: Any) -> Step:
        x, time = state
        x = x + action[0]
        both = jnp.stack([jnp.maximum(action[0], 0.0), jnp.maximum(-action[0], 0.0)])
        cost = both.sum() if self.constraints == 1 else both
        return Step((x, time + 1), jnp.stack([x, 2 * x]), x, cost, x > 5.0, time + 1 >= self.horizon)


OPTIONS: list[dict[str, Any]] = [
    dict(budget=3.0),
    dict(budget=3.0, discount=0.9, unsafe_reward=-5.0),
    dict(budget=3.0, reference_budget=10.0),
    dict(budget=3.0, augment=False),
    dict(budget=3.0, shape=False),
    dict(budget=3.0, terminate=True),
    dict(budget=[1.5, 2.0], unsafe_reward=-1.0),
    dict(budget=[1.5, 2.0], discount=0.8, terminate=True),
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_transform_and_wrapper_agree_number_for_number(options: dict[str, Any]) -> None:
    env = Walk(constraints=len(np.atleast_1d(options["budget"])))
    wrapped = saute.SauteWrapper(saute.GymEnv(env), **{"unsafe_reward": -2.0, **options})
    rng = np.random.default_rng(0)
    native = saute.GymEnv(saute.saute(env, **options))
    assert native.observation_space.shape == wrapped.observation_space.shape
    for seed in range(5):
        a, _ = wrapped.reset(seed=seed)
        b, _ = native.reset(seed=seed)
        over = False
        while not over:
            # Compiled division by a constant may differ from NumPy's in the last bit.
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-14)
            action = rng.uniform(-1, 1, 1)
            a, reward, terminated, truncated, info = wrapped.step(action)
            b, reward_b, terminated_b, truncated_b, now = native.step(action)
            assert reward == reward_b and terminated == terminated_b
            assert (terminated or truncated) == (terminated_b or truncated_b)
            assert info["task_reward"] == now["task_reward"] and info["violated"] == now["violated"]
            np.testing.assert_allclose(info["remaining"], now["remaining"], rtol=0, atol=1e-14)
            over = terminated or truncated


def test_integer_budgets_spent_exactly_in_float32_under_scan() -> None:
    env = saute.saute(dataclasses.replace(Walk(), horizon=500), budget=1.0)

    def episode(budget: Any) -> Any:
        state, _ = env.reset(jax.random.key(0), budget)
        return jax.lax.scan(
            lambda s, _: (lambda n: (n.state, n.state))(env.step(s, -jnp.ones(1), jax.random.key(0))), state, length=201
        )[1]

    budgets = np.arange(1, 201)
    trace = jax.jit(jax.vmap(episode))(jnp.asarray(budgets, jnp.float32))
    assert trace.remaining.dtype == jnp.float32
    np.testing.assert_array_equal(trace.remaining[budgets - 1, budgets - 1], 0.0)
    np.testing.assert_array_equal(trace.violated, np.arange(1, 202)[None] > budgets[:, None])


def test_random_budgets_are_uniform_and_starts_are_those_of_the_bare_environment() -> None:
    env = saute.saute(Walk(), saute.uniform(5.0, 100.0), reference_budget=50.0)
    keys = jax.random.split(jax.random.key(1), 4000)
    state, obs = jax.vmap(env.reset)(keys)
    assert 5.0 <= state.remaining.min() < 5.5 and 99.5 < state.remaining.max() <= 100.0
    assert np.mean(state.remaining) == pytest.approx(52.5, abs=1.5)
    np.testing.assert_allclose(obs[:, -1], state.remaining / 50.0, rtol=1e-6)
    np.testing.assert_array_equal(obs[:, :2], jax.vmap(Walk().reset)(keys)[1])


def test_defaults_are_the_tasks_own_and_the_protocol_holds() -> None:
    env = saute.saute(saute.envs.point())
    assert env.options.low == 20.0 and env.options.unsafe_reward == -1.0
    assert isinstance(env, Env) and isinstance(env.env, Env)
    assert env.observation_space.shape == (45,)


def test_twice_and_bad_budgets_are_refused() -> None:
    with pytest.raises(ValueError, match="sautéed already"):
        saute.saute(saute.saute(Walk()))
    with pytest.raises(ValueError, match="budget=-1 must be"):
        saute.saute(Walk(), -1)


def test_gymnasium_form_of_a_sauted_env_passes_the_checker() -> None:
    from gymnasium.utils.env_checker import check_env

    env = saute.GymEnv(saute.saute(saute.envs.pendulum()))
    with pytest.warns(UserWarning, match="infinity"):
        check_env(env, skip_render_check=True)
    assert isinstance(env, gym.Env)


@pytest.mark.parametrize("name", ["pendulum", "double_pendulum", "reacher", "point"])
def test_random_budgets_say_nothing_about_the_start(name: str) -> None:
    env = saute.saute(getattr(saute.envs, name)(), saute.uniform(5.0, 100.0))
    _, obs = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), 2000))
    assert obs[:, -1].std() > 0.2
    for column in np.asarray(obs[:, :-1], np.float64).T:
        if column.std() > 1e-6:
            assert abs(np.corrcoef(column, obs[:, -1])[0, 1]) < 0.1
