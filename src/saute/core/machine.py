"""What the machine offers, on every operating system."""

from __future__ import annotations

import os

__all__ = ["cores", "memory"]


def cores() -> int:
    """As many processor cores as this process may use, where the system tells, else all."""
    tells = getattr(os, "sched_getaffinity", None)
    return len(tells(0)) if tells is not None else os.cpu_count() or 1


def memory() -> float:
    """Bytes of memory that the machine has, where the system tells, else infinitely many."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return float("inf")
