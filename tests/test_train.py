"""Training: known optima on probes, bit-identical re-runs and resumes, seeds alone or together, honest failures."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
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
from gymnasium import spaces

import saute
from saute.algos.cpo import cpo
from saute.algos.onpolicy import Settings, interleave
from saute.algos.ppo import ppo
from saute.algos.sac import SacSettings
from saute.algos.trpo import trpo
from saute.cli.main import main
from saute.core.protocol import Step
from saute.learn.constraint import cvar, lagrangian, pid, tail_weights
from saute.runs import loop as training
from saute.runs.checkpoint import newest
from saute.runs.config import Experiment, algorithm_of
from saute.runs.evaluate import evaluate
from saute.runs.loop import TrainingError, train
from saute.runs.presets import SAC, Preset
from saute.runs.report import logger

SMALL = Settings(hidden=(16, 16), steps_per_epoch=400, value_iterations=20)


@dataclasses.dataclass(frozen=True)
class Slope:
    """One number a per step pays a and costs a⁺: unconstrained best is the largest a; with a limit on ten steps, limit/10."""

    horizon: int = 10
    noise: float = 0.0
    bad: bool = False
    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, key: Any) -> tuple[Any, Any]:
        return jnp.zeros((), jnp.int32), jnp.zeros(1)

    def step(self, state: Any, action: Any, key: Any) -> Step:
        a = jnp.clip(action[0], -1.0, 1.0)
        reward = jnp.where(self.bad & (state == 5), jnp.nan, a)
        time = state + 1
        over = time >= self.horizon
        return Step(time, jnp.full(1, time / self.horizon), reward, jnp.maximum(a, 0.0), jnp.zeros((), bool), over)


def action_of(run: Any) -> np.ndarray:
    obs = jnp.linspace(0, 0.9, 10)[:, None]
    policy = run.bound.policy
    return np.array([np.clip(policy.mode(policy.distribution(learner.policy, obs)), -1, 1).mean() for learner in run.learners])


@pytest.mark.parametrize("optimiser", [ppo, trpo])
def test_unconstrained_probe(optimiser) -> None:
    run = train(optimiser(settings=SMALL), Slope(), seeds=2, epochs=60)
    assert (action_of(run) > 0.85).all()


MINIBATCHES = dataclasses.replace(SMALL, minibatches=5, value_scale=10.0)


@pytest.mark.parametrize("algorithm", [ppo(settings=MINIBATCHES), trpo(settings=MINIBATCHES)])
def test_unconstrained_probe_in_minibatches_with_scaled_values(algorithm) -> None:
    run = train(algorithm, Slope(), seeds=2, epochs=60)
    assert (action_of(run) > 0.85).all()


def test_minibatches_see_all_times_and_lose_none() -> None:
    time, env = jnp.meshgrid(jnp.arange(5), jnp.arange(6), indexing="ij")
    pairs = jnp.stack([time, env], -1)
    parts, same = interleave((pairs, 10 * time + env), 3)
    np.testing.assert_array_equal(10 * parts[..., 0] + parts[..., 1], same)
    for i, part in enumerate(parts):
        assert ((part[:, 1] - part[:, 0]) % 3 == i).all()
        assert np.bincount(part[:, 0]).tolist() == [2] * 5, "each minibatch sees all times"
    assert sorted(same.ravel().tolist()) == sorted((10 * time + env).ravel().tolist()), "and none is lost"
    uneven = interleave(10 * time + env, 4)
    assert uneven.shape == (4, 5) and len(set(uneven.ravel().tolist())) == 20, "what fills no row is left out"
    assert interleave(time, 100).shape == (6, 5), "no more minibatches than environments"
    np.testing.assert_array_equal(interleave(time, 1)[0], time.ravel())


# The tail's gradient comes from a tenth of the episodes, and it shrinks the policy's noise, and with that the cost advantage
# against the normalised one of the reward: the multiplier must follow faster.
WIDE = dataclasses.replace(SMALL, steps_per_epoch=2000)
TAIL = lagrangian(3.0, statistic=cvar(0.1), weigh=tail_weights(0.1), rate=0.3)
CONSTRAINED = {
    "ppo-lagrangian": lambda: ppo(lagrangian(3.0), SMALL),
    "trpo-lagrangian": lambda: trpo(lagrangian(3.0), SMALL),
    "trpo-pid": lambda: trpo(pid(3.0, proportional=0.5, integral=0.1), SMALL),
    "ppo-pid": lambda: ppo(pid(3.0, proportional=0.5, integral=0.1), SMALL),
    "trpo-cvar": lambda: trpo(lagrangian(3.0, statistic=cvar(0.1)), SMALL),
    "trpo-cvar-tail": lambda: trpo(TAIL, WIDE),
    "cpo": lambda: cpo(3.0, SMALL),
}


@pytest.mark.parametrize("name", CONSTRAINED)
def test_constrained_probe_comes_to_the_limit_and_not_beyond(name: str) -> None:
    run = train(CONSTRAINED[name](), Slope(), seeds=2, epochs=150, budget=3.0)
    costs = np.array([[seed["cost"] for seed in epoch] for epoch in run.metrics[-40:]])
    assert costs.mean() < 3.5, "the mean cost of the episodes is held near the limit"
    if "cvar" not in name:
        assert costs.mean() > 1.5, "and the limit is used"


@pytest.mark.parametrize("make", [ppo, trpo, lambda **kw: cpo(3.0, **kw)], ids=["ppo", "trpo", "cpo"])
def test_the_trust_region_shrinks_to_a_tenth(make) -> None:
    settings = dataclasses.replace(SMALL, target_kl=0.02, kl_epochs=6)
    run = train(make(settings=settings), Slope(), seeds=1, epochs=9)
    steps = np.array([epoch[0]["divergence"] for epoch in run.metrics])
    assert 0.005 < steps[0] < 0.03
    wanted = 0.02 * np.maximum(0.1, 1.0 - np.arange(9) / 6)
    assert (steps <= 1.5 * wanted + 1e-7).all(), "PPO stops a little beyond its target"
    assert steps[8] > 0.0


@pytest.mark.parametrize("optimiser", [ppo, trpo])
def test_sauted_probe_spends_its_budget_and_no_more(optimiser) -> None:
    env = saute.saute(Slope(), budget=3.0, unsafe_reward=-1.0)
    run = train(optimiser(settings=dataclasses.replace(SMALL, steps_per_epoch=2000)), env, seeds=2, epochs=120)
    for learner in run.learners:
        outcome = evaluate(run.bound.policy, learner.policy, env, 10)
        assert (outcome.cost <= 3.0).all() and outcome.task_return.mean() > 1.5


def test_discrete_actions_are_learned() -> None:
    class Arms(Slope):
        action_space = spaces.Discrete(3)

        def step(self, state: Any, action: Any, key: Any) -> Step:
            return Slope.step(self, state, (action[None] == 1).astype(jnp.float32), key)

    run = train(trpo(settings=SMALL), Arms(), seeds=1, epochs=40)
    policy = run.bound.policy
    obs = jnp.linspace(0, 0.9, 10)[:, None]
    np.testing.assert_array_equal(policy.mode(policy.distribution(run.learners[0].policy, obs)), 1)


def test_rerun_is_bit_identical_and_seeds_together_equal_seeds_alone() -> None:
    env = saute.saute(Slope(), budget=3.0)
    together, again = (train(trpo(settings=SMALL), env, seeds=3, epochs=4) for _ in range(2))
    assert_equal(together.learners, again.learners)
    assert together.metrics == again.metrics
    for i in range(3):
        alone = train(trpo(settings=SMALL), env, seeds=1, epochs=4, seed=i)
        assert_equal(alone.learners[0], together.learners[i])


def test_one_trace_however_many_epochs_and_seeds() -> None:
    traces = []

    class Counted(Slope):
        def reset(self, key: Any) -> Any:
            traces.append(1)
            return Slope.reset(self, key)

    train(trpo(settings=SMALL), Counted(), seeds=2, epochs=1)
    once = len(traces)
    traces.clear()
    train(trpo(settings=SMALL), Counted(), seeds=2, epochs=5)
    assert len(traces) == once


def test_a_stopped_run_continues_bit_for_bit(tmp_path: pathlib.Path) -> None:
    env = saute.saute(Slope(), budget=3.0)

    class Stop(Exception):
        pass

    def stop(epoch: int, metrics: Any) -> None:
        if epoch == 3:
            raise Stop

    whole = train(ppo(settings=SMALL), env, seeds=2, epochs=7, out=tmp_path / "whole", checkpoint_seconds=0.0)
    with pytest.raises(Stop):
        train(ppo(settings=SMALL), env, seeds=2, epochs=7, out=tmp_path / "halves", report=stop, checkpoint_seconds=1e9)
    with open(tmp_path / "halves" / "metrics.jsonl", "a") as file:
        file.write('{"seeds": [half a li')
    halves = train(ppo(settings=SMALL), env, seeds=2, epochs=7, out=tmp_path / "halves")
    assert_equal(whole.learners, halves.learners)
    assert (tmp_path / "whole/metrics.jsonl").read_bytes() == (tmp_path / "halves/metrics.jsonl").read_bytes()
    assert (tmp_path / "whole/policy.safetensors").read_bytes() == (tmp_path / "halves/policy.safetensors").read_bytes()


def test_interrupted_between_learning_and_writing_it_continues_bit_for_bit(tmp_path, monkeypatch) -> None:
    env = saute.saute(Slope(), budget=3.0)
    whole = train(trpo(settings=SMALL), env, seeds=2, epochs=4, out=tmp_path / "whole")
    append = training._append

    def interrupted(folder: pathlib.Path, fresh: list[dict[str, float]]) -> None:
        if len((folder / "metrics.jsonl").read_text().splitlines()) == 2:
            raise KeyboardInterrupt
        append(folder, fresh)

    monkeypatch.setattr(training, "_append", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(trpo(settings=SMALL), env, seeds=2, epochs=4, out=tmp_path / "cut")
    monkeypatch.setattr(training, "_append", append)
    cut = train(trpo(settings=SMALL), env, seeds=2, epochs=4, out=tmp_path / "cut")
    assert_equal(whole.learners, cut.learners)
    assert (tmp_path / "whole/metrics.jsonl").read_bytes() == (tmp_path / "cut/metrics.jsonl").read_bytes()


def test_killed_at_any_moment_and_resumed_ends_with_the_identical_policy(tmp_path: pathlib.Path) -> None:
    words = ["train", "pendulum", "--seeds", "1", "--epochs", "12"]
    assert main([*words, "--out", str(tmp_path / "whole")]) == 0
    process = subprocess.Popen([sys.executable, "-m", "saute", *words, "--out", str(tmp_path / "killed")])
    metrics = tmp_path / "killed" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while (not metrics.exists() or len(metrics.read_text().splitlines()) < 4) and time.monotonic() < deadline:
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
    assert found is not None and found[1]["epoch"] == 2 and all(np.isfinite(a).all() for a in found[0].values())


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
    plain, relabelled = (Experiment("pendulum", "sac", relabel=chosen).checked() for chosen in (False, True))
    assert relabelled.learner == plain.learner._replace(settings=dataclasses.replace(plain.learner.settings, relabel=True))
    assert algorithm_of(relabelled).settings.relabel and not algorithm_of(plain).settings.relabel
    assert Experiment.from_json(json.loads(json.dumps(relabelled.as_json()))) == relabelled


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "pendulun"], "unknown environment 'pendulun'; did you mean 'pendulum'"),
        (["train", "pendulum", "--algo", "trop"], "unknown algorithm 'trop'; did you mean 'trpo'"),
        (["train", "pendulum", "--method", "sauté"], "unknown method 'sauté'; did you mean 'saute'"),
        (["train", "pendulum", "--preset", "papers"], "unknown preset 'papers'; did you mean 'paper'"),
        (["train", "pendulum", "--seeds", "0"], "--seeds 0 must be at least 1"),
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


def test_cost_rate_is_the_cost_of_all_training_per_episode() -> None:
    run = train(trpo(settings=SMALL), Slope(), seeds=2, epochs=3)
    for seed in range(2):
        spent = [epoch[seed]["cost_per_step"] for epoch in run.metrics]
        assert [epoch[seed]["cost_rate"] for epoch in run.metrics] == pytest.approx(10 * np.cumsum(spent) / np.arange(1, 4))
        # All episodes of the probe are whole, so that the mean cost of an episode is that of its ten steps.
        assert run.metrics[2][seed]["cost"] == pytest.approx(10 * spent[2], rel=1e-5)


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


def test_config_is_complete_and_survives_the_file() -> None:
    for preset, env, method in [("fast", "pendulum", "saute"), ("paper", "reacher", "lagrangian"), ("paper", "car", "cvar")]:
        experiment = Experiment(env, method=method, preset=preset).checked()
        assert Experiment.from_json(json.loads(json.dumps(experiment.as_json()))) == experiment
        assert experiment.learner is not None and experiment.epochs == experiment.learner.epochs
    assert Experiment("reacher", method="lagrangian").checked().learner.settings.value_rate == 1e-2  # type: ignore[union-attr]
    assert Experiment("car").checked().learner.settings.steps_per_epoch == 10_000  # type: ignore[union-attr]


SMALL_SAC = SacSettings(hidden=(16, 16), steps_per_epoch=20, random_steps=30, batch=16, replay=90)


def test_a_stopped_soft_actor_critic_continues_bit_for_bit_with_its_replay_half_full_and_wrapped(tmp_path) -> None:
    env = saute.saute(Slope(), budget=3.0, unsafe_reward=-1.0)
    algorithm = saute.sac(settings=SMALL_SAC)
    whole = train(algorithm, env, seeds=2, epochs=7, out=tmp_path / "whole")
    for epochs in (2, 7):
        halves = train(algorithm, env, seeds=2, epochs=epochs, out=tmp_path / "halves")
    assert_equal(whole.learners, halves.learners)
    for name in ("metrics.jsonl", "policy.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "halves" / name).read_bytes()
    policy, learner = saute.load_policy(tmp_path / "whole", seed=1), whole.learners[1]
    wanted = whole.bound.policy.mode(whole.bound.policy.distribution(learner.policy, jnp.array([0.3, 0.5])))
    np.testing.assert_allclose(policy([0.3], remaining=1.5), wanted, rtol=1e-6)


def test_soft_actor_critic_through_the_command_line(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setitem(SAC, "fast", Preset(2, dataclasses.replace(SMALL_SAC, steps_per_epoch=200)))
    for method in ("saute", "lagrangian"):
        out = str(tmp_path / method)
        assert (
            main(["train", "pendulum", "--algo", "sac", "--method", method, "--preset", "fast", "--seeds", "1", "--out", out])
            == 0
        )
        assert main(["evaluate", out, "--episodes", "3"]) == 0
        assert "of 3, so ≤" in capsys.readouterr().out
    assert main(["train", "pendulum", "--algo", "sac", "--method", "cvar", "--out", str(tmp_path / "no")]) == 2
    assert "use lagrangian or pid" in capsys.readouterr().err
    out, words = str(tmp_path / "host"), ["--algo", "sac", "--preset", "fast", "--seeds", "1", "--envs", "3"]
    assert main(["train", "saute/TwoArms-v0", "--budget", "5", *words, "--out", out]) == 0
    assert main(["evaluate", out, "--episodes", "3"]) == 0
    assert "of 3, so ≤" in capsys.readouterr().out
    config = json.loads((tmp_path / "host/config.json").read_text())
    assert config["epochs"] == 2 and config["learner"]["settings"]["steps_per_epoch"] == 240, "whole episodes of 20 steps"
    assert main(["resume", out, "--epochs", "3"]) == 0
    assert main(["train", "toys:toys/Scripted-v0", "--budget", "5", *words, "--out", str(tmp_path / "no")]) == 2
    assert "longest episode of toys:toys/Scripted-v0 is not known" in capsys.readouterr().err


def assert_equal(a: Any, b: Any) -> None:
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)
