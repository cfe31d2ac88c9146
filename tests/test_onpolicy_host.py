"""PPO, TRPO and CPO in Gymnasium's environments: seeds side by side are, bit for bit, seeds one after the other."""

from __future__ import annotations

import dataclasses
from typing import Any

import gymnasium as gym
import jax
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import saute
from saute.algos.onpolicy import OnPolicy, Settings
from saute.algos.onpolicy_host import host_collector
from saute.algos.sac import sac
from saute.algos.trpo import trpo
from saute.envs.from_gym import HostEnvs
from saute.runs.config import Experiment, environment_of
from saute.runs.loop import train

SMALL = Settings(hidden=(16, 16), steps_per_epoch=60, value_iterations=5, minibatches=2, normalise=True)


def pendulums(num_envs: int, seeds: int) -> HostEnvs:
    """Episodes of 7 steps end within an epoch, and each draws its budget."""
    made = gym.make_vec("saute/SafePendulum-v0", num_envs=num_envs, autoreset_mode=AutoresetMode.DISABLED, horizon=7)
    return HostEnvs(saute.SauteVectorWrapper(made, saute.uniform(0.5, 3.0)), seeds=seeds)


def assert_same(a: Any, b: Any) -> None:
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


def test_training_side_by_side_is_training_one_after_the_other() -> None:
    joint, apart = (train(trpo(settings=SMALL), envs, seeds=3, epochs=2) for envs in (pendulums(9, 3), pendulums(3, 1)))
    assert joint.metrics == apart.metrics and joint.metrics[0][0] != joint.metrics[0][1]
    assert_same(joint.learners, apart.learners)


def test_the_car_steps_all_seeds_in_one_batch_and_users_environments_do_not() -> None:
    experiment = Experiment("car", seeds=2, envs=3).checked()
    joint, apart = environment_of(experiment), environment_of(experiment, num_envs=3)
    assert (joint.seeds, joint.num_envs, apart.seeds) == (2, 6, 1)
    bound = trpo(settings=SMALL).bind(joint.observation_space, joint.action_space)
    keys = [jax.random.key(7), jax.random.key(8)]
    learners = [bound.init(key) for key in keys]
    first, second = (host_collector(bound, envs)(learners, keys) for envs in (joint, apart))
    assert first[0][0].obs.shape == (20, 3, 57) and len(first) == 2
    assert_same(first, second)
    assert environment_of(experiment, "test").seeds == 1
    users = Experiment("saute/SafePendulum-v0", budget=30.0, seeds=2, envs=3).checked()
    for other in (dataclasses.replace(experiment, algo="sac"), users):
        envs = environment_of(other)
        assert (envs.seeds, envs.num_envs) == (1, 3)


def test_acting_and_learning_are_traced_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    traced: list[str] = []

    def counted(name: str) -> Any:
        whole = getattr(OnPolicy, name)
        return lambda *args: traced.append(name) or whole(*args)

    for name in ("act", "learn"):
        monkeypatch.setattr(OnPolicy, name, counted(name))
    train(trpo(settings=dataclasses.replace(SMALL, normalise=False)), pendulums(6, 2), seeds=2, epochs=4)
    assert traced == ["act", "act", "learn"], "acting once for each of two seeds, in one program"


def test_what_cannot_be_side_by_side_is_refused() -> None:
    with pytest.raises(ValueError, match="7 environments cannot be parted among seeds=2; make a multiple of it"):
        pendulums(7, 2)
    with pytest.raises(ValueError, match="for 3 seeds of ppo, trpo or cpo side by side, not for 2 of trpo"):
        train(trpo(settings=SMALL), pendulums(6, 3), seeds=2, epochs=1)
    with pytest.raises(ValueError, match="not for 2 of sac; make them with HostEnvs"):
        train(sac(), pendulums(6, 2), seeds=2, epochs=1)
