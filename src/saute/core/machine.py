"""What the machine offers, on every operating system."""

from __future__ import annotations

import os

__all__ = ["cores"]


def cores() -> int:
    """How many processor cores this process may use; all of them, if the system does not say."""
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable is not None else os.cpu_count() or 1
