"""The claims of the paper about its figures and tables, each with a judge that decides from our numbers whether it holds.

A judge is a function of rows, in the order of the claim's labels; its reason is the numbers that decided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from saute.paper.measured import Late, Measured

__all__ = ["CLAIMS", "Claim", "Verdict", "verdict"]

Word = Literal["holds", "holds partly", "does not hold", "not run"]
Measurements = Sequence[Measured]

FEW, SEVERAL, REGULAR, MOST = 0.01, 0.05, 0.10, 0.50
"""Shares of violating episodes: at most a few outliers, at most several, at least regular, more than most."""
NEAR, NEAR_IN_COST = 0.10, 0.25
"""Relative differences up to which two returns, and two costs, count as equal; costs vary more than returns."""
LITTLE, SOME = 0.15, 0.30
"""Relative differences between the largest and the least of many returns: as little as in the paper, and still small."""
WIDER = 2.0
"""From this many times another spread on, a spread counts as wide."""


class Verdict(NamedTuple):
    word: Word
    reason: str


class Claim(NamedTuple):
    """A sentence of the paper in our words, the labels of the rows that decide it, in order, and its judge."""

    sentence: str
    labels: tuple[str, ...]
    judge: Callable[[Measurements], Verdict]
    source: str | None = None
    """Another figure or table, if its rows are needed too."""


def verdict(claim: Claim, rows: Mapping[str, Measured]) -> Verdict:
    """The verdict of the claim's judge, or "not run" as long as rows are missing."""
    missing = [label for label in claim.labels if label not in rows]
    if missing:
        return Verdict("not run", f"waits for {', '.join(missing)}")
    return claim.judge([rows[label] for label in claim.labels])


def never_violate(rows: Measurements) -> Verdict:
    """Holds if no row has a violation, partly if each row has at most 1 % of violating episodes."""
    return Verdict(_graded(rows, 0.0, FEW), _violations(rows))


def hardly_violate(rows: Measurements) -> Verdict:
    """Holds if each row has at most 1 % of violating episodes, partly if each has at most 5 %."""
    return Verdict(_graded(rows, FEW, SEVERAL), _violations(rows))


def sometimes_violate(rows: Measurements) -> Verdict:
    """Holds if each row has at least one violation."""
    return Verdict(_counted([row.violations > 0 for row in rows]), _violations(rows))


def often_violate(rows: Measurements) -> Verdict:
    """Holds if each row has at least 10 % of violating episodes; those of training are told, but do not count."""
    return Verdict(
        _counted([row.share >= REGULAR for row in rows]),
        _violations(rows) + _late(rows, lambda late: f"{100 * late.share:.1f} %"),
    )


def mostly_violate(rows: Measurements) -> Verdict:
    """Holds if more than half of each row's episodes violate."""
    return Verdict(_counted([row.share > MOST for row in rows]), _violations(rows))


def safer(rows: Measurements) -> Verdict:
    """Holds if the first row violates less often than each other row, partly if never more often."""
    first, *others = rows
    less, more = ([first.share < row.share for row in others], [first.share > row.share for row in others])
    return Verdict("holds partly" if not any(more) and not all(less) else _counted(less), _violations(rows))


def keep_on_average(rows: Measurements) -> Verdict:
    """Holds if each row's mean cost is within the budget; that of training is told, but does not count."""
    numbers = (f"{r.label} {r.cost.mean:.2f} [{r.cost.low:.2f}, {r.cost.high:.2f}] of {r.budget:g}" for r in rows)
    late = _late(rows, lambda late: f"{late.cost:.2f}")
    return Verdict(_counted([row.cost.mean <= row.budget for row in rows]), f"mean cost: {'; '.join(numbers)}{late}")


def earn_more(rows: Measurements) -> Verdict:
    """Holds if the first row's interval of the mean return is above all others; partly if its mean is above another's."""
    first, *others = rows
    apart = [first.task_return.low > row.task_return.high for row in others]
    above = [first.task_return.mean > row.task_return.mean for row in others]
    word: Word = "holds" if all(apart) else "holds partly" if any(above) else "does not hold"
    return Verdict(word, _returns(rows))


def earn_alike(rows: Measurements) -> Verdict:
    """Holds if the first row's mean return is within 10 % of that of each other row."""
    first, *others = rows
    close = [_close(first.task_return.mean, row.task_return.mean) for row in others]
    return Verdict(_counted(close), _returns(rows))


def earn_as_much_at_best(rows: Measurements) -> Verdict:
    """Holds if the first row's median return is within 10 % of that of each other row."""
    first, *others = rows
    close = [_close(first.task_return.median, row.task_return.median) for row in others]
    return Verdict(_counted(close), "median return: " + "; ".join(f"{r.label} {r.task_return.median:.2f}" for r in rows))


def come_to_the_same(rows: Measurements) -> Verdict:
    """Holds if the mean returns are within 10 % and the mean costs within 25 %, partly if only one of the two is."""
    first, second = rows
    close = [
        _close(first.task_return.mean, second.task_return.mean),
        _close(first.cost.mean, second.cost.mean, NEAR_IN_COST),
    ]
    return Verdict(_counted(close), f"{_returns(rows)}; {_costs(rows)}")


def differ_little(rows: Measurements) -> Verdict:
    """Holds if the mean returns differ by at most 15 % of the largest, as the published ones do; partly by at most 30 %."""
    means = [row.task_return.mean for row in rows]
    gap = (max(means) - min(means)) / max(abs(mean) for mean in means)
    word: Word = "holds" if gap <= LITTLE else "holds partly" if gap <= SOME else "does not hold"
    return Verdict(word, f"{_returns(rows)}: {100 * gap:.0f} % apart")


def best_of_the_safe(rows: Measurements) -> Verdict:
    """Holds if the first row violates at most 1 % of the time, and no row as safe returns more; partly if one does."""
    first, *others = rows
    rivals = [row.label for row in others if row.share <= FEW and row.task_return.mean > first.task_return.mean]
    word: Word = "does not hold" if first.share > FEW else "holds partly" if rivals else "holds"
    return Verdict(
        word, f"{_violations(rows)}; {_returns(rows)}" + (f"; better and safe: {', '.join(rivals)}" if rivals else "")
    )


def spread_wider(rows: Measurements, times: float = WIDER) -> Verdict:
    """Holds if the cost of each other row varies at least twice as much as that of the first row."""
    first, *others = rows
    deviations = "; ".join(f"{row.label} {row.cost.std:.2f}" for row in rows)
    return Verdict(
        _counted([row.cost.std >= times * first.cost.std for row in others]), f"standard deviation of the cost: {deviations}"
    )


def spread_as_wide(rows: Measurements) -> Verdict:
    """Holds if the cost of each other row varies at least 90 % as much as that of the first row."""
    return spread_wider(rows, 1 - NEAR)


def reach_its_costs(rows: Measurements) -> Verdict:
    """Holds if the largest cost of each other row is at least 90 % of the first row's mean cost."""
    first, *others = rows
    reached = [row.cost.largest >= (1 - NEAR) * first.cost.mean for row in others]
    worst = "; ".join(f"{row.label} at worst {row.cost.largest:.2f}" for row in others)
    return Verdict(_counted(reached), f"{first.label} {first.cost.mean:.2f} on average; {worst}")


def loses_return_and_spends_less(rows: Measurements) -> Verdict:
    """Holds if both mean return and mean cost of the first row are lower by more than 10 %; partly if one of them is."""
    first, second = rows
    lower = [
        first.task_return.mean < second.task_return.mean and not _close(first.task_return.mean, second.task_return.mean),
        first.cost.mean < second.cost.mean and not _close(first.cost.mean, second.cost.mean),
    ]
    return Verdict(_counted(lower), f"{_returns(rows)}; {_costs(rows)}")


def smaller_gap(rows: Measurements) -> Verdict:
    """Rows are pairs; holds if the second row of the first pair loses a smaller part of the return than in any other pair."""
    pairs = [(rows[i], rows[i + 1]) for i in range(0, len(rows), 2)]
    gaps = [(a.task_return.mean - b.task_return.mean) / abs(a.task_return.mean) for a, b in pairs]
    reasons = (
        f"{b.label} {100 * abs(gap):.1f} % {'above' if gap < 0 else 'below'} {a.label}"
        for (a, b), gap in zip(pairs, gaps, strict=True)
    )
    return Verdict(_counted([gaps[0] < gap for gap in gaps[1:]]), "; ".join(reasons))


def _graded(rows: Measurements, holds: float, partly: float) -> Word:
    worst = max(row.share for row in rows)
    return "holds" if worst <= holds else "holds partly" if worst <= partly else "does not hold"


def _counted(right: Sequence[bool]) -> Word:
    return "holds" if all(right) else "holds partly" if any(right) else "does not hold"


def _close(value: float, other: float, share: float = NEAR) -> bool:
    return abs(value - other) <= share * abs(other)


def _violations(rows: Measurements) -> str:
    def seeds(row: Measured) -> str:
        return f", in {sum(seed.violations > 0 for seed in row.seeds)} of {len(row.seeds)} seeds" if row.violations else ""

    return "violations: " + "; ".join(f"{row.label} {row.seen}{seeds(row)}" for row in rows)


def _late(rows: Measurements, told: Callable[[Late], str]) -> str:
    known = [f"{row.label} {told(row.late)}" for row in rows if row.late]
    return f"; in the second half of training: {'; '.join(known)}" if known else ""


def _returns(rows: Measurements) -> str:
    numbers = ((row.label, row.task_return) for row in rows)
    return "mean return: " + "; ".join(f"{label} {one.mean:.2f} [{one.low:.2f}, {one.high:.2f}]" for label, one in numbers)


def _costs(rows: Measurements) -> str:
    return "mean cost: " + "; ".join(f"{row.label} {row.cost.mean:.2f}" for row in rows)


def _family(name: str, *others: str) -> tuple[Claim, ...]:
    constrained = (f"{name}-L", *others)
    return (
        Claim(f"No trajectory of Sauté {name} violates.", (f"Sauté {name}",), never_violate),
        Claim(f"Some trajectories of {' and of '.join(constrained)} violate.", constrained, sometimes_violate),
    )


def _goal() -> tuple[Claim, ...]:
    return (
        Claim("Sauté is safe but for a few outliers.", ("Sauté",), hardly_violate),
        Claim("TRPO-L and CPO violate on a regular basis.", ("TRPO-L", "CPO"), often_violate),
        Claim("Most episodes of Sauté return as much as those of TRPO-L.", ("Sauté", "TRPO-L"), earn_as_much_at_best),
        Claim("TRPO-L returns more than Sauté on average.", ("TRPO-L", "Sauté"), earn_more),
        Claim("CPO returns more than Sauté on average.", ("CPO", "Sauté"), earn_more),
        Claim(
            "Neither TRPO-L nor CPO lets the cost vary less than vanilla does.", ("Vanilla", "TRPO-L", "CPO"), spread_as_wide
        ),
        Claim("CVaR-L comes closer to safety than TRPO-L and CPO.", ("CVaR-L", "TRPO-L", "CPO"), safer),
        Claim("CVaR-L leaves more outliers than Sauté.", ("Sauté", "CVaR-L"), safer),
        Claim("PID-L comes to the same as TRPO-L in the end.", ("PID-L", "TRPO-L"), come_to_the_same),
    )


CLAIMS: dict[str, tuple[Claim, ...]] = {
    "pendulum-trpo": (
        *_family("TRPO", "CPO"),
        Claim(
            "Sauté TRPO loses less return to TRPO-L than Sauté PPO does to PPO-L.",
            ("TRPO-L", "Sauté TRPO", "PPO-L", "Sauté PPO"),
            smaller_gap,
            source="pendulum-ppo",
        ),
    ),
    "pendulum-ppo": _family("PPO"),
    "pendulum-sac": _family("SAC"),
    "sac-narrow": (
        Claim("Sauté SAC is safer than SAC-L with narrow networks too.", ("Sauté SAC", "SAC-L"), safer),
        Claim("Wider networks return more.", ("Sauté SAC 256×256", "Sauté SAC"), earn_more),
    ),
    "model-based": (
        Claim("No trajectory of Sauté MBPO and of Sauté PETS violates.", ("Sauté MBPO", "Sauté PETS"), never_violate),
        Claim("Some trajectories of MBPO and of PETS violate.", ("Vanilla MBPO", "Vanilla PETS"), sometimes_violate),
        Claim("Sauté MBPO returns less than MBPO.", ("Vanilla MBPO", "Sauté MBPO"), earn_more),
        Claim("Sauté PETS returns less than PETS.", ("Vanilla PETS", "Sauté PETS"), earn_more),
    ),
    "double-pendulum": (
        Claim("No trajectory of Sauté TRPO violates.", ("Sauté TRPO",), never_violate),
        Claim("TRPO-L and CPO keep the budget on average.", ("TRPO-L", "CPO"), keep_on_average),
        Claim("The costs of TRPO-L and CPO vary widely.", ("Sauté TRPO", "TRPO-L", "CPO"), spread_wider),
        Claim("Some outliers of TRPO-L and CPO behave like vanilla TRPO.", ("Vanilla TRPO", "TRPO-L", "CPO"), reach_its_costs),
        Claim("Sauté TRPO performs best overall.", ("Sauté TRPO", "Vanilla TRPO", "TRPO-L", "CPO"), best_of_the_safe),
    ),
    "generalisation": (
        Claim(
            "Policies trained at the budget 60 return as much at 40 as policies trained at 40.",
            ("naïve 60 → 40", "baseline 40"),
            earn_alike,
        ),
        Claim(
            "Policies trained at the budget 60 return as much at 80 as policies trained at 80.",
            ("naïve 60 → 80", "baseline 80"),
            earn_alike,
        ),
        Claim(
            "Some trajectories of policies trained at the budget 60 violate at 40 and at 80.",
            ("naïve 60 → 40", "naïve 60 → 80"),
            sometimes_violate,
        ),
        Claim(
            "One policy for all budgets is safer at 40 than policies trained at 60.", ("zero-shot 40", "naïve 60 → 40"), safer
        ),
        Claim(
            "One policy for all budgets is safer at 80 than policies trained at 60.", ("zero-shot 80", "naïve 60 → 80"), safer
        ),
        Claim(
            "One policy for all budgets violates at none of them.",
            ("zero-shot 40", "zero-shot 60", "zero-shot 80"),
            never_violate,
        ),
    ),
    "ablation-pendulum": (
        Claim("Without cost shaping the budget is ignored.", ("no cost shaping",), mostly_violate),
        Claim(
            "Without state augmentation the policy is still competitive, since all tests start alike.",
            ("no state augmentation", "Sauté"),
            earn_alike,
        ),
    ),
    "ablation-double-pendulum": (
        Claim(
            "Without cost shaping the results are those of vanilla TRPO.",
            ("no cost shaping", "Vanilla TRPO"),
            come_to_the_same,
            source="double-pendulum",
        ),
        Claim(
            "Without state augmentation the return is much lower, and much of the budget stays unused.",
            ("no state augmentation", "Sauté"),
            loses_return_and_spends_less,
        ),
    ),
    "ablation-n": (
        Claim("Outliers in the cost become fewer from n = 0 to 100.", ("n = 100", "n = 0"), safer),
        Claim("Outliers in the cost become more from n = 100 to 1e4.", ("n = 100", "n = 10000"), safer),
        Claim("Outliers in the cost become more from n = 100 to 1e5.", ("n = 100", "n = 100000"), safer),
        Claim(
            "The returns differ little.",
            ("n = 0", "n = 10", "n = 100", "n = 1000", "n = 10000", "n = 100000"),
            differ_little,
        ),
    ),
    "reacher": (
        Claim("No trajectory of Sauté violates.", ("Sauté",), never_violate),
        Claim("Some trajectories of TRPO-L and of CPO violate.", ("TRPO-L", "CPO"), sometimes_violate),
        Claim("CVaR-L fails to keep the budget.", ("CVaR-L",), often_violate),
        Claim("PID-L comes to the same as TRPO-L in the end.", ("PID-L", "TRPO-L"), come_to_the_same),
    ),
    "point": _goal(),
    "car": _goal(),
}
"""The claims about each figure or table, by its name in `ARTIFACTS`."""
