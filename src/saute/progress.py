"""A progress bar that tells what matters: returns of every seed, mean and worst cost, violations, time left."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["progress"]


@contextlib.contextmanager
def progress(epochs: int, steps_per_epoch: int) -> Iterator[Callable[[int, list[dict[str, float]]], None]]:
    """A function (epoch, metrics of every seed) → None that keeps the bar current; quiet when not on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("epoch"),
        MofNCompleteColumn(),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=epochs, state="compiling …")

        def report(epoch: int, metrics: list[dict[str, float]]) -> None:
            bar.update(task, completed=epoch + 1, state=describe(metrics))

        yield report


def describe(metrics: list[dict[str, float]]) -> str:
    """One line for an epoch: return of each seed, then cost and violations over all of them."""

    def each(name: str) -> list[Any]:
        return [seed[name] for seed in metrics]

    returns = " ".join(f"{value:.1f}" for value in each("task_return"))
    cost, worst = sum(each("cost")) / len(metrics), max(each("worst_cost"))
    violated = 100 * sum(each("violation_rate")) / len(metrics)
    return f"return {returns} | cost {cost:.1f}, worst {worst:.1f} | violated {violated:.0f} %"
