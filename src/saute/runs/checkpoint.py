"""Trees of arrays on disk: safetensors with a checksum, written atomically, and safe to read from strangers."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import sys
import tempfile
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

__all__ = ["CheckpointError", "load", "newest", "numbered", "restore", "save", "write_atomically"]


class CheckpointError(ValueError):
    """A checkpoint that cannot be used, and why."""


def save(path: pathlib.Path, tree: PyTree, meta: dict[str, Any]) -> None:
    """Write all leaves of a tree and some JSON to one file, which appears complete or not at all."""
    from safetensors.numpy import save as serialise

    arrays = _named(tree)
    text = json.dumps(meta, sort_keys=True)
    # One entry, because the order of several is not reproducible, and equal runs shall have equal files.
    header = json.dumps({"meta": text, "sha256": _digest(arrays, text)})
    write_atomically(path, serialise(arrays, {"saute": header}))


def load(path: pathlib.Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The named arrays and the JSON of a checkpoint, if it is whole."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (the handle is not a dict)
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist; check the run folder") from None
    except (SafetensorError, OSError, ValueError, TypeError, KeyError) as broken:
        raise CheckpointError(
            f"{path} is truncated or not a safetensors file ({broken}); delete it or restore a copy"
        ) from None
    if "saute" not in header:
        raise CheckpointError(f"{path} was not written by saute; point to a run folder or to a policy that saute saved")
    try:
        stored = json.loads(header["saute"])
        whole = _digest(arrays, stored["meta"]) == stored["sha256"]
    except (ValueError, KeyError, TypeError, AttributeError):
        whole = False
    if not whole:
        raise CheckpointError(f"{path} is corrupted (its checksum does not match); delete it or restore a copy")
    return arrays, json.loads(stored["meta"])


def restore(template: PyTree, arrays: dict[str, np.ndarray], path: str | pathlib.Path = "the checkpoint") -> PyTree:
    """The tree of the template's structure with the stored arrays as leaves."""
    expected = _named(template)
    if expected.keys() != arrays.keys():
        odd = sorted(expected.keys() ^ arrays.keys())[:3]
        raise CheckpointError(
            f"{path} belongs to another configuration, or to another version of saute: {odd} do not match; use the run's own "
            "config.json, or train anew in another folder"
        )
    for name, leaf in expected.items():
        if leaf.shape != arrays[name].shape or leaf.dtype != arrays[name].dtype:
            found = f"{arrays[name].dtype}{arrays[name].shape}"
            raise CheckpointError(
                f"{path}: {name} is {found}, expected {leaf.dtype}{leaf.shape}; use the run's own config.json"
            )
    return jax.tree.unflatten(jax.tree.structure(template), [arrays[name] for name in expected])


def numbered(folder: pathlib.Path) -> list[pathlib.Path]:
    """The checkpoints of a folder, by their epochs; files of other names are not ours."""
    return sorted((path for path in folder.glob("*.safetensors") if path.stem.isdecimal()), key=lambda path: int(path.stem))


def newest(folder: pathlib.Path, most: int | None = None) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
    """The newest valid checkpoint of a folder, of an epoch up to `most`; what is passed over is said, none left is an error."""
    problems = []
    for path in reversed(numbered(folder)):
        try:
            if most is not None and int(path.stem) > most:
                raise CheckpointError(f"{path} is of epoch {int(path.stem)}, but metrics.jsonl has only {most}")
            found = load(path)
        except CheckpointError as problem:
            problems.append(str(problem))
            continue
        for passed in problems:
            print(f"warning: {passed}; going on from {path}", file=sys.stderr)
        return found
    if problems:
        raise CheckpointError("no valid checkpoint: " + "; ".join(problems))
    return None


def write_atomically(path: pathlib.Path, content: bytes) -> None:
    """Replace a file in one step: whatever happens, it is the old one or the new one."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync(path.parent)
    except BaseException:
        pathlib.Path(temporary).unlink(missing_ok=True)
        raise


def _sync(folder: pathlib.Path) -> None:
    """Make the name of a new file last through a power cut, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _named(tree: PyTree) -> dict[str, np.ndarray]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): np.ascontiguousarray(leaf).reshape(np.shape(leaf)) for path, leaf in leaves}


def _digest(arrays: dict[str, np.ndarray], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name}|{array.dtype}|{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
