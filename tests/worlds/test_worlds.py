"""Brax, MuJoCo Playground and gymnax as they are: `make worlds` installs them and runs this; `make test` has no part in it."""

from __future__ import annotations

import importlib
import pathlib
from typing import Any

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from brax import envs
from brax.envs.wrappers import training
from mujoco_playground import registry, wrapper
from own_tasks import LEARNERS, WORLDS, assert_as_written, cell

import saute
from saute.algos.onpolicy import OnPolicySettings
from saute.envs.foreign import ForeignEnv
from saute.runs.evaluate import evaluate

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
KEY = jax.random.key(0)
same = np.testing.assert_array_equal


def free(obs: Any, action: Any, next_obs: Any, info: Any) -> float:
    return 0.0


def actions_of(env: ForeignEnv, steps: int, seed: int = 0) -> Any:
    env.action_space.seed(seed)
    return jnp.asarray(np.stack([env.action_space.sample() for _ in range(steps)]))


def played(env: ForeignEnv, actions: Any, keys: Any) -> Any:
    """All steps of the adapter in one scan, as in training, also those after the end."""

    def one(state: Any, at: Any) -> Any:
        step = env.step(state, *at)
        return step.state, step

    return jax.jit(lambda: jax.lax.scan(one, env.reset(KEY)[0], (actions, keys))[1])()


def of_brax(bare: Any, actions: Any) -> Any:
    """The same steps as Brax and Playground themselves make them, from Brax's customary key."""

    def one(state: Any, action: Any) -> Any:
        state = bare.step(state, action)
        return state, (state.obs, state.reward, state.done, state.metrics)

    return jax.jit(lambda: jax.lax.scan(one, bare.reset(jax.random.PRNGKey(0)), actions)[1])()


def test_steps_of_brax_are_its_own_also_beyond_the_fall_which_terminates() -> None:
    bare = envs.get_environment("inverted_pendulum")
    env = saute.from_brax(bare, cost=lambda obs, action, next_obs, info: jnp.abs(next_obs[0]) + jnp.abs(obs[1]))
    assert env.horizon == 1000 and env.observation_space.shape == (4,) and env.action_space.shape == (1,)
    actions = actions_of(env, 40)
    steps, (obs, reward, done, _) = played(env, actions, jax.random.split(KEY, 40)), of_brax(bare, actions)
    same(steps.obs, obs)
    same(steps.reward, reward)
    same(steps.terminated, done > 0)
    assert 0 < done.sum() < 40 and done[-1] and not steps.truncated.any()
    same(steps.cost[1:], np.abs(obs[1:, 0]) + np.abs(obs[:-1, 1]))


def test_steps_of_playground_are_its_own_and_its_configuration_has_the_length() -> None:
    bare = registry.load("CartpoleBalance", config_overrides={"impl": "jax"})
    env = saute.from_brax(bare, cost=["reward/upright", "reward/small_control"])
    assert env.horizon == 1000 and env.cost_shape == (2,) and env.observation_space.shape == (5,)
    actions = actions_of(env, 20)
    steps, (obs, reward, _, metrics) = played(env, actions, jax.random.split(KEY, 20)), of_brax(bare, actions)
    same(steps.obs, obs)
    same(steps.reward, reward)
    same(steps.cost, np.stack([metrics["reward/upright"], metrics["reward/small_control"]], 1))
    with pytest.raises(ValueError, match="no 'cost', only: reward/angle_in_bounds"):
        saute.from_brax(bare)
    with pytest.raises(ValueError, match="BraxAutoResetWrapper batches, limits or resets"):
        saute.from_brax(wrapper.wrap_for_brax_training(bare), cost=free)


def test_the_training_wrappers_of_brax_are_refused() -> None:
    bare = envs.get_environment("fast")
    with pytest.raises(ValueError, match="AutoResetWrapper batches, limits or resets"):
        saute.from_brax(envs.create("fast"), cost=free)
    for wrapped in (training.EpisodeWrapper(bare, 10, 1), training.VmapWrapper(bare), training.EvalWrapper(bare)):
        with pytest.raises(ValueError, match=f"{type(wrapped).__name__} batches, limits or resets"):
            saute.from_brax(wrapped, cost=free)


ENDING = ["CartPole-v1", "Pendulum-v1", "MountainCar-v0", "Breakout-MinAtar", "DiscountingChain-bsuite", "Catch-bsuite"]


@pytest.mark.parametrize("name", ENDING)
def test_steps_of_gymnax_are_its_own_until_it_resets_itself(name: str) -> None:
    bare, params = gymnax.make(name)
    limit = min(30, int(params.max_steps_in_episode))
    params = params.replace(max_steps_in_episode=limit)
    env = saute.from_gymnax(bare, params, cost=free)
    keys, actions = jax.random.split(KEY, 40), actions_of(env, 40)
    # `env.step` of gymnax parts its key: the first half steps, the second one resets.
    steps = played(env, actions, jax.vmap(lambda key: jax.random.split(key)[0])(keys))
    _, state = bare.reset(KEY, params)
    for i in range(40):
        obs, state, reward, terminated, truncated, info = bare.step(keys[i], state, actions[i], params)
        np.testing.assert_allclose(steps.obs[i], np.ravel(info["final_observation"]), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(steps.reward[i], reward, rtol=1e-5)
        assert steps.terminated[i] == terminated and steps.truncated[i] == (truncated and not terminated)
        if terminated or truncated:
            assert not np.allclose(np.ravel(obs), steps.obs[i])  # gymnax has begun anew, and we have not
            assert int(steps.state.time[i]) == i + 1
            return
    raise AssertionError("no episode ended")


@pytest.mark.parametrize("name", [name for name in gymnax.registered_envs if name != "MNISTBandit-bsuite"])
def test_every_environment_of_gymnax_fits(name: str) -> None:
    """But for the one that downloads its pictures."""
    env = saute.from_gymnax(*gymnax.make(name), cost=free)
    state, obs = jax.eval_shape(env.reset, KEY)
    step = jax.eval_shape(env.step, state, jnp.asarray(env.action_space.sample()), KEY)
    assert obs.shape == step.obs.shape == env.observation_space.shape and obs.dtype == jnp.float32
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), step.state) == jax.tree.map(
        lambda leaf: (leaf.shape, leaf.dtype), state
    )


def test_wrappers_of_gymnax_are_refused() -> None:
    bare, params = gymnax.make("CartPole-v1")
    for kind in ("FlattenObservationWrapper", "LogWrapper", "StickyActionWrapper"):
        with pytest.raises(ValueError, match=f"{kind} wraps the steps that reset themselves"):
            saute.from_gymnax(getattr(importlib.import_module("gymnax.wrappers.purerl"), kind)(bare), params, cost=free)


@pytest.mark.parametrize("library", ["brax", "gymnax"])
def test_a_run_goes_on_bit_for_bit_in_the_middle_of_an_episode(library: str, tmp_path: pathlib.Path) -> None:
    if library == "brax":
        bare = saute.from_brax(envs.get_environment("fast"), cost=lambda obs, action, next_obs, info: 0.1, horizon=25)
    else:
        bare = saute.from_gymnax(*gymnax.make("Pendulum-v1"), cost=lambda obs, action, next_obs, info: 0.1, horizon=25)
    env = saute.saute(bare, budget=2.0, unsafe_reward=-20.0)
    algorithm = saute.ppo(settings=OnPolicySettings(steps_per_epoch=20, num_envs=2, hidden=(4,)))
    asked = (("twice", 3), ("twice", 6), ("once", 6))
    runs = [saute.train(algorithm, env, seeds=1, epochs=epochs, out=tmp_path / out) for out, epochs in asked]
    jax.tree.map(same, runs[1].policies, runs[2].policies)
    outcome = evaluate(runs[2].agent.policy, runs[2].policies[0], env, 4)
    assert outcome.length.tolist() == [25] * 4 and outcome.violated.all()
    np.testing.assert_allclose(outcome.cost, 2.5, rtol=1e-6)


@pytest.mark.parametrize("name", ["brax_cart", "gymnax_cartpole"])
def test_the_example_keeps_its_budget_and_without_it_a_learner_overspends(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setattr("sys.argv", [f"{name}.py"])
    importlib.import_module(name).main()
    with capsys.disabled():
        header, vanilla, sauted = (line for line in capsys.readouterr().out.splitlines() if "budget" in line or "95 %" in line)
        print("", header, vanilla, sauted, sep="\n")
    rows = [row.split() for row in (vanilla, sauted)]
    assert [row[0] for row in rows] == ["vanilla", "sautéed"] and "budget 20" in header
    (greedy, paid, overspent), (careful, kept, violated) = ([float(row[i]) for i in (1, 2, 4)] for row in rows)
    assert overspent >= 90 and paid > 100.0
    assert violated <= 5 and kept <= 20.0 and 150.0 < careful < greedy


@pytest.mark.parametrize("algo", LEARNERS)
@pytest.mark.parametrize("row", WORLDS)
def test_the_table_of_own_tasks_says_what_happens(row: str, algo: str) -> None:
    assert_as_written(row, algo, cell(algo, **WORLDS[row]))
