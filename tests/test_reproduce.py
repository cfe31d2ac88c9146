"""Figures and tables by name: what they need is trained once, interrupted ones continue, numbers and pictures are written."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import io
import json
import multiprocessing
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import made_up
import pytest

from saute.cli import reproduce as command
from saute.cli.main import main
from saute.core.machine import cores
from saute.core.progress import Meter
from saute.core.protocol import spec_of
from saute.paper import reproduce, shipped
from saute.paper.durations import expected_seconds
from saute.paper.figures import ARTIFACTS, EQUAL, Row
from saute.paper.opened import opened
from saute.paper.page import page, read
from saute.paper.reproduce import Need, longest_first, scaled
from saute.runs import crew, provenance
from saute.runs.build import algorithm_of, configured, environment_of
from saute.runs.config import Experiment
from saute.runs.folder import TrainingError, folder_of


@pytest.mark.parametrize("scale", ["smoke", "laptop", "paper"])
def test_every_run_of_every_artifact_can_be_made(scale) -> None:
    for artifact in ARTIFACTS.values():
        for row in artifact.rows:
            config = scaled(row, scale)
            agent = algorithm_of(config).agent(spec_of(environment_of(config, num_envs=1)))
            assert agent.settings == config.settings


def test_runs_are_addressed_by_their_settings() -> None:
    def folders(name: str) -> list[pathlib.Path]:
        return [folder_of(scaled(row, "laptop"), pathlib.Path("runs")) for row in ARTIFACTS[name].rows]

    assert folders("pendulum-trpo")[1] == folders("ablation-pendulum")[0], "shared runs are trained once"
    assert {scaled(row, "paper").epochs for row in ARTIFACTS["ablation-n"].rows} == {600}
    assert len(set(folders("ablation-n"))) == 6 and len(set(folders("generalisation"))) == 4


class Made(NamedTuple):
    """What a command left behind: folders by name, and what it printed."""

    place: pathlib.Path
    printed: str

    @property
    def metrics(self) -> dict[str, bytes]:
        return {run.name: (run / "metrics.jsonl").read_bytes() for run in (self.place / "runs").iterdir()}

    def numbers(self, name: str) -> list[dict[str, Any]]:
        rows = json.loads((self.place / "results" / "smoke" / name / "numbers.json").read_bytes())["rows"]
        return [{**row, "seconds": 0} for row in rows]


FORMER = pathlib.Path(__file__).parent / "former/policy"


def places(place: pathlib.Path) -> list[str]:
    return ["--scale", "smoke", "--runs", str(place / "runs"), "--out", str(place / "results")]


def only(monkeypatch: pytest.MonkeyPatch, name: str, rows: slice) -> None:
    """Leave out rows of an artifact, which take time."""
    monkeypatch.setitem(ARTIFACTS, name, ARTIFACTS[name]._replace(rows=ARTIFACTS[name].rows[rows]))


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    """Two rows of a figure, trained for one epoch and tested in five episodes."""
    place, out = tmp_path_factory.mktemp("smoke"), io.StringIO()
    with pytest.MonkeyPatch.context() as monkeypatch, contextlib.redirect_stdout(out):
        only(monkeypatch, "pendulum-trpo", slice(2))
        assert main(["reproduce", "pendulum-trpo", "--episodes", "5", *places(place)]) == 0
        yield Made(place, out.getvalue())


def test_numbers_pictures_and_verdicts(smoke: Made) -> None:
    rows = smoke.numbers("pendulum-trpo")
    assert [row["label"] for row in rows] == ["Vanilla TRPO", "Sauté TRPO"]
    assert [[seed["episodes"] for seed in row["seeds"]] for row in rows] == [[5], [5]]
    for name in ("box.png", "curves.png"):
        assert (smoke.place / "results/smoke/pendulum-trpo" / name).stat().st_size > 5000
    assert "| Sauté TRPO | 30 | " in smoke.printed and "of 5, so ≤" in smoke.printed
    assert not any(word in smoke.printed for word in ("holds", "does not hold", "cannot tell", "not run:")), (
        "one epoch of one seed"
    )
    assert rows[1]["made"]["seeds"] == [1_000_000, 1_000_004] and not (smoke.place / "results/opened.json").exists()


def test_what_is_trained_is_not_trained_again(smoke: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce, "trained", lambda *_: pytest.fail("trained twice"))
    file = smoke.place / "results/smoke/pendulum-trpo/numbers.json"
    first = file.read_bytes()
    file.unlink()
    assert main(["reproduce", "pendulum-trpo", "--episodes", "5", *places(smoke.place)]) == 0
    assert file.read_bytes() == first


def test_reserved_tests_open_a_block_and_rows_without_a_run_stay(
    smoke: Made, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, artifact = tmp_path / "results", ARTIFACTS["pendulum-trpo"]
    cpo = Row("CPO", Experiment("pendulum", algo="cpo", method="vanilla", budget=30.0), 30.0)
    monkeypatch.setitem(ARTIFACTS, "pendulum-trpo", artifact._replace(rows=(*artifact.rows, cpo)))
    place = results / "smoke/pendulum-trpo"
    place.mkdir(parents=True)
    (place / "numbers.json").write_text(json.dumps([made_up.row(label, 9).as_json() for label in ("CPO", "Sauté TRPO")]))
    assert reproduce.make("pendulum-trpo", "smoke", smoke.place / "runs", results, 5, reserved=True)
    rows = read(results, "smoke", "pendulum-trpo")
    assert list(rows) == ["Vanilla TRPO", "Sauté TRPO", "CPO"] and rows["CPO"] == made_up.row("CPO", 9)
    assert [one.made and one.made.seeds for one in rows.values()] == [(2_000_000, 2_000_004)] * 2 + [None]
    assert [one.block for one in opened(results)] == [2] and opened(results)[
        0
    ].what == "smoke pendulum-trpo, 5 episodes per seed"
    assert {file.name for file in place.glob("*.png")} == {"again-box.png", "again-curves.png"}


def test_what_comes_with_the_package_is_tested_on_reserved_seeds(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shipped, "names", lambda: ["pendulum-saute-trpo"])
    assert main(["reproduce", "shipped", "--episodes", "4", "--reserved", *places(tmp_path)]) == 0
    (row,) = read(tmp_path / "results", "smoke", "shipped").values()
    assert (row.episodes, len(row.seeds), row.budget) == (20, 5, 30.0) and row.made is not None
    assert row.made.seeds == (2_000_000, 2_000_019) and opened(tmp_path / "results")[0].block == 2
    assert "| pendulum-saute-trpo | 30 | " in capsys.readouterr().out
    text = page(tmp_path / "results", "smoke", tmp_path / "page.md")
    assert "`saute reproduce shipped --scale smoke --episodes 4 --reserved`" in text


def test_a_shield_that_comes_with_the_package_is_tested_beside_its_policy(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(shipped, "names", lambda: ["point-saute-trpo"])
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "shipped", "--episodes", "4", *places(tmp_path)]) == 0
    alone, under = read(tmp_path / "results", "smoke", "shipped").values()
    assert (alone.label, under.label) == ("point-saute-trpo", "point-saute-trpo, under its shield")
    assert alone.made == under.made and alone.episodes == under.episodes == 20
    own = tmp_path / "runs/pretrained/point-saute-trpo"
    own.mkdir(parents=True)
    (own / "shield.safetensors").write_bytes(b"mine")
    assert main(["reproduce", "shipped", "--episodes", "4", "--reserved", *places(tmp_path)]) == 2
    assert not opened(tmp_path / "results"), "no block is used up"
    assert "is your own shield of point-saute-trpo; test the package's in another folder" in capsys.readouterr().err


def test_rows_are_tested_on_the_way_but_for_planners() -> None:
    every = {row.label: scaled(row, "laptop").experiment.evaluate_every for row in ARTIFACTS["model-based"].rows}
    assert every == {"Vanilla MBPO": 1, "Sauté MBPO": 1, "Vanilla PETS": None, "Sauté PETS": None}
    assert scaled(ARTIFACTS["pendulum-ppo"].rows[0], "laptop").experiment.evaluate_every == 3
    assert scaled(ARTIFACTS["pendulum-ppo"].rows[0], "smoke").experiment.evaluate_every is None


def test_sauté_has_a_row_with_the_protocol_of_its_baselines() -> None:
    """The same starts, steps and selection; only the method differs."""
    for name in ("double-pendulum", "reacher", "point", "car"):
        rows = {row.label: scaled(row, "laptop") for row in ARTIFACTS[name].rows}
        (equal,) = (config for label, config in rows.items() if label.endswith(EQUAL))
        vanilla = next(config for label, config in rows.items() if label.startswith("Vanilla"))
        assert equal.settings == vanilla.settings and equal.task == vanilla.task == {}
        assert equal.validation is None and equal.training_unsafe_reward is None and equal.epochs == vanilla.epochs


def test_values_are_scaled_in_proportion_to_n() -> None:
    scales = [scaled(row, "laptop").settings.value_scale for row in ARTIFACTS["ablation-n"].rows]
    assert scales == [50.0, 50.0, 50.0, 250.0, 2500.0, 25_000.0]
    assert {scaled(row, "paper").settings.value_scale for row in ARTIFACTS["ablation-n"].rows} == {1.0}


def test_the_list_and_the_page_know_what_is_done(smoke: Made, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--list", *places(smoke.place)]) == 0
    listed = [line.split(maxsplit=3) for line in capsys.readouterr().out.splitlines()]
    assert listed[1][:2] == ["pendulum-trpo", "2"] and "reproduced" in listed[1][3] and "not begun" in listed[2][3]
    page = smoke.place / "deep" / "page.md"
    assert main(["reproduce", "page", "--page", str(page), *places(smoke.place)]) == 0
    assert "![Pendulum, TRPO family (figure 1): Training](../results/smoke/pendulum-trpo/curves.png)" in page.read_text()


@pytest.mark.parametrize(
    ("change", "whole"),
    [
        (lambda run: (run / "seconds.json").unlink(), True),
        (lambda run: (run / "policy.safetensors").unlink(), False),
        (lambda run: (run / "metrics.jsonl").write_text(""), False),
        (lambda run: (run / "metrics.jsonl").write_text('{"seeds": [half a li'), False),
        (lambda run: (run / "config.json").write_text('{"epochs": 2}'), False),
        (lambda run: (run / "config.json").write_text("{"), False),
        (lambda run: shutil.rmtree(run), False),
        (lambda run: (shutil.rmtree(run), shutil.copytree(FORMER, run)), False),
    ],
)
def test_a_run_is_finished_when_its_own_folder_says_so(smoke: Made, tmp_path: pathlib.Path, change: Any, whole: bool) -> None:
    original = next((smoke.place / "runs").iterdir())
    run = pathlib.Path(shutil.copytree(original, tmp_path / original.name))
    assert reproduce.complete(run) and isinstance(reproduce.seconds_of(run), int)
    change(run)
    assert reproduce.complete(run) is whole and (reproduce.seconds_of(run) is None) == (not (run / "seconds.json").exists())


def test_several_train_the_same_in_processes_of_their_own_before_anything_is_tested(
    smoke, tmp_path, monkeypatch, capfd
) -> None:
    only(monkeypatch, "ablation-pendulum", slice(1))
    only(monkeypatch, "pendulum-trpo", slice(2))
    monkeypatch.setattr(crew, "_has_ray", lambda: False)
    several = ["--ray", "--cores", str(cores())]  # with the same number of threads, for the same numbers
    assert main(["reproduce", "ablation-pendulum", "pendulum-trpo", "--episodes", "5", *several, *places(tmp_path)]) == 0
    made = Made(tmp_path, capfd.readouterr().out)
    assert made.metrics == smoke.metrics and made.numbers("pendulum-trpo") == smoke.numbers("pendulum-trpo")
    trained = [i for i, line in enumerate(made.printed.splitlines()) if line.startswith("training ")]
    assert trained == [0, 1], "the run that both figures need is trained once, and all before the first table"
    assert len(made.numbers("ablation-pendulum")) == 1


def test_several_begin_with_the_longest() -> None:
    names = {"pendulum": "pendulum-trpo", "car": "car", "double_pendulum": "double-pendulum"}
    needs = {pathlib.Path(env): Need("", scaled(ARTIFACTS[name].rows[1], "laptop")) for env, name in names.items()}
    assert [str(run) for run in longest_first(needs)] == ["car", "double_pendulum", "pendulum"]


@pytest.mark.parametrize(("option", "more"), [("episodes", []), ("cores", ["--ray"])])
def test_numbers_that_are_too_small(option: str, more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "all", f"--{option}", "0", *more]) == 2
    assert f"--{option} 0 must be at least 1" in capsys.readouterr().err


@pytest.mark.parametrize("end", ["fails", "killed", "stopped"])
def test_several_end_together_and_say_why(tmp_path, monkeypatch, end: str) -> None:
    """A run that fails, a worker that is killed, Ctrl-C: the other workers end at once."""
    (tmp_path / "file").write_text("")
    need = Need("a figure", scaled(ARTIFACTS["pendulum-trpo"].rows[0], "paper"))
    missing = {(tmp_path / "file" if end == "fails" else tmp_path) / name: need for name in ("one", "two")}

    def waited(*asked: Any) -> Any:
        """Wait, as long as it takes to stop or to kill one of the workers."""
        if end == "stopped":
            raise KeyboardInterrupt
        if end == "killed":
            while not multiprocessing.active_children():
                time.sleep(0.01)
            os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)
        return concurrent.futures.wait(*asked)

    monkeypatch.setattr(crew, "wait", waited)
    monkeypatch.setattr(crew, "_has_ray", lambda: False)
    why = {"fails": "a figure failed: TrainingError: cannot write to", "killed": r"ended with code -9 \(was it killed"}
    with (
        pytest.raises(KeyboardInterrupt if end == "stopped" else TrainingError, match=why.get(end)),
        crew.crew_of("") as workers,
    ):
        reproduce._train_together(missing, workers, Meter("runs", 2), keep_going=False)
    assert not multiprocessing.active_children()


def test_workers_die_with_a_killed_parent(tmp_path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import multiprocessing, os, time\n"
        "from concurrent.futures import ProcessPoolExecutor\n"
        "from saute.runs.crew import end_with_parent\n"
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
    monkeypatch.setattr(reproduce, "trained", lambda *_: pytest.fail("trained"))
    places = ["--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "results")]
    assert main(["reproduce", "all", "--no-train", *places]) == 0
    assert "pendulum-trpo: nothing is trained yet" in capsys.readouterr().out and not (tmp_path / "results").exists()


@pytest.mark.parametrize("scale", ["laptop", "paper"])
def test_an_expected_time_is_known_for_every_row(scale) -> None:
    for artifact in ARTIFACTS.values():
        for row in artifact.rows:
            assert expected_seconds(scaled(row, scale)) is not None, row.label


def test_expected_seconds_by_hand() -> None:
    def seconds(**options: Any) -> float | None:
        return expected_seconds(configured(Experiment("pendulum", seeds=1, epochs=1, **options)))

    # 10 s to compile; 4000 steps of 0.1 + 2.6 + 80 × 0.45 s per million, and as much again for a value function of costs.
    assert seconds(algo="trpo") == pytest.approx(10 + 0.004 * 38.7)
    assert seconds(algo="trpo", method="lagrangian") == pytest.approx(10 + 0.004 * 74.7)
    assert seconds(algo="cpo", method="vanilla") == seconds(algo="trpo", method="lagrangian")
    assert expected_seconds(configured(Experiment("saute/TwoArms-v0", budget=5.0))) is None


def test_the_list_counts_a_run_that_figures_share_once(tmp_path, monkeypatch, capsys) -> None:
    only(monkeypatch, "pendulum-trpo", slice(2))
    only(monkeypatch, "ablation-pendulum", slice(2))
    monkeypatch.setattr(command, "ARTIFACTS", {name: ARTIFACTS[name] for name in ("pendulum-trpo", "ablation-pendulum")})
    monkeypatch.setattr(command, "expected_seconds", lambda experiment: 100.0)
    assert main(["reproduce", "--list", *places(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert [line.split()[:3] for line in printed.splitlines()[1:3]] == [
        [n, "2", "3"] for n in ("pendulum-trpo", "ablation-pendulum")
    ]
    assert "the 3 different runs are expected to take 5 min;" in printed


def test_planners_are_tested_on_fewer_episodes() -> None:
    rows = {row.label: row for row in ARTIFACTS["model-based"].rows}
    assert [reproduce.episodes_of(rows["Sauté PETS"], asked) for asked in (5, 100)] == [5, 25]
    assert reproduce.episodes_of(rows["Sauté MBPO"], 100) == 100


def test_the_commit_of_a_result_is_marked_if_code_was_changed_and_not_for_other_results(tmp_path, monkeypatch) -> None:
    package = tmp_path / "src" / "saute"
    package.mkdir(parents=True)
    (package / "code.py").write_text("one = 1\n")

    def git(*words: str) -> None:
        who = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.org")
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.setattr(provenance, "PACKAGE", package)
    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    clean = provenance.commit()
    assert len(clean) == 12 and set(clean) <= set("0123456789abcdef")
    (tmp_path / "results.json").write_text("{}")
    assert provenance.commit() == clean
    (package / "code.py").write_text("one = 2\n")
    assert provenance.commit() == f"{clean}-dirty"


def test_there_are_more_seeds_where_a_seed_is_cheap() -> None:
    """More than the paper's five only where a seed takes less than two minutes, never fewer."""
    for artifact in ARTIFACTS.values():
        for row in artifact.rows:
            seeds = scaled(row, "laptop").experiment.seeds
            assert seeds >= 5 and scaled(row, "paper").experiment.seeds == 5, row.label
            seconds = expected_seconds(scaled(row, "laptop"))
            assert seconds is not None and (seeds == 5 or seconds / seeds < 105), row.label
    seeds = {name: scaled(ARTIFACTS[name].rows[0], "laptop").experiment.seeds for name in ARTIFACTS}
    assert [seeds[name] for name in ("pendulum-trpo", "double-pendulum", "pendulum-sac", "car")] == [20, 10, 10, 5]


def test_settings_of_a_row_can_depend_on_the_scale() -> None:
    rows = {row.label: row for row in ARTIFACTS["sac-narrow"].rows}
    names = ("Sauté SAC", "Sauté SAC 256×256")
    laptop, paper = ([scaled(rows[name], scale) for name in names] for scale in ("laptop", "paper"))
    for configs in (laptop, paper):
        assert [one.settings.hidden for one in configs] == [(64, 64), (256, 256)]
        narrow, wide = (dataclasses.replace(one.settings, hidden=()) for one in configs)
        assert narrow == wide and configs[0].epochs == configs[1].epochs
    assert (laptop[0].epochs, paper[0].epochs) == (200, 300)
    assert laptop[0] == scaled(ARTIFACTS["pendulum-sac"].rows[1], "laptop"), "figures share their runs"
    assert paper[1] == scaled(ARTIFACTS["pendulum-sac"].rows[1], "paper"), "figures share their runs"


def test_unknown_artifact_suggests_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "pendulum-trop"]) == 2
    assert "pendulum-trpo" in capsys.readouterr().err
