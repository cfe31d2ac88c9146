"""Compare speeds within one run: the contenders take turns, and ratios are medians over the turns."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

Rates = dict[str, np.ndarray]
SPINNING = 0.25
"""Seconds; OpenBLAS's threads wait for more work for a tenth of a second, on all cores."""


def rates(contenders: dict[str, Callable[[], int]], turns: int = 15) -> Rates:
    """Units of work per second of each contender in every turn; a contender works, and returns how many units it did.

    Before its time counts it works for as long as threads of the one before may still spin and take its cores.
    """
    seen: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(turns):
        for name, work in contenders.items():
            _worked(work, SPINNING)
            begin = time.perf_counter()
            units = work()
            seen[name].append(units / (time.perf_counter() - begin))
    return {name: np.array(values) for name, values in seen.items()}


def _worked(work: Callable[[], int], seconds: float) -> None:
    begin = time.perf_counter()
    work()
    while time.perf_counter() - begin < seconds:
        work()


def ratio(results: Rates, name: str, reference: str) -> float:
    """The median over the turns of the ratio of two rates; a slow moment of the machine slows both."""
    return float(np.median(results[name] / results[reference]))


def report(title: str, results: Rates, *references: str, unit: str = "steps/s") -> None:
    """Print each rate and its ratio to the references."""
    print(title)
    for name, values in results.items():
        ratios = "   ".join(f"{ratio(results, name, reference):9.3f} × {reference}" for reference in references)
        print(f"  {name:<40} {np.median(values):>13,.0f} {unit}   {ratios}")
    print()
