"""Policies that come with the package: found, listed, used wherever a run folder is, and never written to."""

from __future__ import annotations

import importlib.resources
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import zipfile
from typing import Any

import jax
import numpy as np
import pytest

import saute
from saute.cli.main import main
from saute.cli.pretrained import listing
from saute.core.files import read_sealed, write_sealed
from saute.core.protocol import spec_of
from saute.learn.nets import policy_for
from saute.runs import evaluate as testing
from saute.runs import pretrained
from saute.runs.build import configured, environment_of
from saute.runs.config import Experiment
from saute.runs.evaluate import Outcome
from saute.runs.policy import load_policy
from saute.runs.shield import load_shield
from saute.runs.trained import policy_description, save_policies

ROOT = pathlib.Path(__file__).parent.parent
NAME = "pendulum-saute-trpo"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SAUTE_TRACEBACK", raising=False)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A run folder with what evaluation needs."""
    run, config = tmp_path_factory.mktemp("run"), configured(Experiment("pendulum", seeds=2))
    spec = spec_of(environment_of(config))
    net = policy_for(spec.observation_space, spec.action_space)
    policies = [net.init(jax.random.key(seed)) for seed in range(2)]
    save_policies(run / "policy.safetensors", policies, policy_description(spec, net, 1))
    write_sealed(run / "config.json", config.as_json())
    return run


def exporter():
    spec = importlib.util.spec_from_file_location("export_pretrained", ROOT / "scripts" / "export_pretrained.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def contents() -> dict[str, bytes]:
    files = (file for file in pretrained.FOLDER.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    return {str(file): file.read_bytes() for file in files}


def test_every_policy_is_whole_small_and_found_through_the_package() -> None:
    place = importlib.resources.files("saute.runs.pretrained")
    assert NAME in pretrained.names()
    for name in pretrained.names():
        config = json.loads(place.joinpath(name, "config.json").read_text())
        kind = f"{config['env']}-{config['method']}-{config['algo']}".replace("_", "-")
        assert name == kind or name.startswith(f"{kind}-")
        assert len(place.joinpath(name, "policy.safetensors").read_bytes()) < 2_000_000
        files = {file.name for file in place.joinpath(name).iterdir()}
        assert files - {"shield.safetensors"} == {"config.json", "policy.safetensors"}
        if "shield.safetensors" in files:
            assert 0.0 < load_shield(f"pretrained:{name}").margin < 1.0
        policies = [load_policy(f"pretrained:{name}", seed) for seed in range(config["seeds"])]
        obs = np.random.default_rng(0).normal(size=(20, policies[0].about.bare))
        actions = np.array([policy(obs, remaining=config["budget"]) for policy in policies])
        assert np.isfinite(actions).all() and len(np.unique(actions, axis=0)) == config["seeds"]


def test_they_are_in_the_wheel(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("hatchling")
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    packed = zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist()
    for name in pretrained.names():
        assert {f"saute/runs/pretrained/{name}/{file}" for file in ("config.json", "policy.safetensors")} <= set(packed)


def test_the_list_needs_no_jax() -> None:
    code = """
import sys
sys.modules["jax"] = None  # as if it were not installed
from saute.cli.pretrained import listing
print(listing())
"""
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    heads, *rows = printed.split("\n\n")[0].splitlines()
    assert heads.split() == ["name", "task", "algorithm", "seeds", "budget", "trained", "at", "size"]
    assert [row.split()[0] for row in rows] == pretrained.names()
    assert next(row for row in rows if row.startswith(NAME)).split() == f"{NAME} pendulum saute trpo 5 30 30 95 kB".split()


def test_a_range_of_budgets_is_listed(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    config = read_sealed(pretrained.FOLDER / NAME / "config.json")
    folder = tmp_path / "pendulum-saute-sac-all-budgets"
    folder.mkdir()
    write_sealed(folder / "config.json", {**config, "algo": "sac", "budget": 60.0, "lowest_budget": 5.0})
    (folder / "policy.safetensors").write_bytes(b"")
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path)
    assert "saute sac  5      60      5 to 60" in listing()


def quickly(net: Any, env: Any, episodes: int, ledger: Any) -> Any:
    """Made-up episodes instead of physics."""

    def test(parameters: Any, seed: int) -> Outcome:
        returns, costs = np.random.default_rng(seed).uniform(0.0, 9.0, (2, episodes))
        return Outcome(returns, costs, np.ones(episodes), costs, costs > 30.0)

    return test


RUN, PLACE = f"pretrained:{NAME}", pathlib.Path("runs", "pretrained", NAME)


def test_a_policy_that_comes_with_the_package_keeps_its_budget(capsys) -> None:
    assert main(["evaluate", RUN, "--episodes", "20"]) == 0
    printed = capsys.readouterr().out
    assert "0 of 100, so ≤ 2.951 % at 95 %" in printed and f"wrote every episode to {PLACE}" in printed


@pytest.mark.parametrize(
    ("words", "written"),
    [
        (["pretrained"], []),
        (["evaluate", RUN, "--episodes", "20"], [PLACE / "episodes" / f"seed-{i}.npz" for i in range(5)]),
        (["evaluate", RUN, "--episodes", "20", "--budget", "25", "--out", "mine"], ["mine/budget-25/episodes/seed-4.npz"]),
        (["certify", RUN, "--episodes", "20"], [PLACE / "certificate.md", PLACE / "certificate.json"]),
        (["plot", "costs", RUN, "--episodes", "20"], [PLACE / "costs.png"]),
        (["watch", "pendulum", "--policy", f"{RUN}@3", "--steps", "3", "--size", "64", "--mode", "test"], ["pendulum.gif"]),
    ],
    ids=lambda words: words[0] if words and isinstance(words[0], str) else "",
)
def test_a_command_uses_it_and_writes_elsewhere(words: list[str], written: list[Any], monkeypatch) -> None:
    monkeypatch.setattr(testing, "evaluator", quickly)
    before = contents()
    assert main(words) == 0
    assert all(pathlib.Path(file).stat().st_size > 0 for file in written)
    assert contents() == before, "the installed package stays as it is"
    assert {path.parts[0] for path in map(pathlib.Path, os.listdir())} == {pathlib.Path(file).parts[0] for file in written}


def test_what_users_can_put_right(capsys: pytest.CaptureFixture[str]) -> None:
    cases = {
        "evaluate pretrained:pendulum-saute-trop": "did you mean 'pendulum-saute-trpo'?",
        "certify pretrained:nonsense": "saute pretrained lists them",
        "watch pendulum --policy pretrained:nonsense": "saute pretrained lists them",
        f"watch pendulum --policy pretrained:{NAME}@9": "has no seed 9; it has 0, 1, 2, 3, 4",
        f"resume pretrained:{NAME}": "has no checkpoint to continue from",
        f"plot curves pretrained:{NAME}": "comes without the curves of its training",
        f"evaluate pretrained:{NAME} pretrained:{NAME}": "is given twice",
    }
    for words, message in cases.items():
        assert main(words.split()) == 2, words
        error = capsys.readouterr().err
        assert message in error and "Traceback" not in error, words
    with pytest.raises(ValueError, match=r"did you mean 'pendulum-saute-trpo'\?.*saute pretrained lists them"):
        saute.load_policy("pretrained:pendulum-saute-trp")


def test_an_exported_policy_acts_as_that_of_its_run(trained, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path / "package")
    pretrained.FOLDER.mkdir()
    assert exporter().main([str(trained), "pendulum-saute-trpo-mine"]) is None
    assert "pendulum-saute-trpo-mine" in capsys.readouterr().out, "what there is now is listed"
    assert pretrained.names() == ["pendulum-saute-trpo-mine"]
    obs = np.random.default_rng(0).normal(size=(9, 3))
    # A shield belongs to the very policies beside it, so that of former ones goes.
    kept = pretrained.FOLDER / "pendulum-saute-trpo-mine" / "shield.safetensors"
    kept.write_bytes(b"of other policies")
    assert exporter().main([str(trained), "pendulum-saute-trpo-mine"]) is None and not kept.exists()
    for seed in range(2):
        one, other = load_policy(trained, seed), saute.load_policy("pretrained:pendulum-saute-trpo-mine", seed=seed)
        np.testing.assert_array_equal(one(obs, remaining=12.5), other(obs, remaining=12.5))


def test_only_whole_policies_under_their_name_are_exported(trained, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path)
    export, error = (getattr(exporter(), name) for name in ("export", "UserError"))
    with pytest.raises(error, match="is a pendulum-saute-trpo; call it that"):
        export(trained, "reacher-saute-trpo")
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    (unfinished / "config.json").write_text((trained / "config.json").read_text())
    with pytest.raises(error, match="has no whole policies of 2 seeds"):
        export(unfinished, NAME)
    assert pretrained.names() == []


def test_a_reader_that_has_read_enough_ends_a_listing_quietly() -> None:
    command = [sys.executable, "-m", "saute", "pretrained"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b"" and process.wait() == 141
