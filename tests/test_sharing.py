"""A shared run is a run folder with a card: it acts as the run, says what was proved, and comes from the hub as data."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import pathlib
import shutil
import sys
import types
from typing import Any

import numpy as np
import pytest

import saute
from saute.cli.main import main
from saute.core.files import read_sealed, write_sealed
from saute.runs.card import card
from saute.runs.checkpoint import CheckpointError
from saute.runs.hub import FILES, repository
from saute.runs.policy import file_of
from saute.runs.pretrained import located, place_of

NAME = "pendulum-saute-trpo"
RUN = f"pretrained:{NAME}"
OBS = np.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 2.0]])


def certified(digest: str) -> None:
    """The certificate of the run, as `saute certify` writes it, about the policies with this digest."""
    place = place_of(RUN)
    place.mkdir(parents=True)
    certificate = saute.certify([[20.0] * 300, [10.0] * 299 + [31.0]], budget=30.0)
    origin = {"policy": digest, "date": "2026-01-02T03:04:05+00:00", "saute": "0.1.0"}
    write_sealed(place / "certificate.json", json.loads(certificate.json(provenance=origin, evaluation_seed=7)))
    (place / "certificate-box.png").write_bytes(b"a picture")


def digest_of(run: str) -> str:
    return hashlib.sha256(file_of(run).read_bytes()).hexdigest()


def same(a: str, b: str) -> None:
    for seed in range(5):
        first, second = (saute.load_policy(one, seed)(OBS, remaining=[3.0, 30.0]) for one in (a, b))
        np.testing.assert_array_equal(first, second)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_pushed_folder_acts_as_its_run_and_has_its_certificate(capsys: pytest.CaptureFixture[str]) -> None:
    certified(digest_of(RUN))
    assert main(["push", RUN, "shared/pendulum"]) == 0
    folder = pathlib.Path("shared/pendulum")
    assert sorted(one.name for one in folder.iterdir()) == sorted(set(FILES) - {"shield.safetensors"})
    same(RUN, "shared/pendulum")
    assert read_sealed(folder / "config.json") == read_sealed(located(RUN) / "config.json", former=True)
    assert read_sealed(folder / "certificate.json")["pooled"]["violations"] == 1
    page = (folder / "README.md").read_text().replace("\\", "")
    assert "**1 of 600 episodes violated, so P(violation) ≤ 0.788 % at 95 % confidence.**" in page
    assert "| seed 1 | 300 | 1 | 1.57 % | 10.07 | 31 |" in page and "starts from seed 7" in page and digest_of(RUN) in page
    assert main(["push", "shared/pendulum", "again"]) == 0, "what was pushed is a run folder"
    same(RUN, "again")


def test_the_card_of_several_constraints_has_a_bound_for_each() -> None:
    costs = np.tile([10.0, 1.0], (300, 1))
    content = json.loads(saute.certify(costs, budget=[20.0, 4.0]).json(evaluation_seed=0))
    page = card("a", "a", {"budget": [20.0, 4.0]}, content | {"provenance": {"date": "x", "saute": "y"}}, "0", False)
    assert "| seed 0 | 300 | 0 | 0.994 % | 0.5 | 0.5 |" in page and "largest share of a budget, mean" in page
    assert page.count("- Constraint ") == 2 and "at 97.5 % confidence" in page and "keeper.begin([20.0, 4.0])" in page


def test_a_certificate_of_other_policies_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    certified("0" * 64)
    assert main(["push", RUN, "shared"]) == 0
    assert "is of other policies, and is left out" in capsys.readouterr().err
    assert not pathlib.Path("shared/certificate.json").exists() and not pathlib.Path("shared/certificate-box.png").exists()
    assert "It is not certified." in pathlib.Path("shared/README.md").read_text()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([RUN, "full"], "full exists; name a folder that does not"),
        (["damaged", "out"], "damaged"),
        (["alone/policy.safetensors", "out"], "is not a run folder"),
        (["nothing", "out"], "nothing"),
        ([RUN, "hf://nobody"], "is no address on the hub; write hf://OWNER/NAME"),
        ([RUN, "hf://../../x"], "is no address on the hub"),
    ],
)
def test_what_cannot_be_shared_is_refused_with_the_reason(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("full", "damaged", "alone"):
        shutil.copytree(located(RUN), name)
    content = bytearray(pathlib.Path("damaged/policy.safetensors").read_bytes())
    content[-1] ^= 1
    pathlib.Path("damaged/policy.safetensors").write_bytes(content)
    pathlib.Path("alone/config.json").unlink()
    assert main(["push", *words]) == 2 and reason in capsys.readouterr().err
    assert not pathlib.Path("out", "README.md").exists()


class Hub(types.ModuleType):
    """A stand-in of huggingface_hub, whose repositories are local folders."""

    def __init__(self, place: pathlib.Path) -> None:
        super().__init__("huggingface_hub")
        self.place, self.asked, self.HfApi = place, list[Any](), lambda: self

    def create_repo(self, name: str, private: bool, exist_ok: bool) -> str:
        (self.place / name).mkdir(parents=True, exist_ok=exist_ok)
        return f"https://hub/{name}"

    def upload_folder(self, repo_id: str, folder_path: pathlib.Path, allow_patterns: list[str], **others: object) -> None:
        self._copied(folder_path, self.place / repo_id, allow_patterns)

    def snapshot_download(self, name: str, revision: str | None, allow_patterns: list[str]) -> str:
        self.asked.append((name, revision))
        if not (self.place / name).is_dir():
            raise FileNotFoundError(name)
        self._copied(self.place / name, self.place / "cache" / name, allow_patterns)
        return str(self.place / "cache" / name)

    def _copied(self, source: pathlib.Path, to: pathlib.Path, patterns: list[str]) -> None:
        to.mkdir(parents=True, exist_ok=True)
        for file in source.iterdir():
            if any(fnmatch.fnmatch(file.name, pattern) for pattern in patterns):
                shutil.copy(file, to / file.name)


def test_a_run_goes_to_the_hub_and_comes_back_as_data_only(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hub = Hub(tmp_path / "hub")
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    assert main(["push", RUN, "hf://somebody/pendulum"]) == 0
    assert "load it with saute.load_policy('hf://somebody/pendulum')" in capsys.readouterr().out
    (tmp_path / "hub/somebody/pendulum/evil.py").write_text("raise SystemExit")
    same(RUN, "hf://somebody/pendulum@v1")
    assert hub.asked[-1] == ("somebody/pendulum", "v1")
    assert not (tmp_path / "hub/cache/somebody/pendulum/evil.py").exists()
    assert repository(pathlib.Path("hf://somebody/pendulum")) == ("somebody/pendulum", None), "paths lose a slash"
    assert place_of("hf://somebody/pendulum@v1") == pathlib.Path("runs/hub/somebody/pendulum")
    with pytest.raises(CheckpointError, match="hf://somebody/else cannot be fetched"):
        saute.load_policy("hf://somebody/else")


@pytest.mark.parametrize("command", ["certify", "evaluate", "export", "watch", "plot box", "resume", "shield"])
def test_no_command_ends_with_a_traceback_for_an_address_that_is_none(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "hf://nobody"]) == 2
    assert "is no address on the hub; write hf://OWNER/NAME" in capsys.readouterr().err


def test_the_hubs_own_folders_are_read(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The layout of its cache: names of commits in refs, and files that are links to blobs."""
    hub = pytest.importorskip("huggingface_hub")
    repo, commit = tmp_path / "cache" / "models--somebody--pendulum", "a" * 40
    for folder in ("blobs", "refs", f"snapshots/{commit}"):
        (repo / folder).mkdir(parents=True)
    (repo / "refs" / "main").write_text(commit)
    for name in ("config.json", "policy.safetensors"):
        shutil.copy(located(RUN) / name, repo / "blobs" / name)
        (repo / "snapshots" / commit / name).symlink_to(repo / "blobs" / name)

    def download(name: str, **asked: Any) -> str:
        return str(fetch(name, cache_dir=tmp_path / "cache", local_files_only=True, **asked))

    fetch = hub.snapshot_download
    monkeypatch.setattr(hub, "snapshot_download", download)
    same(RUN, "hf://somebody/pendulum")
    with pytest.raises(CheckpointError, match="hf://somebody/else cannot be fetched"):
        saute.load_policy("hf://somebody/else")


def test_without_the_hub_it_says_which_extra_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModuleNotFoundError, match=r"needs huggingface_hub, which is not installed: pip install 'saute\[hub\]'"):
        saute.load_policy("hf://somebody/pendulum")


def test_texts_of_strangers_stay_texts_in_the_card() -> None:
    evil = 'x"]\n---\n# <img src=//evil>\n![](http://evil)\n```'
    content = json.loads(saute.certify([1.0] * 300, budget=30.0).json(evaluation_seed=0))
    content |= {"statement": evil, "notes": [evil], "provenance": {"date": evil, "saute": evil}}
    page = card(
        evil, "hf://a/b", {"env": evil, "algo": evil, "method": evil, "budget": [evil], "seeds": evil}, content, "0", True
    )
    assert "<img" not in page and "](http" not in page
    assert [line for line in page.splitlines() if line.startswith(("---", "# ", "```"))] == [
        *("---", "---", page.splitlines()[6], "```bash", "```", "```python", "```"),
    ]
