"""What the paper says about its figures and tables, each sentence with the judge that decides from our numbers if it holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from saute.paper.judges import (
    Rows,
    Verdict,
    best_of_the_safe,
    come_to_the_same,
    differ_little,
    earn_alike,
    earn_as_much_at_best,
    earn_more,
    hardly_violate,
    keep_on_average,
    loses_return_and_spends_less,
    mostly_violate,
    never_violate,
    often_violate,
    reach_its_costs,
    safer,
    smaller_gap,
    sometimes_violate,
    spread_as_wide,
    spread_wider,
)
from saute.paper.measured import Evidence

__all__ = ["CLAIMS", "Claim", "verdict"]


class Claim(NamedTuple):
    """A sentence of the paper in our words, and the rows, by label, that its judge is shown in this order."""

    sentence: str
    labels: tuple[str, ...]
    judge: Callable[[Rows], Verdict]
    source: str | None = None
    """Another artifact whose rows are needed as well."""


def verdict(claim: Claim, rows: Mapping[str, Evidence]) -> Verdict:
    """The judge's, or "not run" as long as rows are missing."""
    missing = [label for label in claim.labels if label not in rows]
    if missing:
        return Verdict("not run", f"waits for {', '.join(missing)}")
    return claim.judge([rows[label] for label in claim.labels])


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
            "Policies that were trained at 60 return at 40 as much as those of 40.",
            ("naïve 60 → 40", "baseline 40"),
            earn_alike,
        ),
        Claim(
            "Policies that were trained at 60 return at 80 as much as those of 80.",
            ("naïve 60 → 80", "baseline 80"),
            earn_alike,
        ),
        Claim(
            "Some trajectories of the policies that were trained at 60 violate at 40 and at 80.",
            ("naïve 60 → 40", "naïve 60 → 80"),
            sometimes_violate,
        ),
        Claim("One policy for all budgets is safer at 40 than those of 60.", ("zero-shot 40", "naïve 60 → 40"), safer),
        Claim("One policy for all budgets is safer at 80 than those of 60.", ("zero-shot 80", "naïve 60 → 80"), safer),
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
        Claim("From n = 0 to 100 outliers in the cost become fewer.", ("n = 100", "n = 0"), safer),
        Claim("From n = 100 to 1e4 there are more of them.", ("n = 100", "n = 10000"), safer),
        Claim("From n = 100 to 1e5 there are more of them.", ("n = 100", "n = 100000"), safer),
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
"""By artifact."""
