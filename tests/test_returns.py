"""Generalised advantages against a table worked out by hand, and in their two limits."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saute.learn.returns import advantages

# Six steps of one environment: a terminal state after step 1, a time-out after step 3, the end of the data after step 5.
REWARD = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
VALUE = [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
NEXT = [1.0, 9.0, 2.0, 10.0, 3.0, 20.0]
TERMINATED = [False, True, False, False, False, False]
ENDED = [False, True, False, True, False, False]


def column(values: list) -> jnp.ndarray:
    return jnp.asarray(values)[:, None]


def run(discount: float, trace: float) -> tuple[np.ndarray, np.ndarray]:
    a, g = advantages(column(REWARD), column(VALUE), column(NEXT), column(TERMINATED), column(ENDED), discount, trace)
    return np.asarray(a)[:, 0], np.asarray(g)[:, 0]


def test_the_table() -> None:
    # δ at γ = ½: 1+.5−.5 = 1, 2+0−1 = 1, 3+1−1.5 = 2.5, 4+5−2 = 7, 5+1.5−2.5 = 4, 6+10−3 = 13; γλ = ¼.
    a, g = run(0.5, 0.5)
    np.testing.assert_allclose(a, [1 + 0.25, 1.0, 2.5 + 1.75, 7.0, 4 + 3.25, 13.0])
    # Returns: 1 + ½·2, 2, 3 + ½·(4 + ½·10), 4 + ½·10, 5 + ½·(6 + ½·20), 6 + ½·20.
    np.testing.assert_allclose(g, [2.0, 2.0, 7.5, 9.0, 13.0, 16.0])


def test_a_time_out_bootstraps_and_a_terminal_does_not() -> None:
    base, _ = run(0.9, 0.9)
    VALUE_OF = {1: 9.0, 3: 10.0}
    for step, effect in ((1, 0.0), (3, 0.9)):
        changed = list(NEXT)
        changed[step] = VALUE_OF[step] + 1.0
        a, _ = advantages(column(REWARD), column(VALUE), column(changed), column(TERMINATED), column(ENDED), 0.9, 0.9)
        assert float(a[step, 0]) - base[step] == pytest.approx(effect, abs=1e-5)


def test_limits_of_the_trace() -> None:
    one_step, _ = run(0.9, 0.0)
    bootstrap = np.where(TERMINATED, 0.0, NEXT)
    np.testing.assert_allclose(one_step, np.array(REWARD) + 0.9 * bootstrap - VALUE, rtol=1e-6)
    monte_carlo, g = run(0.9, 1.0)
    np.testing.assert_allclose(monte_carlo, g - VALUE, rtol=1e-6)


@settings(deadline=None, max_examples=40)
@given(st.sampled_from([1, 2, 12]), st.floats(0.5, 1.0), st.floats(0.0, 1.0), st.integers(0, 2**31))
def test_against_the_definition(steps: int, discount: float, trace: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    r, v, nv = rng.normal(size=(3, steps))
    ended = rng.random(steps) < 0.3
    terminated = ended & (rng.random(steps) < 0.5)
    δ = r + discount * np.where(terminated, 0, nv) - v
    expected = np.zeros(steps)
    for t in range(steps):
        weight = 1.0
        for k in range(t, steps):
            expected[t] += weight * δ[k]
            if ended[k]:
                break
            weight *= discount * trace
    a, _ = advantages(column(r), column(v), column(nv), column(terminated), column(ended), discount, trace)
    np.testing.assert_allclose(np.asarray(a)[:, 0], expected, atol=1e-4)
