"""A search for settings: what may be tried is checked first, the best of the safe ones is kept, and all of it goes on."""

from __future__ import annotations

import dataclasses
import importlib
import json
import pathlib
from concurrent.futures import Future
from typing import Any

import pytest

from saute.cli.main import main
from saute.core.errors import UserError
from saute.core.files import write_sealed
from saute.core.progress import Meter
from saute.evidence.stats import upper_bound
from saute.runs import sweep
from saute.runs.build import configured
from saute.runs.config import Config, Experiment
from saute.runs.crew import Job
from saute.runs.folder import describe
from saute.runs.presets import stored_preset
from saute.runs.sweep import Knob, Plan, read_space, search

optuna = pytest.importorskip("optuna", reason="pip install 'saute[sweep]'")
ASKED = Experiment("pendulum", "ppo", preset="fast", seeds=2, epochs=20)
SPACE = {"settings.discount": Knob(low=0.9, high=0.999), "settings.hidden": Knob(((8,), (16, 16)))}


class Inline:
    """Jobs are done at once, in this process."""

    slots = 1

    def __init__(self, most: int = 100):
        self.done, self.dropped, self.most = list[Job](), list[Job](), most

    def submit(self, job: Job) -> Future[list[str]]:
        future: Future[list[str]] = Future()
        self.done.append(job)
        if len(self.done) > self.most:
            raise KeyboardInterrupt
        future.set_result(job.work(job.config, job.folder))
        return future

    def drop(self, job: Job) -> None:
        self.dropped.append(job)


def played(config: Config, folder: pathlib.Path, episodes: int) -> list[str]:
    """Instead of a training: the return rises with the discount, and from 0.98 on a quarter of the episodes violates."""
    discount = config.settings.discount
    folder.mkdir(parents=True)
    epoch = {"episodes": 10.0, "task_return": 100 * discount, "worst_return": 0.0, "violation_rate": 0.0}
    describe(folder, config, [[epoch, epoch]] * config.epochs)
    violated = 100 if discount > 0.98 else 0
    write_sealed(folder / "validation.json", {"return": 100 * discount, "violated": violated, "episodes": 400})
    return []


@pytest.fixture
def plan(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.setattr(sweep, "_tried", played)
    return Plan(ASKED, SPACE, tmp_path / "sweep", trials=12)


def test_the_best_is_the_best_of_the_safe_ones_and_a_preset(plan: Plan) -> None:
    study = search(plan, Inline(), Meter("trials", 12))
    whole = [trial for trial in study.trials if trial.state.name == "COMPLETE"]
    safe = [trial.value for trial in whole if trial.user_attrs["violated"] == 0]
    assert safe and max(safe) <= 98.0 and any(trial.value > 98.0 for trial in whole), "both kinds were tried"
    preset, changes = stored_preset(str(plan.place / "best.toml"))
    assert preset == "fast" and 100 * changes["settings.discount"] == max(safe)
    assert configured(ASKED, changes).settings.hidden in ((8,), (16, 16))
    assert configured(dataclasses.replace(ASKED, epochs=None), changes).epochs == ASKED.epochs, "it was chosen for so many"
    assert study.best_trial.value == max(safe), "Optuna, and its dashboard, see the same constraint"
    assert whole[0].user_attrs["bound"] == upper_bound(whole[0].user_attrs["violated"], 400)
    text = (plan.place / "best.toml").read_text()
    assert "violated 0 of 400 episodes, so ≤ 0.00746 at 95 %" in text


def test_the_first_trial_is_the_preset_itself(plan: Plan) -> None:
    usual = configured(ASKED).settings
    assert SPACE["settings.discount"].low <= usual.discount <= SPACE["settings.discount"].high
    crew = Inline(1)
    with pytest.raises(KeyboardInterrupt):
        search(plan, crew, Meter("trials", 12))
    assert crew.done[0].config.settings.discount == usual.discount


def test_a_sweep_goes_on_where_it_was_stopped(plan: Plan) -> None:
    with pytest.raises(KeyboardInterrupt):
        search(plan, Inline(5), Meter("trials", 12))
    lost = sweep.study_in(plan)
    waiting = [trial.system_attrs["fixed_params"] for trial in lost.trials if trial.state.name == "WAITING"]
    assert len(waiting) == 1, "the trial that was under way is asked for again"
    study = search(plan, Inline(), Meter("trials", 12))
    states = [trial.state.name for trial in study.trials]
    assert states.count("COMPLETE") + states.count("PRUNED") == 12 and states.count("FAIL") == 1
    again = [trial.state.name for trial in study.trials if trial.params == waiting[0]]
    assert again[0] == "FAIL" and again[1] in ("COMPLETE", "PRUNED")


def test_trials_below_the_median_are_stopped_between_epochs(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    study = search(plan, Inline(), Meter("trials", 12))
    trial = study.ask()
    run = plan.place / "low"
    run.mkdir()
    epoch = {"episodes": 10.0, "task_return": 200.0, "worst_return": 0.0, "violation_rate": 1.0}
    describe(run, configured(ASKED), [[epoch, epoch]] * 4)
    one = sweep._Running(Job("", configured(ASKED), run, played), [trial])
    assert not sweep._should_stop(one), "no trial is stopped in the first quarter of its epochs"
    describe(run, configured(ASKED), [[epoch, epoch]] * 8)
    assert sweep._should_stop(one), "all of its episodes overspent, so that its return does not count"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("settings.discuont = [0.9]", "unknown setting 'discuont'; did you mean 'discount'"),
        ("setings.discount = [0.9]", "unknown setting 'setings'; did you mean 'settings'"),
        ("settings.discount = ['high', 'low']", "settings.discount = 'high'"),
        ("settings.discount = {low = 1, high = 0.5}", "are no range"),
        ("settings.discount = {low = 0.5, high = 0.9, lgo = true}", "lgo"),
        ("settings.discount = 0.9", "leaves nothing to try"),
        ("", "names no setting"),
        ("settings.discount = {", "Unclosed|Invalid|Cannot|Expected|Unterminated"),
    ],
)
def test_a_space_that_cannot_be_searched_is_refused(text: str, message: str, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "space.toml"
    file.write_text(text)
    with pytest.raises(UserError, match=message):
        read_space(file, ASKED)


def test_a_space_is_read(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "space.toml"
    file.write_text("[settings]\ndiscount = {low = 0.9, high = 0.999}\nhidden = [[8], [16, 16]]\n")
    assert read_space(file, ASKED) == SPACE


def test_mistakes_end_before_anything_is_written(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", "pendulum", "--space", "space.toml"]) == 2
    assert "--space space.toml does not exist" in capsys.readouterr().err
    (tmp_path / "space.toml").write_text("settings.discount = [0.9, 0.99]")
    assert main(["sweep", "pendulum", "--space", "space.toml", "--trials", "0"]) == 2
    assert "--trials 0 must be at least 1" in capsys.readouterr().err
    assert main(["train", "pendulum", "--preset", "best.toml"]) == 2
    assert "preset best.toml does not exist" in capsys.readouterr().err
    (tmp_path / "best.toml").write_text('[changes]\n"settings.discuont" = 0.9\n')
    assert main(["train", "pendulum", "--preset", "best.toml"]) == 2
    assert "did you mean 'discount'" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir() if file.suffix != ".toml"] == []


def test_a_preset_in_a_file_is_trained_by(tmp_path, monkeypatch) -> None:
    trained: list[Any] = []
    monkeypatch.setattr("saute.cli.train._run", lambda config, *_, **__: trained.append(config))
    file = tmp_path / "best.toml"
    file.write_text('preset = "fast"\n\n[changes]\n"settings.discount" = 0.93\n"settings.hidden" = [8, 4]\n')
    words = [
        "train",
        "pendulum",
        "--algo",
        "ppo",
        "--preset",
        str(file),
        "--settings.trace",
        "0.5",
        "--out",
        str(tmp_path / "run"),
    ]
    assert main(words) == 0
    config = trained[0]
    assert (config.settings.discount, config.settings.hidden, config.settings.trace) == (0.93, (8, 4), 0.5)
    usual = configured(Experiment("pendulum", "ppo", preset="fast"))
    assert config.experiment.preset == "fast" and config.epochs == usual.epochs
    assert json.loads(json.dumps(config.as_json()))["settings"]["discount"] == 0.93


def test_the_picture_of_a_sweep_shows_every_trial_as_what_it_is(plan: Plan) -> None:
    plot_sweep = importlib.import_module("plot_sweep")
    study = search(plan, Inline(), Meter("trials", 12))
    trials = plot_sweep.trials_of(study)
    states = [trial.state.name for trial in study.trials]
    kinds = [one.kind for one in trials]
    assert len(trials) == len(states) == 12 and kinds.count("stopped") == states.count("PRUNED")
    for one in trials:
        assert one.kind == "stopped" or one.kind == ("unsafe" if one.params["settings.discount"] > 0.98 else "safe")
    figure = plot_sweep.picture(trials, "pendulum")
    panels = [axis for part in figure.subfigs for axis in part.axes]
    assert [axis.get_xlabel() for axis in panels] == ["trial", "discount", "hidden"]
    for axis in panels:
        assert sum(len(points.get_offsets()) for points in axis.collections) == 12
