"""What the machine offers, on every operating system."""

from __future__ import annotations

import os

__all__ = ["cores", "memory"]


def cores() -> int:
    """As many processor cores as this process may use, where the system tells, else all; fewer if NPROC says so, as for XLA.

    XLA shares sums out among its threads, so numbers depend on how many there are, in their last bits.
    """
    tells = getattr(os, "sched_getaffinity", None)
    there = len(tells(0)) if tells is not None else os.cpu_count() or 1
    asked = os.environ.get("NPROC", "")
    return min(there, int(asked)) if asked.isdecimal() and int(asked) else there


def memory() -> float:
    """Bytes of memory that the machine has, where the system tells, else infinitely many."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return float("inf")
