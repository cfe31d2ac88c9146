"""What a certificate is about: which policies of which configuration, tested when, with what and where."""

from __future__ import annotations

import datetime
import hashlib
import os
import pathlib
import platform
import subprocess
from typing import Any

import saute
from saute.core.errors import UserError
from saute.core.typed import rebuilt
from saute.runs.checkpoint import digest_beside, load
from saute.runs.folder import source_of

__all__ = ["commit", "provenance"]

PACKAGE = pathlib.Path(saute.__file__).parent


def provenance(run: pathlib.Path) -> dict[str, Any]:
    """Digests of the configuration and the policies of a run, the epoch they are of, and date, version and machine of now."""
    file = source_of(run) / "policy.safetensors"
    try:
        _, meta = load(file)
        config, epochs = digest_beside(file), rebuilt(int, meta.get("epochs"), f"epochs of {file}")
    except ValueError as problem:
        raise UserError(f"{problem} (is the run finished? continue it with saute resume {run})") from None
    return {
        "config": config,
        "policy": hashlib.sha256(file.read_bytes()).hexdigest(),
        "epochs": epochs,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "saute": saute.__version__,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
    }


def commit() -> str:
    """The commit of this code, marked if the package was changed since; "unknown" where it is not in its repository."""
    try:
        root = _git("rev-parse", "--show-toplevel")
        inside = (pathlib.Path(root) / "src" / "saute").samefile(PACKAGE)
        # Files of the repository that are no code, as results that were written before, do not count.
        dirty = "-dirty" if inside and _git("status", "--porcelain", ".") else ""
        return _git("rev-parse", "--short=12", "HEAD") + dirty if inside else "unknown"
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=PACKAGE, capture_output=True, text=True, check=True).stdout.strip()
