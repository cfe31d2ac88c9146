"""Runs: bit-identical resumes after any end, seeds alone or together, honest failures, folders, the command line."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from learner_toys import Slope, Stop, assert_same

import saute
from saute.algos.onpolicy import OnPolicySettings
from saute.algos.sac import SacSettings
from saute.algos.trpo import trpo
from saute.cli.main import main
from saute.learn.constraint import lagrangian
from saute.runs import presets
from saute.runs.build import algorithm_of, configured
from saute.runs.checkpoint import newest
from saute.runs.config import Config, Experiment
from saute.runs.folder import Folder, read_metrics
from saute.runs.loop import Run, TrainingError, train
from saute.runs.report import logger, told

SMALL = OnPolicySettings(hidden=(16, 16), steps_per_epoch=400, value_iterations=20)
SAUTED = saute.saute(Slope(), budget=3.0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, Run]:
    """A training that nothing has stopped."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, train(trpo(settings=SMALL), SAUTED, seeds=2, epochs=4, out=folder, checkpoint_seconds=0.0)


def assert_same_run(run: Run, folder: pathlib.Path, whole: tuple[pathlib.Path, Run]) -> None:
    assert_same(run.states, whole[1].states)
    for name in ("metrics.jsonl", "policy.safetensors"):
        assert (folder / name).read_bytes() == (whole[0] / name).read_bytes()


def test_seeds_together_equal_seeds_alone(whole) -> None:
    alone = train(trpo(settings=SMALL), SAUTED, seeds=1, epochs=4, seed=1)
    assert_same(alone.states[0], whole[1].states[1])
    assert [epoch[0] for epoch in alone.metrics] == [epoch[1] for epoch in whole[1].metrics]


def test_a_stopped_run_continues_bit_for_bit(whole, tmp_path: pathlib.Path) -> None:
    def stop(epoch: int, metrics: Any) -> None:
        if epoch == 2:
            raise Stop

    with pytest.raises(Stop):
        train(trpo(settings=SMALL), SAUTED, seeds=2, epochs=4, out=tmp_path, hook=stop, checkpoint_seconds=1e9)
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"seeds": [half a li')
    assert_same_run(train(trpo(settings=SMALL), SAUTED, seeds=2, epochs=4, out=tmp_path), tmp_path, whole)


@pytest.mark.parametrize("damage", ["lost", "flipped"])
def test_numbers_that_are_lost_or_damaged_are_restored_from_the_checkpoint(whole, tmp_path, capsys, damage: str) -> None:
    """A power cut lost the line of the last epoch, or a bit flipped in an old one."""
    train(trpo(settings=SMALL), SAUTED, seeds=2, epochs=3, out=tmp_path, checkpoint_seconds=0.0)
    lines = (tmp_path / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    odd = bytes([lines[0][40] ^ 1])
    left = lines[:2] if damage == "lost" else [lines[0][:40] + odd + lines[0][41:], *lines[1:]]
    (tmp_path / "metrics.jsonl").write_bytes(b"".join(left))
    assert_same_run(train(trpo(settings=SMALL), SAUTED, seeds=2, epochs=4, out=tmp_path), tmp_path, whole)
    assert "metrics.jsonl is damaged or incomplete; restored from the checkpoint" in capsys.readouterr().err


@pytest.mark.parametrize("moment", ["before", "after"])
def test_interrupted_while_it_writes_it_continues_bit_for_bit(whole, tmp_path, monkeypatch, moment: str) -> None:
    keep = Folder.keep

    def interrupted(self: Folder, seeds: Any, metrics: Any, seconds: float = 0.0) -> None:
        """By Ctrl-C, when the numbers of the third epoch are known, before they are written or after."""
        now = len(metrics) == 3 and seconds > 0
        if not now or moment == "after":
            keep(self, seeds, metrics, seconds)
        if now:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Folder, "keep", interrupted)
        train(trpo(settings=SMALL), SAUTED, seeds=2, epochs=4, out=tmp_path)
    assert_same_run(train(trpo(settings=SMALL), SAUTED, seeds=2, epochs=4, out=tmp_path), tmp_path, whole)


# Trains without a pause between checkpoints, so that a kill hits learning, writing and renaming alike.
TRAINING = """
import sys
import saute
from saute.algos.onpolicy import OnPolicySettings
from saute.algos.trpo import trpo
from learner_toys import Slope
settings = OnPolicySettings(hidden=(16, 16), steps_per_epoch=400, value_iterations=20)
env = saute.saute(Slope(), budget=3.0)
saute.train(trpo(settings=settings), env, seeds=1, epochs=60, out=sys.argv[1], checkpoint_seconds=0.0)
"""


def test_killed_at_any_moment_and_resumed_ends_with_the_identical_policy(tmp_path: pathlib.Path) -> None:
    moments = random.Random(0)
    train(trpo(settings=SMALL), SAUTED, seeds=1, epochs=60, out=tmp_path / "whole")
    killed, reached = tmp_path / "killed", 0
    # One process after the other goes on where the one before was killed, somewhere in some tens of milliseconds.
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", TRAINING, str(killed)], cwd=pathlib.Path(__file__).parent)
        deadline = time.monotonic() + 120
        while finished(killed) < reached + 2 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(moments.uniform(0.0, 0.05))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        reached = finished(killed)
        assert 0 < reached <= 60
    train(trpo(settings=SMALL), SAUTED, seeds=1, epochs=60, out=killed)
    for name in ("metrics.jsonl", "policy.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (killed / name).read_bytes()


def finished(run: pathlib.Path) -> int:
    """Epochs in a run folder."""
    lines = run / "metrics.jsonl"
    return lines.read_text().count("\n") if lines.exists() else 0


def test_killed_through_the_command_line_and_resumed_ends_with_the_identical_policy(tmp_path: pathlib.Path) -> None:
    words = ["train", "pendulum", "--seeds", "1", "--epochs", "8"]
    assert main([*words, "--out", str(tmp_path / "whole")]) == 0
    process = subprocess.Popen([sys.executable, "-m", "saute", *words, "--out", str(tmp_path / "killed")])
    deadline = time.monotonic() + 120
    while finished(tmp_path / "killed") < 3 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert main(["resume", str(tmp_path / "killed")]) == 0
    for name in ("metrics.jsonl", "policy.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "killed" / name).read_bytes()


def test_not_finite_rewards_stop_with_epoch_and_seed_and_keep_the_state(tmp_path: pathlib.Path) -> None:
    train(trpo(settings=SMALL), Slope(), seeds=2, epochs=2, out=tmp_path)
    with pytest.raises(TrainingError, match=r"epoch 2, seed 0: rewards, costs or parameters are not finite"):
        train(trpo(settings=SMALL), Slope(bad=True), seeds=2, epochs=4, out=tmp_path)
    found = newest(tmp_path / "checkpoints")
    assert (
        found is not None
        and found[1]["epoch"] == 2
        and all(np.isfinite(a).all() for name, a in found[0].items() if name != "metrics")
    )


def test_two_processes_on_one_folder_and_unwritable_folders_are_refused(tmp_path: pathlib.Path) -> None:
    import fcntl

    (tmp_path / "checkpoints").mkdir()
    with open(tmp_path / ".lock", "w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(TrainingError, match="another process is training"):
            train(trpo(settings=SMALL), Slope(), seeds=1, epochs=1, out=tmp_path)
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(TrainingError, match="cannot write to"):
        train(trpo(settings=SMALL), Slope(), seeds=1, epochs=1, out=file / "run")


def test_a_full_disk_is_reported_and_loses_nothing(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(trpo(settings=SMALL), Slope(), seeds=1, epochs=2, out=tmp_path)
    before = (tmp_path / "checkpoints" / "000002.safetensors").read_bytes()
    monkeypatch.setattr("os.fsync", lambda fd: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises((TrainingError, OSError), match="No space left"):
        train(trpo(settings=SMALL), Slope(), seeds=1, epochs=4, out=tmp_path)
    assert (tmp_path / "checkpoints" / "000002.safetensors").read_bytes() == before


def test_relabel_reaches_the_learner_and_survives_the_run_folder() -> None:
    plain, relabelled = (configured(Experiment("pendulum", "sac", relabel=chosen)) for chosen in (False, True))
    assert relabelled.settings == dataclasses.replace(plain.settings, relabel=True)
    assert algorithm_of(relabelled).settings.relabel and not algorithm_of(plain).settings.relabel
    assert Config.from_json(json.loads(json.dumps(relabelled.as_json()))) == relabelled


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "pendulun"], "unknown environment 'pendulun'; did you mean 'pendulum'"),
        (["train", "pendulum", "--algo", "trop"], "unknown algorithm 'trop'; did you mean 'trpo'"),
        (["train", "pendulum", "--method", "sauté"], "unknown method 'sauté'; did you mean 'saute'"),
        (["train", "pendulum", "--preset", "papers"], "unknown preset 'papers'; did you mean 'paper'"),
        (["train", "pendulum", "--seeds", "0"], "--seeds 0 must be at least 1"),
        (["train", "pendulum", "--seeds", "1001"], "--seeds 1001 must be at most 1000; train the others into another folder"),
        (["train", "pendulum", "--epochs", "-1"], "--epochs -1 must be at least 1"),
        (["train", "pendulum", "--budget", "-3"], "budget=-3.0 must be a positive"),
        (["train", "CartPole-v1"], "CartPole-v1 has no budget of its own; pass --budget"),
        (["train", "CartPole-v1", "--budget", "3", "--epochs", "1"], "no cost: info"),
        (["train", "pendulum", "--method", "pid+lagrangian"], "names two multipliers"),
        (["train", "pendulum", "--algo", "cpo", "--method", "pid"], "cpo has a constraint of its own"),
        (["train", "pendulum", "--relabel"], "--relabel is for sac with method saute, not for trpo with saute"),
        (["train", "pendulum", "--algo", "sac", "--method", "pid", "--relabel"], "not for sac with pid"),
        (["evaluate", "nowhere"], "nowhere is not a run folder"),
        (["resume", "nowhere"], "nowhere is not a run folder"),
        (["trian", "pendulum"], "unknown command 'trian'; did you mean 'train'"),
    ],
)
def test_bad_words_get_one_line_and_exit_code_2(words, message, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error


def test_train_evaluate_and_load_through_the_command_line(tmp_path, capsys) -> None:
    run = tmp_path / "run"
    assert main(["train", "pendulum", "--seeds", "2", "--epochs", "2", "--out", str(run)]) == 0
    assert main(["evaluate", str(run), "--episodes", "50"]) == 0
    printed = capsys.readouterr().out
    assert "of 50, so ≤" in printed and printed.count(str(run)) >= 3
    config = json.loads((run / "config.json").read_text())
    assert config["budget"] == 30.0 and config["unsafe_reward"] == 0.0 and config["epochs"] == 2
    episodes = np.load(run / "episodes" / "seed-1.npz")
    assert episodes["cost"].shape == (50,) and (episodes["length"] == 200).all()
    assert saute.load_policy(run, seed=1)(np.zeros(3), remaining=30.0).shape == (1,)
    assert main(["train", "pendulum", "--seeds", "3", "--epochs", "2", "--out", str(run)]) == 2
    assert "holds a run with other settings" in capsys.readouterr().err


def test_any_gymnasium_environment_trains_through_the_host_collector(tmp_path, capsys) -> None:
    run = tmp_path / "arms"
    words = ["train", "saute/TwoArms-v0", "--budget", "5", "--seeds", "2", "--epochs", "2", "--envs", "4", "--out", str(run)]
    assert main(words) == 0
    assert main(["evaluate", str(run), "--episodes", "3"]) == 0
    assert capsys.readouterr().out.count("of 3, so ≤") == 2
    episodes = np.load(run / "episodes" / "seed-0.npz")
    assert (episodes["length"] == 20).all() and (episodes["task_return"] == 10 + episodes["cost"] / 2).all()
    assert saute.load_policy(run, seed=1)(np.zeros(1), remaining=5.0).shape == (1,)


def test_tensorboard_gets_every_metric_of_every_seed(tmp_path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    words = ["train", "pendulum", "--epochs", "2", "--seeds", "2", "--log", "tensorboard", "--out", str(tmp_path / "run")]
    assert main(words) == 0
    events = EventAccumulator(str(tmp_path / "run/tensorboard")).Reload()
    lines = [json.loads(line)["seeds"] for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    for seed in range(2):
        logged = events.Scalars(f"task_return/seed-{seed}")
        assert [event.step for event in logged] == [0, 1]
        assert [event.value for event in logged] == pytest.approx([epoch[seed]["task_return"] for epoch in lines], rel=1e-6)
    made_with = json.loads((tmp_path / "run/versions.json").read_text())
    assert made_with["jax"] == jax.__version__ and made_with["saute"] == saute.__version__


def test_wandb_gets_every_metric(tmp_path, monkeypatch) -> None:
    logged: list[Any] = []
    run = types.SimpleNamespace(log=lambda values, step: logged.append((step, values)), finish=lambda: logged.append("end"))
    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=lambda **options: run))
    with logger(("wandb",), tmp_path, {}) as log:
        log(0, [{"cost": 1.0}, {"cost": 2.0}])
    assert logged == [(0, {"cost/seed-0": 1.0, "cost/seed-1": 2.0}), "end"]


@pytest.mark.parametrize(
    ("env", "method", "preset"), [("pendulum", "saute", "fast"), ("reacher", "lagrangian", "paper"), ("car", "cvar", "paper")]
)
def test_config_survives_the_file(env: str, method: str, preset: str) -> None:
    config = configured(Experiment(env, method=method, preset=preset))
    assert Config.from_json(json.loads(json.dumps(config.as_json()))) == config


def test_config_has_the_numbers_of_the_preset_by_value() -> None:
    reacher = configured(Experiment("reacher", method="lagrangian"))
    assert (reacher.settings.value_rate, reacher.settings.tries) == (1e-2, 15)  # type: ignore[union-attr]
    assert reacher.constraint == lagrangian(10.0, rate=3e-2) and reacher.epochs == 1000
    assert configured(Experiment("car")).settings.steps_per_epoch == 10_000
    assert configured(Experiment("car", method="cvar")).constraint.worst == 0.01  # type: ignore[union-attr]
    assert configured(Experiment("car", method="cvar-tail")).constraint.tail  # type: ignore[union-attr]


SMALL_SAC = SacSettings(hidden=(16, 16), steps_per_epoch=20, random_steps=30, batch=16, replay=90)


def test_a_stopped_soft_actor_critic_continues_bit_for_bit_with_its_replay_half_full_and_wrapped(tmp_path) -> None:
    env = saute.saute(Slope(), budget=3.0, unsafe_reward=-1.0)
    algorithm = saute.sac(settings=SMALL_SAC)
    whole = train(algorithm, env, seeds=2, epochs=7, out=tmp_path / "whole")
    for epochs in (2, 7):
        halves = train(algorithm, env, seeds=2, epochs=epochs, out=tmp_path / "halves")
    assert_same(whole.states, halves.states)
    for name in ("metrics.jsonl", "policy.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "halves" / name).read_bytes()
    policy = saute.load_policy(tmp_path / "whole", seed=1)
    wanted = whole.agent.policy.decide(whole.policies[1], (), jnp.array([0.3, 0.5]))[0]
    np.testing.assert_allclose(policy([0.3], remaining=1.5), wanted, rtol=1e-6)


def test_numbers_that_were_not_measured_are_null_in_the_file_and_come_back_as_nan(tmp_path) -> None:
    settings = dataclasses.replace(SMALL_SAC, steps_per_epoch=6)
    run = train(saute.sac(settings=settings), Slope(), seeds=1, epochs=6, out=tmp_path)
    lines = [json.loads(line)["seeds"][0] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["task_return"] is None for line in lines] == [True, False, True, False, False, True]
    assert [line["critic_loss"] is None for line in lines] == [True] * 5 + [False], "30 random steps"
    assert all(line["violation_rate"] is None and line["cost_rate"] is not None for line in lines)
    for again, epoch in zip(read_metrics(tmp_path), run.metrics, strict=True):
        assert again[0] == pytest.approx(epoch[0], nan_ok=True)
    assert told(run.metrics[0]) == [("no episode ended yet",)] and told(run.metrics[1])[2][0] == "no budget"
    assert "violation rate  –" in repr(run)


SHORT_SAC = {
    "epochs": 2, "settings.hidden": (16, 16), "settings.random_steps": 30, "settings.batch": 16, "settings.replay": 900,
}  # fmt: skip


@pytest.fixture
def short_sac(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Words for a soft actor-critic that is trained for a moment."""
    monkeypatch.setattr(presets, "TABLE", (*presets.TABLE, presets.Preset("fast", "*", "sac", "*", SHORT_SAC)))
    return ["--algo", "sac", "--preset", "fast", "--seeds", "1"]


@pytest.mark.parametrize("method", ["saute", "lagrangian"])
def test_soft_actor_critic_through_the_command_line(tmp_path, capsys, short_sac, method: str) -> None:
    out = str(tmp_path / method)
    assert main(["train", "pendulum", "--method", method, *short_sac, "--out", out]) == 0
    assert main(["evaluate", out, "--episodes", "3"]) == 0
    assert "of 3, so ≤" in capsys.readouterr().out


def test_soft_actor_critic_has_no_statistic_of_whole_episodes(tmp_path, capsys) -> None:
    assert main(["train", "pendulum", "--algo", "sac", "--method", "cvar", "--out", str(tmp_path / "no")]) == 2
    assert "use lagrangian or pid" in capsys.readouterr().err


def test_soft_actor_critic_in_gymnasiums_environments_through_the_command_line(tmp_path, capsys, short_sac) -> None:
    out = str(tmp_path / "host")
    assert main(["train", "saute/TwoArms-v0", "--budget", "5", *short_sac, "--envs", "4", "--out", out]) == 0
    assert main(["evaluate", out, "--episodes", "3"]) == 0
    assert "of 3, so ≤" in capsys.readouterr().out
    config = json.loads((tmp_path / "host/config.json").read_text())
    assert config["epochs"] == 2 and config["settings"]["steps_per_epoch"] == 200, "50 in each"
    assert main(["resume", out, "--epochs", "3"]) == 0
    assert finished(tmp_path / "host") == 3


def test_episodes_without_a_known_end_go_on_through_the_command_line(tmp_path, capsys, short_sac) -> None:
    out = tmp_path / "endless"
    words = ["train", "toys:toys/Scripted-v0", "--budget", "5", *short_sac, "--envs", "3", "--out", str(out)]
    assert main(words) == 0
    (told,) = re.findall(r"evaluate it with saute (.*),", capsys.readouterr().out)
    assert main([*told.split(), "--episodes", "2"]) == 0, "what is suggested works, also where the run names a module"
    assert json.loads((out / "config.json").read_text())["settings"]["steps_per_epoch"] == 200
    assert read_metrics(out)[0][0]["episodes"] == 3 * (66 // 5) and read_metrics(out)[1][0]["length"] == 5
