"""Figures and tables by name: what they need is trained once, interrupted ones continue, numbers and pictures are written."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import time
from concurrent.futures import Future

import pytest

from saute.cli.main import main
from saute.paper import reproduce
from saute.paper.durations import duration, expected_seconds
from saute.paper.figures import ARTIFACTS, Artifact
from saute.paper.reproduce import folder_of, scaled
from saute.runs.config import algorithm_of, environment_of


@pytest.mark.parametrize("scale", ["smoke", "laptop", "paper"])
def test_every_run_of_every_artifact_can_be_made(scale) -> None:
    for artifact in ARTIFACTS.values():
        for row in artifact.rows:
            experiment = scaled(row, scale)
            algorithm = algorithm_of(experiment)
            env = environment_of(experiment, num_envs=1)
            bound = algorithm.bind(env.observation_space, env.action_space, getattr(env, "options", None))
            assert bound.algorithm is algorithm


def test_runs_are_addressed_by_their_settings() -> None:
    def folders(name: str) -> list[pathlib.Path]:
        return [folder_of(scaled(row, "laptop"), pathlib.Path("runs")) for row in ARTIFACTS[name].rows]

    assert folders("pendulum-trpo")[1] == folders("ablation-pendulum")[0], "shared runs are trained once"
    assert {scaled(row, "paper").epochs for row in ARTIFACTS["ablation-n"].rows} == {600}
    assert len(set(folders("ablation-n"))) == 6 and len(set(folders("generalisation"))) == 4


def test_smoke(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    whole = ARTIFACTS["pendulum-trpo"]
    monkeypatch.setitem(ARTIFACTS, "pendulum-trpo", Artifact(whole.title, whole.claim, whole.rows[:2]))
    words = ["reproduce", "pendulum-trpo", "--scale", "smoke", "--episodes", "5"]
    places = ["--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "results")]
    assert main([*words, *places]) == 0
    first = (tmp_path / "results/smoke/pendulum-trpo/numbers.json").read_bytes()
    rows = json.loads(first)
    assert [row["label"] for row in rows] == ["Vanilla TRPO", "Sauté TRPO"]
    assert [[seed["episodes"] for seed in row["seeds"]] for row in rows] == [[5], [5]]
    for name in ("box.png", "curves.png"):
        assert (tmp_path / "results/smoke/pendulum-trpo" / name).stat().st_size > 5000
    assert "| Sauté TRPO | 30 | " in (printed := capsys.readouterr().out) and "of 5, so ≤" in printed
    assert "No trajectory of Sauté TRPO violates." in printed and "not run: Some trajectories of TRPO-L" in printed
    monkeypatch.setattr(reproduce, "run_experiment", lambda *_: pytest.fail("trained twice"))
    assert main([*words, *places]) == 0
    assert (tmp_path / "results/smoke/pendulum-trpo/numbers.json").read_bytes() == first
    capsys.readouterr()
    assert main(["reproduce", "--list", "--scale", "smoke", *places]) == 0
    listed = [line.split(maxsplit=3) for line in capsys.readouterr().out.splitlines()]
    assert listed[1][:2] == ["pendulum-trpo", "2"] and "reproduced" in listed[1][3] and "not begun" in listed[2][3]
    page = tmp_path / "deep" / "page.md"
    assert main(["reproduce", "page", "--scale", "smoke", "--page", str(page), *places]) == 0
    assert "![Pendulum, TRPO family (figure 1): Training](../results/smoke/pendulum-trpo/curves.png)" in page.read_text()


def test_jobs_train_the_same_in_processes_of_their_own(tmp_path, monkeypatch, capfd) -> None:
    whole = ARTIFACTS["ablation-pendulum"]
    monkeypatch.setitem(ARTIFACTS, "ablation-pendulum", Artifact(whole.title, whole.claim, whole.rows[:2]))

    def numbers(jobs: str) -> tuple[list[bytes], list[dict[str, object]]]:
        place = tmp_path / jobs
        words = ["reproduce", "ablation-pendulum", "--scale", "smoke", "--episodes", "3", "--jobs", jobs]
        assert main([*words, "--runs", str(place / "runs"), "--out", str(place)]) == 0
        runs = sorted((place / "runs").iterdir())
        rows = json.loads((place / "smoke/ablation-pendulum/numbers.json").read_bytes())
        return [(run / "metrics.jsonl").read_bytes() for run in runs], [{**row, "seconds": 0} for row in rows]

    assert numbers("2") == numbers("1")
    assert capfd.readouterr().out.count("training Sauté (1 epochs of 1 seeds)") == 2
    assert main(["reproduce", "all", "--jobs", "0"]) == 2
    assert "--jobs 0 must be at least 1" in capfd.readouterr().err


def test_jobs_train_all_figures_together_the_longest_first(tmp_path, monkeypatch) -> None:
    begun: list[pathlib.Path] = []

    class Pool(contextlib.nullcontext):
        def __init__(self, jobs: int, context: object, initializer: object):
            super().__init__(self)
            assert jobs == 2 and initializer is reproduce.end_with_parent

        def submit(self, work, run, what, experiment) -> Future[None]:
            begun.append(run)
            done: Future[None] = Future()
            done.set_result(None)
            return done

    names = ["pendulum-trpo", "ablation-pendulum", "pendulum-ppo"]
    made: list[str] = []
    monkeypatch.setattr(reproduce, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(reproduce, "_make", lambda name, options: made.append(name) if len(begun) == 10 else None)
    assert main(["reproduce", *names, "--jobs", "2", "--runs", str(tmp_path), "--out", str(tmp_path)]) == 0
    experiments = [scaled(row, "laptop") for name in names for row in ARTIFACTS[name].rows]
    seconds = {folder_of(one, tmp_path): expected_seconds(one) for one in experiments}
    assert len(experiments) == 11 and len(begun) == len(set(begun)) == 10 and set(begun) == set(seconds)
    assert [seconds[run] for run in begun] == sorted(seconds.values(), reverse=True)
    assert made == names, "tested once all is trained"


def test_workers_die_with_a_killed_parent(tmp_path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import multiprocessing, os, time\n"
        "from concurrent.futures import ProcessPoolExecutor\n"
        "from saute.paper.reproduce import end_with_parent\n"
        "if __name__ == '__main__':\n"
        "    pool = ProcessPoolExecutor(1, multiprocessing.get_context('spawn'), end_with_parent)\n"
        "    print(pool.submit(os.getpid).result(), flush=True)\n"
        "    pool.submit(time.sleep, 600).result()\n"
    )
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as parent:
        worker = int(parent.stdout.readline())
        os.kill(worker, 0)  # it lives
        parent.kill()
    deadline = time.monotonic() + 20
    with pytest.raises(ProcessLookupError):
        while time.monotonic() < deadline:
            os.kill(worker, 0)
            time.sleep(0.1)


def test_without_training_only_finished_runs_are_tested(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(reproduce, "run_experiment", lambda *_: pytest.fail("trained"))
    places = ["--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "results")]
    assert main(["reproduce", "all", "--no-train", *places]) == 0
    assert "pendulum-trpo: nothing is trained yet" in capsys.readouterr().out and not (tmp_path / "results").exists()


@pytest.mark.parametrize("scale", ["laptop", "paper"])
def test_expected_times_are_known(scale) -> None:
    for artifact in ARTIFACTS.values():
        for row in artifact.rows:
            seconds = expected_seconds(scaled(row, scale))
            assert seconds is not None and 10 < seconds < 24 * 3600, row.label


def laptop_seconds(runs: pathlib.Path) -> dict[pathlib.Path, float | None]:
    rows = [scaled(row, "laptop") for artifact in ARTIFACTS.values() for row in artifact.rows]
    seconds = {folder_of(one, runs): expected_seconds(one) for one in rows}
    assert len(seconds) < len(rows), "figures share their runs"
    return seconds


def test_everything_at_laptop_scale_is_expected_to_train_within_six_hours(tmp_path) -> None:
    assert sum(filter(None, laptop_seconds(tmp_path).values())) < 6 * 3600


def test_the_list_says_what_all_runs_are_expected_to_take(tmp_path, capsys) -> None:
    seconds = laptop_seconds(tmp_path)
    total = duration(sum(filter(None, seconds.values())))
    assert main(["reproduce", "--list", "--scale", "laptop", "--runs", str(tmp_path), "--out", str(tmp_path)]) == 0
    assert f"the {len(seconds)} different runs are expected to take {total};" in capsys.readouterr().out


def test_planners_are_tested_on_fewer_episodes() -> None:
    rows = {row.label: row for row in ARTIFACTS["model-based"].rows}
    assert [reproduce.episodes_of(rows["Sauté PETS"], asked) for asked in (5, 100)] == [5, 25]
    assert reproduce.episodes_of(rows["Sauté MBPO"], 100) == 100


def test_settings_of_a_row_can_depend_on_the_scale() -> None:
    rows = {row.label: row for row in ARTIFACTS["sac-narrow"].rows}
    names = ("Sauté SAC", "Sauté SAC 256×256")
    laptop, paper = ([scaled(rows[name], scale) for name in names] for scale in ("laptop", "paper"))
    for experiments in (laptop, paper):
        assert [one.learner.settings.hidden for one in experiments] == [(64, 64), (256, 256)]
        narrow, wide = (dataclasses.replace(one.learner.settings, hidden=()) for one in experiments)
        assert narrow == wide and experiments[0].epochs == experiments[1].epochs
    assert (laptop[0].epochs, paper[0].epochs) == (200, 300)
    assert laptop[0] == scaled(ARTIFACTS["pendulum-sac"].rows[1], "laptop"), "figures share their runs"
    assert paper[1] == scaled(ARTIFACTS["pendulum-sac"].rows[1], "paper"), "figures share their runs"


def test_unknown_artifact_suggests_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "pendulum-trop"]) == 2
    assert "pendulum-trpo" in capsys.readouterr().err
