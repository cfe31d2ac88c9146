"""MBPO and PETS in Gymnasium's environments: the rows and the learners of the native path, resumes, refusals, by name."""

from __future__ import annotations

import pathlib
from functools import partial
from typing import Any

import gymnasium as gym
import jax
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from sac_toys import HostSlope, Slope, Stop, stop_at

import saute
from saute.algos.mbpo import MbpoSettings, mbpo
from saute.algos.model_host import mbpo_host_epoch, pets_host_epoch
from saute.algos.pets import PetsSettings, pets
from saute.algos.sac import SacSettings
from saute.cli.commands import run_experiment
from saute.envs.from_gym import HostEnvs
from saute.learn.ensemble import Known, ModelSettings
from saute.learn.planner import CemSettings
from saute.runs.config import Experiment
from saute.runs.folder import outcomes_of
from saute.runs.loop import train

MODEL = ModelSettings(hidden=(8,), batch=16, steps=10, looks=3)
SAC = SacSettings(hidden=(8,), batch=16, replay=100, random_steps=30, steps_per_epoch=30, updates_per_step=2)
MBPO = mbpo(MbpoSettings(SAC, MODEL, rollouts=10, imagined=200))
CEM = CemSettings(horizon=4, population=8, refining=8, elites=3, iterations=2, kept=1)
PETS = pets(PetsSettings(CEM, MODEL, steps_per_epoch=30, fit_every=10, random_steps=30, replay=100))
HOST = {"mbpo": mbpo_host_epoch, "pets": pets_host_epoch}
BOTH = pytest.mark.parametrize("algorithm", [MBPO, PETS], ids=["mbpo", "pets"])
OPTIONS = {"budget": 3.0, "unsafe_reward": -1.0}


def host(num_envs: int = 1, make: Any = HostSlope) -> HostEnvs:
    envs = SyncVectorEnv([make] * num_envs, autoreset_mode=AutoresetMode.DISABLED)
    return HostEnvs(saute.SauteVectorWrapper(envs, **OPTIONS))


def bind(algorithm: Any, env: Any) -> Any:
    return algorithm.bind(env.observation_space, env.action_space, env.options)


@pytest.mark.slow
@BOTH
def test_host_and_native_give_the_same_rows_and_fit_the_same_model(algorithm: Any) -> None:
    native, envs = saute.saute(Slope(), **OPTIONS), host()
    bounds = [bind(algorithm, env) for env in (native, envs)]
    epochs = jax.jit(partial(bounds[0].epoch, native)), HOST[algorithm.name](bounds[1], envs)
    learners = []
    for bound, epoch in zip(bounds, epochs, strict=True):
        learner, seen = jax.jit(bound.init)(jax.random.key(0)), []
        for i in range(2):
            learner, *told = epoch(learner, jax.random.key(i))
            seen.append(told)
        learners.append((learner, seen))
    for x, y in zip(jax.tree.leaves(learners[0]), jax.tree.leaves(learners[1]), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-2, atol=1e-3)
    learner = learners[1][0]
    replay = learner.sac.replay if algorithm is MBPO else learner.replay
    rows, time = jax.tree.map(lambda column: np.asarray(column[:60]), replay.rows), np.tile(np.arange(10), 6)
    assert int(replay.size) == 60 and not rows.terminated.any()
    np.testing.assert_allclose(rows.next_obs[:, 0], (time + 1) / 10, rtol=1e-6)
    np.testing.assert_array_equal(rows.remaining[time == 0], 3.0)
    np.testing.assert_allclose(rows.next_remaining, rows.remaining - rows.cost, atol=1e-6)


@pytest.mark.slow
@BOTH
def test_a_run_that_stops_anywhere_continues_bit_for_bit(
    algorithm: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(algorithm, host(), seeds=1, epochs=3, out=tmp_path / "whole")
    stop_at(2 * 30 + 14, monkeypatch)
    with pytest.raises(Stop):
        train(algorithm, host(), seeds=1, epochs=3, out=tmp_path / "cut", checkpoint_seconds=1e9)
    cut = train(algorithm, host(), seeds=1, epochs=3, out=tmp_path / "cut")
    for x, y in zip(jax.tree.leaves(whole.learners), jax.tree.leaves(cut.learners), strict=True):
        np.testing.assert_array_equal(x, y)
    for name in ("metrics.jsonl", "policy.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes()


@BOTH
def test_more_than_one_environment_is_refused(algorithm: Any) -> None:
    epoch, several = HOST[algorithm.name], host(2)
    with pytest.raises(ValueError, match=f"{algorithm.name} steps one environment, .* not 2; use num_envs=1"):
        epoch(bind(algorithm, several), several)


@pytest.mark.slow
@BOTH
def test_ends_that_the_model_does_not_know_are_refused(algorithm: Any) -> None:
    ending = host(make=partial(HostSlope, terminal=True))
    with pytest.raises(ValueError, match=rf"terminated an episode, .* saute\.{algorithm.name}\(known=Known\(terminated=…\)\)"):
        train(algorithm, ending, seeds=1, epochs=1)
    known = type(algorithm)(algorithm.settings, Known(terminated=lambda obs, action, next_obs: next_obs[0] > 0.95))
    assert train(known, ending, seeds=1, epochs=1).metrics[0][0]["episodes"] == 3


@pytest.mark.slow
@BOTH
def test_the_end_of_a_violated_episode_is_known(algorithm: Any) -> None:
    envs = SyncVectorEnv([HostSlope], autoreset_mode=AutoresetMode.DISABLED)
    ending = HostEnvs(saute.SauteVectorWrapper(envs, budget=0.5, terminate=True))
    assert train(algorithm, ending, seeds=1, epochs=1).metrics[0][0]["episodes"] > 3


@pytest.mark.parametrize("algorithm", [pytest.param(MBPO, marks=pytest.mark.slow), PETS], ids=["mbpo", "pets"])
def test_a_gymnasium_environment_trains_by_name(algorithm: Any, tmp_path: pathlib.Path) -> None:
    if "tests/HostSlope-v0" not in gym.registry:
        gym.register("tests/HostSlope-v0", entry_point=HostSlope, max_episode_steps=10)
    asked = Experiment("tests/HostSlope-v0", algo=algorithm.name, budget=3.0, seeds=1)
    checked = asked.checked()
    assert checked.envs == 1 and checked.learner is not None and checked.learner.settings.steps_per_epoch == 200
    tiny = Experiment(**{**asked.as_json(), "learner": checked.learner._replace(settings=algorithm.settings), "epochs": 2})
    run_experiment(tiny.checked(), tmp_path / "run")
    _, outcomes = outcomes_of(tmp_path / "run", 3, 1_000_000)
    assert outcomes[0].length.tolist() == [10, 10, 10]


def test_epochs_hold_whole_episodes_and_whole_blocks() -> None:
    if "tests/Long-v0" not in gym.registry:
        gym.register("tests/Long-v0", entry_point=HostSlope, max_episode_steps=330)
    learners = {name: Experiment("tests/Long-v0", algo=name, budget=3.0).checked().learner for name in ("mbpo", "pets")}
    steps = {name: learner.settings.steps_per_epoch for name, learner in learners.items() if learner is not None}
    assert steps == {"mbpo": 330, "pets": 350}
    # 400 random steps fill two epochs of 330, and the other 4600 of the preset 14.
    assert learners["mbpo"] is not None and learners["mbpo"].epochs == 2 + 14


def test_the_learned_budget_is_chosen_by_name() -> None:
    for name in ("mbpo", "pets"):
        learner = Experiment("pendulum", algo=name, learned_budget=True).checked().learner
        assert learner is not None and learner.settings.learned_budget
    with pytest.raises(ValueError, match="--learned-budget is for mbpo and pets with method saute, not for sac with saute"):
        Experiment("pendulum", algo="sac", learned_budget=True).checked()
    with pytest.raises(ValueError, match="not for pets with vanilla"):
        Experiment("pendulum", algo="pets", method="vanilla", learned_budget=True).checked()
