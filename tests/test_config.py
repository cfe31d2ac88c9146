"""Configurations: complete, by value, the same from Python as from the command line, and kept to."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from counting_toys import HostToll, Toll

import saute
from saute.algos.onpolicy import OnPolicySettings
from saute.cli.main import main
from saute.core.files import read_sealed, write_sealed
from saute.envs import TASKS
from saute.envs.from_gym import HostEnvs
from saute.learn.constraint import lagrangian
from saute.runs.build import configured
from saute.runs.config import ALGORITHMS, METHODS, Config, Experiment
from saute.runs.folder import TrainingError, read_metrics
from saute.runs.loop import run, train
from saute.runs.presets import OWN, changes_of

TINY = {"settings.hidden": (4,), "settings.steps_per_epoch": 400, "settings.value_iterations": 1}
SMALL = OnPolicySettings(hidden=(4,), steps_per_epoch=40, value_iterations=1)


def names_in(values: Any, prefix: str = "") -> set[str]:
    if not isinstance(values, dict):
        return {prefix}
    return {name for key, value in values.items() for name in names_in(value, f"{prefix}.{key}".lstrip("."))} or {prefix}


ASKED = [
    Experiment("pendulum", algo, method)
    for algo, method in [("ppo", "lagrangian"), ("trpo", "pid"), ("trpo", "cvar-tail"), ("cpo", "vanilla"), ("sac", "saute"),
                         ("sac", "lagrangian"), ("mbpo", "saute"), ("pets", "saute")]
]  # fmt: skip


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: f"{asked.algo}-{asked.method}")
@pytest.mark.parametrize("preset", ["paper", "fast", "short", "quick"])
def test_every_number_is_in_the_file_and_none_is_filled_in_when_it_is_read(asked: Experiment, preset: str) -> None:
    config = configured(dataclasses.replace(asked, preset=preset))
    stored = json.loads(json.dumps(config.as_json()))
    assert Config.from_json(stored) == config
    for name in names_in(stored):
        short = json.loads(json.dumps(stored))
        *parents, leaf = name.split(".")
        part = short
        for parent in parents:
            part = part[parent]
        del part[leaf]
        with pytest.raises((KeyError, ValueError)):
            Config.from_json(short)


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("lagrangian", {"kind": "lagrangian", "limit": 30.0, "worst": 1.0, "tail": False, "rate": 0.05, "initial": 1.0,
                        "through_softplus": False}),
        ("cvar-tail", {"kind": "lagrangian", "limit": 30.0, "worst": 0.01, "tail": True, "rate": 0.05, "initial": 1.0,
                       "through_softplus": False}),
        ("pid", {"kind": "pid", "limit": 30.0, "worst": 1.0, "proportional": 0.1, "integral": 0.01, "derivative": 0.0,
                 "smoothing": 0.95}),
    ],
)  # fmt: skip
def test_multipliers_are_in_the_file_with_all_their_rates(method: str, expected: dict[str, Any]) -> None:
    stored = configured(Experiment("pendulum", method=method)).as_json()
    assert stored["constraint"] == expected
    assert {name: stored["settings"][name] for name in ("clip", "tries", "shrink", "damping", "kl_margin")} == {
        "clip": 0.2, "tries": 10, "shrink": 0.8, "damping": 0.1, "kl_margin": 1.2,
    }  # fmt: skip


def test_quick_is_fast_but_for_soft_actor_critic_on_the_pendulum() -> None:
    differ = {
        (task, algo, method)
        for task, algo, method in itertools.product([*TASKS, OWN], ALGORITHMS, METHODS)
        if changes_of("quick", task, algo, {method}) != changes_of("fast", task, algo, {method})
    }
    assert differ == {("pendulum", "sac", method) for method in METHODS}
    vanilla, sauted = (configured(Experiment("pendulum", "sac", one, preset="quick")) for one in ("vanilla", "saute"))
    assert (sauted.epochs, sauted.settings.rate, sauted.settings.value_scale) == (100, 2e-3, 50.0)
    assert sauted.settings.relabel and sauted.validation == 2000 and sauted.settings.hidden == (64, 64)
    assert not vanilla.settings.relabel and vanilla.validation is None, (
        "what has no budget has none to redraw or to be chosen by"
    )


def test_what_a_preset_changes_is_kept_by_value_and_a_resumed_run_uses_it(tmp_path: pathlib.Path) -> None:
    asked = Experiment("pendulum", method="lagrangian", seeds=1, epochs=4)
    changes = {**TINY, "constraint.rate": 0.7}
    whole = run(configured(asked, changes), tmp_path / "whole")
    run(configured(dataclasses.replace(asked, epochs=2), changes), tmp_path / "halves")
    assert main(["resume", str(tmp_path / "halves"), "--epochs", "4"]) == 0
    assert (tmp_path / "whole/metrics.jsonl").read_bytes() == (tmp_path / "halves/metrics.jsonl").read_bytes()
    # The first step of Adam is its rate, whatever the costs are.
    p = np.log(np.expm1([1.0, whole.metrics[0][0]["multiplier"]]))
    assert abs(p[1] - p[0]) == pytest.approx(0.7, abs=1e-3)


def test_python_writes_what_the_command_line_writes(tmp_path: pathlib.Path) -> None:
    words = ["train", "pendulum", "--seeds", "1", "--epochs", "1", "--lowest-budget", "10", "--discount", "0.99"]
    small = ["--settings.hidden", "8", "--settings.steps-per-epoch", "800", "--settings.value-iterations", "2"]
    assert main([*words, *small, "--out", str(tmp_path / "words")]) == 0
    env = saute.saute(saute.envs.pendulum(), saute.uniform(10.0, 30.0), discount=0.99)
    settings = OnPolicySettings(hidden=(8,), steps_per_epoch=800, value_iterations=2)
    train(saute.trpo(settings=settings), env, seeds=1, epochs=1, out=tmp_path / "python")
    for name in ("config.json", "metrics.jsonl", "versions.json", "policy.safetensors"):
        assert (tmp_path / "words" / name).read_bytes() == (tmp_path / "python" / name).read_bytes(), name
    assert main(["evaluate", str(tmp_path / "python"), "--episodes", "3"]) == 0


def test_an_environment_that_has_no_name_is_said_to_have_none(tmp_path: pathlib.Path, capsys: Any) -> None:
    for i, env in enumerate((saute.saute(Toll(), 9.0), HostEnvs(HostToll, 4))):
        train(saute.ppo(settings=SMALL), env, seeds=1, epochs=1, budget=9.0, out=tmp_path / str(i))
        assert main(["evaluate", str(tmp_path / str(i))]) == 2
        assert "was given in Python and cannot be made again from its name; name one with --env" in capsys.readouterr().err
    assert json.loads((tmp_path / "0/config.json").read_text())["env"] == "python:Toll"


def test_a_folder_keeps_to_its_configuration(tmp_path: pathlib.Path) -> None:
    train(saute.ppo(lagrangian(9.0), SMALL), Toll(), seeds=1, epochs=1, out=tmp_path)
    with pytest.raises(TrainingError, match=r"holds a run with other settings \(constraint\)"):
        train(saute.ppo(lagrangian(9.0, rate=0.1), SMALL), Toll(), seeds=1, epochs=2, out=tmp_path)
    assert len(read_metrics(tmp_path)) == 1
    train(saute.ppo(lagrangian(9.0), SMALL), Toll(), seeds=1, epochs=2, out=tmp_path)
    assert len(read_metrics(tmp_path)) == 2


@pytest.mark.parametrize(("change", "message"), [
    (lambda values: values.pop("settings"), "settings"),
    (lambda values: values.update(heat=3), "unknown entries heat"),
    (lambda values: values.update(seeds="five"), "seeds is 'five', expected int"),
    (lambda values: values["constraint"].update(kind="lagrangan"), "did you mean 'lagrangian'"),
])  # fmt: skip
def test_a_file_that_is_not_complete_is_refused(change: Any, message: str, tmp_path: pathlib.Path, capsys: Any) -> None:
    train(saute.ppo(settings=SMALL), Toll(), seeds=1, epochs=1, out=tmp_path)
    values = read_sealed(tmp_path / "config.json")
    change(values)
    write_sealed(tmp_path / "config.json", values)
    assert main(["evaluate", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert message in said and "Traceback" not in said


def test_a_run_fits_a_screen() -> None:
    done = train(saute.ppo(settings=SMALL), saute.saute(Toll(), 9.0), seeds=5, epochs=2)
    lines = repr(done).splitlines()
    assert max(map(len, lines)) <= 80 and len(lines) <= 24
    assert lines[0] == "Run(ppo, saute, python:Toll: 5 seeds × 2 epochs"
    assert lines[-1].split() == ["violation", "rate", "1", "1", "1", "1", "1)"]


ELSEWHERE = """
import os, sys
sys.modules["fcntl"] = None
for name in ("sched_getaffinity", "sched_setaffinity"):
    if hasattr(os, name):
        delattr(os, name)
import saute
from saute.core.machine import cores
from saute.cli.main import main
assert cores() == os.cpu_count()
folder = sys.argv[1]
assert main(["train", "pendulum", "--seeds", "1", "--epochs", "1", "--out", folder]) == 0
assert main(["resume", folder, "--epochs", "2"]) == 0
assert main(["train", "car", "--seeds", "1", "--epochs", "1", "--envs", "2", "--out", folder + "-car"]) == 0
"""


def test_it_trains_where_neither_flock_nor_affinity_exist(tmp_path: pathlib.Path) -> None:
    words = [sys.executable, "-W", "ignore", "-c", ELSEWHERE, str(tmp_path / "run")]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "MUJOCO_GL": "egl"})
    assert done.returncode == 0, done.stderr
    assert len(read_metrics(tmp_path / "run")) == 2 and len(read_metrics(tmp_path / "run-car")) == 1


def test_two_processes_do_not_train_in_one_folder(tmp_path: pathlib.Path) -> None:
    held = (
        "import sys, time, pathlib, filelock\n"
        "with filelock.FileLock(sys.argv[1] + '/.lock'):\n    print('held', flush=True)\n    sys.stdin.read()"
    )
    (tmp_path / "run").mkdir()
    words = [sys.executable, "-c", held, str(tmp_path / "run")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        with pytest.raises(TrainingError, match="another process is training in"):
            train(saute.ppo(settings=SMALL), Toll(), seeds=1, epochs=1, out=tmp_path / "run")
        other.communicate("")
    train(saute.ppo(settings=SMALL), Toll(), seeds=1, epochs=1, out=tmp_path / "run")
