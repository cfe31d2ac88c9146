"""Statistics and multiplier controllers against sequences worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saute.core.protocol import Episodes
from saute.learn.constraint import cvar, lagrangian, mean, none, penalise, pid, tail_weights

COUNTED = jnp.array([True, True, False, True])
COSTS = jnp.array([10.0, 20.0, 1000.0, 60.0])


def test_statistics_use_counted_episodes_only() -> None:
    assert mean(COSTS, COUNTED) == pytest.approx(30.0)
    assert cvar(COSTS, COUNTED, 0.01) == pytest.approx(60.0)
    assert cvar(COSTS, COUNTED, 0.5) == pytest.approx(40.0)
    assert cvar(COSTS, COUNTED, 1.0) == pytest.approx(30.0)


@pytest.mark.parametrize(("n", "tail"), [(1, 1), (20, 1), (100, 1), (101, 2), (200, 2), (250, 3)])
def test_cvar_takes_the_worst_ceil_of_alpha_n(n: int, tail: int) -> None:
    costs = np.random.default_rng(n).permutation(np.arange(1.0, n + 1))
    assert cvar(jnp.asarray(costs), jnp.ones(n, bool), 0.01) == pytest.approx(np.sort(costs)[-tail:].mean())


def test_penalise() -> None:
    three, two, one, zero = map(jnp.float32, (3, 2, 1, 0))
    assert penalise(three, two, zero) == 3.0
    assert penalise(three, two, one) == 0.5


def test_no_constraint_never_penalises() -> None:
    constraint = none()
    assert constraint.update(constraint.init(), COSTS, COUNTED)[1] == 0.0


@pytest.mark.parametrize("through_softplus", [False, True])
def test_lagrangian_follows_adam_on_the_softplus_parameter(through_softplus: bool) -> None:
    constraint = lagrangian(25.0, rate=0.05, through_softplus=through_softplus)
    state = constraint.init()
    p, m, v = math.log(math.e - 1), 0.0, 0.0
    for t, level in enumerate([30.0, 40.0, 10.0, 26.0], start=1):
        state, multiplier = constraint.update(state, jnp.full(4, level), COUNTED)
        gradient = (25.0 - level) * (1 / (1 + math.exp(-p)) if through_softplus else 1.0)
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        p -= 0.05 * (m / (1 - 0.9**t)) / (math.sqrt(v / (1 - 0.999**t)) + 1e-8)
        assert multiplier == pytest.approx(math.log1p(math.exp(p)), rel=1e-5)


def test_through_softplus_a_long_slack_is_forgotten_and_on_the_parameter_it_is_paid_back() -> None:
    def updates_to_come_back(through_softplus: bool) -> int:
        """After 2000 updates at 0, until λ > 1 at twice the limit."""
        constraint = lagrangian(1.0, through_softplus=through_softplus)
        levels = jnp.repeat(jnp.array([0.0, 2.0]), jnp.array([2000, 3000]))[:, None]
        _, multipliers = jax.lax.scan(lambda s, c: constraint.update(s, c, jnp.ones(1, bool)), constraint.init(), levels)
        return int(jnp.argmax(multipliers[2000:] > 1.0))

    assert updates_to_come_back(True) < 1000 < 1900 < updates_to_come_back(False)


def test_lagrangian_starts_at_one_and_its_first_step_has_the_same_size_for_any_violation() -> None:
    small, large = (lagrangian(25.0).update(lagrangian(25.0).init(), jnp.full(4, c), COUNTED)[1] for c in (25.5, 2500.0))
    assert small == pytest.approx(float(large), rel=1e-4) and small > 1.0


def test_pid_by_hand() -> None:
    constraint = pid(25.0, proportional=0.1, integral=0.01, derivative=0.5, smoothing=0.5)
    state = constraint.init()
    # D = 10: EMA 5, I .1, no rise known; D = 20: EMA 12.5, I .3, rise 10; D = −100: EMA −43.75, I 0, no rise.
    expected = [0.1 * 5 + 0.1, 0.1 * 12.5 + 0.3 + 0.5 * 10, 0.0]
    for level, wanted in zip([35.0, 45.0, -75.0], expected, strict=True):
        state, multiplier = constraint.update(state, jnp.full(4, level), COUNTED)
        assert multiplier == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("make", [lagrangian, pid])
def test_without_a_whole_episode_the_multiplier_stays(make) -> None:
    constraint = make(25.0)
    state, before = constraint.update(constraint.init(), COSTS, COUNTED)
    _, after = constraint.update(state, COSTS, jnp.zeros(4, bool))
    assert after == before


def test_cvar_lagrangian_reacts_to_the_tail_where_the_mean_does_not() -> None:
    costs, counted = jnp.array([0.0] * 99 + [80.0]), jnp.ones(100, bool)
    by_mean, by_tail = lagrangian(25.0), lagrangian(25.0, worst=0.01)
    assert by_mean.update(by_mean.init(), costs, counted)[1] < 1.0 < by_tail.update(by_tail.init(), costs, counted)[1]


# Two environments, four steps: episodes of cost 5 and 1 in the first, of 9 in the second, whose last step belongs to none.
RUNNING = jnp.array([[2.0, 3.0], [5.0, 6.0], [0.5, 9.0], [1.0, 4.0]])
ENDED = jnp.array([[False, False], [True, False], [False, True], [True, False]])


def episodes(counted: Any) -> Episodes:
    """These, of which some are counted; nothing but their costs and ends matters here."""
    return Episodes(ENDED, counted, RUNNING, RUNNING, RUNNING, ENDED, jnp.ones(RUNNING.shape, int))


@pytest.mark.parametrize(
    ("worst", "weights"),
    [
        (0.3, [[0, 3], [0, 3], [0, 3], [0, 0]]),
        (0.6, [[1.5, 1.5], [1.5, 1.5], [0, 1.5], [0, 0]]),
        (1.0, [[1, 1], [1, 1], [1, 1], [1, 0]]),
    ],
)
def test_tail_weights_pick_the_steps_of_the_worst_episodes(worst: float, weights: list[list[float]]) -> None:
    np.testing.assert_allclose(tail_weights(episodes(ENDED), worst), weights)
    assert lagrangian(25.0, worst, tail=False).weights(episodes(ENDED)) is None
    np.testing.assert_allclose(lagrangian(25.0, worst, tail=True).weights(episodes(ENDED)), weights)


def test_the_tail_is_one_of_the_counted_episodes() -> None:
    """Of two episodes of the first environment only the first counts: it is worth less than that of the second."""
    first_only = ENDED.at[3, 0].set(False)
    np.testing.assert_allclose(tail_weights(episodes(first_only), 0.5), [[0, 2], [0, 2], [0, 2], [0, 0]])
    np.testing.assert_allclose(tail_weights(episodes(first_only), 1.0), [[1, 1], [1, 1], [0, 1], [0, 0]])
    assert not tail_weights(episodes(jnp.zeros_like(ENDED)), 0.3).any()


@pytest.mark.parametrize("make", [lagrangian, pid])
@pytest.mark.parametrize("worst", [0.0, -0.1, 1.5])
def test_a_tail_is_a_share(make: Any, worst: float) -> None:
    with pytest.raises(ValueError, match=rf"worst={worst} must be a share of the episodes in \(0, 1\]"):
        make(25.0, worst=worst)
