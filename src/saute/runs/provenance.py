"""What a certificate is about: which policies of which configuration, tested when, with what and where."""

from __future__ import annotations

import datetime
import hashlib
import os
import pathlib
import platform
from typing import Any

import saute
from saute.runs.checkpoint import digest_beside, load
from saute.runs.folder import source_of

__all__ = ["provenance"]


def provenance(run: pathlib.Path) -> dict[str, Any]:
    """Digests of the configuration and the policies of a run, the epoch they are of, and date, version and machine of now."""
    file = source_of(run) / "policy.safetensors"
    _, meta = load(file)
    return {
        "config": digest_beside(file),
        "policy": hashlib.sha256(file.read_bytes()).hexdigest(),
        "epochs": meta["epochs"],
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "saute": saute.__version__,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
    }
