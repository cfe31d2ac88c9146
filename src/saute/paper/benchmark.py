"""The field's own benchmark: velocity and navigation tasks, our runs, and what was published beside them."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

from saute.core.files import write_atomically
from saute.core.tables import markdown
from saute.paper.durations import duration
from saute.paper.figures import BENCHMARK, Artifact, Row
from saute.paper.measured import Measured
from saute.paper.page import read
from saute.paper.published import COLUMNS, PUBLISHED
from saute.paper.reproduce import Scale, scaled

__all__ = ["compared", "published"]

HEADS = (
    "method", "return: mean ± std [95 % interval]", "cost: mean", "cost: 95 %, worst", "violating episodes", "seeds",
    "steps of a seed", "training", "published: return / cost",
)  # fmt: skip


def compared(name: str, scale: Scale, out: pathlib.Path) -> str:
    """Our rows of a part of the benchmark, each beside the published column of its method; written as text too."""
    artifact, known = BENCHMARK[name], read(out, scale, name)
    text = markdown([HEADS, *(_line(row, known.get(row.label), scale) for row in artifact.rows)])
    write_atomically(out / scale / name / "benchmark.md", f"{text}\n".encode())
    return text


def published(artifact: Artifact) -> str:
    """Everything that was published about the tasks of a part: mean ± std of the return, and of the cost, over seeds."""
    tasks = list(dict.fromkeys(row.label.partition(",")[0] for row in artifact.rows))
    lines: Sequence[tuple[str, ...]] = [(task, *(PUBLISHED[task].get(column, "–") for column in COLUMNS)) for task in tasks]
    return markdown([("", *COLUMNS), *lines])


def _line(row: Row, ours: Measured | None, scale: Scale) -> tuple[str, ...]:
    if ours is None:
        return row.label, "not run", *("–",) * 6, row.published
    config, task, cost = scaled(row, scale), ours.task_return, ours.cost
    steps = f"{config.epochs * config.settings.steps_per_epoch / 1e6:.2g} M"
    time = "unknown" if ours.seconds is None else duration(ours.seconds)
    return (
        row.label,
        f"{task.mean:.4g} ± {task.std:.2g} [{task.low:.4g}, {task.high:.4g}]",
        f"{cost.mean:.3g}",
        f"{cost.q95:.3g}, {cost.largest:.3g}",
        ours.seen,
        str(len(ours.seeds)),
        steps,
        time,
        row.published,
    )
