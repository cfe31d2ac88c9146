"""Gymnasium's environments: the rows and the learners of the native body, seeds side by side, what is refused, by name."""

from __future__ import annotations

import dataclasses
import pathlib
from functools import partial
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from learner_toys import LEARNERS, HostSlope, assert_same, hosted, num_envs, slopes
from toys import Scripted

import saute
from saute.algos.mbpo import MbpoSettings
from saute.algos.sac import SacSettings, sac
from saute.algos.trpo import trpo
from saute.core.protocol import spec_of
from saute.envs.from_gym import HostEnvs
from saute.learn.constraint import lagrangian
from saute.learn.drive import drive
from saute.learn.model import Known
from saute.learn.replay import sauted
from saute.runs.build import configured, environment_of, ledger_of
from saute.runs.config import Experiment
from saute.runs.evaluate import evaluate
from saute.runs.loop import run, train
from saute.runs.outcomes import outcomes_of

ALL = pytest.mark.parametrize("name", LEARNERS)
MODEL_BASED = pytest.mark.parametrize("name", ["mbpo", "pets"])
REPLAYING = ("sac", "mbpo", "pets")
for name, steps in {"tests/HostSlope-v0": 10, "tests/Long-v0": 330}.items():
    gym.register(name, entry_point=HostSlope, max_episode_steps=steps, kwargs={"horizon": steps})


def replay_of(state: Any) -> Any:
    """The filled rows of a learner that replays."""
    ring = state.sac.replay if hasattr(state, "sac") else state.replay
    return jax.tree.map(lambda column: np.asarray(column[: int(ring.size)]), ring.rows)


def trained(algorithm: Any, env: Any, epochs: int, seeds: int = 1) -> list[tuple[Any, Any]]:
    """The state of every seed and its last numbers."""
    body = drive(algorithm.agent(spec_of(env)), env, ledger_of(env, algorithm, None))
    now: list[Any] = body.first([jax.random.key(100 + i) for i in range(seeds)])
    for epoch in range(epochs):
        ended = body.epoch(now, [jax.random.key(10 * epoch + i) for i in range(seeds)])
        now = [seed for seed, _ in ended]
    return [(seed.state, metrics) for seed, metrics in ended]


@pytest.mark.slow
@ALL
def test_host_and_native_give_the_same_rows_and_learn_the_same(name: str) -> None:
    algorithm = LEARNERS[name]
    if name in ("ppo", "trpo"):
        # What is seen before training is a tenth as much on the host.
        plain = dataclasses.replace(algorithm.settings, normalise=False, running_normaliser=False)
        algorithm = dataclasses.replace(algorithm, settings=plain)
    (native,), (host,) = (trained(algorithm, slopes(name, where), 2) for where in ("native", "host"))
    assert jax.tree.structure(native) == jax.tree.structure(host)
    for x, y in zip(jax.tree.leaves(native), jax.tree.leaves(host), strict=True):
        # Models are fitted in many steps, each of which adds to the difference of rounding.
        rtol, atol = (1e-2, 1e-3) if name in ("mbpo", "pets") else (2e-3, 2e-4)
        np.testing.assert_allclose(x, y, rtol=rtol, atol=atol)


@pytest.mark.parametrize("name", REPLAYING)
def test_the_replay_has_what_happened_never_the_next_reset(name: str) -> None:
    state, _ = trained(LEARNERS[name], slopes(name, "host"), 2)[0]
    rows, envs = replay_of(state), num_envs(name)
    time = np.repeat(np.tile(np.arange(10), 40 // envs // 10), envs)
    np.testing.assert_allclose(rows.obs[:, 0], time / 10, rtol=1e-6)
    np.testing.assert_allclose(rows.next_obs[:, 0], (time + 1) / 10, rtol=1e-6)
    assert not rows.terminated.any(), "time-outs are not terminal"
    np.testing.assert_array_equal(rows.remaining[time == 0], 3.0)
    np.testing.assert_allclose(rows.next_remaining, rows.remaining - rows.cost, atol=1e-6)
    np.testing.assert_array_equal(rows.next_remaining[time < 9], rows.remaining[time > 0])
    np.testing.assert_allclose(rows.task_reward, np.clip(rows.action[:, 0], -1, 1), atol=1e-6)
    seen = sauted(jax.tree.map(jnp.asarray, rows), hosted().options)
    np.testing.assert_array_equal(seen.reward == -1.0, rows.next_remaining < 0)


class Wide(HostSlope):
    """With other bounds of the actions, all of which it notes."""

    action_space = spaces.Box(-1.0, 3.0, (1,), np.float32)
    seen: list[float] = []

    def step(self, action: Any) -> Any:
        self.seen.append(float(action[0]))
        return HostSlope.step(self, action)


def test_environments_that_were_sauted_one_by_one_are_as_those_that_were_sauted_together() -> None:
    Wide.seen.clear()
    envs = HostEnvs(lambda: saute.SauteWrapper(Wide(terminal=True), 3.0, unsafe_reward=-1.0), num_envs=2)
    assert envs.options == hosted().options
    rows = replay_of(trained(LEARNERS["sac"], envs, 1)[0][0])
    np.testing.assert_allclose(Wide.seen, 1 + 2 * rows.action[:, 0], rtol=1e-5, atol=1e-5, err_msg="in units of the bounds")
    time = np.repeat(np.arange(10), 2)
    np.testing.assert_array_equal(rows.terminated, time == 9)
    assert rows.obs.shape == (20, 1) and rows.remaining.shape == (20,)
    np.testing.assert_array_equal(rows.remaining[time == 0], 3.0)
    np.testing.assert_allclose(rows.next_remaining, rows.remaining - rows.cost, atol=1e-6)
    np.testing.assert_allclose(rows.task_reward, np.clip(Wide.seen, -1, 1), rtol=1e-5, atol=1e-5)
    assert (rows.next_remaining < 0).any(), "some episode overspends"


def test_sauted_probe_on_the_host_spends_its_budget_and_no_more() -> None:
    settings = SacSettings(
        hidden=(32, 32), batch=64, replay=6000, random_steps=100, steps_per_epoch=100, rate=3e-3, averaging=0.02, discount=0.9,
        updates_per_step=0.5, temperature_rate=1e-2, relabel=True,
    )  # fmt: skip
    envs = hosted(10)
    done = train(sac(settings=settings), envs, seeds=1, epochs=60)
    outcome = evaluate(done.agent.policy, done.policies[0], envs, 10)
    assert (outcome.cost <= 3.0).all() and outcome.task_return.mean() > 2.0
    assert int(done.states[0].steps) == 6000 and done.metrics[-1][0]["episodes"] == 10


@ALL
def test_seeds_side_by_side_are_seeds_one_after_the_other(name: str) -> None:
    """Each with budgets of its own, which are drawn."""
    each, budget = num_envs(name), saute.uniform(0.5, 3.0)
    joint, apart = (trained(LEARNERS[name], hosted(n * each, n, budget), 2, seeds=2) for n in (2, 1))
    assert_same(joint, apart)
    assert not np.array_equal(joint[0][1]["task_return"], joint[1][1]["task_return"])


def test_the_car_steps_all_seeds_in_one_batch_and_other_environments_do_not() -> None:
    car = configured(Experiment("car", seeds=2, envs=3))
    joint, apart = environment_of(car), environment_of(car, num_envs=3)
    assert (joint.seeds, joint.num_envs, apart.seeds) == (2, 6, 1)
    assert environment_of(car, "test").seeds == 1
    users = Experiment("tests/HostSlope-v0", budget=30.0, seeds=2, envs=3)
    for other in (dataclasses.replace(car.experiment, algo="sac"), users):
        envs = environment_of(configured(other))
        assert (envs.seeds, envs.num_envs) == (1, 3)


@pytest.mark.parametrize(
    ("make", "horizon"),
    [
        (lambda: gym.make("saute/SafePendulum-v0"), 200),
        (lambda: gym.make("tests/Long-v0"), 330),
        (lambda: gym.wrappers.TimeLimit(gym.make("tests/Long-v0"), 40), 40),
        (HostSlope, 10),
        (Scripted, None),
    ],
)
def test_the_longest_episode_is_found_wherever_it_is_said(make: Any, horizon: int | None) -> None:
    assert HostEnvs(make, num_envs=2).horizon == horizon


def test_environments_whose_episodes_outlast_an_epoch_are_made_for_every_seed() -> None:
    endless = Experiment("toys:toys/Scripted-v0", budget=5.0, seeds=2, envs=3)
    assert (environment_of(configured(endless)).seeds, environment_of(configured(endless)).num_envs) == (2, 6)


@pytest.mark.slow
def test_the_car_side_by_side_is_the_car_one_after_the_other() -> None:
    settings = dataclasses.replace(LEARNERS["trpo"].settings, steps_per_epoch=3 * 200)
    config = configured(Experiment("car", seeds=2, envs=3))
    joint, apart = (trained(trpo(settings=settings), environment_of(config, num_envs=n), 1, seeds=2) for n in (None, 3))
    assert_same(joint, apart)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: hosted(7, 2), "7 environments cannot be parted among seeds=2; make a multiple of it"),
        (lambda: train(LEARNERS["trpo"], hosted(6, 3), seeds=2, epochs=1), "for 3 seeds side by side, not for 2; make them"),
        (
            lambda: train(LEARNERS["trpo"], hosted(2, horizon=11), seeds=3, epochs=1),
            r"episodes of up to 11 steps go on after the 10 steps .* each of 3 seeds needs .* make 6 of them .* at least 22",
        ),
        (
            lambda: train(LEARNERS["trpo"], HostEnvs(Scripted), seeds=2, epochs=1),
            r"episodes without a known end go on after the 20 steps .* make 2 of them with HostEnvs\(…, seeds=2\)",
        ),
        (
            lambda: train(sac(lagrangian(3.0)), HostEnvs(partial(Scripted, length=5), num_envs=3), seeds=1, epochs=1),
            "a limit of 3 per episode needs the length T of an episode",
        ),
    ],
)
def test_what_does_not_fit_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@MODEL_BASED
def test_more_than_one_environment_is_refused_by_learners_with_a_model(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} learns after every step of one environment, not of 2; use num_envs=1"):
        train(LEARNERS[name], hosted(2), seeds=1, epochs=1)


@MODEL_BASED
def test_ends_that_the_model_does_not_know_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=rf"terminated an episode, .* saute\.{name}\(known=Known\(terminated=…\)\)"):
        train(LEARNERS[name], hosted(terminal=True), seeds=1, epochs=1)


@pytest.mark.slow
@MODEL_BASED
def test_ends_that_the_model_knows_are_fine(name: str) -> None:
    known = Known(terminated=lambda obs, action, next_obs: next_obs[0] > 0.95)
    knowing = dataclasses.replace(LEARNERS[name], known=known)
    assert train(knowing, hosted(terminal=True), seeds=1, epochs=1).metrics[0][0]["episodes"] == 1


@pytest.mark.slow
@MODEL_BASED
def test_the_end_of_a_violated_episode_is_known(name: str) -> None:
    envs = SyncVectorEnv([HostSlope], autoreset_mode=AutoresetMode.DISABLED)
    ending = HostEnvs(saute.SauteVectorWrapper(envs, budget=0.5, terminate=True))
    # Only the first episode of the epoch is counted, and it is shorter than its horizon, as it was violated.
    numbers = train(LEARNERS[name], ending, seeds=1, epochs=1).metrics[0][0]
    assert numbers["episodes"] == 1 and numbers["violation_rate"] == 1 and numbers["length"] < 10


@pytest.mark.parametrize("name", [pytest.param("mbpo", marks=pytest.mark.slow), "pets"])
def test_a_gymnasium_environment_trains_by_name(name: str, tmp_path: pathlib.Path) -> None:
    config = configured(Experiment("tests/HostSlope-v0", algo=name, budget=3.0, seeds=1, epochs=2))
    assert config.experiment.envs == 1 and config.settings.steps_per_epoch == 200
    settings: Any = LEARNERS[name].settings
    if isinstance(settings, MbpoSettings):
        settings = dataclasses.replace(settings, sac=dataclasses.replace(settings.sac, steps_per_epoch=20))
    run(dataclasses.replace(config, settings=settings), tmp_path / "run")
    _, outcomes = outcomes_of(tmp_path / "run", 3, 1_000_000)
    assert outcomes[0].length.tolist() == [10, 10, 10]


def test_epochs_hold_whole_episodes() -> None:
    configs = {name: configured(Experiment("tests/Long-v0", algo=name, budget=3.0)) for name in ("mbpo", "pets")}
    assert {name: config.settings.steps_per_epoch for name, config in configs.items()} == {"mbpo": 330, "pets": 330}
    # 400 random steps fill two epochs of 330, and the other 4600 of the preset 14.
    assert configs["mbpo"].epochs == 2 + 14


@MODEL_BASED
def test_the_learned_budget_is_chosen_by_name(name: str) -> None:
    assert configured(Experiment("pendulum", algo=name, learned_budget=True)).settings.learned_budget  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (Experiment("pendulum", algo="sac", learned_budget=True), "not for sac with saute"),
        (Experiment("pendulum", algo="pets", method="vanilla", learned_budget=True), "not for pets with vanilla"),
    ],
)
def test_the_learned_budget_is_for_sauted_models(asked: Experiment, message: str) -> None:
    with pytest.raises(ValueError, match=f"--learned-budget is for mbpo and pets with method saute, {message}"):
        configured(asked)
