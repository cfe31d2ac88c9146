"""Ratios from one run: contenders take turns, and the median over the turns is compared."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def rates(contenders: dict[str, Callable[[], int]], turns: int = 15) -> dict[str, float]:
    """Units per second of each contender, a function that does some work and returns how many units it was."""
    seen: dict[str, list[float]] = {name: [] for name in contenders}
    for work in contenders.values():
        work()
    for _ in range(turns):
        for name, work in contenders.items():
            begin = time.perf_counter()
            units = work()
            seen[name].append(units / (time.perf_counter() - begin))
    return {name: statistics.median(values) for name, values in seen.items()}


def report(title: str, results: dict[str, float], reference: str, unit: str = "steps/s") -> None:
    """Print each rate and its ratio to the reference."""
    print(title)
    for name, rate in results.items():
        print(f"  {name:<44} {rate:>14,.0f} {unit}   {rate / results[reference]:8.3f} × {reference}")
    print()
