"""What decides a claim of the paper: exact tests over seeds, each with a null that our numbers can refute, or not.

A judge is a function of rows, in the order of the claim's labels, and of the unit of returns, best − do-nothing. "holds" and
"does not hold" each need a test with p ≤ 5 %; where neither has one, the verdict is that one cannot tell from these seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from saute.evidence.stats import lower_bound, upper_bound
from saute.evidence.trials import above, more, mostly, resampled, seeds_told
from saute.paper.measured import Late, Measured

__all__ = ["Judge", "Measurements", "Verdict", "Word"]

Word = Literal["holds", "holds partly", "does not hold", "cannot tell", "not run"]
Measurements = Sequence[Measured]

DECIDED = 0.05
"""Largest p of a test that decides."""
RARE, REGULAR = 0.01, 0.10
"""Shares of violating episodes: at most a few outliers, and at least on a regular basis."""
ODD_SEEDS = 0.05
"""Share of seeds that may be odd without anything being said of the method."""
NEAR, NEGLIGIBLE = 0.10, 0.02
"""Differences of returns, in units of best − do-nothing, up to which two are alike, and up to which one is no better."""
NEAR_IN_COST, AT_LIMIT = 0.25, 0.10
"""Shares of the budget: up to which costs are alike, and above it within which a mean still keeps the limit."""
LITTLE = 0.175
"""From the largest to the least published return by n, in units of best − do-nothing: (83.95 − 71.68) / (80 − 9.6)."""
WIDER, AS_WIDE = 2.0, 0.9
"""From this many times another spread on, a spread counts as wide; and as no narrower."""
REACHED = 0.9
"""From this share of another's mean cost on, an episode behaves like it."""
ROUNDING = 1e-9
SOON = 200
"""Episodes of training after which, the paper says, policies are safe."""


class Verdict(NamedTuple):
    word: Word
    reason: str


Judge = Callable[[Measurements, float], Verdict]


def never_violate(rows: Measurements, unit: float) -> Verdict:
    """Holds if nothing violates, in so many episodes that 1 % of violations is refuted; partly if violations are that rare.

    Null: 1 % of the episodes or more violate (Clopper & Pearson, all seeds as one sample).
    """
    words: list[Word] = []
    for row in rows:
        rare = upper_bound(row.violations, row.episodes) <= RARE
        seen: Word = "does not hold" if not rare else "holds partly"
        words.append(seen if row.violations else "holds" if rare else "cannot tell")
    order: tuple[Word, ...] = ("does not hold", "cannot tell", "holds partly", "holds")
    return Verdict(min(words, key=order.index), _violations(rows))


def hardly_violate(rows: Measurements, unit: float) -> Verdict:
    """Holds if less than 1 % of the episodes violate. Null: 1 % or more of a seed's episodes, by the signs of the seeds."""
    tested = [_sided(above([-one for one in _shares(row)], -RARE), above(_shares(row), RARE)) for row in rows]
    return Verdict(_together(tested), _violations(rows))


def sometimes_violate(rows: Measurements, unit: float) -> Verdict:
    """Holds if more than 5 % of the seeds violate at all. Null: 5 % of the seeds or fewer (Clopper & Pearson).

    Does not hold if no seed does, in so many episodes that 1 % of violations is refuted.
    """
    return Verdict(_together(map(_some, rows)), _violations(rows))


def often_violate(rows: Measurements, unit: float) -> Verdict:
    """Holds if 10 % of the episodes violate. Null: less, by the signs of the seeds; training is told, but does not count."""
    tested = [_sided(above(_shares(row), REGULAR), above([-one for one in _shares(row)], -REGULAR)) for row in rows]
    return Verdict(_together(tested), _violations(rows) + _late(rows, lambda late: f"{100 * late.share:.1f} %"))


def safer(rows: Measurements, unit: float) -> Verdict:
    """Holds if the first row violates less often than each other row. Null: as often, in the mean of the seeds (Fisher)."""
    first, *others = rows
    tested = [
        _sided(more(_shares(row), _shares(first)), more(_shares(first), _shares(row)))
        if row.violations or first.violations
        else _rare_in_both(first, row)
        for row in others
    ]
    return Verdict(_together(tested), _violations(rows))


def keep_on_average(rows: Measurements, unit: float) -> Verdict:
    """Holds if the mean cost is at most 10 % above the budget; does not hold if it is above the budget; partly if both.

    Nulls: the mean over seeds is more than 10 % above the budget; it is within the budget (signs of the seeds).
    """
    words: list[Word] = []
    for row in rows:
        paid = np.array([seed.cost for seed in row.seeds])
        kept = above(-paid, -(1 + AT_LIMIT) * row.budget) <= DECIDED
        broken = above(paid, row.budget) <= DECIDED
        words.append("holds partly" if kept and broken else "holds" if kept else "does not hold" if broken else "cannot tell")
    numbers = (f"{row.label} {_of_seeds([seed.cost for seed in row.seeds])} of {row.budget:g}" for row in rows)
    late = _late(rows, lambda late: f"{late.cost:.2f}")
    return Verdict(_together(words), f"mean cost (seeds): {'; '.join(numbers)}{late}")


def spend_less(rows: Measurements, unit: float) -> Verdict:
    """Holds if each other row costs less than the first on average. Null: as much, in the mean of the seeds (Fisher)."""
    first, *others = rows
    paid = _costs_of(first)
    tested = [_sided(more(paid, _costs_of(row)), more(_costs_of(row), paid)) for row in others]
    return Verdict(_together(tested), _costs(rows))


def earn_more(rows: Measurements, unit: float) -> Verdict:
    """Holds if the first row returns more than each other one; partly if by less than 2 % of best − do-nothing.

    Nulls: as much, in the mean of the seeds; at least 2 % more (Fisher).
    """
    first, *others = rows
    words: list[Word] = []
    for row in others:
        better = more(_returns_of(first), _returns_of(row)) <= DECIDED
        hardly = more(_returns_of(row), _returns_of(first), -NEGLIGIBLE * unit) <= DECIDED
        words.append(
            "holds partly" if better and hardly else "holds" if better else "does not hold" if hardly else "cannot tell"
        )
    return Verdict(_together(words), _returns(rows, unit))


def earn_most(rows: Measurements, unit: float) -> Verdict:
    """Holds if the first row returns more than each other one; does not hold if one of those returns more than it does.

    Nulls: as much, in the mean of the seeds (Fisher); for the second one p counts as many times as there are rivals.
    """
    first, *others = rows
    best = all(more(_returns_of(first), _returns_of(row)) <= DECIDED for row in others)
    beaten = any(more(_returns_of(row), _returns_of(first)) <= DECIDED / len(others) for row in others)
    return Verdict("holds" if best else "does not hold" if beaten else "cannot tell", _returns(rows, unit))


def earn_alike(rows: Measurements, unit: float) -> Verdict:
    """Holds if the first row's mean return is within 10 % of best − do-nothing of each other one.

    Nulls: it is further above or below; it is not (Fisher, twice: Schuirmann 1987).
    """
    first, *others = rows
    tested = [_alike(_returns_of(first), _returns_of(row), NEAR * unit) for row in others]
    return Verdict(_together(tested), _returns(rows, unit))


def earn_as_much_in_most(rows: Measurements, unit: float) -> Verdict:
    """The same for the median returns of the seeds."""
    first, *others = rows
    medians = {row.label: [seed.median for seed in row.seeds if seed.median is not None] for row in rows}
    if not all(medians.values()):
        return _unknown("medians", medians)
    tested = [_alike(medians[first.label], medians[row.label], NEAR * unit) for row in others]
    return Verdict(
        _together(tested), "median return: " + "; ".join(f"{row.label} {_of_seeds(medians[row.label])}" for row in rows)
    )


def come_to_the_same(rows: Measurements, unit: float) -> Verdict:
    """Holds if mean returns are within 10 % of best − do-nothing, and mean costs within 25 % of the budget; nulls as above."""
    first, second = rows
    tested = [
        _alike(_returns_of(first), _returns_of(second), NEAR * unit),
        _alike(_costs_of(first), _costs_of(second), NEAR_IN_COST * first.budget),
    ]
    return Verdict(_together(tested), f"{_returns(rows, unit)}; {_costs(rows)}")


def differ_little(rows: Measurements, unit: float) -> Verdict:
    """Holds if the mean returns are no further apart than the published ones. Null: they are (bootstrap over seeds)."""
    returns = [_returns_of(row) for row in rows]

    def apart(drawn: list[np.ndarray]) -> float:
        means = [one.mean() for one in drawn]
        return float(max(means) - min(means)) / unit

    low, high = resampled(returns, apart)
    word: Word = "holds" if high <= LITTLE else "does not hold" if low > LITTLE else "cannot tell"
    return Verdict(word, f"{_returns(rows, unit)}: {100 * low:.0f} % to {100 * high:.0f} % of best − do-nothing apart")


def best_of_the_safe(rows: Measurements, unit: float) -> Verdict:
    """Holds if the first row is safe, and each other one violates or returns no more; nulls as of those claims."""
    first, *others = rows
    safe = never_violate([first], unit).word
    rivals = [row for row in others if _some(row) != "holds"]
    better = [row.label for row in rivals if more(_returns_of(row), _returns_of(first)) <= DECIDED]
    open_ones = [row.label for row in rivals if more(_returns_of(first), _returns_of(row), -NEGLIGIBLE * unit) > DECIDED]
    word: Word = "does not hold" if safe == "does not hold" or better else "cannot tell" if open_ones else safe
    return Verdict(word, f"{_violations(rows)}; {_returns(rows, unit)}")


def spread_wider(rows: Measurements, unit: float) -> Verdict:
    """Holds if the costs of each other row's policies vary at least twice as much as those of the first row's.

    Nulls: at most so much, at least so much, in the mean over seeds of the standard deviation (Fisher).
    """
    return _spread({row.label: [seed.cost_std for seed in row.seeds] for row in rows}, "cost", WIDER)


def earn_in_a_wider_range(rows: Measurements, unit: float) -> Verdict:
    """The same for the returns."""
    return _spread({row.label: [seed.return_std for seed in row.seeds] for row in rows}, "return", WIDER)


def spread_as_wide(rows: Measurements, unit: float) -> Verdict:
    """Holds if the costs of each other row's policies vary at least 90 % as much as those of the first row's."""
    return _spread({row.label: [seed.cost_std for seed in row.seeds] for row in rows}, "cost", AS_WIDE)


def reach_its_costs(rows: Measurements, unit: float) -> Verdict:
    """Holds if more than 5 % of each other row's seeds have an episode of 90 % of the first row's mean cost.

    Null: 5 % of the seeds or fewer (Clopper & Pearson); it does not hold if no seed has one.
    """
    first, *others = rows
    words, told = list[Word](), list[str]()
    for row in others:
        reached = sum(seed.worst >= REACHED * first.cost.mean for seed in row.seeds)
        words.append("holds" if _are_many(reached, len(row.seeds)) else "does not hold" if not reached else "cannot tell")
        told.append(f"{row.label} at worst {row.cost.largest:.2f}, {reached} of {len(row.seeds)} seeds reach 90 % of it")
    return Verdict(_together(words), f"{first.label} {first.cost.mean:.2f} on average; {'; '.join(told)}")


def loses_return_and_spends_less(rows: Measurements, unit: float) -> Verdict:
    """Holds if the first row's return is lower by 10 % of best − do-nothing, and its cost by 10 % of the budget.

    Nulls: not so much lower, not lower, in the mean of the seeds (Fisher).
    """
    first, second = rows
    margin = AT_LIMIT * first.budget
    tested = [
        _lower(_returns_of(first), _returns_of(second), NEAR * unit),
        _lower(_costs_of(first), _costs_of(second), margin),
    ]
    return Verdict(_together(tested), f"{_returns(rows, unit)}; {_costs(rows)}")


def smaller_gap(rows: Measurements, unit: float) -> Verdict:
    """Rows are pairs; holds if the second of the first pair loses less return to its first than in each other pair.

    Null: it loses as much, in units of best − do-nothing (bootstrap over seeds, each row for itself).
    """
    returns = [_returns_of(row) for row in rows]

    def further(drawn: list[np.ndarray]) -> float:
        means = [one.mean() for one in drawn]
        return float((means[2] - means[3]) - (means[0] - means[1]))

    words: list[Word] = []
    for i in range(2, len(rows), 2):
        low, high = resampled([*returns[:2], *returns[i : i + 2]], further)
        words.append("holds" if low > 0 else "does not hold" if high < 0 else "cannot tell")
    pairs = ((rows[i], rows[i + 1]) for i in range(0, len(rows), 2))
    gaps = (f"{b.label} {_percent(b.task_return.mean - a.task_return.mean, unit)} {a.label}" for a, b in pairs)
    return Verdict(_together(words), "; ".join(gaps))


def fewer_outliers(rows: Measurements, unit: float) -> Verdict:
    """Holds if the first row's costs have fewer outliers of the box plot than each other row's. Null: as many (Fisher)."""
    shares = {row.label: [seed.outliers for seed in row.seeds if seed.outliers is not None] for row in rows}
    if not all(shares.values()):
        return _unknown("outliers", shares)
    first, *others = shares.values()
    tested = [_sided(more(one, first), more(first, one)) for one in others]
    told = (f"{label} {100 * float(np.mean(one)):.2f} %" for label, one in shares.items())
    return Verdict(_together(tested), f"outliers of the cost: {'; '.join(told)}")


def steadier(rows: Measurements, unit: float) -> Verdict:
    """Holds if the mean cost of the first row's epochs varies less, in the second half of training. Null: as much (Fisher)."""
    sways = {row.label: [one.sway for one in row.courses or () if one.sway is not None] for row in rows}
    if not all(sways.values()):
        return _unknown("courses of training", sways)
    first, *others = sways.values()
    tested = [_sided(more(one, first), more(first, one)) for one in others]
    return Verdict(_together(tested), "deviation over epochs: " + "; ".join(f"{n} {_of_seeds(v)}" for n, v in sways.items()))


def safe_soon(rows: Measurements, unit: float) -> Verdict:
    """Holds if every test after 200 training episodes is clean in most seeds. Null: in at most half of them (Binomial)."""
    courses = {row.label: [one for one in row.courses or () if one.tested] for row in rows}
    if not all(courses.values()):
        return _unknown("tests on the way", courses)
    words, told = list[Word](), list[str]()
    for label, seeds in courses.items():
        after = [one.safe_after for one in seeds if one.safe_after is not None]
        soon = sum(one <= SOON for one in after)
        words.append(_sided(mostly(soon, len(seeds)), mostly(len(seeds) - soon, len(seeds))))
        last = f", all {len(after)} that are safe in the end after {max(after):,}" if after else ", none in the end"
        told.append(f"{label} {soon} of {len(seeds)} seeds after {SOON} episodes{last}")
    return Verdict(_together(words), "; ".join(told))


def _spread(deviations: Mapping[str, Sequence[float | None]], what: str, times: float) -> Verdict:
    known = {label: np.array([one for one in each if one is not None]) for label, each in deviations.items()}
    if not all(map(len, known.values())):
        return _unknown(f"deviations of the {what}", known)
    first, *others = known.values()
    tested = [_sided(more(one, times * first), more(times * first, one)) for one in others]
    told = (f"{label} {_of_seeds(each)}" for label, each in known.items())
    return Verdict(_together(tested), f"deviation of the {what}: {'; '.join(told)}")


def _some(row: Measured) -> Word:
    bad = sum(seed.violations > 0 for seed in row.seeds)
    if _are_many(bad, len(row.seeds)):
        return "holds"
    clean = not bad and upper_bound(0, row.episodes) <= RARE
    return "does not hold" if clean else "cannot tell"


def _are_many(count: int, seeds: int) -> bool:
    """Whether so many odd seeds refute that 5 % of all are; a single seed, whose bound is 5 % itself, does not."""
    return lower_bound(count, seeds) > ODD_SEEDS + ROUNDING


def _rare_in_both(first: Measured, second: Measured) -> Word:
    """Two rows without violations, of which the first cannot be the safer one if violations are shown to be rare in both."""
    return "does not hold" if all(upper_bound(0, row.episodes) <= RARE for row in (first, second)) else "cannot tell"


def _sided(yes: float, no: float) -> Word:
    return "holds" if yes <= DECIDED else "does not hold" if no <= DECIDED else "cannot tell"


def _alike(first: Sequence[float], second: Sequence[float], margin: float) -> Word:
    inside = max(more(first, second, -margin), more(second, first, -margin)) <= DECIDED
    outside = min(more(first, second, margin), more(second, first, margin)) <= DECIDED
    return "holds" if inside else "does not hold" if outside else "cannot tell"


def _lower(first: Sequence[float], second: Sequence[float], margin: float) -> Word:
    return _sided(more(second, first, margin), more(first, second, -margin))


def _together(words: Iterable[Word]) -> Word:
    """Of several rows: partly, if it holds of some and is refuted of others; one that cannot tell is not decided by others."""
    said = set(words)
    if "holds partly" in said or {"holds", "does not hold"} <= said:
        return "holds partly" if "cannot tell" not in said else "cannot tell"
    order: tuple[Word, ...] = ("does not hold", "cannot tell", "holds")
    return min(said, key=order.index)


def _unknown(what: str, labels: Iterable[str]) -> Verdict:
    return Verdict("cannot tell", f"no {what} of single seeds are known of {'; '.join(labels)}")


def _returns_of(row: Measured) -> list[float]:
    return [seed.task_return for seed in row.seeds]


def _costs_of(row: Measured) -> list[float]:
    return [seed.cost for seed in row.seeds]


def _shares(row: Measured) -> list[float]:
    return [seed.violations / seed.episodes for seed in row.seeds]


def _violations(rows: Measurements) -> str:
    """What was seen of the first row, with the bound on bad seeds; of the others how many seeds are clean."""
    told = []
    for row in rows:
        bad, seeds = sum(seed.violations > 0 for seed in row.seeds), len(row.seeds)
        told.append(
            f"{row.label} {row.seen}, {seeds_told(bad, seeds) if len(rows) == 1 else f'{seeds - bad} of {seeds} seeds clean'}"
        )
    return "violations: " + "; ".join(told)


def _late(rows: Measurements, told: Callable[[Late], str]) -> str:
    known = [f"{row.label} {told(row.late)}" for row in rows if row.late]
    return f"; in the second half of training: {'; '.join(known)}" if known else ""


def _returns(rows: Measurements, unit: float) -> str:
    first, *others = rows
    told = [f"{first.label} {_of_seeds(_returns_of(first))}"]
    for row in others:
        apart = _percent(row.task_return.mean - first.task_return.mean, unit)
        told.append(f"{row.label} {_of_seeds(_returns_of(row))}: {apart}")
    return "mean return (seeds): " + "; ".join(told)


def _percent(difference: float, unit: float) -> str:
    return f"{100 * abs(difference) / unit:.1f} % {'above' if difference > 0 else 'below'}"


def _costs(rows: Measurements) -> str:
    return "mean cost (seeds): " + "; ".join(f"{row.label} {_of_seeds(_costs_of(row))}" for row in rows)


def _of_seeds(values: Sequence[float] | np.ndarray) -> str:
    """The mean, and from the least to the greatest seed."""
    return f"{np.mean(values):.2f} ({min(values):.2f} to {max(values):.2f})"
