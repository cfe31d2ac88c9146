"""Judges of claims: functions of our numbers that say whether a sentence holds, and give the numbers as the reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from saute.paper.measured import Evidence, Late

__all__ = [
    "Rows",
    "Verdict",
    "best_of_the_safe",
    "come_to_the_same",
    "differ_little",
    "earn_alike",
    "earn_as_much_at_best",
    "earn_more",
    "hardly_violate",
    "keep_on_average",
    "loses_return_and_spends_less",
    "mostly_violate",
    "never_violate",
    "often_violate",
    "reach_its_costs",
    "safer",
    "smaller_gap",
    "sometimes_violate",
    "spread_as_wide",
    "spread_wider",
]

Word = Literal["holds", "holds partly", "does not hold", "not run"]
Rows = Sequence[Evidence]

FEW, SEVERAL, REGULAR = 0.01, 0.05, 0.10
"""Shares of violating episodes that still count as outliers, as several of them, and as a rule."""
NEAR = 0.10
"""Relative difference below which two methods come to the same."""


class Verdict(NamedTuple):
    word: Word
    reason: str


def never_violate(rows: Rows) -> Verdict:
    """Holds without a single violation, partly if each row has at most 1 % of them."""
    return Verdict(_graded(rows, 0.0, FEW), _violations(rows))


def hardly_violate(rows: Rows) -> Verdict:
    """Holds up to 1 % of violating episodes, partly up to 5 %."""
    return Verdict(_graded(rows, FEW, SEVERAL), _violations(rows))


def sometimes_violate(rows: Rows) -> Verdict:
    """Holds if each row has a violation."""
    return Verdict(_counted([row.violations > 0 for row in rows]), _violations(rows))


def often_violate(rows: Rows) -> Verdict:
    """Holds if each row has at least 10 % of them; what was seen in training is told, but does not count."""
    return Verdict(
        _counted([row.share >= REGULAR for row in rows]),
        _violations(rows) + _late(rows, lambda late: f"{100 * late.share:.1f} %"),
    )


def mostly_violate(rows: Rows) -> Verdict:
    """Holds if each row has more than half of them."""
    return Verdict(_counted([row.share > 0.5 for row in rows]), _violations(rows))


def safer(rows: Rows) -> Verdict:
    """Holds if the first violates less than each of the others, partly if never more."""
    first, *others = rows
    less, more = ([first.share < row.share for row in others], [first.share > row.share for row in others])
    return Verdict("holds partly" if not any(more) and not all(less) else _counted(less), _violations(rows))


def keep_on_average(rows: Rows) -> Verdict:
    """Holds if each row's mean cost is within the budget; what it was in training is told, but does not count."""
    numbers = (f"{r.label} {r.cost.mean:.2f} [{r.cost.low:.2f}, {r.cost.high:.2f}] of {r.budget:g}" for r in rows)
    late = _late(rows, lambda late: f"{late.cost:.2f}")
    return Verdict(_counted([row.cost.mean <= row.budget for row in rows]), f"mean cost: {'; '.join(numbers)}{late}")


def earn_more(rows: Rows) -> Verdict:
    """Holds if the first has the higher mean return, intervals apart; partly if they overlap."""
    first, *others = rows
    apart = [first.task_return.low > row.task_return.high for row in others]
    above = [first.task_return.mean > row.task_return.mean for row in others]
    word: Word = "holds" if all(apart) else "holds partly" if any(above) else "does not hold"
    return Verdict(word, _returns(rows))


def earn_alike(rows: Rows) -> Verdict:
    """Holds if the first's mean return is within 10 % of each other's."""
    first, *others = rows
    close = [_close(first.task_return.mean, row.task_return.mean) for row in others]
    return Verdict(_counted(close), _returns(rows))


def earn_as_much_at_best(rows: Rows) -> Verdict:
    """Holds if the median returns are within 10 %."""
    first, *others = rows
    close = [_close(first.task_return.median, row.task_return.median) for row in others]
    return Verdict(_counted(close), "median return: " + "; ".join(f"{r.label} {r.task_return.median:.2f}" for r in rows))


def come_to_the_same(rows: Rows) -> Verdict:
    """Holds if mean return is within 10 % and mean cost within 25 %, partly if one of them is."""
    first, second = rows
    close = [
        _close(first.task_return.mean, second.task_return.mean),
        _close(first.cost.mean, second.cost.mean, 0.25),
    ]
    return Verdict(_counted(close), f"{_returns(rows)}; {_costs(rows)}")


def differ_little(rows: Rows) -> Verdict:
    """Holds if the mean returns lie within 15 % of the largest, as the published ones do; partly within 30 %."""
    means = [row.task_return.mean for row in rows]
    gap = (max(means) - min(means)) / max(abs(mean) for mean in means)
    word: Word = "holds" if gap <= 0.15 else "holds partly" if gap <= 0.30 else "does not hold"
    return Verdict(word, f"{_returns(rows)}: {100 * gap:.0f} % apart")


def best_of_the_safe(rows: Rows) -> Verdict:
    """Holds if the first has at most 1 % of violations, and no other such row a higher mean return."""
    first, *others = rows
    rivals = [row.label for row in others if row.share <= FEW and row.task_return.mean > first.task_return.mean]
    word: Word = "does not hold" if first.share > FEW else "holds partly" if rivals else "holds"
    return Verdict(
        word, f"{_violations(rows)}; {_returns(rows)}" + (f"; better and safe: {', '.join(rivals)}" if rivals else "")
    )


def spread_wider(rows: Rows) -> Verdict:
    """Holds if the cost of each of the others varies at least twice as much as that of the first."""
    first, *others = rows
    return Verdict(_counted([row.cost.std >= 2 * first.cost.std for row in others]), _deviations(rows))


def spread_as_wide(rows: Rows) -> Verdict:
    """Holds if the cost of each of the others varies at least 90 % as much as that of the first."""
    first, *others = rows
    return Verdict(_counted([row.cost.std >= (1 - NEAR) * first.cost.std for row in others]), _deviations(rows))


def reach_its_costs(rows: Rows) -> Verdict:
    """Holds if the largest cost of each of the others comes within 10 % of the mean cost of the first."""
    first, *others = rows
    reached = [row.cost.largest >= (1 - NEAR) * first.cost.mean for row in others]
    worst = "; ".join(f"{row.label} at worst {row.cost.largest:.2f}" for row in others)
    return Verdict(_counted(reached), f"{first.label} {first.cost.mean:.2f} on average; {worst}")


def loses_return_and_spends_less(rows: Rows) -> Verdict:
    """Holds if the first has a lower mean return and a lower mean cost than the second, both beyond 10 %; partly if one is."""
    first, second = rows
    lower = [
        first.task_return.mean < second.task_return.mean and not _close(first.task_return.mean, second.task_return.mean),
        first.cost.mean < second.cost.mean and not _close(first.cost.mean, second.cost.mean),
    ]
    return Verdict(_counted(lower), f"{_returns(rows)}; {_costs(rows)}")


def smaller_gap(rows: Rows) -> Verdict:
    """Holds if the first pair's second return is nearer to its first, relatively, than in every other pair."""
    pairs = [(rows[i], rows[i + 1]) for i in range(0, len(rows), 2)]
    gaps = [(a.task_return.mean - b.task_return.mean) / abs(a.task_return.mean) for a, b in pairs]
    reasons = (f"{b.label} {100 * gap:.1f} % below {a.label}" for (a, b), gap in zip(pairs, gaps, strict=True))
    return Verdict(_counted([gaps[0] < gap for gap in gaps[1:]]), "; ".join(reasons))


def _graded(rows: Rows, holds: float, partly: float) -> Word:
    worst = max(row.share for row in rows)
    return "holds" if worst <= holds else "holds partly" if worst <= partly else "does not hold"


def _counted(right: Sequence[bool]) -> Word:
    return "holds" if all(right) else "holds partly" if any(right) else "does not hold"


def _close(value: float, other: float, share: float = NEAR) -> bool:
    return abs(value - other) <= share * abs(other)


def _violations(rows: Rows) -> str:
    def seeds(row: Evidence) -> str:
        return f", in {sum(seed.violations > 0 for seed in row.seeds)} of {len(row.seeds)} seeds" if row.violations else ""

    return "violations: " + "; ".join(f"{row.label} {row.seen}{seeds(row)}" for row in rows)


def _late(rows: Rows, told: Callable[[Late], str]) -> str:
    known = [f"{row.label} {told(row.late)}" for row in rows if row.late]
    return f"; in the second half of training: {'; '.join(known)}" if known else ""


def _returns(rows: Rows) -> str:
    numbers = ((row.label, row.task_return) for row in rows)
    return "mean return: " + "; ".join(f"{label} {one.mean:.2f} [{one.low:.2f}, {one.high:.2f}]" for label, one in numbers)


def _costs(rows: Rows) -> str:
    return "mean cost: " + "; ".join(f"{row.label} {row.cost.mean:.2f}" for row in rows)


def _deviations(rows: Rows) -> str:
    return "standard deviation of the cost: " + "; ".join(f"{row.label} {row.cost.std:.2f}" for row in rows)
