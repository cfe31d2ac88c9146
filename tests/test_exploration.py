"""Training under the shield of an earlier run: what is done, what the learner sees of it, what a folder remembers of it."""

from __future__ import annotations

import json
import pathlib
import shutil
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from learner_toys import LEARNERS, WHERE, Slope, assert_same, slopes
from test_shield import RUN, write_shield

import saute
from saute.cli.main import main
from saute.core.protocol import Spec, spec_of
from saute.learn.drive import Window, drive, rollout
from saute.learn.nets import Layer, policy_for
from saute.learn.shielded import Careful
from saute.learn.stream import begin
from saute.runs.checkpoint import named_leaves, save
from saute.runs.folder import TrainingError, read_config
from saute.runs.policy import file_of
from saute.runs.shield import FILE, KEPT, PARTS, digest_of
from saute.runs.shielding import careful
from saute.runs.trained import policy_description


def exact_shield(margin: float = 1e-3, size: int = 1, **other: Any) -> Any:
    """That of slopes: an action a needs a⁺ of the budget 3, and the backup rests; as a tree to be stored, and what it says."""
    one = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    bare = Spec(gym.spaces.Box(-np.inf, np.inf, (size,), np.float32), one, 10)
    pair = Spec(gym.spaces.Box(-np.inf, np.inf, (size + 1,), np.float32), gym.spaces.Box(0.0, np.inf, (1,), np.float32))
    nets = [policy_for(it.observation_space, it.action_space, ()) for it in (bare, pair)]
    weights = [jnp.zeros((size, 1)), jnp.concatenate([jnp.zeros((size, 1)), jnp.full((1, 1), 1 / 3)])]
    parts = {
        part: net.init(jax.random.key(0))._replace(mean=(Layer(weight, jnp.zeros(1)),))
        for part, net, weight in zip(PARTS, nets, weights, strict=True)
    }
    about = {part: policy_description(it, net, 1) for part, it, net in zip(PARTS, (bare, pair), nets, strict=True)}
    return parts, {**about, "reference": [3.0], "margin": margin, "discount": 1.0, "validation": {}, **other}


def under(agent: Any, env: Any, **shield: Any) -> Careful:
    parts, meta = exact_shield(**shield)
    arrays = {part: {name: np.asarray(leaf) for name, leaf in named_leaves(tree).items()} for part, tree in parts.items()}
    return careful(agent, env, (meta, arrays), pathlib.Path("run"))


def few(name: str, where: str = "native") -> Any:
    """PPO on JAX-native slopes is quick, and stands for the others."""
    return pytest.param(name, where, marks=() if (name, where) == ("ppo", "native") else pytest.mark.slow)


@pytest.mark.parametrize(("name", "where"), [few(name, where) for name in LEARNERS for where in WHERE])
def test_under_an_exact_shield_no_training_episode_violates(name: str, where: str) -> None:
    env = slopes(name, where)
    agent = LEARNERS[name].agent(spec_of(env))
    told = []
    for one in (agent, under(agent, env)):
        body, numbers = drive(one, env, env.options), []
        seeds = body.first([jax.random.key(0)])
        for epoch in range(3):
            ((seed, metrics),) = body.epoch(seeds, [jax.random.key(1 + epoch)])
            seeds = [seed]
            numbers.append(metrics)
        told.append(numbers)
    bare, guarded = told
    if name != "mbpo":  # which plays six episodes only, and by chance none that violates
        assert sum(float(one["violation_rate"]) for one in bare) > 0, "without the shield some do"
    assert all(float(one["violation_rate"]) == 0.0 and float(one["worst_cost"]) <= 3.0 for one in guarded)
    assert any(float(one["intervened"]) > 0.0 for one in guarded) and "intervened" not in bare[0]
    assert jax.tree.structure(body.first([jax.random.key(0)])[0].state) == jax.tree.structure(seed.state)


def test_what_is_not_admitted_is_replaced_and_the_learner_sees_what_was_done() -> None:
    env = slopes("sac", "native")
    agent = under(LEARNERS["sac"].agent(spec_of(env)), env, margin=0.0)
    state = agent.init(jax.random.key(0))
    obs = jnp.stack([jnp.zeros(500), jnp.full(500, 0.1)], axis=1)  # 0.3 are left, so that 0.3 is the most to be spent
    proposed = agent.agent.act(state, (), obs, jax.random.key(1))
    acted = agent.act(state, (), obs, jax.random.key(1))
    stops = np.asarray(proposed.action[:, 0] > 0.3)
    assert np.asarray(acted.extras.foreign).tolist() == stops.tolist() and 50 < stops.sum() < 450
    np.testing.assert_array_equal(acted.action[:, 0], np.where(stops, 0.0, proposed.action[:, 0]))
    np.testing.assert_array_equal(acted.extras.own[:, 0], np.where(stops, 0.0, proposed.extras[:, 0]))


def test_actions_are_noted_as_the_learner_has_them() -> None:
    spec = Spec(gym.spaces.Box(-1.0, 1.0, (2,), np.float32), gym.spaces.Box(np.float32([-2, 0]), np.float32([2, 1])), 5)
    agent = LEARNERS["sac"].agent(spec._replace(options=slopes("sac", "native").options))
    unit = agent.weighing.uniform(jax.random.key(0), 100)
    np.testing.assert_allclose(agent.noted(agent.weighing.scale(unit)), unit, atol=1e-6)


@pytest.mark.parametrize(("name", "where"), [few(name) for name in ("ppo", "trpo", "cpo")])
def test_actions_of_others_teach_values_but_not_the_policy(name: str, where: str) -> None:
    env = slopes(name, where)
    agent = LEARNERS[name].agent(spec_of(env))
    state = agent.init(jax.random.key(0))
    stream = begin(env, jax.random.key(1), 2)
    play = rollout(agent, env, Window(2, 10, True))
    rows, episodes, _ = jax.jit(play)(state, stream, jax.random.split(jax.random.key(2), 10))[2]
    learn = jax.jit(lambda rows: agent.learn(state, rows, episodes, jax.random.key(3))[0])
    usual, none, every = (
        learn(rows._replace(foreign=mask)) for mask in ((), jnp.zeros((10, 2), bool), jnp.ones((10, 2), bool))
    )
    assert_same(usual, none)
    assert_same(every.policy, state.policy)
    assert_same(every.value, usual.value)
    assert not np.array_equal(usual.value[0].weight, state.value[0].weight)
    assert not np.array_equal(jax.tree.leaves(usual.policy)[0], jax.tree.leaves(state.policy)[0])


# Folders


@pytest.fixture
def run(tmp_path: pathlib.Path) -> pathlib.Path:
    """An earlier run of slopes, with an exact shield."""
    out = tmp_path / "earlier"
    saute.train(LEARNERS["ppo"], slopes("ppo", "native"), seeds=1, epochs=1, out=out)
    parts, meta = exact_shield()
    save(out / FILE, parts, {**meta, "policy": digest_of(file_of(out)), "config": read_config(out).digest})
    return out


def trained(out: pathlib.Path | None, shield: pathlib.Path | None, **asked: Any) -> Any:
    return saute.train(LEARNERS["ppo"], slopes("ppo", "native"), seeds=2, out=out, shield=shield, **asked)


def test_a_folder_remembers_its_shield_and_goes_on_bit_for_bit(run: pathlib.Path, tmp_path: pathlib.Path) -> None:
    whole = trained(tmp_path / "whole", run, epochs=3)
    trained(tmp_path / "cut", run, epochs=2)
    config = json.loads((tmp_path / "cut/config.json").read_text())
    assert config["shield"] == digest_of(run / FILE) == digest_of(tmp_path / "cut" / KEPT)
    numbers = [seed for epoch in whole.metrics for seed in epoch]
    assert all(seed["violation_rate"] == 0.0 for seed in numbers) and any(0.0 < seed["intervened"] < 1.0 for seed in numbers)
    shutil.rmtree(run / "checkpoints")
    resumed = trained(tmp_path / "cut", run, epochs=3)
    assert_same(whole.states, resumed.states)
    assert (tmp_path / "whole/policy.safetensors").read_bytes() == (tmp_path / "cut/policy.safetensors").read_bytes()
    assert whole.metrics == resumed.metrics
    with pytest.raises(TrainingError, match=r"other settings \(shield\)"):
        trained(tmp_path / "cut", None, epochs=4)
    assert trained(None, run, epochs=3).metrics == whole.metrics


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"size": 2}, "has a shield for other spaces: observations is 2, here 1"),
        ({"discount": 0.5}, "with discount 0.5, not for 1 with 1; train with the discount"),
        ({"policy": "0" * 64}, "was made for other policies"),
    ],
)
def test_shields_that_do_not_fit_are_refused(run: pathlib.Path, tmp_path: pathlib.Path, other: Any, message: str) -> None:
    parts, meta = exact_shield(**{"policy": digest_of(file_of(run)), "config": read_config(run).digest, **other})
    save(run / FILE, parts, meta)
    with pytest.raises(ValueError, match=message):
        trained(tmp_path / "new", run, epochs=1)
    assert not (tmp_path / "new").exists()


def test_without_a_budget_to_observe_there_is_nothing_to_hold_against(run: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="is not observed here; train with method saute"):
        saute.train(LEARNERS["ppo"], Slope(), seeds=1, epochs=1, shield=run)


def test_another_reference_is_taken_into_account() -> None:
    env = saute.saute(Slope(), 6.0, unsafe_reward=-1.0)
    agent = under(LEARNERS["ppo"].agent(spec_of(env)), env, margin=0.0)
    assert agent.shares == (2.0,)
    instead, stops = agent.guard(agent.shield, jnp.zeros((2, 1)), jnp.full((2, 1), 0.1 * 2.0), jnp.array([[0.59], [0.61]]))
    assert stops.tolist() == [False, True] and instead.tolist() == [[0.0], [0.0]]


@pytest.mark.slow
def test_the_command_trains_and_resumes_under_a_shield(tmp_path: pathlib.Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    write_shield(tmp_path / "runs/pretrained/pendulum-saute-trpo")
    words = ["train", "pendulum", "--algo", "ppo", "--seeds", "1", "--settings.steps-per-epoch", "2000", "--shield", RUN]
    assert main([*words, "--epochs", "2", "--out", "whole"]) == 0
    assert main([*words, "--epochs", "1", "--out", "cut"]) == 0
    assert main(["resume", "cut", "--epochs", "2"]) == 0
    assert pathlib.Path("whole/policy.safetensors").read_bytes() != b""
    numbers = [json.loads(line) for line in pathlib.Path("cut/metrics.jsonl").read_text().splitlines()]
    whole = [json.loads(line) for line in pathlib.Path("whole/metrics.jsonl").read_text().splitlines()]
    assert numbers == whole and 0.0 < numbers[1]["seeds"][0]["intervened"] < 1.0
    assert main([*words, "--ray", "--out", "third"]) == 2 and "--shield is not for --ray" in capsys.readouterr().err
    pathlib.Path("cut", KEPT).unlink()
    assert main(["resume", "cut", "--epochs", "3"]) == 2
    assert "is not the shield that cut trains under" in capsys.readouterr().err
    assert main([*words[:-1], "pretrained:point-saute-trpo", "--out", "fourth"]) == 2
    assert "has no shield; make one with saute shield" in capsys.readouterr().err and not pathlib.Path("fourth").exists()
