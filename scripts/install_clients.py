"""Install the client libraries of tests and examples into this Python: python scripts/install_clients.py

They need torch, whose usual Linux build brings gigabytes of GPU packages. Where only that one is at hand, or none, nothing is
installed, one line says so, and their tests are skipped.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from collections.abc import Sequence

ROOT = pathlib.Path(__file__).parent.parent
TORCH = "torch==2.13.0"
"""Pinned because this release has a small CPU build; other specifications pull the large one."""
LARGE = ("nvidia", "cuda", "triton")
INSTALL = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")


def objection(found: Sequence[str] | None) -> str | None:
    """Why torch is not to be installed: what it requires is large, or not known because there is no torch."""
    if found is None:
        return f"pip finds no {TORCH}"
    large = sorted(name for name in found if name.startswith(LARGE))
    return f"the {TORCH} at hand requires {large[0]}, gigabytes of GPU packages" if large else None


def requirements() -> list[str] | None:
    """What the torch that pip would install requires, as pip says without installing it; None if it finds none."""
    words = [*INSTALL, "--dry-run", "--no-deps", "--ignore-installed", "--report", "-", TORCH]
    told = subprocess.run(words, capture_output=True, text=True)
    if told.returncode:
        return None
    return json.loads(told.stdout)["install"][0]["metadata"].get("requires_dist", [])


def installed() -> str | None:
    """None, or why the client libraries are not there."""
    reason = objection(requirements())
    if reason is not None:
        return reason
    # Together, so that no library replaces the torch that was chosen.
    told = subprocess.run([*INSTALL, TORCH, "--editable", f"{ROOT}[all,clients]"], stderr=subprocess.PIPE, text=True)
    return None if told.returncode == 0 else " ".join(["pip failed:", *told.stderr.strip().splitlines()[-1:]])


if __name__ == "__main__":
    if (problem := installed()) is not None:
        sys.exit(f"client libraries are not installed, their tests are skipped: {problem}")
