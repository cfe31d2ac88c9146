"""The page that sets our numbers beside the paper's; it is written from the files of `saute reproduce` and trains nothing."""

from __future__ import annotations

import os
import pathlib
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from saute.core.errors import UserError
from saute.core.files import read_json, unsealed
from saute.core.tables import markdown
from saute.core.typed import rebuilt
from saute.evidence.stats import upper_bound
from saute.paper.claims import CLAIMS, verdict
from saute.paper.durations import duration
from saute.paper.figures import ARTIFACTS, Artifact
from saute.paper.judges import Verdict, Word
from saute.paper.measured import Measured
from saute.paper.opened import opened
from saute.paper.shipped import SHIPPED, shipped_table
from saute.paper.units import unit_of

__all__ = ["AGAIN", "EPISODES", "page", "read", "table", "verdicts"]

ByLabel = dict[str, Measured]

HEADS = (
    "method", "budget", "return: mean ± std [95 % interval]", "return: 5 %, median, IQM, 95 %", "cost: mean [95 % interval]",
    "cost: 5 %, 90 %, 95 %, 99 %, worst", "violations", "seeds", "the paper", "training", "epochs", "tested",
)  # fmt: skip
EPISODES = 100
"""Test episodes per seed in the paper."""
SCALES = {
    "smoke": "one epoch of one seed, to see that everything works; nothing can be concluded from it, so there are no verdicts",
    "laptop": "the fast presets, on two cores; most baselines, and the variants on the double pendulum, have fewer epochs",
    "paper": "the paper's settings and epochs",
}
WORDS: tuple[Word, ...] = ("holds", "holds partly", "does not hold", "cannot tell", "not run")
AGAIN = "again-"
"""Before the names of pictures that have only the rows which were trained again."""
PICTURES = (
    ("box.png", "Returns and costs"),
    (f"{AGAIN}box.png", "Returns and costs of the rows trained again"),
)
CURVES = (("curves.png", "Training"), (f"{AGAIN}curves.png", "Training of the rows trained again"))
FORMER = "former vintage"
EXACT = {"pendulum": "The best safe return that is known at a budget of 30 is 183.07, of the [exact solution](exact.md)."}
"""What is known of a task without training."""


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


class Judged(NamedTuple):
    """A claim with its verdict, and whether rows of the former vintage decided it."""

    sentence: str
    verdict: Verdict
    former: bool


def verdicts(name: str, known: dict[str, ByLabel], scale: str) -> list[Judged]:
    """Every claim about a figure or table with its verdict; for equal labels, its own rows decide. One epoch tells nothing."""
    if scale == "smoke" or name not in CLAIMS:
        return []
    first = ARTIFACTS[name].rows[0]
    unit = unit_of(first.experiment.env, first.budget)
    judged = []
    for claim in CLAIMS[name]:
        rows = {label: row for source in (*claim.sources, name) for label, row in known.get(source, {}).items()}
        one = verdict(claim, rows, unit)
        former = one.word != "not run" and any(rows[label].made is None for label in claim.labels)
        judged.append(Judged(claim.sentence, one, former))
    return judged


def table(artifact: Artifact, rows: ByLabel) -> str:
    """Every row of a figure or table, beside what was published."""
    lines: list[tuple[str, ...]] = [HEADS]
    for row in artifact.rows:
        ours = _cells(rows[row.label]) if row.label in rows else ("not run", *("–",) * 5)
        training = _trained(rows[row.label]) if row.label in rows else ("–",) * 3
        lines.append((row.label, f"{row.budget:g}", *ours, row.published, *training))
    return markdown(lines)


def page(results: pathlib.Path, scale: str, here: pathlib.Path) -> str:
    """All figures and tables at one scale; links are relative to `here`, the file of the page."""
    known = {name: read(results, scale, name) for name in ARTIFACTS}
    parts = [_introduction(scale, known, _link(results, here)), "" if scale == "smoke" else _summary(known, scale)]
    for name, artifact in ARTIFACTS.items():
        place = results / scale / name
        parts += [
            f"## {artifact.title}",
            *_shown(PICTURES, artifact.title, place, here),
            _claims(verdicts(name, known, scale)),
            _folded(
                _command(name, scale, known[name]),
                EXACT.get(artifact.rows[0].experiment.env, ""),
                table(artifact, known[name]),
                *(f"{row.label}: {row.note}." for row in artifact.rows if row.note),
                *_shown(CURVES, artifact.title, place, here),
            ),
        ]
    parts += [*_shipped(results, scale), *_opened(results)]
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

A verdict is computed from the numbers, by the judge that `saute.paper.claims` gives to the sentence. The sample of a method are
its seeds: each "holds" and each "does not hold" is an exact test over seeds with p ≤ 5 %, and where there is none, one cannot
tell from these seeds. Returns are compared in per cent of best − do-nothing. † marks verdicts from rows of the {FORMER}. Why
some claims do not hold is in [differences](differences.md).

<details markdown="1"><summary>How to read the numbers</summary>

Policies act deterministically, from starts that training never saw; the return is the task's own, never the shaped one. An
episode violates if it overspends its budget. "0 of N, so ≤ p at 95 %" is the exact bound on the probability of a violation
(Clopper & Pearson), with the episodes of all seeds as one sample; "seeds" has the same bound on the share of bad seeds, in
which any episode violates. Intervals of means are 95 % bootstrap intervals over seeds and their episodes; IQM is the
interquartile mean. The column "the paper" has the printed numbers: task (mean ± std), then safety (mean, 90 %, 99 %), of its
training data; a dash means that the paper has only a picture. In the table of n the paper prints the task as a cost, the
negative of our return. Training times are wall-clock times; a training beside another one (`--ray`) took longer than alone.
"Tested" has the date, the commit and the first seed of the tests. Rows of the {FORMER} were trained and tested before seeds had
drawers: those with a constraint were steered by a mean cost that counted short episodes too often, and some settings were
chosen on their tests.

</details>"""


def _shown(pictures: Iterable[tuple[str, str]], title: str, place: pathlib.Path, here: pathlib.Path) -> list[str]:
    return [f"![{title}: {text}]({_link(place / file, here)})" for file, text in pictures if (place / file).exists()]


def _folded(*parts: str) -> str:
    content = "\n\n".join(part for part in parts if part)
    return f'<details markdown="1"><summary>Numbers, training and the command</summary>\n\n{content}\n\n</details>'


def _shipped(results: pathlib.Path, scale: str) -> list[str]:
    """The policies that come with the package."""
    rows = read(results, scale, SHIPPED)
    if not rows:
        return []
    most = max(seed.episodes for row in rows.values() for seed in row.seeds)
    command = f"`saute reproduce {SHIPPED} --scale {scale} --episodes {most} --reserved`"
    text = f"From {command}; where the physics are not compiled, there are fewer episodes."
    return [f"## Policies that come with the package\n\n{text}", shipped_table(rows)]


def _opened(results: pathlib.Path) -> list[str]:
    """The blocks of test seeds that results have used up."""
    blocks = opened(results)
    if not blocks:
        return []
    lines = [(str(one.block), f"{one.first:,}", one.what, one.date, one.commit) for one in blocks]
    text = "Each block of test seeds was opened once, for one result, after all settings had been chosen."
    return [f"## Test seeds that were opened\n\n{text}", markdown([("block", "first seed", "for", "date", "commit"), *lines])]


def _command(name: str, scale: str, rows: ByLabel) -> str:
    command = f"saute reproduce {name} --scale {scale}"
    if not rows:
        return f"Not run yet: `{command}`"
    seeds = [seed for row in rows.values() for seed in row.seeds]
    most, *fewer = sorted({seed.episodes for seed in seeds}, reverse=True)
    command += f" --episodes {most}" if most != EPISODES else ""
    command += " --reserved" if any(row.made for row in rows.values()) else ""
    counts = " or ".join(map(str, [most, *fewer]))
    tested = f"{max(len(row.seeds) for row in rows.values())} × {counts} test episodes per method"
    former = [label for label, row in rows.items() if row.made is None]
    of_before = f" Of the {FORMER}: {', '.join(former)}." if former and len(former) < len(rows) else ""
    of_before = f" All rows are of the {FORMER}." if len(former) == len(rows) else of_before
    return f"`{command}`: training took {_time(list(rows.values()))}; {tested}.{of_before}"


def _summary(known: dict[str, ByLabel], scale: str) -> str:
    lines: list[tuple[str, ...]] = [("figure or table", *WORDS)]
    total = Counter[str]()
    for name, artifact in ARTIFACTS.items():
        counts = Counter[str](one.verdict.word for one in verdicts(name, known, scale))
        total += counts
        lines.append((f"[{artifact.title}](#{_anchor(artifact.title)})", *(str(counts[word]) for word in WORDS)))
    lines.append(("all", *(str(total[word]) for word in WORDS)))
    return f"## Claims\n\n{markdown(lines)}"


def _claims(judged: list[Judged]) -> str:
    lines = [(sentence, f"**{one.word}**{' †' if former else ''}", one.reason) for sentence, one, former in judged]
    return markdown([("the paper says", "verdict", "because"), *lines]) if lines else ""


def _cells(row: Measured) -> tuple[str, ...]:
    task, cost = row.task_return, row.cost
    middle = "–" if task.iqm is None else f"{task.iqm:.2f}"
    clean = sum(not seed.violations for seed in row.seeds)
    bound = 100 * upper_bound(len(row.seeds) - clean, len(row.seeds))
    return (
        f"{task.mean:.2f} ± {task.std:.2f} [{task.low:.2f}, {task.high:.2f}]",
        f"{task.q05:.2f}, {task.median:.2f}, {middle}, {task.q95:.2f}",
        f"{cost.mean:.2f} [{cost.low:.2f}, {cost.high:.2f}]",
        ", ".join(f"{value:.2f}" for value in (cost.q05, cost.q90, cost.q95, cost.q99, cost.largest)),
        row.seen,
        f"{clean} of {len(row.seeds)} clean, so ≤ {bound:.0f} % bad",
    )


def _trained(row: Measured) -> tuple[str, str, str]:
    """How long, in how many epochs, and of which tests the numbers are."""
    return _time([row]), str(row.epochs), FORMER if row.made is None else row.made.told


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
