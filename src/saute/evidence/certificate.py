"""What evaluated episodes prove about a budget, from the plain costs of any library: NumPy and SciPy only."""

from __future__ import annotations

import dataclasses
import json
import math
import reprlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from saute.core.tables import columns
from saute.evidence.stats import Interval, as_seeds, bootstrap, check_share, cvar, quantile_bound, upper_bound

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

    budget: float | None
    """None if every episode had its own."""
    confidence: float
    pooled: Sample
    seeds: tuple[Sample, ...]

    @property
    def statement(self) -> str:
        """The one sentence that the episodes allow: k of n, and the exact bound."""
        one = self.pooled
        return (
            f"{one.violations} of {one.episodes} episodes violated, "
            f"so P(violation) ≤ {100 * one.bound:.3g} % at {100 * self.confidence:g} % confidence"
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What the numbers do and do not speak of."""
        notes = []
        if len(self.seeds) > 1:
            notes.append(
                f"The pooled bound treats the episodes of {len(self.seeds)} seeds as one sample, a policy drawn anew for each; "
                "the bound of each policy is that of its own seed."
            )
        if any(sample.q99 is None for sample in self.seeds):
            wanted = math.ceil(math.log(1 - self.confidence) / math.log(0.99))
            notes.append(f"A dash stands where there are too few episodes to bound that share; 99 % needs {wanted}.")
        notes.append(
            "Every bound holds by itself, not all of them at once, and for episodes like these: independent ones of the same "
            "policy in the same environment with the same starts."
        )
        return tuple(notes)

    def table(self) -> str:
        """Every seed and all of them pooled, in columns."""
        heads = ["", "episodes", "violated", "P(violation) ≤", "mean", "CVaR 1 %", "worst", "90 % of costs ≤", "99 % ≤", "used"]
        heads += ["return, IQM"] if self.pooled.task_return is not None else []
        shown = (*self.seeds, self.pooled) if len(self.seeds) > 1 else self.seeds
        return columns([heads, *map(_cells, shown)], right=range(1, len(heads)))

    def text(self) -> str:
        """A readable report."""
        budget = "every episode and its own budget" if self.budget is None else f"a budget of {self.budget:g} per episode"
        return "\n\n".join([f"Safety certificate for {budget}", f"{self.statement}.", self.table(), "\n".join(self.notes)])

    def json(self, **extra: object) -> str:
        """Everything as JSON, after any extra entries; null where something is not known."""
        content = {"statement": self.statement, **dataclasses.asdict(self), "notes": self.notes}
        return json.dumps(_plain({**extra, **content}), indent=2, allow_nan=False, ensure_ascii=False) + "\n"


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

    Example:
        >>> from saute.evidence.certificate import certify
        >>> certify([20.0] * 500, budget=30.0).statement
        '0 of 500 episodes violated, so P(violation) ≤ 0.597 % at 95 % confidence'
    """
    check_share(confidence, "confidence")
    paid = as_seeds(costs, "costs")
    for i, row in enumerate(paid):
        if row.min() < 0.0:
            raise ValueError(f"costs: episode {row.argmin()} of seed {i} is {row.min()}; safety costs are ≥ 0, check the sign")
    limits = _limits(budget, paid)
    broken = [row > limit for row, limit in zip(paid, limits, strict=True)] if violated is None else _flags(violated, paid)
    earned = None if returns is None else _alike(as_seeds(returns, "returns"), paid, "returns")

    def sample(name: str, chosen: slice) -> Sample:
        part, violations = np.concatenate(paid[chosen]), int(np.concatenate(broken[chosen]).sum())
        return Sample(
            name=name,
            episodes=part.size,
            violations=violations,
            bound=upper_bound(violations, part.size, confidence),
            mean=float(part.mean()),
            cvar=cvar(part),
            worst=float(part.max()),
            q90=quantile_bound(part, 0.90, confidence),
            q99=quantile_bound(part, 0.99, confidence),
            budget_use=float((part / np.concatenate(limits[chosen])).mean()),
            task_return=None if earned is None else bootstrap(earned[chosen], confidence=confidence, seed=seed),
        )

    seeds = [sample(f"seed {i}", slice(i, i + 1)) for i in range(len(paid))]
    pooled = sample("pooled", slice(None)) if len(seeds) > 1 else dataclasses.replace(seeds[0], name="pooled")
    common = None if isinstance(budget, list | tuple | np.ndarray) else float(limits[0][0])
    return Certificate(common, float(confidence), pooled, tuple(seeds))


def _limits(budget: ArrayLike, paid: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The budget of every episode of every seed."""
    if isinstance(budget, list | tuple | np.ndarray):
        limits = _alike(as_seeds(budget, "budget"), paid, "budget")
        if all((row > 0.0).all() for row in limits):
            return limits
    elif isinstance(budget, int | float | np.number) and not isinstance(budget, bool) and 0.0 < budget < math.inf:
        return [np.full(row.size, float(budget)) for row in paid]
    shown = reprlib.repr(budget)
    raise ValueError(
        f"budget={shown} must be positive and finite: one number, or one per episode; certify constraints one by one"
    )


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


def _plain(value: object) -> object:
    """The same with named tuples as dicts, and null for numbers that JSON does not have."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return _plain(value._asdict())
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
