"""Soft actor-critic in Gymnasium's environments: the rows and the learner of the native path, a probe, resumes, refusals."""

from __future__ import annotations

import dataclasses
import pathlib
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from sac_toys import HostSlope, Slope, Stop, stop_at
from toys import Scripted

import saute
from saute.algos.sac import SacSettings, sac
from saute.algos.sac_host import host_epoch
from saute.envs.from_gym import HostEnvs
from saute.learn import replay
from saute.learn.constraint import lagrangian
from saute.learn.replay import sauted
from saute.runs.evaluate import evaluate
from saute.runs.loop import train

TINY = SacSettings(hidden=(8,), batch=16, replay=150, random_steps=20, steps_per_epoch=60, num_envs=3)
OPTIONS = {"budget": 3.0, "unsafe_reward": -1.0}


def host(num_envs: int = 3) -> HostEnvs:
    envs = SyncVectorEnv([HostSlope] * num_envs, autoreset_mode=AutoresetMode.DISABLED)
    return HostEnvs(saute.SauteVectorWrapper(envs, **OPTIONS))


def bind(algorithm: Any, env: Any) -> Any:
    return algorithm.bind(env.observation_space, env.action_space, getattr(env, "options", None))


def run(bound: Any, epoch: Any, epochs: int) -> Any:
    learner = jax.jit(bound.init)(jax.random.key(0))
    for i in range(epochs):
        learner, metrics, episodes = epoch(learner, jax.random.key(i))
    return learner, metrics, episodes


@pytest.mark.slow
def test_host_and_native_give_the_same_rows_and_learn_the_same() -> None:
    native, envs = saute.saute(Slope(), **OPTIONS), host()
    bounds = [bind(sac(settings=TINY), env) for env in (native, envs)]
    epochs = jax.jit(partial(bounds[0].epoch, native)), host_epoch(bounds[1], envs)
    (a, *measured), (b, *again) = (run(bound, epoch, 2) for bound, epoch in zip(bounds, epochs, strict=True))
    for x, y in zip(jax.tree.leaves((a, measured)), jax.tree.leaves((b, again)), strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-3, atol=2e-4)
    rows = jax.tree.map(lambda column: np.asarray(column[:120]), b.replay.rows)
    time = np.repeat(np.tile(np.arange(10), 4), 3)
    np.testing.assert_allclose(rows.obs[:, 0], time / 10, rtol=1e-6)
    np.testing.assert_allclose(rows.next_obs[:, 0], (time + 1) / 10, rtol=1e-6)
    assert not rows.terminated.any(), "time-outs are not terminal"
    np.testing.assert_array_equal(rows.remaining[time == 0], 3.0)
    np.testing.assert_allclose(rows.next_remaining, rows.remaining - rows.cost, atol=1e-6)
    np.testing.assert_array_equal(rows.next_remaining[time < 9], rows.remaining[time > 0])
    np.testing.assert_array_equal(rows.task_reward, rows.action[:, 0])
    assert (rows.next_remaining < 0).any(), "some episode overspends"
    np.testing.assert_array_equal(sauted(rows, envs.options).reward == -1.0, rows.next_remaining < 0)


def test_environments_that_were_sauted_one_by_one_give_their_own_rows() -> None:
    seen = []

    class Wide(HostSlope):
        action_space = spaces.Box(-1.0, 3.0, (1,), np.float32)

        def step(self, action: Any) -> Any:
            seen.append(float(action[0]))
            return HostSlope.step(self, action)

    envs = HostEnvs(lambda: saute.SauteWrapper(Wide(terminal=True), **OPTIONS), num_envs=2)
    bound = bind(sac(settings=TINY), envs)
    rows = jax.tree.map(lambda column: np.asarray(column[:60]), run(bound, host_epoch(bound, envs), 1)[0].replay.rows)
    np.testing.assert_allclose(seen, 1 + 2 * rows.action[:, 0], rtol=1e-5, atol=1e-5, err_msg="stored in units of the bounds")
    time, over = np.repeat(np.tile(np.arange(10), 3), 2), rows.next_obs[:, 1] < 0
    np.testing.assert_array_equal(rows.terminated, time == 9)
    np.testing.assert_allclose(rows.next_obs[:, 0], (time + 1) / 10, rtol=1e-6)
    np.testing.assert_array_equal(rows.obs[time == 0, 1], 1.0)
    np.testing.assert_allclose(rows.task_reward, np.where(over, -1.0, np.clip(seen, -1, 1)), rtol=1e-5, atol=1e-5)
    assert over.any() and rows.remaining.shape == (60, 0)


def test_sauted_probe_on_the_host_spends_its_budget_and_no_more() -> None:
    settings = SacSettings(
        hidden=(32, 32), batch=64, replay=6000, random_steps=100, steps_per_epoch=100, rate=3e-3, averaging=0.02, discount=0.9,
        updates_per_step=0.5, temperature_rate=1e-2, relabel=True,
    )  # fmt: skip
    envs = host(10)
    trained = train(sac(settings=settings), envs, seeds=1, epochs=60)
    outcome = evaluate(trained.bound.policy, trained.learners[0].policy, envs, 10)
    assert (outcome.cost <= 3.0).all() and outcome.task_return.mean() > 2.0
    assert int(trained.learners[0].steps) == 6000 and trained.metrics[-1][0]["episodes"] == 10


def test_a_run_that_stops_anywhere_continues_bit_for_bit(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm, traces, add = sac(settings=TINY), [], replay.add
    monkeypatch.setattr("saute.algos.sac.add", lambda *given: (traces.append(1), add(*given))[1])
    whole = train(algorithm, host(), seeds=2, epochs=5, out=tmp_path / "whole")
    assert len(traces) == 1, "compiled once, however many steps, epochs and seeds"
    # In the fourth epoch, when the second seed has begun and the first has ended.
    stop_at(3 * 2 * 20 + 33, monkeypatch)
    with pytest.raises(Stop):
        train(algorithm, host(), seeds=2, epochs=5, out=tmp_path / "cut", checkpoint_seconds=1e9)
    cut = train(algorithm, host(), seeds=2, epochs=5, out=tmp_path / "cut")
    for x, y in zip(jax.tree.leaves(whole.learners), jax.tree.leaves(cut.learners), strict=True):
        np.testing.assert_array_equal(x, y)
    for name in ("metrics.jsonl", "policy.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes()


def test_what_cannot_be_trained_is_refused() -> None:
    short, envs = sac(settings=dataclasses.replace(TINY, steps_per_epoch=24)), host()
    with pytest.raises(ValueError, match=r"are 8 in each of 3 environments, so that episodes of 10 never end; set .* least 30"):
        host_epoch(bind(short, envs), envs)
    endless = HostEnvs(partial(Scripted, length=5), num_envs=3)
    with pytest.raises(ValueError, match="a limit of 3 per episode needs the length T of an episode"):
        host_epoch(bind(sac(lagrangian(1.0), TINY, limit=3.0), endless), endless)
