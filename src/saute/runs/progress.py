"""A progress bar that tells what matters: returns of every seed, mean and worst cost, violations, time left."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["progress"]


@contextlib.contextmanager
def progress(epochs: int, steps: int) -> Iterator[Callable[[int, list[dict[str, float]]], None]]:
    """A function (epoch, metrics) → None that keeps the bar current, for epochs of `steps`; quiet when not on a terminal."""
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

        last = time.monotonic()

        def report(epoch: int, metrics: list[dict[str, float]]) -> None:
            nonlocal last
            last, before = time.monotonic(), last
            speed = f"{steps / (last - before) / 1000:.0f} k steps/s"
            bar.update(task, completed=epoch + 1, state=f"{speed} | {describe(metrics)}")

        yield report


def describe(metrics: list[dict[str, float]]) -> str:
    """One line for an epoch: return of each seed, then cost and violations over all of them."""

    def each(name: str) -> list[Any]:
        return [seed[name] for seed in metrics]

    returns = " ".join(f"{value:.1f}" for value in each("task_return"))
    cost, worst = sum(each("cost")) / len(metrics), max(each("worst_cost"))
    violated = 100 * sum(each("violation_rate")) / len(metrics)
    return f"return {returns} | cost {cost:.1f}, worst {worst:.1f} | violated {violated:.0f} %"
