"""Exact tests over seeds: p values by hand, and how often they are wrong where there is nothing to find."""

from __future__ import annotations

import numpy as np
import pytest

from saute.evidence.stats import lower_bound, upper_bound
from saute.evidence.trials import above, more, mostly, resampled, seeds_told

LOW, HIGH = [1.0, 2.0, 3.0, 4.0, 5.0], [11.0, 12.0, 13.0, 14.0, 15.0]


def test_all_above_all_is_one_of_all_ways() -> None:
    assert more(HIGH, LOW) == 1 / 252 and more(LOW, HIGH) == 1.0
    assert more(HIGH, LOW, margin=9.0) == more([2.0, 3.0, 4.0, 5.0, 6.0], LOW) > 0.05
    assert more(LOW, HIGH, margin=-20.0) == 1 / 252, "less by 20 at most"
    assert more(LOW, LOW) > 0.5 and more([1.0], [0.0]) == 0.5, "one seed tells nothing"


def test_signs() -> None:
    assert above(HIGH, 10.0) == 1 / 32 and above(HIGH, 20.0) == 1.0
    assert above([-1.0, 2.0], 0.0) == 0.5, "of −3, −1, 1, 3 two are at least 1"
    assert above([0.0] * 5, 0.0) == 1.0


def test_more_than_half() -> None:
    assert (mostly(5, 5), mostly(4, 5), mostly(0, 5)) == (1 / 32, 6 / 32, 1.0)


def test_sampled_relabellings_agree_with_all() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(0.6, 1, 12), rng.normal(0, 1, 12)
    sampled = more(x, y)  # 2.7 million ways
    t = (x.mean() - y.mean()) / np.sqrt((x.var(ddof=1) + y.var(ddof=1)) / 12)
    from scipy.stats import t as student

    assert sampled == pytest.approx(student.sf(t, 22), abs=0.02)
    assert above(rng.normal(0, 1, 20) + 3.0, 0.0) < 1e-3


def test_where_there_is_nothing_one_in_twenty_is_found_at_most() -> None:
    rng = np.random.default_rng(1)
    found = np.mean([more(rng.normal(size=5), rng.normal(size=5)) <= 0.05 for _ in range(400)])
    signs = np.mean([above(rng.normal(size=6), 0.0) <= 0.05 for _ in range(400)])
    assert found <= 0.08 and signs <= 0.08


def test_bounds_and_what_is_said_of_seeds() -> None:
    assert lower_bound(0, 5) == 0.0 and lower_bound(5, 5) == pytest.approx(0.05**0.2)
    assert lower_bound(2, 5) == pytest.approx(1 - upper_bound(3, 5)) == pytest.approx(0.0764, abs=1e-4)
    assert seeds_told(0, 5) == "5 of 5 seeds clean, so at most 45 % of seeds are bad at 95 %"
    assert seeds_told(5, 5) == "0 of 5 seeds clean"


def test_resampling_over_seeds() -> None:
    low, high = resampled([LOW, HIGH], lambda both: float(both[1].mean() - both[0].mean()))
    assert 8.0 < low < 10.0 < high < 12.0
    assert resampled([[3.0], [5.0]], lambda both: float(both[1].mean() - both[0].mean())) == (2.0, 2.0)
