"""Shields of run folders, which belong to the very policies beside them; read by NumPy."""

from __future__ import annotations

import hashlib
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from saute.core.typed import rebuilt
from saute.runs.checkpoint import CheckpointError, digest_beside, load, refuse_unlike
from saute.runs.policy import file_of
from saute.runs.pretrained import place_of
from saute.serve.description import described, layout
from saute.serve.nets import network_of
from saute.serve.policy import Policy
from saute.serve.shield import Shield

__all__ = ["FILE", "PARTS", "digest_of", "file_of_shield", "has_shield", "load_shield", "stored_shield"]

FILE = "shield.safetensors"
PARTS = ("backup", "needs")


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


def stored_shield(run: str | pathlib.Path) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
    """What the file of a shield says, and the arrays of its backup and its needs; those of other policies are refused."""
    file, policies = file_of_shield(run), digest_of(file_of(run))

    def fits(meta: dict[str, Any], table: Mapping[str, Any]) -> None:
        try:
            expected = {f"['{part}']{name}": it for part in PARTS for name, it in layout(described(meta[part])).items()}
            _check_sizes(meta)
        except Exception as problem:  # whatever a stranger may have written there
            raise CheckpointError(f"{file} does not describe a shield ({problem}); make it anew with saute shield") from None
        refuse_unlike(expected, table, file)

    arrays, meta = load(file, fits, digest_beside(file))
    if meta["policy"] != policies:
        raise CheckpointError(
            f"{file} was made for other policies (SHA-256 {meta['policy'][:12]}) than those of {run} ({policies[:12]}); make "
            f"it anew with saute shield {run}"
        )
    if not all(np.isfinite(array).all() for array in arrays.values()):
        raise CheckpointError(f"{file}: parameters are not finite; make it anew with saute shield {run}")
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
