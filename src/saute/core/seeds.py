"""Seeds in three drawers: what training sees, what choices are made by, and what tests are of, never share an episode."""

from __future__ import annotations

__all__ = ["BLOCK", "EPISODES", "TESTS", "TRAINING", "VALIDATION", "block", "drawer_of"]

TRAINING = range(0, 1_000_000)
"""Of trainings: `--seed` and those that count on from it."""
TESTS = range(1_000_000, 2**30)
"""Of test episodes, in blocks: the first one is for looking, each of the others is opened once, for one committed result."""
VALIDATION = range(2**30, 2**30 + 2**29)
"""Of all episodes by which something is chosen: policies, presets, settings of a sweep, margins of a shield."""
EPISODES = range(2**30 + 2**29, 2**31 - 2**20)
"""Of training episodes on the host, which training draws at random; the rest is room to count on for each environment."""
BLOCK = 1_000_000
"""Seeds in a block of tests."""


def block(number: int) -> range:
    """The test seeds of a block; block 1 begins with the first test seed."""
    last = len(TESTS) // BLOCK
    if not 1 <= number <= last:
        raise ValueError(f"block {number} of test seeds does not exist; there are 1 to {last}")
    return range(number * BLOCK, (number + 1) * BLOCK)


def drawer_of(seed: int) -> str:
    """What a seed is for."""
    drawers = {"training": TRAINING, "tests": TESTS, "validation": VALIDATION, "training episodes": EPISODES}
    return next((name for name, seeds in drawers.items() if seed in seeds), "nothing")
