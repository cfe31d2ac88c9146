"""Trained policies that come with the package, one folder each."""

from __future__ import annotations

import os
import pathlib

from saute.core.errors import UserError
from saute.core.names import nearest
from saute.runs.hub import HUB, fetched, repository

__all__ = ["PREFIX", "is_named", "located", "names", "place_of"]

PREFIX = "pretrained:"
FOLDER = pathlib.Path(__file__).parent
OUT = pathlib.Path("runs", "pretrained")
"""Where evaluations of these policies go, since the folder of an installed package is not the user's to write to."""
OF_HUB = pathlib.Path("runs", "hub")
"""Where those of policies on the hub go, for the same reason."""


def names() -> list[str]:
    """What comes with the package."""
    return sorted(file.parent.name for file in FOLDER.glob("*/policy.safetensors"))


def is_named(run: str) -> bool:
    """Whether this is pretrained:NAME or hf://OWNER/NAME, and not a folder."""
    return run.startswith((PREFIX, HUB))


def located(run: str | os.PathLike[str]) -> pathlib.Path:
    """The folder behind pretrained:NAME or hf://OWNER/NAME; every other path stands for itself."""
    if shared := repository(run):
        return fetched(shared)
    if not (name := _name(run)):
        return pathlib.Path(run)
    try:
        return FOLDER / nearest(name, names(), "pretrained policy")
    except ValueError as problem:
        raise ValueError(f"{problem}; saute pretrained lists them") from None


def place_of(run: str | os.PathLike[str]) -> pathlib.Path:
    """Where to keep what is found out about a run: in its own folder, or in runs/pretrained/NAME or runs/hub/OWNER/NAME."""
    try:
        shared = repository(run)
    except ValueError as problem:
        raise UserError(str(problem)) from problem
    if shared:
        return OF_HUB / shared.name
    return OUT / name if (name := _name(run)) else pathlib.Path(run)


def _name(run: str | os.PathLike[str]) -> str | None:
    text = os.fspath(run)
    return text.removeprefix(PREFIX) if text.startswith(PREFIX) else None
