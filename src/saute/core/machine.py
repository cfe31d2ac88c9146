"""What the machine offers, on every system."""

from __future__ import annotations

import os

__all__ = ["cores"]


def cores() -> int:
    """As many processor cores as this process may use, where the system tells, else all."""
    tells = getattr(os, "sched_getaffinity", None)
    return len(tells(0)) if tells is not None else os.cpu_count() or 1
