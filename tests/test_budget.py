"""The paper's four functions: exact for integers, the same for floats, NumPy and JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import sauted

from saute import budget

FLOATS = {
    "python": float,
    "numpy32": np.float32,
    "numpy64": np.float64,
    "array32": lambda x: np.array(x, np.float32),
    "array64": lambda x: np.array(x, np.float64),
    "jax32": lambda x: jnp.asarray(x, jnp.float32),
    "jax64": lambda x: jnp.asarray(x, jnp.float64),
}


@pytest.mark.parametrize("kind", FLOATS)
def test_integer_budgets_spent_exactly_leave_exactly_zero_and_one_more_is_a_violation(kind: str) -> None:
    number = FLOATS[kind]
    with jax.enable_x64(kind == "jax64"):
        for d in range(1, 201):
            left = number(d)
            for _ in range(d):
                assert budget.safe(left)
                left = budget.spend(left, number(1.0))
            assert left == 0
            assert budget.safe(left)
            assert not budget.safe(budget.spend(left, number(1.0)))


@settings(deadline=None)
@given(
    st.lists(st.floats(0.0, 10.0), min_size=1, max_size=60),
    st.floats(0.9, 1.0),
    st.floats(0.5, 200.0),
)
def test_remaining_is_the_closed_form(costs: list[float], discount: float, d: float) -> None:
    left = d
    for t, cost in enumerate(costs):
        left = budget.spend(left, cost, discount)
        spent = sum(discount**k * c for k, c in enumerate(costs[: t + 1]))
        expected = (d - spent) / discount ** (t + 1)
        assert abs(left - expected) <= 1e-9 * max(1.0, abs(expected), d / discount ** (t + 1))


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.0, 3.0), st.floats(0.1, 1.0)), min_size=1, max_size=30),
    st.floats(0.5, 20.0),
)
def test_shaped_return_equals_task_return_iff_safe_and_violations_stay(steps: list[tuple[float, float]], d: float) -> None:
    costs, rewards = zip(*steps, strict=True)
    env = sauted(d, unsafe_reward=-1.0, env=dict(costs=costs, rewards=rewards, length=len(steps)))
    env.reset()
    outcomes = [env.step(np.zeros(1)) for _ in steps]
    flags = [info["violated"] for *_, info in outcomes]
    assert flags == sorted(flags)
    shaped, task = sum(o[1] for o in outcomes), sum(o[4]["task_reward"] for o in outcomes)
    assert (shaped == task) == (not outcomes[-1][4]["episode_violated"])


def test_shape_takes_floats_and_arrays_and_traces() -> None:
    assert budget.shape(3.0, True, -1.0) == 3.0
    assert budget.shape(3.0, False, -1.0) == -1.0
    rewards, left = np.array([1.0, 2.0, 3.0]), np.array([1.0, 0.0, -0.1])
    expected = [1.0, 2.0, -5.0]
    np.testing.assert_array_equal(budget.shape(rewards, budget.safe(left), -5.0), expected)
    traced = jax.jit(lambda r, w: budget.shape(r, budget.safe(w), -5.0))(jnp.asarray(rewards), jnp.asarray(left))
    assert isinstance(traced, jax.Array)
    np.testing.assert_array_equal(traced, expected)


def test_shape_never_multiplies_so_infinite_rewards_survive_and_nan_is_not_made() -> None:
    np.testing.assert_array_equal(budget.shape(np.array([-np.inf, np.inf]), np.array([True, False]), 0.0), [-np.inf, 0.0])


def test_observe_is_remaining_over_reference() -> None:
    assert budget.observe(15.0, 30.0) == 0.5
    np.testing.assert_allclose(budget.observe(np.array([40.0, -10.0]), 20.0), [2.0, -0.5])


def test_rescale_is_the_discounted_share_and_needs_no_division_by_one_minus_gamma() -> None:
    assert budget.rescale(25.0, 1.0, 1000) == 25.0
    horizon, discount = 50, 0.97
    constant = 25.0 / horizon
    assert budget.rescale(25.0, discount, horizon) == pytest.approx(sum(constant * discount**t for t in range(horizon)))
