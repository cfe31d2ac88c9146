"""Ship the policies of a finished run with the package: python scripts/export_pretrained.py RUN NAME."""

from __future__ import annotations

import pathlib
import shutil
import sys

import numpy as np

from saute.cli.pretrained import listing
from saute.core.errors import UserError
from saute.runs import pretrained
from saute.runs.checkpoint import CheckpointError, load
from saute.runs.folder import read_config
from saute.runs.policy import load_policies
from saute.runs.shield import FILE, stored_shield

FILES = ("config.json", "policy.safetensors")
LARGEST = 2_000_000
"""Bytes: five seeds of two layers of 256 are 1.4 million."""


def export(run: pathlib.Path, name: str) -> pathlib.Path:
    """Copy what evaluation needs to the package, once it is known to be whole, small, and of the task that the name says."""
    experiment = read_config(run).experiment
    kind = f"{experiment.env}-{experiment.method}-{experiment.algo}".replace("_", "-")
    if name != kind and not name.startswith(f"{kind}-"):
        raise UserError(f"{run} is a {kind}; call it that, or {kind}-SOMETHING, instead of {name}")
    try:
        arrays, _ = load(run / "policy.safetensors")
        policies = load_policies(run)
    except CheckpointError as problem:
        raise UserError(f"{run} has no whole policies of {experiment.seeds} seeds: {problem}") from problem
    if len(policies) != experiment.seeds:
        raise UserError(f"{run} has policies of {len(policies)} seeds, but its config.json asks for {experiment.seeds}")
    kinds = {array.dtype.name for array in arrays.values()}
    size = sum((run / file).stat().st_size for file in FILES)
    if kinds != {np.dtype(np.float32).name} or size > LARGEST:
        raise UserError(f"{run} has {size} bytes of {', '.join(sorted(kinds))}; ship float32 of at most {LARGEST} bytes")
    shield = [FILE] if (run / FILE).exists() else []
    if shield:
        stored_shield(run)
    target = pretrained.FOLDER / name
    target.mkdir(exist_ok=True)
    (target / FILE).unlink(missing_ok=True)
    for file in (*FILES, *shield):
        shutil.copyfile(run / file, target / file)
    return target


def main(words: list[str]) -> str | None:
    """Print what there is now; or else, say what is wrong."""
    if len(words) != 2:
        return __doc__
    try:
        export(pathlib.Path(words[0]), words[1])
    except UserError as problem:
        return f"error: {problem}"
    print(listing())
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
