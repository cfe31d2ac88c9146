"""Trees of arrays on disk: safetensors with a checksum, written atomically, and safe to read from strangers; read by NumPy."""

from __future__ import annotations

import hashlib
import json
import math
import pathlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from saute.core.files import CheckpointError, opened, parsed, read_sealed, seal, unsealed, write_atomically
from saute.core.machine import memory
from saute.core.text import say

if TYPE_CHECKING:
    from jaxtyping import PyTree

__all__ = [
    "CheckpointError",
    "config_digest",
    "digest_beside",
    "load",
    "named_leaves",
    "newest",
    "numbered",
    "refuse_odd",
    "refuse_unlike",
    "restore",
    "save",
]

MOST_HEADER = 2**23
"""Bytes of the names, types and shapes of all arrays of a file, and what is said about them."""
TYPES = {"F64": "f8", "F32": "f4", "F16": "f2", "I64": "i8", "I32": "i4", "I16": "i2", "I8": "i1"}
TYPES |= {"U64": "u8", "U32": "u4", "U16": "u2", "U8": "u1", "BOOL": "?"}
"""NumPy's names of safetensors' types."""


class Placed(NamedTuple):
    """What a file says of one array before it is read: its type and shape, and where it begins and ends."""

    dtype: np.dtype
    shape: tuple[int, ...]
    begin: int
    end: int


def save(path: pathlib.Path, tree: PyTree, meta: dict[str, Any], **others: np.ndarray) -> None:
    """Write all leaves of a tree, other arrays by name and some JSON to one file, which appears complete or not at all."""
    from safetensors.numpy import save as serialise

    arrays = {**named_leaves(tree), **others}
    text = json.dumps(meta, sort_keys=True)
    # One entry, because the order of several is not reproducible, and equal runs shall have equal files.
    header = json.dumps({"meta": text, "sha256": _digest(text, arrays, lambda name: arrays[name].tobytes())})
    write_atomically(path, serialise(arrays, {"saute": header}))


def load(
    path: pathlib.Path,
    fits: Callable[[dict[str, Any], Mapping[str, Placed]], object] | None = None,
    config: str | None = None,
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The named arrays and the JSON of a file, if it is whole.

    `fits` is told what the file says of its arrays, and may refuse it, before memory is taken for them. `config` is the digest
    of the configuration that the file has to belong to; one of a former version does not say, and is believed with a note.
    """
    try:
        with opened(path) as (file, size):
            header, table, start = _header(path, file, size)
            meta = unsealed(parsed(header["meta"], path), path, former=True)
            if fits is not None:
                fits(meta, table)
            elif size > memory() / 4:
                raise CheckpointError(f"{path} has {size} bytes, more than a quarter of the memory; restore a copy")
            data = memoryview(file.read(size - start))
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist; check the run folder") from None
    if (
        len(data) != size - start
        or _digest(header["meta"], table, lambda name: data[slice(*table[name][2:])]) != header["sha256"]
    ):
        raise CheckpointError(f"{path} is corrupted (its checksum does not match); delete it or restore a copy")
    _compare_digests(path, meta, config)
    arrays = {name: np.frombuffer(data[it.begin : it.end], it.dtype).reshape(it.shape) for name, it in table.items()}
    return arrays, meta


def _header(path: pathlib.Path, file: BinaryIO, size: int) -> tuple[dict[str, str], dict[str, Placed], int]:
    """What was said about the arrays, where each of them is, and where the first one begins."""
    length = int.from_bytes(file.read(8), "little")
    start = 8 + length
    if not 8 < start <= size or length > MOST_HEADER:
        raise CheckpointError(f"{path} is truncated or not a safetensors file; delete it or restore a copy")
    try:
        entries = json.loads(file.read(length))
        said = entries.pop("__metadata__", {})
        table = {name: _placed(entry) for name, entry in entries.items()}
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as problem:
        raise CheckpointError(f"{path} is damaged or not a safetensors file ({problem}); delete it or restore a copy") from None
    ends = [0, *(one for it in sorted(table.values(), key=lambda it: it[2:]) for one in it[2:]), size - start]
    if any(before != after for before, after in zip(ends[::2], ends[1::2], strict=True)):
        raise CheckpointError(f"{path} is truncated, or its arrays overlap; delete it or restore a copy")
    if not isinstance(said, dict) or "saute" not in said:
        raise CheckpointError(f"{path} was not written by saute; point to a run folder or to a policy that saute saved")
    header = parsed(said["saute"], path) if isinstance(said["saute"], str) else None
    if not isinstance(header, dict) or not all(isinstance(header.get(name), str) for name in ("meta", "sha256")):
        raise CheckpointError(f"{path} is corrupted (its checksum is missing); delete it or restore a copy")
    return header, table, start


def _placed(entry: Mapping[str, Any]) -> Placed:
    dtype, (begin, end) = np.dtype(TYPES[entry["dtype"]]), entry["data_offsets"]
    shape = tuple(entry["shape"])
    if not all(type(one) is int and 0 <= one < 2**48 for one in (*shape, begin, end)) or len(shape) > 32:
        raise ValueError(f"shape {shape} at {begin}")
    if end - begin != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{end - begin} bytes for the shape {shape} of {dtype}")
    return Placed(dtype, shape, begin, end)


def _compare_digests(path: pathlib.Path, meta: dict[str, Any], config: str | None) -> None:
    found = meta.get("config")
    if config is None or found == config:
        return
    if found is not None:
        raise CheckpointError(
            f"{path} belongs to another configuration than the config.json beside it: its digest is {str(found)[:12]}, not "
            f"{config[:12]}; restore the configuration that it was trained with, or train anew in another folder"
        )
    say(f"note: {path} is of a former version and does not say which configuration it belongs to")


def config_digest(values: Mapping[str, Any]) -> str:
    """The digest of a configuration in plain values; how many epochs are planned may change while it is trained."""
    return seal({name: value for name, value in values.items() if name != "epochs"})


def digest_beside(file: pathlib.Path) -> str | None:
    """The digest of the config.json that lies beside a file, if there is one."""
    try:
        return config_digest(read_sealed(file.parent / "config.json", former=True))
    except FileNotFoundError:
        return None


def refuse_odd(template: PyTree, table: Mapping[str, Any], path: str | pathlib.Path = "the checkpoint") -> None:
    """Refuse arrays, read or not, that are not those of the template's leaves by name, shape and type."""
    refuse_unlike(named_leaves(template), table, path)


def refuse_unlike(expected: Mapping[str, Any], table: Mapping[str, Any], path: str | pathlib.Path = "the checkpoint") -> None:
    """Refuse arrays, read or not, that are not the expected ones by name, shape and type."""
    if expected.keys() != table.keys():
        odd = sorted(expected.keys() ^ table.keys())[:3]
        raise CheckpointError(
            f"{path} belongs to another configuration, or to another version of saute: {odd} do not match; use the run's own "
            "config.json, or train anew in another folder"
        )
    for name, leaf in expected.items():
        if leaf.shape != table[name].shape or leaf.dtype != table[name].dtype:
            found = f"{table[name].dtype}{table[name].shape}"
            raise CheckpointError(
                f"{path}: {name} is {found}, expected {leaf.dtype}{leaf.shape}; use the run's own config.json"
            )


def restore(template: PyTree, arrays: dict[str, np.ndarray], path: str | pathlib.Path = "the checkpoint") -> PyTree:
    """The tree of the template's structure with the stored arrays as leaves."""
    import jax

    refuse_odd(template, arrays, path)
    return jax.tree.unflatten(jax.tree.structure(template), [arrays[name] for name in named_leaves(template)])


def numbered(folder: pathlib.Path) -> list[pathlib.Path]:
    """The checkpoints of a folder, by their epochs; files of other names are not ours."""
    return sorted((path for path in folder.glob("*.safetensors") if path.stem.isdecimal()), key=lambda path: int(path.stem))


def newest(
    folder: pathlib.Path,
    fits: Callable[[dict[str, Any], Mapping[str, Placed]], object] | None = None,
    config: str | None = None,
) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
    """The newest valid checkpoint of a folder, as `load` gives it; what is passed over is said, none left is an error."""
    problems = []
    for path in reversed(numbered(folder)):
        try:
            arrays, meta = load(path, fits, config)
            if meta.get("epoch") != int(path.stem):
                raise CheckpointError(f"{path} is of epoch {meta.get('epoch')!r}, not of that in its name; delete it")
        except CheckpointError as problem:
            problems.append(str(problem))
            continue
        for passed in problems:
            say(f"warning: {passed}; going on from {path}")
        return arrays, meta
    if problems:
        raise CheckpointError("no valid checkpoint: " + "; ".join(problems))
    return None


def named_leaves(tree: PyTree) -> dict[str, Any]:
    """The leaves by their paths, as contiguous arrays; those that only have a shape stay as they are."""
    import jax

    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): _array(leaf) for path, leaf in leaves}


def _array(leaf: Any) -> Any:
    import jax

    return leaf if isinstance(leaf, jax.ShapeDtypeStruct) else np.ascontiguousarray(leaf).reshape(np.shape(leaf))


def _digest(text: str, arrays: Mapping[str, Any], content: Callable[[str], bytes | memoryview]) -> str:
    """SHA-256 of what is said about arrays, and of their names, types, shapes and contents."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        digest.update(f"{name}|{arrays[name].dtype}|{tuple(arrays[name].shape)}".encode())
        digest.update(content(name))
    return digest.hexdigest()
