"""Everything that a report says of runs, as plain data: the words and numbers of `saute evaluate` and `saute certify`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from saute.envs import make_task
from saute.evidence.certificate import Certificate
from saute.evidence.plots import RATE, Epochs, by_seed, panels
from saute.evidence.stats import Interval
from saute.runs.budgets import AtBudget, Plane, paths_of
from saute.runs.config import Budget, Config
from saute.runs.evaluate import Outcome, pooled
from saute.runs.outcomes import heads, in_words, numbers_of, rows_of, stepped_in

__all__ = ["Facts", "Tested", "certificates", "comparison", "conditions", "curves", "distributions", "evaluation", "slider"]

Facts = dict[str, Any]
"""Plain values, for JSON."""
BINS, POINTS = 30, 150
"""Of a histogram, and of the curve of shares."""


class Tested(NamedTuple):
    """A run under the name it is shown by, with its fresh episodes and what they prove."""

    name: str
    config: Config
    outcomes: list[Outcome]
    certificate: Certificate


def table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], records: Sequence[Mapping[str, object]]) -> Facts:
    """Cells to be read, and the same numbers, all digits of them, to be downloaded."""
    return {"title": title, "heads": list(heads), "rows": [list(row) for row in rows], "records": list(map(_flat, records))}


def evaluation(runs: Sequence[Tested]) -> Facts:
    """The table of `saute evaluate`."""
    rows, records = list[list[str]](), list[dict[str, Any]]()
    for run in runs:
        budget = run.config.experiment.budget
        for seed, outcome in [*((str(i), one) for i, one in enumerate(run.outcomes)), ("all", pooled(run.outcomes))]:
            rows += rows_of(run.name, seed, outcome, budget)
            records.append({"run": run.name, "budget": budget, "seed": seed, **numbers_of(outcome)})
    discount = min(run.config.experiment.discount for run in runs)
    return table("Fresh episodes", heads(discount), rows, records)


def certificates(run: Tested) -> list[Facts]:
    """The tables of `saute certify`: of the budget or, of several, of any of them and then of each."""

    def of(title: str, one: Certificate) -> Facts:
        first, *rows = one.rows
        records = [{"confidence": one.confidence, "budget": one.budget, **asdict(sample)} for sample in one.samples]
        return table(title, ["seed", *first[1:]], rows, records)

    own, title = run.certificate, f"Certificate for {run.certificate.about} per episode"
    each = [of(f"Constraint {i}, {one.about}", one) for i, one in enumerate(own.each)]
    return [of("Certificate for any of the budgets" if each else title, own), *each]


def conditions(run: Tested, origin: Mapping[str, Any], episodes: int, seed: int) -> list[tuple[str, str]]:
    """What a certificate is about, and what it was made with."""
    it = run.config.experiment
    under = stepped_in(pooled(run.outcomes))
    return [
        ("task", it.env),
        ("method", f"{it.method}, {it.algo}; {it.seeds} seed(s) of {origin['epochs']} epochs"),
        ("budget", f"{in_words(run.certificate.budget or 0.0)} per episode"),
        (
            "episodes",
            f"{episodes:,} of each seed, deterministic policies, on starts from seed {seed:,} that training never saw",
        ),
        *([("shield", under)] if under else []),
        ("date", origin["date"]),
        ("version", f"saute {origin['saute']}"),
        ("machine", origin["machine"]),
        ("policies, SHA-256", origin["policy"]),
        ("configuration, SHA-256", str(origin["config"])),
    ]


def comparison(rows: Sequence[tuple[str, str, Interval, Interval]], note: str) -> Facts | None:
    """Every other run against the first one."""
    if not rows:
        return None
    cells = [[run, other, *("{:.3f} [{:.3f}, {:.3f}]".format(*one) for one in both)] for run, other, *both in rows]
    records = [{"run": run, "against": other, "difference": one, "probability": two} for run, other, one, two in rows]
    return table("Comparison", ["run", "against", "difference of return, IQM", "P(better return)"], cells, records) | {
        "note": note
    }


def distributions(runs: Sequence[Tested], budget: Budget) -> list[Facts]:
    """Returns, and what was spent of each budget: the share of each bin, and of the episodes at a number or below."""
    every = [pooled(run.outcomes) for run in runs]
    limits = np.atleast_1d(budget)
    costs = [one.spent.reshape(len(one.spent), -1) for one in every]
    named = [("Return of an episode", None, [one.task_return for one in every])]
    for i, limit in enumerate(limits.tolist()):
        name = "Cost of an episode" if len(limits) == 1 else f"Cost {i} of an episode"
        named.append((name, limit, [paid[:, i] for paid in costs]))
    return [{"title": title, "budget": limit, **_distribution(columns)} for title, limit, columns in named]


def _distribution(columns: Sequence[np.ndarray]) -> Facts:
    edges = np.histogram_bin_edges(np.concatenate(columns).astype(np.float64), BINS)
    return {"edges": _short(edges), "runs": [_shares(column.astype(np.float64), edges) for column in columns]}


def _shares(values: np.ndarray, edges: np.ndarray) -> Facts:
    kept = np.unique(np.linspace(0, values.size - 1, min(values.size, POINTS)).round().astype(int))
    share = np.histogram(values, edges)[0] / values.size
    return {"share": _short(share), "x": _short(np.sort(values)[kept]), "below": _short((kept + 1) / values.size)}


def curves(runs: Mapping[str, tuple[Config, Epochs | None]], budget: Budget | None) -> list[Facts]:
    """Training: of every metric and run the mean over the seeds, and the least and the greatest; runs without any have none."""
    found = []
    for metric, (title, limit) in panels(budget).items():
        tables = [None if epochs is None else by_seed(epochs, metric, name) for name, (_, epochs) in runs.items()]
        steps = [config.settings.steps_per_epoch for config, _ in runs.values()]
        if any(one is not None for one in tables):
            note = RATE if metric.startswith("cost_rate") else ""
            own = [None if one is None else _curve(one, step) for one, step in zip(tables, steps, strict=True)]
            found.append({"title": title[0].upper() + title[1:], "budget": limit, "note": note, "runs": own})
    return found


def _curve(values: np.ma.MaskedArray, steps: int) -> Facts:
    by = {"mean": values.mean(1), "least": values.min(1), "greatest": values.max(1)}
    numbers = {name: _short(np.ma.filled(column, np.nan)) for name, column in by.items()}
    return {"step": [steps * (i + 1) for i in range(len(values))], **numbers}


def slider(name: str, config: Config, tested: Sequence[AtBudget], plane: Plane, start: int) -> Facts:
    """What a policy does at every tested budget: its row of `saute evaluate`, its numbers, and paths to be drawn."""
    every = [(one, pooled(one.outcomes)) for one in tested]
    rows = [[row[1:2] + row[3:] for row in rows_of(name, "all", outcome, one.budget)] for one, outcome in every]
    records = [{"run": name, "budget": one.budget, **numbers_of(outcome)} for one, outcome in every]
    paths = [
        [{field: _short(column, 3) for field, column in path._asdict().items()} for path in paths_of(one, plane)]
        for one in tested
    ]
    asked = config.experiment
    head = heads(asked.discount)
    return {
        "budgets": [in_words(one.budget) for one in tested],
        "trained": _trained(asked.lowest_budget or asked.budget, asked.budget, [one.budget for one in tested]),
        **table("Every tested budget", head[1:2] + head[3:], [row for at in rows for row in at], records),
        "at": rows,
        "start": start,
        "plane": [plane.across, plane.along],
        "square": plane.square,
        "unsafe": None
        if plane.unsafe is None
        else dict(zip("xy", map(_short, plane.unsafe(make_task(asked.env))), strict=True)),
        "paths": paths,
    }


def _trained(low: Budget | None, high: Budget | None, budgets: Sequence[Budget]) -> list[bool]:
    """Whether episodes of the training began with each of the budgets."""
    return [bool(np.all((np.asarray(low) <= one) & (np.asarray(one) <= np.asarray(high)))) for one in budgets]


def _flat(record: Mapping[str, object]) -> dict[str, Any]:
    """One level of names: {"cost": {"mean": [1, 2]}} becomes {"cost_mean_0": 1, "cost_mean_1": 2}."""
    flat = dict[str, Any]()
    for name, value in record.items():
        if isinstance(value, Interval):
            value = value._asdict()
        if isinstance(value, np.ndarray | np.generic):
            value = value.tolist()
        if isinstance(value, list | tuple):
            value = {str(i): one for i, one in enumerate(value)}
        if isinstance(value, Mapping):
            flat |= _flat({f"{name}_{key}": one for key, one in value.items()})
        else:
            flat[name] = value
    return flat


def _short(values: np.ndarray, digits: int = 6) -> list[float | None]:
    """Numbers to be drawn, with so many digits; None where there is none."""
    return [float(f"{one:.{digits}g}") if math.isfinite(one) else None for one in np.asarray(values, np.float64).tolist()]
