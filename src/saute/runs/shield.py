"""Shields of run folders, which belong to the very policies beside them; read by NumPy."""

from __future__ import annotations

import hashlib
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from saute.core.files import write_atomically
from saute.core.typed import rebuilt
from saute.runs.checkpoint import CheckpointError, digest_beside, load, refuse_unlike
from saute.runs.policy import file_of
from saute.runs.pretrained import place_of
from saute.serve.description import described, layout
from saute.serve.nets import network_of
from saute.serve.policy import Policy
from saute.serve.shield import Shield

__all__ = [
    "FILE",
    "KEPT",
    "PARTS",
    "StoredShield",
    "digest_of",
    "file_of_shield",
    "has_shield",
    "keep_shield",
    "kept_shield",
    "load_shield",
    "stored_shield",
]

FILE = "shield.safetensors"
"""Of a run's own policies."""
KEPT = "exploration.safetensors"
"""That of an earlier run, which a run trains under."""
PARTS = ("backup", "needs")
StoredShield = tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]
"""What the file of a shield says, and the arrays of its parts by their names."""


def digest_of(file: pathlib.Path) -> str:
    """SHA-256 of a file, by which a shield knows its policies."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as problem:
        raise CheckpointError(f"{file} cannot be read ({problem.strerror}); check the run folder") from None


def has_shield(run: str | pathlib.Path) -> bool:
    """Whether there is one, fit or not."""
    return any(one.exists() for one in _places(run))


def file_of_shield(run: str | pathlib.Path) -> pathlib.Path:
    """The shield in a run folder; for pretrained:NAME one of your own, or else the one that comes with it."""
    if not has_shield(run):
        raise CheckpointError(f"{run} has no shield; make one with saute shield {run}")
    return next(one for one in _places(run) if one.exists())


def _places(run: str | pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    return place_of(run) / FILE, file_of(run).parent / FILE


def stored_shield(run: str | pathlib.Path) -> StoredShield:
    """The shield of a run; those of other policies, or of another configuration, are refused."""
    file, policies = file_of_shield(run), digest_of(file_of(run))
    stored = _read(file, digest_beside(file), f"saute shield {run}")
    made_for = stored[0]["policy"]
    if made_for != policies:
        raise CheckpointError(
            f"{file} was made for other policies (SHA-256 {made_for[:12]}) than those of {run} ({policies[:12]}); make "
            f"it anew with saute shield {run}"
        )
    return stored


def keep_shield(run: str | pathlib.Path, out: pathlib.Path) -> None:
    """Put a copy of the shield of a run into the folder of another one, which trains under it."""
    stored_shield(run)
    write_atomically(out / KEPT, file_of_shield(run).read_bytes())


def kept_shield(out: pathlib.Path, digest: str) -> StoredShield:
    """The shield that a run trains under, if it is still the one that its configuration names by its SHA-256."""
    file = out / KEPT
    if not file.exists() or digest_of(file) != digest:
        raise CheckpointError(
            f"{file} is not the shield that {out} trains under (SHA-256 {digest[:12]}); restore a copy, or name the run that "
            "it is of with --shield"
        )
    return _read(file, None, "saute shield")


def _read(file: pathlib.Path, config: str | None, anew: str) -> StoredShield:
    """What the file of a shield says, and the arrays of its backup and its needs."""

    def fits(meta: dict[str, Any], table: Mapping[str, Any]) -> None:
        try:
            expected = {f"['{part}']{name}": it for part in PARTS for name, it in layout(described(meta[part])).items()}
            _check_sizes(meta)
        except Exception as problem:  # whatever a stranger may have written there
            raise CheckpointError(f"{file} does not describe a shield ({problem}); make it anew with saute shield") from None
        refuse_unlike(expected, table, file)

    arrays, meta = load(file, fits, config)
    if not all(np.isfinite(array).all() for array in arrays.values()):
        raise CheckpointError(f"{file}: parameters are not finite; make it anew with {anew}")
    begins = {part: f"['{part}']" for part in PARTS}
    return meta, {
        part: {name.removeprefix(begin): array for name, array in arrays.items() if name.startswith(begin)}
        for part, begin in begins.items()
    }


def load_shield(run: str | pathlib.Path) -> Shield:
    """The shield of a run folder or of pretrained:NAME, for `BudgetedPolicy(policy, shield=…)`; one serves all its seeds."""
    meta, arrays = stored_shield(run)
    backup, needs = (Policy(about, network_of(about, arrays[part])) for part in PARTS for about in [described(meta[part])])
    known = {name: meta[name] for name in ("policy", "validation")}
    return Shield(backup, needs, np.array(meta["reference"], np.float32), meta["margin"], meta["discount"], known)


def _check_sizes(meta: Mapping[str, Any]) -> None:
    """Whether the parts fit each other."""
    backup, needs = (described(meta[part]) for part in PARTS)
    reference = rebuilt(tuple[float, ...], meta["reference"], "reference")
    margin, discount = (rebuilt(float, meta[name], name) for name in ("margin", "discount"))
    if None in (backup.hidden, needs.hidden) or backup.image is not None:
        raise ValueError("a planner or a policy of pictures in it")
    action = sum(backup.choices) or backup.actions
    if needs.bare != backup.bare + action or needs.actions != len(reference) or min(reference) <= 0:
        raise ValueError(
            f"needs of {needs.bare} numbers, {needs.actions} budgets, for {backup.bare} observations, {action} actions and "
            f"{len(reference)} budgets"
        )
    if not (0.0 <= margin < np.inf and 0.0 < discount <= 1.0 and isinstance(meta["policy"], str)):
        raise ValueError(f"margin {margin}, discount {discount}")
