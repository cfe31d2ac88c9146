"""What evaluated episodes prove about a budget, from the plain costs of any library: NumPy and SciPy only."""

from __future__ import annotations

import dataclasses
import math
import reprlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from saute.core.tables import as_json, columns
from saute.core.text import wrapped
from saute.evidence.stats import Interval, as_seeds, bootstrap, by_constraint, check_share, cvar, quantile_bound, upper_bound
from saute.evidence.trials import seeds_told

__all__ = ["Certificate", "Sample", "certify"]


@dataclasses.dataclass(frozen=True)
class Sample:
    """The episodes of one seed, or of all of them together, held against the budget."""

    name: str
    episodes: int
    violations: int
    bound: float
    """Upper bound on P(violation)."""
    mean: float
    cvar: float
    """Mean of the worst 1 % of the costs."""
    worst: float
    q90: float | None
    """Upper bound on the cost that 90 % of all episodes keep; None if there are too few episodes to tell."""
    q99: float | None
    budget_use: float
    """Mean of cost / budget."""
    task_return: Interval | None
    """Interquartile mean of the returns with its bootstrap interval, if returns were given."""


@dataclasses.dataclass(frozen=True)
class Certificate:
    """Bounds that hold, each by itself, with the given confidence; `text()` to read, `json()` for machines."""

    budget: float | tuple[float, ...] | None
    """One number, or one per constraint; None if every episode had its own."""
    confidence: float
    pooled: Sample
    """Of several constraints, the cost of an episode is here the largest share that it used of one of its budgets."""
    seeds: tuple[Sample, ...]
    each: tuple[Certificate, ...] = ()
    """One for each of m constraints at confidence 1 − (1 − c)/m, so that all of them hold at once with confidence c."""

    @property
    def statement(self) -> str:
        """The one sentence that the episodes allow: k of n, and the exact bound."""
        one = self.pooled
        violated = f"overspent one of their {len(self.each)} budgets" if self.each else "violated"
        return (
            f"{one.violations} of {one.episodes} episodes {violated}, "
            f"so P(violation) ≤ {100 * one.bound:.3g} % at {100 * self.confidence:g} % confidence"
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What the numbers do and do not speak of."""
        notes = []
        if len(self.seeds) > 1:
            notes.append(
                f"{seeds_told(sum(one.violations > 0 for one in self.seeds), len(self.seeds))}; these are the method's sample."
            )
            notes.append(
                f"The pooled bound treats the episodes of {len(self.seeds)} seeds as one sample, a policy drawn anew for each; "
                "the bound of each policy is that of its own seed."
            )
        if self.each:
            own, alone = f"{100 * self.confidence:g} %", f"{100 * self.each[0].confidence:.4g} %"
            notes.append(
                f"The bounds on P(violation) of the {len(self.each)} constraints are at {alone} each, so that they hold at "
                f"once at {own} (Bonferroni); those of any budget are at {own}, and its costs are the largest share of a "
                "budget that each episode used."
            )
        if any(sample.q99 is None for one in (self, *self.each) for sample in one.seeds):
            strictest = max(one.confidence for one in (self, *self.each))
            wanted = math.ceil(math.log(1 - strictest) / math.log(0.99))
            notes.append(f"A dash stands where there are too few episodes to bound that share; 99 % needs {wanted}.")
        notes.append(
            f"Every {'other ' if self.each else ''}bound holds by itself, not all of them at once, and for episodes like "
            "these: independent ones of the same policy in the same environment with the same starts."
        )
        return tuple(notes)

    def table(self, width: int | None = None) -> str:
        """Every seed and all of them pooled, in columns; of several constraints, for any of them and then for each."""
        rows = self.rows
        own = columns(rows, right=range(1, len(rows[0])), width=width)
        if not self.each:
            return own
        tables = [f"Constraint {i}, {one.about}\n{one.table(width)}" for i, one in enumerate(self.each)]
        return "\n\n".join([f"Any of the budgets\n{own}", *tables])

    @property
    def about(self) -> str:
        """The budget in words."""
        return _of(self.budget)

    @property
    def samples(self) -> tuple[Sample, ...]:
        """Every seed and, of several, all of them pooled."""
        return (*self.seeds, self.pooled) if len(self.seeds) > 1 else self.seeds

    @property
    def rows(self) -> list[list[str]]:
        """The heads and cells of its own table."""
        heads = ["", "episodes", "violated", "P(violation) ≤", "mean", "CVaR 1 %", "worst", "90 % of costs ≤", "99 % ≤", "used"]
        heads += ["return, IQM"] if self.pooled.task_return is not None else []
        return [heads, *map(_cells, self.samples)]

    def text(self, width: int | None = None) -> str:
        """A readable report, in so many columns of a terminal."""
        budget = "every episode and its own budget" if self.budget is None else f"{self.about} per episode"
        statements = [f"{self.statement}.", *(f"Constraint {i}: {one.statement}." for i, one in enumerate(self.each))]
        head = f"Safety certificate for {budget}\n\n" + "\n".join(statements)
        return "\n\n".join([wrapped(head, width), self.table(width), wrapped("\n".join(self.notes), width)])

    def json(self, **extra: object) -> str:
        """Everything as JSON, after any extra entries; null where something is not known."""
        content = {"statement": self.statement, **dataclasses.asdict(self), "notes": self.notes}
        if not self.each:
            del content["each"]
        return as_json({**extra, **content}) + "\n"


def certify(
    costs: ArrayLike,
    budget: ArrayLike,
    *,
    violated: ArrayLike | None = None,
    returns: ArrayLike | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> Certificate:
    """What the costs of whole episodes say about a budget, for each seed and for all of them together.

    Costs, and returns if given, are sums over episodes: (episodes,) of one policy, (seeds, episodes), or a list with one array
    per seed. The budget is one number, or that of each episode in the same shape. An episode violates if its cost is above its
    budget; to spend exactly all of it is allowed. Where the costs alone do not tell, since they are discounted, say, pass as
    `violated` what each episode's own remaining budget said: it decides, and the costs are only described.

    Several constraints have costs with a last axis, (seeds, episodes, m) or a list with one (episodes, m) array per seed, and a
    budget for each, `budget=[30.0, 5.0]`; (episodes, m) is enough for one policy. The certificate is then about any of the
    budgets being overspent, and has one for each of them in `each`, all of which hold at once (Bonferroni).

    Example:
        >>> from saute.evidence.certificate import certify
        >>> certify([20.0] * 500, budget=30.0).statement
        '0 of 500 episodes violated, so P(violation) ≤ 0.597 % at 95 % confidence'
    """
    check_share(confidence, "confidence")
    numbers = isinstance(budget, list | tuple | np.ndarray) and all(np.ndim(one) == 0 for one in budget)
    constraints = by_constraint(costs, len(budget) if numbers else None)  # type: ignore[arg-type]
    if constraints is not None:
        return _jointly(constraints, budget, violated, returns, confidence, seed)
    paid = as_seeds(costs, "costs")
    for i, row in enumerate(paid):
        if row.min() < 0.0:
            raise ValueError(f"costs: episode {row.argmin()} of seed {i} is {row.min()}; safety costs are ≥ 0, check the sign")
    limits = _limits(budget, paid)
    broken = [row > limit for row, limit in zip(paid, limits, strict=True)] if violated is None else _flags(violated, paid)
    earned = [None] * len(paid) if returns is None else _alike(as_seeds(returns, "returns"), paid, "returns")
    tests = list(map(OfSeed, paid, limits, broken, earned))
    each = tuple(_sample(f"seed {i}", [one], confidence, seed) for i, one in enumerate(tests))
    pooled = _sample("pooled", tests, confidence, seed) if len(each) > 1 else dataclasses.replace(each[0], name="pooled")
    common = None if isinstance(budget, list | tuple | np.ndarray) else float(limits[0][0])
    return Certificate(common, float(confidence), pooled, each)


class OfSeed(NamedTuple):
    """The episodes of one seed."""

    paid: np.ndarray
    limit: np.ndarray
    violated: NDArray[np.bool_]
    earned: np.ndarray | None


def _sample(name: str, seeds: Sequence[OfSeed], confidence: float, seed: int) -> Sample:
    paid, limit, violated = (np.concatenate([one[i] for one in seeds]) for i in range(3))
    violations, returns = int(violated.sum()), [one.earned for one in seeds if one.earned is not None]
    return Sample(
        name=name,
        episodes=paid.size,
        violations=violations,
        bound=upper_bound(violations, paid.size, confidence),
        mean=float(paid.mean()),
        cvar=cvar(paid),
        worst=float(paid.max()),
        q90=quantile_bound(paid, 0.90, confidence),
        q99=quantile_bound(paid, 0.99, confidence),
        budget_use=float((paid / limit).mean()),
        task_return=bootstrap(returns, confidence=confidence, seed=seed) if returns else None,
    )


def _jointly(
    costs: list[list[np.ndarray]],
    budget: ArrayLike,
    violated: ArrayLike | None,
    returns: ArrayLike | None,
    confidence: float,
    seed: int,
) -> Certificate:
    """A certificate about any of m budgets, with one for each at confidence 1 − (1 − c)/m (Bonferroni)."""
    m = len(costs)
    own: Any = by_constraint(budget) or budget
    if not isinstance(own, list | tuple | np.ndarray) or len(own) != m:
        raise ValueError(
            f"budget={reprlib.repr(budget)} is not one for each of the {m} constraints; pass {m} numbers in a list"
        )
    flags: Any = [None] * m if violated is None else by_constraint(violated, m)
    if flags is None or len(flags) != m:
        raise ValueError(f"violated has not one flag for each of the {m} constraints; pass it in the shape of the costs")
    alone = 1.0 - (1.0 - confidence) / m
    each = tuple(
        certify(paid, limit, violated=flag, confidence=alone, seed=seed)
        for paid, limit, flag in zip(costs, own, flags, strict=True)
    )
    limits = [_limits(limit, paid) for limit, paid in zip(own, costs, strict=True)]
    broken = (
        flags
        if violated is not None
        else [[row > limit for row, limit in zip(*one, strict=True)] for one in zip(costs, limits, strict=True)]
    )
    shares = [[row / limit for row, limit in zip(*one, strict=True)] for one in zip(costs, limits, strict=True)]
    largest = [np.max(seed_shares, axis=0) for seed_shares in zip(*shares, strict=True)]
    any_of_them = [np.any(rows, axis=0) for rows in zip(*broken, strict=True)]
    joint = certify(largest, 1.0, violated=any_of_them, returns=returns, confidence=confidence, seed=seed)
    common = tuple(one.budget for one in each if isinstance(one.budget, float))
    return dataclasses.replace(joint, budget=common if len(common) == m else None, each=each)


def _of(budget: float | tuple[float, ...] | None) -> str:
    if budget is None:
        return "a budget of its own for every episode"
    return (
        f"a budget of {budget:g}" if isinstance(budget, float) else f"budgets of {' and '.join(f'{one:g}' for one in budget)}"
    )


def _limits(budget: ArrayLike, paid: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The budget of every episode of every seed."""
    if isinstance(budget, list | tuple | np.ndarray):
        limits = _alike(as_seeds(budget, "budget"), paid, "budget")
        if all((row > 0.0).all() for row in limits):
            return limits
    elif isinstance(budget, int | float | np.number) and not isinstance(budget, bool) and 0.0 < budget < math.inf:
        return [np.full(row.size, float(budget)) for row in paid]
    shown = reprlib.repr(budget)
    raise ValueError(f"budget={shown} must be positive and finite: one number, or one per episode, or one per constraint")


def _flags(violated: ArrayLike, paid: Sequence[np.ndarray]) -> list[NDArray[np.bool_]]:
    rows = _alike(as_seeds(violated, "violated"), paid, "violated")
    for i, part in enumerate(violated):  # type: ignore[arg-type]
        if np.asarray(part).dtype != np.bool_:
            shown = reprlib.repr(part)
            raise ValueError(f"violated[{i}]={shown} is not True or False; pass one bool per episode, as costs > budget does")
    return [row > 0.0 for row in rows]


def _alike(rows: list[np.ndarray], paid: Sequence[np.ndarray], name: str) -> list[np.ndarray]:
    """The rows themselves, if they have as many episodes of every seed as there are costs."""
    have, want = [row.size for row in rows], [row.size for row in paid]
    if have != want:
        raise ValueError(f"{name} has {have} episodes per seed and costs have {want}; pass both of the same episodes")
    return rows


def _cells(sample: Sample) -> list[str]:
    def number(value: float | None) -> str:
        return "–" if value is None else f"{value:.2f}"

    cells = [sample.name, str(sample.episodes), str(sample.violations), f"{100 * sample.bound:.3g} %"]
    cells += [number(value) for value in (sample.mean, sample.cvar, sample.worst, sample.q90, sample.q99)]
    cells.append(f"{100 * sample.budget_use:.0f} %")
    if sample.task_return is not None:
        cells.append("{:.2f} [{:.2f}, {:.2f}]".format(*sample.task_return))
    return cells
