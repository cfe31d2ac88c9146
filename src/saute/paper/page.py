"""The page that sets our numbers beside the paper's; it is written from the files of `saute reproduce` and trains nothing."""

from __future__ import annotations

import os
import pathlib
from collections import Counter

from saute.core.errors import UserError
from saute.core.files import read_json, unsealed
from saute.core.tables import markdown
from saute.core.typed import rebuilt
from saute.paper.claims import CLAIMS, Verdict, verdict
from saute.paper.durations import duration
from saute.paper.figures import ARTIFACTS, Artifact
from saute.paper.measured import Measured

__all__ = ["EPISODES", "page", "read", "table", "verdicts"]

ByLabel = dict[str, Measured]

HEADS = (
    "method",
    "budget",
    "return: mean ± std [95 % interval]",
    "return: 5 %, 95 %",
    "cost: mean [95 % interval]",
    "cost: 5 %, 90 %, 95 %, 99 %, worst",
    "violations",
    "the paper",
    "training",
    "epochs",
)
EPISODES = 100
"""Test episodes per seed in the paper."""
SCALES = {
    "smoke": "one epoch of one seed, to see that everything works; nothing can be concluded from it",
    "laptop": "the fast presets, on two cores; most baselines, and the variants on the double pendulum, have fewer epochs",
    "paper": "the paper's settings and epochs",
}


def read(results: pathlib.Path, scale: str, name: str) -> ByLabel:
    """The rows of a figure or table that have been reproduced, by label."""
    file = results / scale / name / "numbers.json"
    try:
        stored = read_json(file)
        rows = unsealed(stored, file)["rows"] if isinstance(stored, dict) else stored
        found = rebuilt(tuple[Measured, ...], rows, "rows")
        odd = [
            row.label
            for row in found
            if not all(0 <= seed.violations <= seed.episodes > 0 for seed in row.seeds) or not row.seeds
        ]
        if odd:
            raise ValueError(f"{odd[0]} has no episodes, or more violations than episodes")
        return {row.label: row for row in found}
    except FileNotFoundError:
        return {}
    except (KeyError, ValueError) as problem:
        fix = f"write it anew with saute reproduce {name} --scale {scale}"
        raise UserError(f"{file} cannot be read ({problem!r}); {fix}") from None


def verdicts(name: str, known: dict[str, ByLabel]) -> list[tuple[str, Verdict]]:
    """Every claim about a figure or table with its verdict; for equal labels, its own rows decide."""
    return [
        (claim.sentence, verdict(claim, known.get(claim.source or name, {}) | known[name])) for claim in CLAIMS.get(name, ())
    ]


def table(artifact: Artifact, rows: ByLabel) -> str:
    """Every row of a figure or table, beside what was published."""
    lines: list[tuple[str, ...]] = [HEADS]
    for row in artifact.rows:
        ours = _cells(rows[row.label]) if row.label in rows else ("not run", *("–",) * 4)
        training = (_time([rows[row.label]]), str(rows[row.label].epochs)) if row.label in rows else ("–", "–")
        lines.append((row.label, f"{row.budget:g}", *ours, row.published, *training))
    return markdown(lines)


def page(results: pathlib.Path, scale: str, here: pathlib.Path) -> str:
    """All figures and tables at one scale; links are relative to `here`, the file of the page."""
    known = {name: read(results, scale, name) for name in ARTIFACTS}
    parts = [_introduction(scale, known, _link(results, here)), _summary(known)]
    for name, artifact in ARTIFACTS.items():
        parts.append(f"## {artifact.title}\n\nThe paper in short: {artifact.claim}")
        parts += [_command(name, scale, known[name]), table(artifact, known[name]), _claims(verdicts(name, known))]
        for file, text in (("box.png", "Returns and costs"), ("curves.png", "Training")):
            picture = results / scale / name / file
            if picture.exists():
                parts.append(f"![{artifact.title}: {text}]({_link(picture, here)})")
    solved = results / scale / "theory" / "theory.md"
    if solved.exists():
        command = f"`saute reproduce theory --scale {scale}`"
        parts.append(f"## Theorem 2 as an experiment\n\n[Exact values and gaps]({_link(solved, here)}), from {command}.")
    return "\n\n".join(part for part in parts if part) + "\n"


def _introduction(scale: str, known: dict[str, ByLabel], results: str) -> str:
    rows = [row for part in known.values() for row in part.values()]
    done = sum(len(part) == len(ARTIFACTS[name].rows) for name, part in known.items())
    return f"""# The paper's figures and tables, reproduced

Written by `saute reproduce page --scale {scale}` from the numbers in [`results`]({results}); do not edit it by hand. Scale
`{scale}`: {SCALES[scale]}. Complete: {done} of {len(known)} figures and tables; training what is here took {_time(rows)}.

Policies act deterministically, from starts that training never saw; the return is the task's own, never the shaped one. An
episode violates if it overspends its budget. "0 of N, so ≤ p at 95 %" is the exact bound on the probability of a violation
(Clopper & Pearson), with the episodes of all seeds as one sample. Intervals of means are 95 % bootstrap intervals over seeds
and their episodes. The column "the paper" has the printed numbers: task (mean ± std), then safety (mean, 90 %, 99 %), of its
training data; a dash means that the paper has only a picture. In the table of n the paper prints the task as a cost, the
negative of our return. Training times are wall-clock times; a training beside another one (`--ray`) took longer than alone.

A verdict is computed from the numbers, by the judge that `saute.paper.claims` gives to the sentence. Why some claims do not
hold is in `docs/differences.md`."""


def _command(name: str, scale: str, rows: ByLabel) -> str:
    command = f"saute reproduce {name} --scale {scale}"
    if not rows:
        return f"Not run yet: `{command}`"
    seeds = [seed for row in rows.values() for seed in row.seeds]
    most, *fewer = sorted({seed.episodes for seed in seeds}, reverse=True)
    command += f" --episodes {most}" if most != EPISODES else ""
    counts = " or ".join(map(str, [most, *fewer]))
    tested = f"{max(len(row.seeds) for row in rows.values())} × {counts} test episodes per method"
    return f"`{command}`: training took {_time(list(rows.values()))}; {tested}."


def _summary(known: dict[str, ByLabel]) -> str:
    words = ("holds", "holds partly", "does not hold", "not run")
    lines: list[tuple[str, ...]] = [("figure or table", *words)]
    total = Counter[str]()
    for name, artifact in ARTIFACTS.items():
        counts = Counter[str](one.word for _, one in verdicts(name, known))
        total += counts
        lines.append((f"[{artifact.title}](#{_anchor(artifact.title)})", *(str(counts[word]) for word in words)))
    lines.append(("all", *(str(total[word]) for word in words)))
    return f"## Claims\n\n{markdown(lines)}"


def _claims(judged: list[tuple[str, Verdict]]) -> str:
    lines = [(sentence, f"**{one.word}**", one.reason) for sentence, one in judged]
    return markdown([("the paper says", "verdict", "because"), *lines]) if lines else ""


def _cells(row: Measured) -> tuple[str, ...]:
    task, cost = row.task_return, row.cost
    return (
        f"{task.mean:.2f} ± {task.std:.2f} [{task.low:.2f}, {task.high:.2f}]",
        f"{task.q05:.2f}, {task.q95:.2f}",
        f"{cost.mean:.2f} [{cost.low:.2f}, {cost.high:.2f}]",
        ", ".join(f"{value:.2f}" for value in (cost.q05, cost.q90, cost.q95, cost.q99, cost.largest)),
        row.seen,
    )


def _time(rows: list[Measured]) -> str:
    """How long the runs of some rows took; a run that rows share counts once."""
    seconds = {row.run: row.seconds for row in rows}
    known = sum(value for value in seconds.values() if value is not None)
    unknown = sum(value is None for value in seconds.values())
    return duration(known) if not unknown else f"{duration(known)} and an unknown time for {unknown} interrupted run(s)"


def _link(file: pathlib.Path, here: pathlib.Path) -> str:
    return pathlib.Path(os.path.relpath(file, here.parent)).as_posix()


def _anchor(title: str) -> str:
    """The anchor that GitHub gives to a heading."""
    kept = "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -_")
    return kept.replace(" ", "-")
