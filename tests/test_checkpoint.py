"""Checkpoints: what comes back is what was saved, or a clear error."""

from __future__ import annotations

import pathlib
import pickle
import shutil
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file

import saute.runs.checkpoint
from saute.core.files import write_atomically
from saute.learn.nets import Layer
from saute.runs.checkpoint import CheckpointError, load, newest, numbered, restore, save

TREE = {
    "net": (Layer(jnp.arange(6.0).reshape(2, 3), jnp.zeros(3)), Layer(jnp.ones((3, 1)), jnp.full(1, jnp.nan))),
    "count": jnp.asarray(7, jnp.int32),
}


def test_what_comes_back_is_what_was_saved(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.safetensors"
    save(path, TREE, {"epoch": 3})
    arrays, meta = load(path)
    again = restore(TREE, arrays)
    assert meta == {"epoch": 3} and type(again["net"][0]) is Layer
    np.testing.assert_array_equal(again["net"][0].weight, TREE["net"][0].weight)
    assert again["count"].dtype == np.int32 and again["count"].shape == () and np.isnan(again["net"][1].bias[0])
    assert [file.name for file in tmp_path.iterdir()] == ["a.safetensors"]


def test_every_damage_is_noticed(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.safetensors"
    save(path, TREE, {"epoch": 3})
    whole = path.read_bytes()
    for cut in (0, 5, 100, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(CheckpointError, match="truncated"):
            load(path)
    for place in range(8, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(CheckpointError):
            load(path)


def test_a_file_that_would_fill_the_memory_is_refused_unless_its_shapes_were_compared(tmp_path, monkeypatch) -> None:
    save(tmp_path / "large.safetensors", {"a": np.zeros(1000)}, {})
    monkeypatch.setattr(saute.runs.checkpoint, "memory", lambda: 8000.0)
    with pytest.raises(CheckpointError, match="more than a quarter of the memory; restore a copy"):
        load(tmp_path / "large.safetensors")
    assert load(tmp_path / "large.safetensors", lambda meta, table: None)[0]["['a']"].shape == (1000,)


def test_a_header_beyond_all_reason_is_not_read(tmp_path: pathlib.Path) -> None:
    length = saute.runs.checkpoint.MOST_HEADER + 1
    with open(tmp_path / "a.safetensors", "wb") as file:
        file.write(length.to_bytes(8, "little"))
        file.truncate(8 + length)
    with pytest.raises(CheckpointError, match="truncated or not a safetensors file"):
        load(tmp_path / "a.safetensors", lambda meta, table: None)


def test_foreign_and_hostile_files_run_no_code(tmp_path: pathlib.Path) -> None:
    class Hostile:
        def __reduce__(self):
            return (pathlib.Path.touch, (tmp_path / "executed",))

    path = tmp_path / "a.safetensors"
    path.write_bytes(pickle.dumps(Hostile()))
    with pytest.raises(CheckpointError, match="not a safetensors file"):
        load(path)
    assert not (tmp_path / "executed").exists()
    save_file({"w": np.ones(2)}, path)
    with pytest.raises(CheckpointError, match="not written by saute"):
        load(path)
    with pytest.raises(CheckpointError, match="does not exist"):
        load(tmp_path / "none.safetensors")


def test_another_configuration_is_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.safetensors"
    save(path, TREE, {})
    arrays, _ = load(path)
    with pytest.raises(CheckpointError, match=r"another configuration, or .* version .* anew in another folder"):
        restore({"net": TREE["net"]}, arrays)
    with pytest.raises(CheckpointError, match=r"is int32\(\), expected float32\(\)"):
        restore({**TREE, "count": jnp.asarray(7.0)}, arrays)


def test_the_newest_valid_one_wins(tmp_path: pathlib.Path) -> None:
    assert newest(tmp_path) is None
    for epoch in (1, 2, 3):
        save(tmp_path / f"{epoch:06d}.safetensors", TREE, {"epoch": epoch})
    (tmp_path / "000003.safetensors").write_bytes(b"half")
    found = newest(tmp_path)
    assert found is not None and found[1]["epoch"] == 2
    for path in tmp_path.iterdir():
        path.write_bytes(b"half")
    with pytest.raises(CheckpointError, match="no valid checkpoint"):
        newest(tmp_path)


def test_checkpoints_are_ours_by_name_and_in_the_order_of_their_numbers(tmp_path: pathlib.Path) -> None:
    for name in ("000002", "999999", "1000000", "best", "zzz"):
        save(tmp_path / f"{name}.safetensors", TREE, {"epoch": int(name) if name.isdecimal() else 0})
    assert [path.stem for path in numbered(tmp_path)] == ["000002", "999999", "1000000"]
    found = newest(tmp_path)
    assert found is not None and found[1]["epoch"] == 1000000


def test_a_stale_checkpoint_under_a_newer_name_is_passed_over_aloud(tmp_path: pathlib.Path, capsys: Any) -> None:
    for epoch in (1, 2):
        save(tmp_path / f"{epoch:06d}.safetensors", TREE, {"epoch": epoch})
    shutil.copy(tmp_path / "000001.safetensors", tmp_path / "000003.safetensors")
    found = newest(tmp_path)
    assert found is not None and found[1]["epoch"] == 2
    assert "000003.safetensors is of epoch 1, not of that in its name; delete it; going on from" in capsys.readouterr().err


def test_a_failed_write_leaves_the_old_file_and_no_debris(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    write_atomically(path, b"old")
    monkeypatch.setattr("os.fsync", lambda fd: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old" and [file.name for file in tmp_path.iterdir()] == ["a"]
