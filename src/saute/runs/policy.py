"""Stored policies, read from files that may come from strangers; they act with NumPy, or with JAX where that is asked for."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from saute.core.extras import needed
from saute.core.names import nearest
from saute.runs.checkpoint import CheckpointError, digest_beside, load, refuse_unlike
from saute.runs.pretrained import located
from saute.serve.description import Description, described, layout
from saute.serve.nets import network_of
from saute.serve.policy import Policy

__all__ = ["Backend", "Stored", "file_of", "load_policies", "load_policy", "stored"]

Backend = Literal["auto", "numpy", "jax"]
Stored = tuple[dict[str, Any], dict[int, dict[str, np.ndarray]]]
"""What a file says of its policies, and the arrays of each seed by their names."""


def load_policy(
    path: str | pathlib.Path,
    seed: int = 0,
    on_nan: Literal["refuse", "brake"] = "refuse",
    brake: ArrayLike | None = None,
    backend: Backend = "auto",
) -> Policy:
    """The policy of one seed of a run folder, of a policy file, or of pretrained:NAME.

    An observation or remaining budget that is not finite is refused; with on_nan="brake" the action `brake` is given for it.
    NumPy computes the actions; backend="jax" has them compiled. Only planners (PETS) always need JAX.
    """
    nearest(on_nan, ("refuse", "brake"), "on_nan")
    if (on_nan == "brake") != (brake is not None):
        raise ValueError(f"on_nan={on_nan!r} with brake={brake!r}: pass both on_nan='brake' and the action to give, or neither")
    policies = load_policies(path, backend)
    if seed not in policies:
        raise CheckpointError(f"{path} has no seed {seed}; it has {', '.join(map(str, policies))}")
    return policies[seed] if brake is None else policies[seed].braking(brake)


def load_policies(path: str | pathlib.Path, backend: Backend = "auto") -> dict[int, Policy]:
    """The policies of all seeds, if they belong to the config.json beside them."""
    nearest(backend, ("auto", "numpy", "jax"), "backend")
    meta, seeds = stored(path)
    if backend == "jax" or (backend == "auto" and "planner" in meta):
        from saute.runs.trained import compiled

        return {seed: compiled(meta, arrays, path) for seed, arrays in seeds.items()}
    if "planner" in meta:
        raise ValueError(f"{path} is a planner (PETS), which imagines with JAX; load it with backend='jax'")
    about = described(meta)
    return {seed: Policy(about, network_of(about, arrays)) for seed, arrays in seeds.items()}


def stored(path: str | pathlib.Path) -> Stored:
    """What is stored of all seeds, if it is whole, finite, and what its description asks for."""
    file = file_of(path)

    def fits(meta: dict[str, Any], table: Mapping[str, Any]) -> None:
        expected = _expected(file, meta)
        seeds = _seeds(file, table)
        refuse_unlike({f"['{seed}']{name}": it for seed in seeds for name, it in expected.items()}, table, file)

    arrays, meta = load(file, fits, digest_beside(file))
    if not all(np.isfinite(array).all() for array in arrays.values()):
        raise CheckpointError(f"{file}: parameters are not finite; restore a copy, or train anew")
    named: dict[int, dict[str, np.ndarray]] = {seed: {} for seed in _seeds(file, arrays)}
    for name, array in arrays.items():
        _, seed, rest = name.split("'", 2)
        named[int(seed)][rest.removeprefix("]")] = array
    return meta, named


def file_of(path: str | pathlib.Path) -> pathlib.Path:
    """The file with the policies of a run folder, of pretrained:NAME, or itself."""
    place = located(path)
    try:
        return place / "policy.safetensors" if place.is_dir() else place
    except OSError as problem:
        raise CheckpointError(f"{place} cannot be read ({problem.strerror}); check the name") from None


def _expected(file: pathlib.Path, meta: dict[str, Any]) -> Mapping[str, Any]:
    """The arrays of a seed by shape and type, for which no memory is taken."""
    try:
        about: Description = described(meta)
        if about.hidden is not None:
            return layout(about)
        from saute.runs.trained import planner_layout

        return planner_layout(meta)
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            needed(f"{file} is a planner (PETS): it", missing) or str(missing), name=missing.name
        ) from None
    except Exception as problem:  # whatever a stranger may have written there
        raise CheckpointError(f"{file} does not describe a policy ({problem}); restore a copy, or train anew") from None


def _seeds(file: pathlib.Path, table: Mapping[str, Any]) -> list[int]:
    try:
        return sorted({int(name.split("'")[1]) for name in table})
    except (IndexError, ValueError):
        raise CheckpointError(
            f"{file} does not describe a policy (its arrays have no seeds); restore a copy, or train anew"
        ) from None
