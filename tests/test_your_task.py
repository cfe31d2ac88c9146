"""Environments as people bring them: observations of any kind, costs wherever they are, other processes, one line to train."""

from __future__ import annotations

import functools
import os
import pathlib
import signal
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from own_tasks import LEARNERS, ROWS, SMALL, Plant, assert_as_written, cell, heat_of

import saute
from saute.cli.main import main
from saute.core.observation import KEY
from saute.envs.flatten import flat
from saute.envs.from_gym import HostEnvs
from saute.envs.workers import WorkerEnvs
from saute.runs.build import planned
from saute.runs.loop import TrainingError
from saute.runs.source import found, is_ready

gym.register("tests/Plant-v0", entry_point=Plant, max_episode_steps=20)


def test_observations_become_vectors_with_a_picture_first_and_the_budget_last() -> None:
    space = spaces.Dict(
        {
            KEY: spaces.Box(-np.inf, np.inf, (1,)),
            "gear": spaces.Discrete(3, start=1),
            "eye": spaces.Box(0, 255, (3, 16, 16), np.uint8),
            "pair": spaces.Tuple((spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3]))),
        }
    )
    eye = np.arange(3 * 16 * 16).reshape(3, 16, 16).astype(np.uint8)
    obs = {KEY: np.array([0.5]), "gear": 3, "eye": eye, "pair": (np.array([1, 0]), np.array([1, 2]))}
    chosen = flat(space)
    vector = chosen.one(obs)
    assert chosen.image == (16, 16, 3) and vector.shape == chosen.space.shape == (16 * 16 * 3 + 3 + 2 + 5 + 1,)
    np.testing.assert_array_equal(vector[: 16 * 16 * 3].reshape(16, 16, 3), np.moveaxis(eye, 0, -1))
    assert vector[16 * 16 * 3 :].tolist() == [0, 0, 1, 1, 0, 0, 1, 0, 0, 1, 0.5]
    assert chosen.space.contains(vector)


def test_many_observations_at_once_are_the_single_ones_stacked() -> None:
    envs = SyncVectorEnv([functools.partial(Plant, obs="dict")] * 3, autoreset_mode=AutoresetMode.DISABLED)
    obs, _ = envs.reset(seed=0)
    chosen = flat(envs.single_observation_space)
    batch = chosen.batch(obs, 3)
    singles = [chosen.one({"gear": obs["gear"][i], "speed": obs["speed"][i]}) for i in range(3)]
    np.testing.assert_array_equal(batch, np.stack(singles))


class Sometimes(Plant):
    """Costs of 0, as a whole number, and then of 0.9: a vector that takes its type from the first would cut them to 0."""

    def step(self, action: Any) -> Any:
        obs, reward, *ends, _ = Plant.step(self, action)
        return obs, reward, *ends, {"cost": 0.9 if self.time > 1 else 0}


def test_costs_that_begin_as_whole_numbers_are_not_cut() -> None:
    envs = HostEnvs(Sometimes, 2)
    envs.reset(0)
    costs = [envs.step(np.zeros((2, 1), np.float32)).cost for _ in range(3)]
    np.testing.assert_allclose(costs, [[0, 0], [0.9, 0.9], [0.9, 0.9]])
    others = SyncVectorEnv([Sometimes] * 2, autoreset_mode=AutoresetMode.DISABLED)
    for wrapped in (saute.SauteVectorWrapper(others, budget=1.0), HostEnvs(others)):
        wrapped.reset(seed=0)
        with pytest.raises(ValueError, match=r"costs 'cost' come as int64.*would cut 0.9 to 0\. Return float\(cost\)"):
            wrapped.step(np.zeros((2, 1), np.float32))


@pytest.mark.parametrize(
    ("made", "cost"),
    [
        (Plant, "cost"),
        (Plant, "safety.total"),
        (Plant, heat_of),
        (functools.partial(Plant, six=True), "cost"),
        (lambda: saute.SauteWrapper(Plant(), budget=3.0, cost="heat"), "cost"),
    ],
)
def test_the_cost_is_the_same_wherever_it_is(made: Any, cost: Any) -> None:
    envs = HostEnvs(made, 2, cost=cost)
    envs.reset(0)
    step = envs.step(np.array([[0.5], [-0.5]], np.float32))
    assert step.cost.tolist() == [1.0, 0.0] and step.cost.dtype == np.float64


def test_several_keys_are_several_costs() -> None:
    envs = HostEnvs(Plant, 2, cost=["heat", "wear"])
    envs.reset(0)
    assert envs.cost_shape == (2,)
    assert envs.step(np.array([[0.5], [-0.5]], np.float32)).cost.tolist() == [[1.0, 0.25], [0.0, 0.25]]


def played(envs: HostEnvs, steps: int = 25) -> list[Any]:
    """Everything that comes out of some steps, with the restarts of those that ended."""
    rng, seen = np.random.default_rng(1), [envs.reset(7)]
    for _ in range(steps):
        step = envs.step(rng.uniform(-1, 1, (envs.num_envs, 1)).astype(np.float32))
        seen += [step.obs, step.reward, step.cost, step.terminated, step.truncated, step.state.remaining]
        ended = step.terminated | step.truncated
        if ended.any():
            seen.append(envs.restart(ended))
    return seen


def sauted_workers(workers: int) -> HostEnvs:
    from saute.envs.from_gym import vector_of

    make = functools.partial(Plant, obs="dict", falls=True)
    vector = vector_of(make, 4, "cost", (), workers)
    return HostEnvs(saute.SauteVectorWrapper(vector, budget=saute.uniform(2.0, 5.0)))


def test_workers_give_what_one_process_gives() -> None:
    here, there = sauted_workers(0), sauted_workers(2)
    try:
        for a, b in zip(played(here), played(there), strict=True):
            np.testing.assert_array_equal(a, b)
        worker = there.envs.unwrapped.parts.processes[1]  # type: ignore[attr-defined]
        os.kill(worker.pid, signal.SIGKILL)
        worker.join()
        with pytest.raises(RuntimeError, match=r"worker 1 of 2 has died .* what was trained before is kept"):
            played(there, 1)
    finally:
        there.envs.close()


def test_bad_numbers_of_workers_are_refused() -> None:
    with pytest.raises(ValueError, match="4 environments cannot be shared by workers=3; make a multiple of it"):
        WorkerEnvs(Plant, 4, 3)
    with pytest.raises(ValueError, match="workers=2 need a function that makes one environment"):
        HostEnvs(SyncVectorEnv([Plant], autoreset_mode=AutoresetMode.DISABLED), workers=2)


TINY: dict[str, Any] = {"budget": 5.0, "seeds": 1, "epochs": 1, "settings": SMALL["ppo"], "advise": lambda text: None}


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ("tests/Plant-v0", "tests/Plant-v0"),
        (Plant, "python:Plant"),
        (Plant(), "python:Plant"),
        (gym.make("tests/Plant-v0"), "tests/Plant-v0"),
        (HostEnvs(lambda: gym.make("tests/Plant-v0"), 2).envs, "python:SyncVectorEnv"),
        ("pendulum", "pendulum"),
        ("saute/SafePendulum-v0", "pendulum"),
        (saute.envs.pendulum(), "python:TaskEnv"),
    ],
    ids=["id", "class", "instance", "made", "vector", "task", "task-id", "native"],
)
def test_train_takes_whatever_environment_there_is(env: Any, name: str) -> None:
    cost = {"cost": "heat"} if name in ("tests/Plant-v0", "python:Plant") else {}
    given = TINY | ({"settings": {"value_iterations": 2}} if "endulum" in name or "Task" in name else {})
    run = saute.train("ppo", env, **given, **cost)
    assert run.config.experiment.env == name and run.config.experiment.sauted
    (last,) = run.metrics[-1]
    if env is Plant:  # nobody knows how long its episodes are, so that none ends in so few steps
        assert last["episodes"] == 0 and np.isnan(last["violation_rate"])
    else:
        assert last["episodes"] >= 1 and 0 <= last["violation_rate"] <= 1
    done = run.evaluate(3)
    assert done.outcomes[0].violated is not None and "of 3, so ≤" in repr(done)


class Limited(Plant):
    """It has all that a JAX-native `Env` has, spaces and horizon, but is Gymnasium's."""

    observation_space, action_space, horizon = Plant().observation_space, Plant().action_space, 20


@pytest.mark.parametrize("env", [Limited, Limited()], ids=["class", "instance"])
@pytest.mark.parametrize("algorithm", ["ppo", saute.ppo()], ids=["name", "learner"])
def test_a_gymnasium_environment_that_knows_its_horizon_is_not_taken_for_a_native_one(env: Any, algorithm: Any) -> None:
    source = found(env)
    assert not is_ready(env) and (source.make is env or isinstance(source.ready, HostEnvs))
    config, _ = planned(algorithm, env, "heat", "saute", budget=5.0, epochs=1, seeds=1)
    assert config.experiment.env == "python:Limited" and config.settings.steps_per_epoch % 20 == 0


def test_environments_that_were_sauted_before_keep_their_budgets() -> None:
    made = functools.partial(saute.SauteWrapper, Plant(), budget=3.0, discount=0.9, unsafe_reward=-1.0, cost="heat")
    vector = SyncVectorEnv([made], autoreset_mode=AutoresetMode.DISABLED)
    for env in (made, made(), vector, HostEnvs(made)):
        config, _ = planned("ppo", env, "cost", None, budget=None, epochs=1, seeds=1)
        asked = config.experiment
        assert (asked.budget, asked.discount, asked.unsafe_reward, asked.method) == (3.0, 0.9, -1.0, "saute")
        with pytest.raises(ValueError, match=r"budget=4.0 cannot be set: the environment is sautéed already"):
            planned("ppo", env, "cost", None, budget=4.0, epochs=1, seeds=1)


def test_a_policy_of_a_run_acts_as_the_saved_one(tmp_path: pathlib.Path) -> None:
    run = saute.train("ppo", "tests/Plant-v0", out=tmp_path, **TINY)
    obs = Plant().reset(seed=0)[0]
    assert run.policy(0)(obs, remaining=2.0) == saute.load_policy(tmp_path)(obs, remaining=2.0)
    assert run.certify(20).pooled.episodes == 20
    assert main(["evaluate", str(tmp_path), "--episodes", "2"]) == 0


def test_a_policy_asks_for_the_observations_that_it_was_trained_on() -> None:
    run = saute.train("ppo", functools.partial(Plant, obs="dict"), **TINY)
    obs, space = Plant(obs="dict").reset(seed=0)[0], Plant(obs="dict").observation_space
    assert run.policy()(saute.flat(space).one(obs), remaining=2.0).shape == (1,)
    with pytest.raises(ValueError, match=r"is a dict .* saute.flat\(env.observation_space\).one\(obs\)"):
        run.policy()(obs, remaining=2.0)


def test_what_was_given_in_python_can_be_named_for_tests(tmp_path: pathlib.Path, capsys: Any) -> None:
    saute.train("ppo", Plant, cost=heat_of, out=tmp_path, **TINY)
    assert main(["evaluate", str(tmp_path), "--episodes", "2"]) == 2
    assert "Plant was given in Python and cannot be made again from its name; name one with --env" in capsys.readouterr().err
    assert main(["evaluate", str(tmp_path), "--episodes", "2", "--env", "tests/Plant-v0", "--cost", "heat"]) == 0
    assert "of 2, so ≤" in capsys.readouterr().out


def test_a_hook_ends_training_early_and_another_run_is_begun_with_its_policy(tmp_path: pathlib.Path) -> None:
    seen: list[int] = []

    def stop(epoch: int, metrics: Any) -> bool:
        seen.append(epoch)
        return epoch == 1

    first = saute.train("trpo", "tests/Plant-v0", out=tmp_path / "a", hook=stop, **(TINY | {"epochs": 5}))
    assert seen == [0, 1] and len(first.metrics) == 2
    before = {}

    def keep(epoch: int, metrics: Any) -> bool:
        before.update(metrics[0])
        return True

    still = {**SMALL["ppo"], "target_kl": 1e-12}
    again = saute.train("trpo", "tests/Plant-v0", init=tmp_path / "a", hook=keep, **(TINY | {"settings": still}))
    for left, right in zip(first.policies[0].mean, again.policies[0].mean, strict=True):
        np.testing.assert_allclose(left.weight, right.weight, atol=1e-4)
    with pytest.raises(TrainingError, match=r"init: the policy of .* is for other spaces or other layers"):
        saute.train("trpo", functools.partial(Plant, obs="dict"), init=tmp_path / "a", **TINY)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "two budgets, one cost": ({"budget": [3.0, 4.0], "cost": "heat"}, r"2 budget\(s\) for 1 cost\(s\)"),
    "one budget, two costs": ({"cost": ["heat", "wear"]}, r"1 budget\(s\) for 2 cost\(s\)"),
    "no such key": ({"cost": "heet"}, r"info has no key 'heet' \(found \['cost', 'heat', 'safety.total', 'wear'\]\)"),
    "discounted mean": ({"method": "lagrangian", "discount": 0.9}, "holds the plain sum of costs below its limit"),
    "unknown setting": ({"settings": {"hiden": (8,)}}, "hidden"),
    "workers do not fit": ({"envs": 3, "workers": 2}, "3 environments cannot be shared by workers=2"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_trained_is_said_before_anything_is_written(case: str, tmp_path: pathlib.Path) -> None:
    asked, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        saute.train("ppo", Plant, out=tmp_path / "run", **(TINY | asked))
    assert not (tmp_path / "run").exists()


def test_an_empty_folder_to_begin_with_is_refused_before_one_is_made(tmp_path: pathlib.Path, capsys: Any) -> None:
    (tmp_path / "empty").mkdir()
    words = ["--budget", "5", "--init", str(tmp_path / "empty"), "--out", str(tmp_path / "run")]
    assert main(["train", "tests/Plant-v0", *words]) == 2
    assert "has no checkpoint to begin with; name the folder of a run that has trained" in capsys.readouterr().err
    with pytest.raises(TrainingError, match="has no checkpoint to begin with"):
        saute.train("ppo", "tests/Plant-v0", init=tmp_path / "empty", out=tmp_path / "run", **TINY)
    assert not (tmp_path / "run").exists()


def test_discounted_costs_are_called_so(tmp_path: pathlib.Path, capsys: Any) -> None:
    run = saute.train("ppo", "tests/Plant-v0", discount=0.9, out=tmp_path, **TINY)
    assert "discounted cost" in repr(run.evaluate(2))
    assert main(["evaluate", str(tmp_path), "--episodes", "2"]) == 0
    assert "discounted cost" in capsys.readouterr().out


def test_workers_are_not_for_what_is_compiled(capsys: Any) -> None:
    assert main(["train", "pendulum", "--workers", "2"]) == 2
    assert "--workers 2 is for Gymnasium environments; pendulum is compiled" in capsys.readouterr().err


def test_settings_of_the_command_line_are_those_of_python(tmp_path: pathlib.Path) -> None:
    words = ["--settings.discount", "0.98", "--settings.hidden", "8", "--settings.value-iterations", "2"]
    words += [
        "--settings.steps-per-epoch",
        "40",
        "--budget",
        "5",
        "6",
        "--cost",
        "heat",
        "wear",
        "--seeds",
        "1",
        "--epochs",
        "1",
    ]
    assert main(["train", "tests/Plant-v0", "--algo", "ppo", "--out", str(tmp_path / "a"), *words]) == 0
    settings = {"discount": 0.98, "hidden": (8,), "value_iterations": 2, "steps_per_epoch": 40}
    asked: dict[str, Any] = {"budget": [5.0, 6.0], "cost": ["heat", "wear"], "seeds": 1, "epochs": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        saute.train("ppo", "tests/Plant-v0", settings=settings, out=tmp_path / "b", **asked)
    for name in ("config.json", "metrics.jsonl"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert main(["certify", str(tmp_path / "a"), "--episodes", "5"]) == 0


@pytest.mark.parametrize("row", ROWS)
def test_the_table_of_the_page_says_what_happens(row: str) -> None:
    """One learner for each row here; all of them in the slow test."""
    algo = ("ppo", "sac", "trpo", "cpo")[list(ROWS).index(row) % 4]
    assert_as_written(row, algo, cell(algo, **ROWS[row]))


@pytest.mark.slow
@pytest.mark.parametrize("algo", LEARNERS)
@pytest.mark.parametrize("row", ROWS)
def test_every_cell_of_the_table_says_what_happens(row: str, algo: str) -> None:
    assert_as_written(row, algo, cell(algo, **ROWS[row]))


SIXES = """
import gymnasium as gym
from own_tasks import Plant

gym.register("Sixes-v0", entry_point=Plant, kwargs={"six": True, "steps": None}, max_episode_steps=20)
"""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_module_with_steps_of_six_values_trains_from_its_name_also_in_workers(
    workers: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """The workers begin without the module, and Gymnasium's own limit of time takes five values only."""
    (tmp_path / "sixes.py").write_text(SIXES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(pathlib.Path(__file__).parent)
    words = [word for name, value in SMALL["ppo"].items() for word in (f"--settings.{name.replace('_', '-')}", value)]
    words = [str(one) for word in words for one in (word if isinstance(word, tuple) else (word,))]
    asked = ["--budget", "5", "--seeds", "1", "--epochs", "1", "--envs", "2", "--workers", workers, "--out", "run"]
    assert main(["train", "sixes:Sixes-v0", "--algo", "ppo", *asked, *words]) == 0
    assert main(["evaluate", "run", "--env", "sixes:Sixes-v0", "--episodes", "2"]) == 0
    assert "of 2, so ≤" in capsys.readouterr().out
    if workers == "0":
        assert main(["check", "sixes:Sixes-v0", "--episodes", "2"]) == 0
        assert "time limit    20 steps" in capsys.readouterr().out


def test_watching_a_run_needs_only_its_name(tmp_path: pathlib.Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["watch", "pretrained:pendulum-saute-trpo", "--steps", "3"]) == 0
    assert (tmp_path / "pendulum-saute-trpo.gif").exists() and "30.00" in capsys.readouterr().out
    saute.train("ppo", Plant, out=tmp_path / "own", **TINY)
    assert main(["watch", "own", "--steps", "3"]) == 2
    assert "own: Plant was given in Python and cannot be made again" in capsys.readouterr().err
