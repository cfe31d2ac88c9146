"""Statistics: known answers, SciPy's answers, and coverage by simulation with fixed seeds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

from saute.evidence.stats import (
    as_seeds,
    bootstrap,
    cvar,
    difference,
    iqm,
    probability_of_improvement,
    quantile_bound,
    upper_bound,
)


def test_no_violation_in_500_episodes_proves_six_in_a_thousand() -> None:
    assert upper_bound(0, 500) == pytest.approx(0.00597, abs=5e-6)
    assert upper_bound(0, 500) == pytest.approx(1 - 0.05 ** (1 / 500), rel=1e-12)
    assert upper_bound(0, 1) == pytest.approx(0.95) and upper_bound(5, 5) == 1.0


@pytest.mark.parametrize(("k", "n"), [(0, 1), (1, 2), (3, 500), (250, 500), (499, 500), (500, 500), (7, 50_000)])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_upper_bound_is_that_of_scipy_and_exact(k: int, n: int, confidence: float) -> None:
    bound = upper_bound(k, n, confidence)
    assert bound == pytest.approx(scipy_stats.binomtest(k, n, alternative="less").proportion_ci(confidence, "exact").high)
    if k < n:
        assert scipy_stats.binom.cdf(k, n, bound) == pytest.approx(1 - confidence, rel=1e-6)


@pytest.mark.parametrize(("k", "n"), [(-1, 5), (6, 5), (0, 0)])
def test_impossible_counts_are_refused(k: int, n: int) -> None:
    with pytest.raises(ValueError, match=f"{k} violations of {n} episodes"):
        upper_bound(k, n)


def brute_force_order(n: int, share: float, confidence: float) -> int | None:
    """Smallest k with P(at most k − 1 of n are below the quantile) ≥ confidence, by adding up the binomial."""
    total = 0.0
    for k in range(1, n + 1):
        total += math.comb(n, k - 1) * share ** (k - 1) * (1 - share) ** (n - k + 1)
        if total >= confidence:
            return k
    return None


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_quantile_bound_is_the_order_statistic_of_brute_force(share: float, confidence: float) -> None:
    for n in [*range(1, 60), 298, 299, 400, 1000]:
        k = brute_force_order(n, share, confidence)
        costs = np.random.default_rng(n).permutation(n) + 1.0
        assert quantile_bound(costs, share, confidence) == k, n


def test_too_few_episodes_bound_no_quantile() -> None:
    assert quantile_bound(np.zeros(298), 0.99) is None and quantile_bound(np.zeros(299), 0.99) == 0.0
    assert quantile_bound(np.zeros(28), 0.90) is None and quantile_bound(np.zeros(29), 0.90) == 0.0


def test_quantile_bound_covers_as_often_as_it_says_also_for_whole_numbers() -> None:
    rng = np.random.default_rng(0)
    n, share, confidence, repeats = 80, 0.9, 0.9, 3000
    k = brute_force_order(n, share, confidence)
    assert k is not None
    exact = scipy_stats.binom.cdf(k - 1, n, share)
    continuous = np.mean([quantile_bound(rng.exponential(size=n), share, confidence) >= -np.log(0.1) for _ in range(repeats)])
    assert abs(continuous - exact) < 4 * np.sqrt(exact * (1 - exact) / repeats)
    true = scipy_stats.poisson.ppf(share, 3.0)
    discrete = np.mean([quantile_bound(rng.poisson(3.0, n), share, confidence) >= true for _ in range(500)])
    assert discrete >= confidence


def test_cvar_is_the_mean_of_the_worst_and_never_of_none() -> None:
    costs = np.random.default_rng(0).permutation(200) + 1.0
    assert cvar(costs, 0.01) == 199.5 and cvar(costs, 0.07) == np.mean(np.arange(187, 201))
    assert cvar(costs, 1.0) == costs.mean()
    assert cvar([3.0, 5.0], 0.01) == 5.0 and cvar([4.0], 1e-6) == 4.0
    assert cvar(np.arange(101.0), 0.01) == 99.5, "⌈1.01⌉ = 2 of 101"
    for worst in (0.0, -0.1, 1.5, math.nan):
        with pytest.raises(ValueError, match=r"must be a share in \(0, 1\]"):
            cvar(costs, worst)


def test_iqm_by_hand_and_of_scipy() -> None:
    assert iqm([8, 1, 7, 2, 6, 3, 5, 4]) == 4.5
    assert iqm([0.0, 1.0, 2.0, 1000.0]) == 1.5 and iqm([1.0, 5.0, 9.0]) == 5.0 and iqm([7.0]) == 7.0
    rng = np.random.default_rng(0)
    for n in range(1, 40):
        values = rng.normal(size=n).round(1)
        assert iqm(values) == pytest.approx(scipy_stats.trim_mean(values, 0.25))


def test_the_same_seed_gives_the_same_interval_and_another_one_does_not() -> None:
    values = np.random.default_rng(0).normal(size=(3, 20))
    again = [bootstrap(values, seed=s, resamples=100) for s in (4, 4, 5)]
    assert again[0] == again[1] != again[2]
    assert again[0].value == iqm(values) and again[0].low < again[0].value < again[0].high
    two = [difference(values, values + 1, seed=s, resamples=100) for s in (4, 4, 5)]
    assert two[0] == two[1] != two[2] and two[0].value == pytest.approx(-1.0)


def test_strata_keep_every_seed_and_seeds_do_not() -> None:
    apart = [np.full(6, 0.0), np.full(4, 100.0)]
    assert bootstrap(apart, np.mean, over="episodes", resamples=50) == (40.0, 40.0, 40.0)
    over_seeds = bootstrap(apart, np.mean, resamples=200)
    assert (over_seeds.low, over_seeds.high) == (0.0, 100.0)
    one = np.random.default_rng(0).normal(size=30)
    assert bootstrap(one, resamples=200).high > bootstrap(one, resamples=200).low, "one seed: its episodes are resampled"


def coverage(draw: Any, over: Any, repeats: int, resamples: int = 200) -> float:
    """How often 90 % intervals contain the true mean, which is 0."""
    rng = np.random.default_rng(1)
    intervals = (bootstrap(draw(rng), np.mean, over=over, confidence=0.9, resamples=resamples) for _ in range(repeats))
    return float(np.mean([interval.low <= 0.0 <= interval.high for interval in intervals]))


def test_bootstrap_covers_about_as_often_as_it_says() -> None:
    assert 0.85 < coverage(lambda rng: rng.normal(size=50), "episodes", 300) < 0.95


def test_over_seeds_covers_the_method_where_episodes_alone_would_not() -> None:
    def draw(rng: np.random.Generator) -> np.ndarray:
        return rng.normal(size=(8, 1)) + rng.normal(size=(8, 6))

    assert 0.78 < coverage(draw, "seeds", 150, resamples=100) < 0.96
    assert coverage(draw, "episodes", 80, resamples=100) < 0.65


def test_difference_covers_the_true_difference() -> None:
    rng = np.random.default_rng(2)
    hits = 0
    for _ in range(150):
        interval = difference(
            rng.normal(3.0, 1.0, 40), rng.normal(1.0, 2.0, 60), np.mean, over="episodes", confidence=0.9, resamples=150
        )
        hits += interval.low <= 2.0 <= interval.high
    assert 0.82 < hits / 150 < 0.97


def mann_whitney(x: np.ndarray, y: np.ndarray) -> float:
    return float(scipy_stats.mannwhitneyu(x, y).statistic / (x.size * y.size))


def test_improvement_is_that_of_mann_and_whitney() -> None:
    rng = np.random.default_rng(0)
    for n, m in [(1, 1), (5, 3), (40, 70)]:
        x, y = rng.integers(0, 6, n), rng.integers(1, 7, m)
        assert probability_of_improvement(x, y, resamples=2).value == pytest.approx(mann_whitney(x, y))
    for x, y, expected in (([2.0], [1.0], 1.0), ([1.0], [2.0], 0.0), ([1.0], [1.0], 0.5)):
        assert probability_of_improvement(x, y, resamples=2) == (expected, expected, expected)


def test_resamples_by_ranks_are_those_of_the_values() -> None:
    rng = np.random.default_rng(3)
    x, y = [rng.normal(size=6).round(1), rng.normal(size=4).round(1)], [rng.normal(size=5).round(1)]
    twin = np.random.default_rng(9)

    def drawn(rows: list[np.ndarray]) -> np.ndarray:
        chosen = (rows[i] for i in twin.integers(len(rows), size=len(rows)))
        return np.concatenate([row[twin.integers(row.size, size=row.size)] for row in chosen])

    direct = [mann_whitney(drawn(x), drawn(y)) for _ in range(40)]
    interval = probability_of_improvement(x, y, seed=9, resamples=40)
    np.testing.assert_allclose(interval[1:], np.quantile(direct, [0.025, 0.975]))


def test_rows_from_every_shape() -> None:
    assert [row.tolist() for row in as_seeds([1, 2])] == [[1.0, 2.0]]
    assert [row.tolist() for row in as_seeds(np.array([[1, 2], [3, 4]]))] == [[1.0, 2.0], [3.0, 4.0]]
    assert [row.tolist() for row in as_seeds([np.array([1, 2]), [3]])] == [[1.0, 2.0], [3.0]]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "x has 0 episodes; every seed needs at least 1"),
        ([[], []], r"x has \[0, 0\] episodes"),
        ([[1.0], []], r"x has \[1, 0\] episodes"),
        ([1.0, math.nan], "x: episode 1 of seed 0 is nan; numbers must be finite"),
        ([[1.0, 2.0], [math.inf, 1.0]], "x: episode 0 of seed 1 is inf"),
        (3.0, r"x has shape \(\)"),
        (np.zeros((2, 2, 2)), r"x has shape \(2, 2, 2\)"),
        ({"a": 1}, "x has no numbers"),
        ("many", "x has no numbers"),
        ([[1.0, 2.0], 3.0], r"x\[1\] is not a row of numbers"),
        ([[1.0, 2.0], ["a"]], r"x\[1\] is not a row of numbers"),
    ],
)
def test_bad_values(values: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        as_seeds(values, "x")


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 95, math.nan, True, "0.95", None])
def test_bad_confidence(share: Any) -> None:
    for call in (lambda: upper_bound(0, 5, share), lambda: quantile_bound([1.0], 0.9, share)):
        with pytest.raises(ValueError, match=r"confidence=.* is outside \(0, 1\); pass a share, for example 0.95"):
            call()
    with pytest.raises(ValueError, match="outside"):
        difference([1.0], [1.0], confidence=share)


def test_bad_bootstraps() -> None:
    with pytest.raises(ValueError, match="over='runs' is not known; resample over 'seeds' or over 'episodes'"):
        bootstrap([1.0], over="runs")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="resamples=0 must be at least 1"):
        probability_of_improvement([1.0], [1.0], resamples=0)
