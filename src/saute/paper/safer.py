"""How often training itself violates: a table of the ways to learn more safely, beside the plain one."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from saute.core.files import write_atomically, write_sealed
from saute.core.tables import markdown
from saute.evidence.stats import Interval, bootstrap, upper_bound
from saute.paper.figures import artifact_of
from saute.paper.measured import Measured
from saute.paper.page import read
from saute.paper.reproduce import Scale, folder_of, scaled
from saute.runs.folder import Metrics, read_metrics

__all__ = ["SAFE", "Learned", "learned", "safer"]

SAFE = 0.01
"""Largest share of violating episodes in an epoch of a safe policy."""
HEADS = (
    "method", "seeds", "violating training episodes", "in the first fifth of training", "steps until the policy is safe",
    "final return", "final violations",
)  # fmt: skip


class Learned(NamedTuple):
    """The training of one seed: its episodes and those that overspent the full budget, and when that came to an end."""

    episodes: int
    violations: int
    early: int
    """Violations in the first fifth of the epochs."""
    steps: int | None
    """Steps after which no epoch has more than 1 % of violating episodes; None if the last one has."""


def learned(epochs: Sequence[Metrics], steps_per_epoch: int) -> Learned:
    """What the numbers of one seed's epochs say of its training."""
    shares = [0.0 if math.isnan(epoch["violation_rate"]) else epoch["violation_rate"] for epoch in epochs]
    counts = [round(share * epoch["episodes"]) for share, epoch in zip(shares, epochs, strict=True)]
    unsafe = [number for number, share in enumerate(shares) if share > SAFE]
    safe_from = unsafe[-1] + 1 if unsafe else 0
    return Learned(
        episodes=round(sum(epoch["episodes"] for epoch in epochs)),
        violations=sum(counts),
        early=sum(counts[: math.ceil(len(epochs) / 5)]),
        steps=None if safe_from == len(epochs) else safe_from * steps_per_epoch,
    )


def safer(name: str, scale: Scale, runs: pathlib.Path, out: pathlib.Path) -> str:
    """The table of an artifact whose runs are tested, from the numbers of their training; written as text and as numbers."""
    tested, trained = read(out, scale, name), dict[str, list[Learned]]()
    for row in artifact_of(name).rows:
        if row.label in tested:
            config = scaled(row, scale)
            seeds = zip(*read_metrics(folder_of(config, runs)), strict=True)
            trained[row.label] = [learned(epochs, config.settings.steps_per_epoch) for epochs in seeds]
    lines = [HEADS, *(_line(label, seeds, tested[label]) for label, seeds in trained.items())]
    text = markdown(lines)
    place = out / scale / name
    write_atomically(place / "safer.md", f"{text}\n".encode())
    write_sealed(
        place / "training.json", {"rows": {label: [seed._asdict() for seed in seeds] for label, seeds in trained.items()}}
    )
    return text


def _line(label: str, seeds: Sequence[Learned], tested: Measured) -> tuple[str, ...]:
    episodes, violations = sum(seed.episodes for seed in seeds), sum(seed.violations for seed in seeds)
    share = _over_seeds([100 * seed.violations / seed.episodes for seed in seeds])
    early = f"{100 * sum(seed.early for seed in seeds) / violations:.0f} % of them" if violations else "–"
    known = [seed.steps for seed in seeds if seed.steps is not None]
    steps = f"{_shown(_over_seeds(known), 0)}" if known else "never"
    never = "" if len(known) == len(seeds) or not known else f"; {len(seeds) - len(known)} seed(s) never"
    seen = f"{violations:,} of {episodes:,}: {_shown(share, 2)} %"
    if not violations:
        seen = f"0 of {episodes:,}, so ≤ {100 * upper_bound(0, episodes):.2g} % at 95 %"
    task = tested.task_return
    final = f"{task.mean:.2f} [{task.low:.2f}, {task.high:.2f}]"
    return label, str(len(seeds)), seen, early, steps + never, final, tested.seen


def _over_seeds(numbers: Sequence[float]) -> Interval:
    """The mean of one number per seed, with its 95 % bootstrap interval."""
    return bootstrap([np.array([number], float) for number in numbers], lambda drawn: float(drawn.mean()))


def _shown(interval: Interval, digits: int) -> str:
    return "{:,.{d}f} [{:,.{d}f}, {:,.{d}f}]".format(*interval, d=digits)
