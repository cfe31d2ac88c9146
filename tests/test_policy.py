"""Policies apart from training: saved and loaded, one or many observations, with their budget."""

from __future__ import annotations

import dataclasses
import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from learner_toys import assert_same

import saute
from saute.algos.ppo import ppo
from saute.algos.sac import sac
from saute.cli.main import main
from saute.core.options import options
from saute.core.protocol import Spec, spec_of
from saute.learn.nets import policy_for
from saute.learn.stream import bounded
from saute.runs.checkpoint import CheckpointError
from saute.runs.policy import load_policies, load_policy
from saute.runs.trained import nets_of, policy_description, save_policies
from saute.serve.budgeted import BudgetedPolicy


@pytest.fixture
def run(tmp_path: pathlib.Path) -> tuple[pathlib.Path, list]:
    env = saute.saute(saute.envs.pendulum())
    net = policy_for(env.observation_space, env.action_space)
    parameters = [net.init(jax.random.key(i)) for i in range(3)]
    save_policies(tmp_path / "policy.safetensors", parameters, policy_description(spec_of(env), net, 1))
    return tmp_path, parameters


def test_a_loaded_policy_acts_as_the_saved_one(run) -> None:
    folder, parameters = run
    env = saute.saute(saute.envs.pendulum())
    net = policy_for(env.observation_space, env.action_space)
    obs = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    for seed in range(3):
        policy = load_policy(folder, seed=seed)
        augmented = jnp.concatenate([jnp.asarray(obs), jnp.full((5, 1), 12.5 / 30.0)], axis=1)
        expected = np.clip(net.mode(net.distribution(parameters[seed], augmented)), -1, 1)
        np.testing.assert_allclose(policy(obs, remaining=12.5), expected, atol=1e-6)
        np.testing.assert_allclose(policy(obs[2], remaining=12.5), expected[2], atol=1e-6)
        each = policy(obs, remaining=[12.5, 1.0, 12.5, -3.0, 12.5])
        np.testing.assert_allclose(each[[0, 2, 4]], expected[[0, 2, 4]], atol=1e-6)
        assert not np.allclose(each[[1, 3]], expected[[1, 3]])


def test_sampling_needs_a_key_and_is_reproducible(run) -> None:
    policy = load_policy(run[0])
    obs = np.zeros(3)
    a, b, c = (policy(obs, 30.0, key=jax.random.key(k)) for k in (1, 1, 2))
    assert np.array_equal(a, b) and not np.array_equal(a, c) and (np.abs(c) <= 1).all()


def test_wrong_calls_are_explained(run) -> None:
    policy = load_policy(run[0])
    with pytest.raises(ValueError, match="needs its remaining budget"):
        policy(np.zeros(3))
    with pytest.raises(ValueError, match=r"has shape \(4,\), expected \(3,\) or \(N, 3\)"):
        policy(np.zeros(4), 1.0)
    with pytest.raises(CheckpointError, match="has no seed 7; it has 0, 1, 2"):
        load_policy(run[0], seed=7)
    with pytest.raises(CheckpointError, match="does not exist"):
        load_policy(run[0] / "elsewhere")


@pytest.mark.parametrize(("place", "remaining"), [(1, 2.0), (None, np.nan), (0, np.inf)])
def test_nobody_acts_on_numbers_that_are_none(run, place: int | None, remaining: float) -> None:
    policy = load_policy(run[0])
    obs = np.zeros(policy.about.bare)
    policy(obs, remaining=1.0)
    if place is not None:
        obs[place] = np.nan
    bad = [place] if place is not None and np.isfinite(remaining) else [*([] if place is None else [place]), len(obs)]
    with pytest.raises(ValueError, match=re.escape(f"inputs {bad} of the policy, the last ones being z, are not finite")):
        policy(obs, remaining=remaining)


def test_discrete_and_vanilla_policies(tmp_path: pathlib.Path) -> None:
    spec = Spec(spaces.Box(-1.0, 1.0, (2,), np.float32), spaces.Discrete(4))
    net = policy_for(spec.observation_space, spec.action_space)
    save_policies(tmp_path / "policy.safetensors", [net.init(jax.random.key(0))], policy_description(spec, net, 1))
    policy = load_policy(tmp_path / "policy.safetensors")
    actions = policy(np.random.default_rng(0).normal(size=(20, 2)))
    assert actions.shape == (20,) and set(actions) <= set(range(4))
    with pytest.raises(ValueError, match="does not observe its budget"):
        policy(np.zeros(2), remaining=1.0)


KINDS = {
    "discrete from 5": (sac(), spaces.Discrete(3, start=5), None),
    "discrete and a picture": (sac(), spaces.Discrete(3), (8, 8, 1)),
    "a vector and a picture": (sac(), spaces.Box(-2.0, 2.0, (2,), np.float32), (8, 8, 1)),
    "several": (ppo(), spaces.MultiDiscrete([2, 4], start=[0, 3]), None),
    "several and a picture": (ppo(), spaces.MultiDiscrete([2, 4]), (8, 8, 1)),
    "on-policy picture": (ppo(), spaces.Discrete(3), (8, 8, 1)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_policy_acts_as_before_when_it_is_loaded(kind: str, tmp_path: pathlib.Path) -> None:
    algorithm, actions, image = KINDS[kind]
    size = 5 if image is None else 64
    chosen = options(2.0)
    spec = Spec(spaces.Box(-np.inf, np.inf, (size + 1,), np.float32), actions, options=chosen, image=image)
    small = dataclasses.replace(algorithm.settings, hidden=(8,), **({"replay": 10} if algorithm.name == "sac" else {}))
    agent = dataclasses.replace(algorithm, settings=small).agent(spec)
    # Large weights, so that actions differ.
    parameters = jax.tree.map(lambda leaf: 5.0 * leaf, agent.export(agent.init(jax.random.key(0))))
    save_policies(tmp_path / "policy.safetensors", [parameters], policy_description(spec, agent.policy, 1))
    policy = load_policy(tmp_path / "policy.safetensors")
    assert nets_of(tmp_path / "policy.safetensors")[0] == agent.policy
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(20, size)) if image is None else rng.integers(0, 256, (20, size))
    seen = jnp.concatenate([jnp.asarray(obs, jnp.float32), jnp.full((20, 1), 0.75)], axis=1)
    expected = np.asarray(bounded(actions, agent.policy.decide(parameters, (), seen)[0]))
    found = policy(obs, remaining=1.5)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert len(np.unique(found, axis=0)) > 1 and all(actions.contains(one.astype(actions.dtype)) for one in found)
    if image is not None:
        np.testing.assert_array_equal(policy(obs.reshape(20, *image), remaining=1.5), found)
        np.testing.assert_array_equal(policy(obs[3].reshape(image), remaining=1.5), found[3])


def test_a_picture_beside_other_numbers_is_given_flat(tmp_path: pathlib.Path) -> None:
    spec = Spec(spaces.Box(-np.inf, np.inf, (66,), np.float32), spaces.Discrete(3), image=(8, 8, 1))
    net = policy_for(spec.observation_space, spec.action_space, (4,), spec.image)
    save_policies(tmp_path / "policy.safetensors", [net.init(jax.random.key(0))], policy_description(spec, net, 1))
    policy = load_policy(tmp_path / "policy.safetensors")
    assert policy(np.zeros((2, 66))).shape == (2,)
    with pytest.raises(ValueError, match=r"has shape \(8, 8, 1\), expected \(66,\)"):
        policy(np.zeros((8, 8, 1)))


def test_all_policies_of_a_run_are_loaded_at_once(run) -> None:
    folder, parameters = run
    assert list(load_policies(folder)) == [0, 1, 2]
    for seed, stored in nets_of(folder)[1].items():
        assert_same(stored, parameters[seed])


def test_budgeted_policy_keeps_the_wrappers_books() -> None:
    from toys import sauted

    env = sauted(3.0, discount=0.9, env=dict(costs=(1.0, 0.5, 2.0)))
    env.reset(seed=0)
    keeper = BudgetedPolicy(lambda obs, remaining: remaining, discount=0.9)
    with pytest.raises(Exception, match="call begin"):
        keeper.act(None)
    keeper.begin(3.0)
    for _ in range(4):
        *_, info = env.step(np.zeros(1))
        assert keeper.spend(info["cost"]) == info["remaining"] and keeper.violated == info["violated"]
    for bad in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="must be finite"):
            keeper.spend(bad)
    with pytest.raises(ValueError, match="budget=0 must be positive"):
        keeper.begin(0)


def test_a_trained_policy_is_filmed(run, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["watch", "pendulum", "--steps", "3", "--size", "64", "--out", str(tmp_path / "film.gif")]
    assert main([*words, "--policy", f"{run[0]}@2"]) == 0
    assert (tmp_path / "film.gif").stat().st_size > 500 and "4 frames" in capsys.readouterr().out
    assert main([*words, "--policy", f"{run[0]}@9"]) == 2
    assert "has no seed 9" in capsys.readouterr().err
    assert main([*words, "--policy", f"{run[0]}@x"]) == 2
    assert "not a whole number" in capsys.readouterr().err
