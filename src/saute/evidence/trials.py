"""Exact tests whose sample are seeds: a method is as many trainings, however many episodes each of them is tested in."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from saute.evidence.stats import upper_bound

__all__ = ["above", "more", "mostly", "resampled", "seeds_told"]

MOST = 200_000
"""Relabellings that are counted one by one; of more, so many are drawn."""
RESAMPLES = 4000
ROUNDING = 1e-9


def more(first: ArrayLike, second: ArrayLike, margin: float = 0.0) -> float:
    """p of "the mean of the first is above that of the second by more than the margin" (Fisher 1935).

    Null: the first, less the margin, and the second are exchangeable. p is the share of all ways to part the seeds in which the
    difference of the means is at least the observed one; with 5 seeds against 5 it is 1/252 at least.
    """
    x, y = np.asarray(first, float) - margin, np.asarray(second, float)
    every, wanted = np.concatenate([x, y]), len(x)
    if math.comb(len(every), wanted) <= MOST:
        chosen = np.array(list(itertools.combinations(range(len(every)), wanted)))
        sums = every[chosen].sum(1)
        return float((sums >= x.sum() - _slack(every)).mean())
    rng = np.random.default_rng(0)
    sums = np.array([rng.permutation(every)[:wanted].sum() for _ in range(MOST // 10)])
    # The observed one is one of them (Phipson & Smyth 2010).
    return float((1 + (sums >= x.sum() - _slack(every)).sum()) / (1 + len(sums)))


def above(values: ArrayLike, limit: float) -> float:
    """p of "the mean is above the limit", by the signs of the deviations (Fisher 1935).

    Null: the values lie symmetrically around the limit, or around less. p is the share of all choices of signs for which the
    sum of the deviations is at least the observed one; with 5 seeds it is 1/32 at least.
    """
    apart = np.asarray(values, float) - limit
    if 2 ** len(apart) <= MOST:
        signs = np.array(list(itertools.product((1.0, -1.0), repeat=len(apart))))
    else:
        signs = np.random.default_rng(0).choice((1.0, -1.0), (MOST // 10, len(apart)))
    return float((signs @ apart >= apart.sum() - _slack(apart)).mean())


def mostly(count: int, seeds: int) -> float:
    """p of "more than half of all seeds are so", from so many that are; null: Binom(n, ½)."""
    return sum(math.comb(seeds, k) for k in range(count, seeds + 1)) / 2.0**seeds


def resampled(
    groups: Sequence[ArrayLike], statistic: Callable[[list[np.ndarray]], float], confidence: float = 0.90
) -> tuple[float, float]:
    """The percentile bootstrap interval of a statistic of several groups, whose seeds are drawn anew, each group for itself."""
    rng, values = np.random.default_rng(0), [np.asarray(group, float) for group in groups]
    drawn = [statistic([one[rng.integers(len(one), size=len(one))] for one in values]) for _ in range(RESAMPLES)]
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def seeds_told(bad: int, seeds: int) -> str:
    """What clean and bad seeds say of the method: "5 of 5 seeds clean, so at most 45 % of seeds are bad at 95 %"."""
    bound = upper_bound(bad, seeds)
    proven = f", so at most {100 * bound:.0f} % of seeds are bad at 95 %" if bound < 1.0 else ""
    return f"{seeds - bad} of {seeds} seeds clean{proven}"


def _slack(values: np.ndarray) -> float:
    return ROUNDING * (1.0 + float(np.abs(values).sum()))
