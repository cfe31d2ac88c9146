"""Bind the policies of run folders to the configurations beside them anew: python scripts/rebind.py RUN [RUN ...].

For folders of former versions, and for those that come with the package when settings get new names.
"""

from __future__ import annotations

import pathlib
import sys
from typing import Any

from saute.core.files import read_sealed, write_sealed
from saute.runs.checkpoint import config_digest, load, save


def rebind(run: pathlib.Path, **changes: Any) -> pathlib.Path:
    """Seal the configuration of a run folder, with some entries changed, and write its digest into the policies."""
    values = {**read_sealed(run / "config.json"), **changes}
    write_sealed(run / "config.json", values)
    for file in run.glob("policy.safetensors"):
        arrays, meta = load(file)
        save(file, {}, {**meta, "config": config_digest(values)}, **arrays)
    return run


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for word in sys.argv[1:]:
        print(f"bound {rebind(pathlib.Path(word))}")
