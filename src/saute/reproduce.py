"""`saute reproduce`: trains what a figure or table needs, tests it, and writes its numbers, its pictures and a page of all."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
import time
from typing import Annotated, Any, Literal

import numpy as np

from saute.artifacts import ARTIFACTS, Artifact, Row
from saute.checkpoint import write_atomically
from saute.cli import UserError
from saute.commands import run_experiment
from saute.envs import nearest
from saute.evaluate import Outcome
from saute.experiment import Experiment
from saute.plots import box_plot, save, training_curves
from saute.runs import outcomes_of, read_metrics
from saute.stats import upper_bound

__all__ = ["Reproduce", "reproduce"]

Scale = Literal["smoke", "laptop", "paper"]


def _as(metavar: str) -> Any:
    """How the help shows an option; tyro asks when it reads the annotations, so that this module does without it."""
    import tyro

    return tyro.conf.arg(metavar=metavar)


def _positional() -> Any:
    import tyro

    return tyro.conf.Positional


@dataclasses.dataclass(frozen=True)
class Reproduce:
    """Reproduce figures and tables of the paper; what was trained already is not trained again."""

    names: Annotated[tuple[str, ...], _positional()] = ()
    """Figures and tables, or all; none lists them."""
    scale: Scale = "laptop"
    """smoke: one epoch, to see that all works; laptop: the fast presets; paper: the paper's settings and epochs."""
    episodes: Annotated[int, _as("N")] = 100
    """Test episodes per seed."""
    runs: Annotated[pathlib.Path, _as("FOLDER")] = pathlib.Path("runs/reproduce")
    """Where runs are kept, each in a folder named after its settings."""
    out: Annotated[pathlib.Path, _as("FOLDER")] = pathlib.Path("results")
    """Where numbers and pictures go."""


def reproduce(options: Reproduce) -> None:
    if not options.names:
        print(_listing(options))
        return
    if options.episodes < 1:
        raise UserError(f"--episodes {options.episodes} must be at least 1")
    try:
        names = list(ARTIFACTS) if options.names == ("all",) else [nearest(n, ARTIFACTS, "artifact") for n in options.names]
    except ValueError as problem:
        raise UserError(f"{problem}; saute reproduce lists them") from problem
    for name in names:
        _make(name, ARTIFACTS[name], options)
        write_atomically(options.out / f"{options.scale}.md", _page(options).encode())
    print(f"wrote {options.out / options.scale}.md")


def scaled(row: Row, scale: Scale) -> Experiment:
    """The experiment of a row with the settings of a scale."""
    experiment = row.experiment
    if scale == "smoke":
        experiment = dataclasses.replace(experiment, preset="paper", epochs=1, seeds=1)
    else:
        preset, epochs = ("fast", None) if scale == "laptop" else ("paper", row.paper_epochs)
        experiment = dataclasses.replace(experiment, preset=preset, epochs=epochs)
    return experiment.checked()


def folder_of(experiment: Experiment, runs: pathlib.Path) -> pathlib.Path:
    """Equal settings have the same folder, so that figures share their runs."""
    digest = hashlib.sha256(json.dumps(experiment.as_json(), sort_keys=True).encode()).hexdigest()[:10]
    return runs / f"{experiment.env}-{experiment.method}-{experiment.algo}-{digest}"


def finished(run: pathlib.Path) -> bool:
    return (run / "seconds.json").exists()


def _make(name: str, artifact: Artifact, options: Reproduce) -> None:
    groups, curves, rows = {}, {}, []
    for row in artifact.rows:
        experiment = scaled(row, options.scale)
        run = folder_of(experiment, options.runs)
        if not finished(run):
            print(f"{name}: training {row.label} ({experiment.epochs} epochs of {experiment.seeds} seeds) …", flush=True)
            begin, continued = time.monotonic(), (run / "config.json").exists()
            run_experiment(experiment, run)
            # How long an interrupted run took is not known.
            seconds = None if continued else round(time.monotonic() - begin)
            write_atomically(run / "seconds.json", json.dumps(seconds).encode())
        _, outcomes = outcomes_of(run, options.episodes, 1_000_000, row.budget)
        groups[row.label] = ([one.task_return for one in outcomes], [one.cost for one in outcomes])
        curves[row.label] = read_metrics(run)
        rows.append(_numbers(row, outcomes, json.loads((run / "seconds.json").read_text())))
    place = options.out / options.scale / name
    place.mkdir(parents=True, exist_ok=True)
    budgets = {row.budget for row in artifact.rows}
    budget = budgets.pop() if len(budgets) == 1 else None
    save(box_plot(groups, budget), place / "box.png")
    save(training_curves(curves, budget), place / "curves.png")
    write_atomically(place / "numbers.json", (json.dumps(rows, indent=1, ensure_ascii=False) + "\n").encode())
    print(_table(rows))


def _numbers(row: Row, outcomes: list[Outcome], seconds: float | None) -> dict[str, Any]:
    returns, costs = (np.concatenate(column) for column in list(zip(*outcomes, strict=True))[:2])
    violations = int((costs > row.budget).sum())
    return {
        "label": row.label,
        "budget": row.budget,
        "seeds": len(outcomes),
        "episodes": len(costs),
        "return": [round(float(value), 3) for value in (returns.mean(), returns.std(), *np.quantile(returns, [0.05, 0.95]))],
        "returns by seed": [round(float(one.task_return.mean()), 3) for one in outcomes],
        "cost": [round(float(value), 3) for value in (costs.mean(), *np.quantile(costs, [0.9, 0.99]), costs.max())],
        "violations": violations,
        "bound": upper_bound(violations, len(costs)),
        "published": row.published,
        "training seconds": seconds,
    }


def _table(rows: list[dict[str, Any]]) -> str:
    heads = "| method | budget | task return | safety: mean, q90, q99, worst | violations | paper | training |"
    lines = [heads, "|---" * 7 + "|"]
    for row in rows:
        mean, std, *_ = row["return"]
        costs = ", ".join(f"{value:.2f}" for value in row["cost"])
        seconds = "–" if row["training seconds"] is None else f"{row['training seconds']} s"
        seen = f"{row['violations']} of {row['episodes']}, so ≤ {100 * row['bound']:.2f} % at 95 %"
        cells = (row["label"], f"{row['budget']:g}", f"{mean:.2f} ± {std:.2f}", costs, seen, row["published"])
        lines.append("| " + " | ".join(cells) + f" | {seconds} |")
    return "\n".join(lines)


def _page(options: Reproduce) -> str:
    """All that has been reproduced at a scale, from the files of numbers."""
    parts = [f"# The paper's figures and tables, scale {options.scale}\n"]
    for name, artifact in ARTIFACTS.items():
        file = options.out / options.scale / name / "numbers.json"
        if file.exists():
            pictures = f"![Box plot]({options.scale}/{name}/box.png)\n\n![Training]({options.scale}/{name}/curves.png)"
            command = f"`saute reproduce {name} --scale {options.scale}`"
            table = _table(json.loads(file.read_text()))
            parts.append(f"## {artifact.title}\n\nThe paper: {artifact.claim} {command}\n\n{table}\n\n{pictures}\n")
    return "\n".join(parts)


def _listing(options: Reproduce) -> str:
    lines = [f"{'name':<26} {'runs':>4} {'done':>4}  content"]
    for name, artifact in ARTIFACTS.items():
        runs = {folder_of(scaled(row, options.scale), options.runs) for row in artifact.rows}
        lines.append(f"{name:<26} {len(runs):>4} {sum(map(finished, runs)):>4}  {artifact.title}")
    return "\n".join(lines)
