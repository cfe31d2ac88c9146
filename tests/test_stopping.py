"""Signals: whenever one comes, the command saves what it has, ends with its code, and promises what it can keep."""

from __future__ import annotations

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest
from interrupts import QUICK, fault, stopped, training

from saute.cli.main import main
from saute.core.stopping import last_words
from saute.runs import loop
from saute.runs.checkpoint import load, newest


def trained(run: pathlib.Path, epochs: int) -> None:
    """Wait until the numbers of so many epochs are written."""
    while not (run / "metrics.jsonl").exists() or (run / "metrics.jsonl").read_bytes().count(b"\n") < epochs:
        time.sleep(0.02)


@pytest.mark.parametrize(("name", "code", "times"), [("SIGINT", 130, 2), ("SIGTERM", 143, 1), ("SIGHUP", 129, 1)])
def test_a_signal_saves_a_checkpoint_and_a_policy(tmp_path: pathlib.Path, capsys, name: str, code: int, times: int) -> None:
    run = tmp_path / "run"
    process = training(run)
    trained(run, 3)
    end = stopped(process, run, getattr(signal, name), times)
    assert end.code == code and f"saute resume {run}" in end.said and "Traceback" not in end.said
    epochs = (run / "metrics.jsonl").read_bytes().count(b"\n")
    assert newest(run / "checkpoints")[1]["epoch"] == epochs == load(run / "policy.safetensors")[1]["epochs"]
    assert main(["evaluate", str(run), "--episodes", "2"]) == 0
    assert main(["resume", str(run), "--epochs", str(epochs + 1)]) == 0
    assert json.loads((run / "config.json").read_text())["epochs"] == epochs + 1


@pytest.mark.parametrize("moment", random.Random(1).choices(range(40), k=4))
def test_interrupted_at_any_moment_of_its_start(tmp_path: pathlib.Path, moment: int) -> None:
    process = training(tmp_path / "run")
    time.sleep(0.1 + moment / 10)
    assert fault(stopped(process, tmp_path / "run")) is None


def test_a_signal_that_is_ignored_stays_so(tmp_path: pathlib.Path) -> None:
    """As `nohup` has it."""
    run, before = tmp_path / "run", signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = training(run)
    finally:
        signal.signal(signal.SIGHUP, before)
    trained(run, 2)
    process.send_signal(signal.SIGHUP)
    trained(run, 4)
    assert stopped(process, run).code == 130


def test_a_library_that_swallows_the_interrupt_does_not_keep_it() -> None:
    """The signal is repeated until somebody listens."""
    deaf = """
import time, sys
from saute.core.stopping import guarded, leave, stopped_by
with guarded():
    try:
        try:
            print("ready", flush=True)
            time.sleep(60)
        except KeyboardInterrupt:
            time.sleep(60)
    finally:
        leave()
"""
    process = subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    os.kill(process.pid, signal.SIGINT)
    assert "stopped" in process.communicate(timeout=50)[1] and process.returncode == 130


def test_an_interrupt_is_raised_only_where_it_can_be(tmp_path: pathlib.Path) -> None:
    """Neither within an import, which would fail with another error, nor in a garbage collection, which would print it."""
    (tmp_path / "half.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT); done = True")
    awkward = """
import gc, os, signal, sys, time
from saute.core.stopping import guarded, leave
with guarded():
    try:
        gc.callbacks.append(lambda *_: os.kill(os.getpid(), signal.SIGINT))
        gc.collect()
        gc.callbacks.clear()
        import half
        print(half.done, flush=True)
        time.sleep(60)
    finally:
        leave()
"""
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    ended = subprocess.run(
        [sys.executable, "-c", awkward], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "True\n", "stopped\n")


def test_a_start_that_does_not_listen_leaves_no_folder(tmp_path: pathlib.Path, capsys, monkeypatch) -> None:
    """The process then leaves from within, after the last words."""
    run, said = tmp_path / "run", []

    def deaf(*_: object) -> None:
        said.append((run / "config.json").exists())
        said.append(last_words())
        said.append(run.exists())
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "_epoch", deaf)
    assert main(["train", "pendulum", *QUICK, "--out", str(run)]) == 130
    assert said == [True, "stopped before the first epoch was saved; there is nothing to continue", False]


def test_a_failed_start_leaves_no_folder_and_blocks_no_other(tmp_path: pathlib.Path, capsys) -> None:
    run = tmp_path / "run"
    assert main(["train", "saute/TwoArms-v0", "--budget", "5", "--envs", "3", "--workers", "2", "--out", str(run)]) == 2
    assert not run.exists()
    # What a start that was killed outright has left behind.
    (run / "checkpoints").mkdir(parents=True)
    (run / "config.json").write_text('{"from": "a start that failed"}')
    words = ["train", "pendulum", "--epochs", "1", *QUICK, "--out", str(run)]
    assert main(words) == 0 and json.loads((run / "config.json").read_text())["epochs"] == 1
