"""What finitely many episodes tell: exact bounds, means of tails, bootstrap intervals; pure functions of NumPy arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

__all__ = [
    "Interval",
    "as_seeds",
    "bootstrap",
    "by_constraint",
    "check_share",
    "cvar",
    "difference",
    "iqm",
    "lower_bound",
    "probability_of_improvement",
    "quantile_bound",
    "upper_bound",
]

Statistic = Callable[[np.ndarray], float]
Seeds = list[np.ndarray]
"""One array of numbers per seed, one number per episode."""
RESAMPLES = 2000


class Interval(NamedTuple):
    """An estimate and the ends of its two-sided confidence interval."""

    value: float
    low: float
    high: float


def upper_bound(violations: int, episodes: int, confidence: float = 0.95) -> float:
    """The exact upper bound p on a probability after k of n: P(Binom(n, p) ≤ k) = 1 − confidence (Clopper & Pearson 1934)."""
    from scipy.stats import beta

    check_share(confidence, "confidence")
    if episodes < 1 or not 0 <= violations <= episodes:
        raise ValueError(f"{violations} violations of {episodes} episodes: count 0 to n violations of n ≥ 1 episodes")
    return 1.0 if violations == episodes else float(beta.ppf(confidence, violations + 1, episodes - violations))


def lower_bound(successes: int, tries: int, confidence: float = 0.95) -> float:
    """The exact lower bound p on a probability after k of n: P(Binom(n, p) ≥ k) = 1 − confidence (Clopper & Pearson 1934)."""
    return 1.0 - upper_bound(tries - successes, tries, confidence)


def quantile_bound(costs: ArrayLike, share: float, confidence: float = 0.95) -> float | None:
    """An upper confidence bound on a quantile, for any distribution (David & Nagaraja 2003, ch. 7).

    It is the k-th smallest cost, with the least k for which P(Binom(n, share) ≤ k − 1) ≥ confidence; None if there is no such
    k ≤ n.
    """
    from scipy.stats import binom

    check_share(share, "share")
    check_share(confidence, "confidence")
    paid = np.concatenate(as_seeds(costs, "costs"))
    k = int(binom.ppf(confidence, paid.size, share)) + 1
    return float(np.partition(paid, k - 1)[k - 1]) if k <= paid.size else None


def cvar(costs: ArrayLike, worst: float = 0.01) -> float:
    """The mean of the largest ⌈αn⌉ ≥ 1 of n costs, where α is `worst` (Rockafellar & Uryasev 2000)."""
    if not 0.0 < worst <= 1.0:
        raise ValueError(f"worst={worst!r} must be a share in (0, 1], for example 0.01")
    paid = np.concatenate(as_seeds(costs, "costs"))
    # In floating point 0.07·100 is a little more than 7.
    tail = max(1, math.ceil(worst * paid.size - 1e-9))
    return float(np.partition(paid, paid.size - tail)[-tail:].mean())


def iqm(values: ArrayLike) -> float:
    """The interquartile mean: without the ⌊n/4⌋ smallest and the ⌊n/4⌋ largest values (Agarwal et al. 2021)."""
    every = np.concatenate(as_seeds(values))
    cut = every.size // 4
    kept = every.size - 2 * cut
    # Two partitions, each at one place, are five times faster than one partition at two places.
    return float(np.partition(np.partition(every, cut)[cut:], kept - 1)[:kept].mean())


def bootstrap(
    values: ArrayLike,
    statistic: Statistic = iqm,
    *,
    over: Literal["seeds", "episodes"] = "seeds",
    confidence: float = 0.95,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Interval:
    """A statistic of all episodes, with its percentile bootstrap interval (Agarwal et al. 2021).

    Over "seeds", each resample draws seeds, and then episodes of each drawn seed: the interval is about the method, on other
    seeds too. Over "episodes", every seed is kept and only its episodes are drawn: the interval is about these policies only.
    With one seed the two are the same.
    """
    return _resampled([as_seeds(values)], statistic, over, confidence, seed, resamples)


def difference(
    first: ArrayLike,
    second: ArrayLike,
    statistic: Statistic = iqm,
    *,
    over: Literal["seeds", "episodes"] = "seeds",
    confidence: float = 0.95,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Interval:
    """The statistic of the first minus that of the second; both are resampled as in `bootstrap`, independently."""
    both = [as_seeds(first, "first"), as_seeds(second, "second")]
    return _resampled(both, lambda x, y: statistic(x) - statistic(y), over, confidence, seed, resamples)


def probability_of_improvement(
    first: ArrayLike,
    second: ArrayLike,
    *,
    over: Literal["seeds", "episodes"] = "seeds",
    confidence: float = 0.95,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Interval:
    """P(X > Y) + ½ P(X = Y) for a random episode X of the first and Y of the second, with its bootstrap interval.

    The estimate is U / (n m) of Mann & Whitney (1947); see Agarwal et al. (2021).
    """
    x, y = as_seeds(first, "first"), as_seeds(second, "second")
    # Only the order matters: ranks are whole numbers, which can be counted instead of sorted.
    known, ranks = np.unique(np.concatenate([*x, *y]), return_inverse=True)
    parts = np.split(ranks, np.cumsum([part.size for part in (*x, *y)])[:-1])

    def by_ranks(x: np.ndarray, y: np.ndarray) -> float:
        wins, tries = np.bincount(x, minlength=known.size), np.bincount(y, minlength=known.size)
        return float(wins @ (2 * np.cumsum(tries) - tries) / (2 * x.size * y.size))

    return _resampled([parts[: len(x)], parts[len(x) :]], by_ranks, over, confidence, seed, resamples)


def as_seeds(values: ArrayLike, name: str = "values") -> Seeds:
    """One array of finite numbers per seed, from (episodes,), from (seeds, episodes), or from a list with one row per seed."""
    try:
        whole = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        whole = None
    if whole is None and isinstance(values, Sequence) and not isinstance(values, str):
        rows = [_row(row, f"{name}[{i}]") for i, row in enumerate(values)]
    elif whole is None or whole.ndim not in (1, 2):
        shape = "no numbers" if whole is None else f"shape {whole.shape}"
        raise ValueError(f"{name} has {shape}; pass (episodes,), (seeds, episodes), or a list with one array per seed")
    else:
        rows = list(np.atleast_2d(whole))
    if not rows or not all(row.size for row in rows):
        sizes = [row.size for row in rows] if len(rows) > 1 else 0
        raise ValueError(f"{name} has {sizes} episodes; every seed needs at least 1")
    for i, row in enumerate(rows):
        if not np.isfinite(row).all():
            at = int(np.flatnonzero(~np.isfinite(row))[0])
            raise ValueError(f"{name}: episode {at} of seed {i} is {row[at]}; numbers must be finite, so find what broke it")
    return rows


def by_constraint(values: Any, count: int | None = None) -> list[list[np.ndarray]] | None:
    """One list of seeds for each constraint, from (seeds, episodes, m), or one (episodes, m) array per seed; else None.

    Two axes alone are (seeds, episodes) of one constraint, unless `count` says that there are as many constraints as columns.
    """
    try:
        whole = np.asarray(values)
        seeds = list(whole) if whole.ndim == 3 else [whole]
        several = whole.ndim == 3 or (whole.ndim == 2 and len(whole) > 1 and whole.shape[1] == count)
    except ValueError:  # seeds with different numbers of episodes
        seeds = [row if isinstance(row, np.ndarray) else np.zeros(0) for row in values]
        several = all(row.ndim == 2 and row.shape[1] == seeds[0].shape[1] for row in seeds)
    return [[row[:, i] for row in seeds] for i in range(seeds[0].shape[1])] if several else None


def check_share(value: object, name: str) -> None:
    """Refuse everything but a number strictly between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, float | int | np.floating) or not 0.0 < value < 1.0:
        raise ValueError(f"{name}={value!r} is outside (0, 1); pass a share, for example 0.95 for 95 %")


def _row(values: ArrayLike, name: str) -> np.ndarray:
    try:
        row = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        row = np.zeros(())
    if row.ndim != 1:
        raise ValueError(f"{name} is not a row of numbers; pass one array of episodes per seed")
    return row


def _resampled(
    groups: list[Seeds], statistic: Callable[..., float], over: str, confidence: float, seed: int, resamples: int
) -> Interval:
    """A statistic of one or two groups of seeds, and the interval of its values when the groups are resampled."""
    check_share(confidence, "confidence")
    if over not in ("seeds", "episodes"):
        raise ValueError(f"over={over!r} is not known; resample over 'seeds' or over 'episodes'")
    if resamples < 1:
        raise ValueError(f"resamples={resamples!r} must be at least 1, for example {RESAMPLES}")
    rng = np.random.default_rng(seed)
    drawn = [statistic(*(_resample(seeds, over, rng) for seeds in groups)) for _ in range(resamples)]
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(statistic(*map(np.concatenate, groups))), float(low), float(high))


def _resample(seeds: Seeds, over: str, rng: np.random.Generator) -> np.ndarray:
    chosen = rng.integers(len(seeds), size=len(seeds)) if over == "seeds" else range(len(seeds))
    return np.concatenate([seeds[i][rng.integers(seeds[i].size, size=seeds[i].size)] for i in chosen])
