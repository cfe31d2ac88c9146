"""The claims of the paper about its figures and tables, in the meaning of its words, each with the judge that decides it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from saute.paper.figures import EQUAL
from saute.paper.judges import (
    Judge,
    Verdict,
    best_of_the_safe,
    come_to_the_same,
    differ_little,
    earn_alike,
    earn_as_much_in_most,
    earn_in_a_wider_range,
    earn_more,
    earn_most,
    fewer_outliers,
    hardly_violate,
    keep_on_average,
    loses_return_and_spends_less,
    never_violate,
    often_violate,
    reach_its_costs,
    safe_soon,
    safer,
    smaller_gap,
    sometimes_violate,
    spend_less,
    spread_as_wide,
    spread_wider,
    steadier,
)
from saute.paper.measured import Measured

__all__ = ["CLAIMS", "Claim", "verdict"]


class Claim(NamedTuple):
    """A sentence of the paper in our words, the labels of the rows that decide it, in order, and its judge."""

    sentence: str
    labels: tuple[str, ...]
    judge: Judge
    sources: tuple[str, ...] = ()
    """Other figures or tables whose rows are needed too."""


def verdict(claim: Claim, rows: Mapping[str, Measured], unit: float) -> Verdict:
    """The verdict of the claim's judge, or "not run" as long as rows are missing."""
    missing = [label for label in claim.labels if label not in rows]
    if missing:
        return Verdict("not run", f"waits for {'; '.join(missing)}")
    return claim.judge([rows[label] for label in claim.labels], unit)


def _family(name: str, *others: str) -> tuple[Claim, ...]:
    return (
        Claim(f"Sauté {name} is safe in all trajectories.", (f"Sauté {name}",), never_violate),
        *(Claim(f"{one} has trajectories that violate.", (one,), sometimes_violate) for one in (f"{name}-L", *others)),
        Claim(f"Sauté {name} is safe after 200 episodes of training.", (f"Sauté {name}",), safe_soon),
    )


def _gap(name: str) -> Claim:
    return Claim(
        f"Sauté TRPO has a smaller gap of return to TRPO-L than Sauté {name} has to {name}-L.",
        ("TRPO-L", "Sauté TRPO", f"{name}-L", f"Sauté {name}"),
        smaller_gap,
        sources=(f"pendulum-{name.lower()}",),
    )


SAUTE = f"Sauté{EQUAL}"


def _goal() -> tuple[Claim, ...]:
    return (
        Claim("Sauté is safe, with only a few outliers that violate.", ("Sauté",), hardly_violate),
        Claim("Most trajectories of Sauté return as much as those of TRPO-L.", (SAUTE, "TRPO-L"), earn_as_much_in_most),
        Claim("TRPO-L returns more than Sauté on average.", ("TRPO-L", SAUTE), earn_more),
        Claim("CPO returns more than Sauté on average.", ("CPO", SAUTE), earn_more),
        Claim("TRPO-L and CPO violate on a rather regular basis.", ("TRPO-L", "CPO"), often_violate),
        Claim("TRPO-L and CPO lower the average cost of vanilla TRPO.", ("Vanilla", "TRPO-L", "CPO"), spend_less),
        Claim("Neither TRPO-L nor CPO decreases the variance of the cost.", ("Vanilla", "TRPO-L", "CPO"), spread_as_wide),
        Claim("CVaR-L is a somewhat competitive approximation: safer than TRPO-L and CPO.", ("CVaR-L", "TRPO-L", "CPO"), safer),
        Claim("CVaR-L still has trajectories that violate.", ("CVaR-L",), sometimes_violate),
        *_pid(),
    )


def _pid() -> tuple[Claim, ...]:
    return (
        Claim("PID-L is steadier in training than TRPO-L.", ("PID-L", "TRPO-L"), steadier),
        Claim("PID-L performs like TRPO-L in the end.", ("PID-L", "TRPO-L"), come_to_the_same),
    )


def _on_average() -> tuple[Claim, ...]:
    return (
        Claim("TRPO-L is safe on average.", ("TRPO-L",), keep_on_average),
        Claim("CPO is safe on average.", ("CPO",), keep_on_average),
    )


NS = ("n = 0", "n = 10", "n = 100", "n = 1000", "n = 10000", "n = 100000")

CLAIMS: dict[str, tuple[Claim, ...]] = {
    "pendulum-trpo": (*_family("TRPO", "CPO"), _gap("PPO"), _gap("SAC")),
    "pendulum-ppo": _family("PPO"),
    "pendulum-sac": (
        *_family("SAC"),
        Claim(
            "Sauté SAC performs best overall.",
            ("Sauté SAC", "Sauté TRPO", "Sauté PPO"),
            earn_most,
            sources=("pendulum-trpo", "pendulum-ppo"),
        ),
    ),
    "sac-narrow": (
        Claim("Sauté SAC is safer than SAC-L with narrow networks too.", ("Sauté SAC", "SAC-L"), safer),
        Claim("Wider networks perform better.", ("Sauté SAC 256×256", "Sauté SAC"), earn_more),
    ),
    "model-based": (
        Claim("Sauté MBPO is safe in all trajectories.", ("Sauté MBPO",), never_violate),
        Claim("Sauté PETS is safe in all trajectories.", ("Sauté PETS",), never_violate),
        Claim("Sauté MBPO loses some return.", ("Vanilla MBPO", "Sauté MBPO"), earn_more),
        Claim("Sauté PETS loses some return.", ("Vanilla PETS", "Sauté PETS"), earn_more),
    ),
    "double-pendulum": (
        Claim("Sauté TRPO is safe in all trajectories.", ("Sauté TRPO",), never_violate),
        *_on_average(),
        Claim("The costs of TRPO-L and CPO vary widely.", (f"Sauté TRPO{EQUAL}", "TRPO-L", "CPO"), spread_wider),
        Claim("The returns of TRPO-L and CPO vary widely.", (f"Sauté TRPO{EQUAL}", "TRPO-L", "CPO"), earn_in_a_wider_range),
        Claim("Some outliers of TRPO-L and CPO behave like vanilla TRPO.", ("Vanilla TRPO", "TRPO-L", "CPO"), reach_its_costs),
        Claim(
            "Sauté TRPO performs best overall.",
            (f"Sauté TRPO{EQUAL}", "Vanilla TRPO", "TRPO-L", "CPO"),
            best_of_the_safe,
        ),
    ),
    "generalisation": (
        *(
            Claim(
                f"Policies trained at the budget 60 perform at {d} like policies trained at {d}.",
                (f"naïve 60 → {d}", f"baseline {d}"),
                earn_alike,
            )
            for d in (40, 80)
        ),
        *(
            Claim(
                f"Policies trained at the budget 60 have trajectories that violate at {d}.",
                (f"naïve 60 → {d}",),
                sometimes_violate,
            )
            for d in (40, 80)
        ),
        *(
            Claim(
                f"One policy for all budgets is safer at {d} than policies trained at 60.",
                (f"zero-shot {d}", f"naïve 60 → {d}"),
                safer,
            )
            for d in (40, 80)
        ),
        Claim(
            "One policy for all budgets is safe at each of them.",
            ("zero-shot 40", "zero-shot 60", "zero-shot 80"),
            never_violate,
        ),
    ),
    "ablation-pendulum": (
        Claim(
            "Without state augmentation the results are still competitive, since all tests start alike.",
            ("no state augmentation", "Sauté"),
            earn_alike,
        ),
    ),
    "ablation-double-pendulum": (
        Claim(
            "Without cost shaping the results are like those of vanilla TRPO.",
            ("no cost shaping", "Vanilla TRPO"),
            come_to_the_same,
            sources=("double-pendulum",),
        ),
        Claim(
            "Without state augmentation the return is significantly worse, and the costs are much lower.",
            ("no state augmentation", "Sauté"),
            loses_return_and_spends_less,
        ),
    ),
    "ablation-n": (
        Claim("From n = 0 to 100 the outliers of the cost become fewer.", ("n = 100", "n = 0"), fewer_outliers),
        Claim(
            "With n = 10,000 and 100,000 the outliers of the cost are more than with 100.",
            ("n = 100", "n = 10000", "n = 100000"),
            fewer_outliers,
        ),
        Claim("The returns differ little.", NS, differ_little),
        Claim("The return is best near n = 1000.", ("n = 1000", *(n for n in NS if n != "n = 1000")), earn_most),
    ),
    "reacher": (
        Claim("Sauté is safe in all trajectories.", ("Sauté",), never_violate),
        *_on_average(),
        Claim("TRPO-L has trajectories that violate.", ("TRPO-L",), sometimes_violate),
        Claim("CPO has trajectories that violate.", ("CPO",), sometimes_violate),
        Claim("CVaR-L fails: it has trajectories that violate.", ("CVaR-L",), sometimes_violate),
        Claim("The cost of TRPO-L swings around the budget in training, that of CPO settles.", ("CPO", "TRPO-L"), steadier),
        Claim(
            "No Lagrangian method converges: their costs swing more than those of CPO.",
            ("CPO", "TRPO-L", "CVaR-L", "PID-L"),
            steadier,
        ),
        *_pid(),
    ),
    "point": _goal(),
    "car": _goal(),
}
"""The claims about each figure or table, by its name in `ARTIFACTS`."""
