"""The registered tasks as Gymnasium users meet them: checker, seeding, states, batches, engines, errors."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import gymnasium as gym
import jax
import jaxtyping
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import saute
from saute.core.protocol import Env
from saute.envs.goal import rotation

IDS = {
    "pendulum": "saute/SafePendulum-v0",
    "double_pendulum": "saute/SafeDoublePendulum-v0",
    "reacher": "saute/SafeReacher-v0",
    "point": "saute/StaticPointGoal-v0",
    "car": "saute/StaticCarGoal-v0",
}
SIZES = {"pendulum": (3, 1, 2), "double_pendulum": (11, 1, 6), "reacher": (11, 2, 8), "point": (44, 2, 6), "car": (56, 2, 24)}
HORIZONS = {"pendulum": 200, "double_pendulum": 200, "reacher": 50, "point": 200, "car": 200}
ENGINES = [(name, engine) for name in IDS for engine in saute.envs.TASKS[name].engines]
"""Of the paper's tasks; others have files of their own."""
NATIVE = ["pendulum", "double_pendulum", "reacher", "point"]


@pytest.fixture(scope="module")
def made() -> dict[tuple[str, str], gym.Env]:
    """Each environment once, since compiling dominates these tests."""
    return {(name, engine): gym.make(IDS[name], engine=engine) for name, engine in ENGINES}


def act(env: Any, rng: np.random.Generator) -> np.ndarray:
    return rng.uniform(-1, 1, env.action_space.shape)


@pytest.mark.parametrize(("name", "engine"), ENGINES)
def test_checker_is_clean(made, name: str, engine: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Observations are unbounded, and the checker always remarks on that.
        warnings.filterwarnings("ignore", message=".*infinity")
        warnings.filterwarnings("ignore", message=".*different from the unwrapped version")
        check_env(made[name, engine], skip_render_check=True)


@pytest.mark.parametrize(("name", "engine"), ENGINES)
def test_sizes_seeds_costs_and_states(made, name: str, engine: str) -> None:
    env = made[name, engine]
    observations, actions, states = SIZES[name]
    assert env.observation_space.shape == (observations,) and env.action_space.shape == (actions,)
    first, _ = env.reset(seed=3)
    second, _ = env.reset()
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(env.reset(seed=3)[0], first)
    np.testing.assert_array_equal(env.reset()[0], second)
    assert not np.array_equal(env.reset(seed=4)[0], first)
    rng = np.random.default_rng(0)
    for _ in range(10):
        obs, reward, terminated, truncated, info = env.step(act(env, rng))
        assert obs.dtype == np.float64 and obs.shape == (observations,)
        assert type(reward) is float and type(terminated) is bool and type(truncated) is bool and info["cost"] >= 0
    state, action = env.unwrapped.state, act(env, rng)
    assert state.shape == (states,)
    expected = env.step(action)
    env.reset(options={"state": state})
    np.testing.assert_array_equal(env.unwrapped.state, state)
    again = env.step(action)
    np.testing.assert_array_equal(again[0], expected[0])
    assert again[1] == expected[1] and again[4] == expected[4]


@pytest.mark.parametrize("name", IDS)
def test_jax_is_given_nothing_to_compile_or_compute_for_one_environment(name: str) -> None:
    with jax.transfer_guard("disallow_explicit"):
        env = gym.make(IDS[name])
        env.reset(seed=0)
        env.step(np.zeros(env.action_space.shape))


@pytest.mark.parametrize(("name", "engine"), ENGINES)
def test_time_limit_truncates_and_the_double_pendulum_falls(made, name: str, engine: str) -> None:
    env = made[name, engine]
    env.reset(seed=0)
    t, terminated, truncated = 0, False, False
    while not (terminated or truncated):
        t += 1
        _, _, terminated, truncated, _ = env.step(np.zeros(env.action_space.shape))
    assert terminated == (name == "double_pendulum") and truncated == (name != "double_pendulum")
    assert t == HORIZONS[name] or name == "double_pendulum"


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("name", [*NATIVE, "car"])
def test_batch_equals_single_environments(name: str, mode: AutoresetMode) -> None:
    n, short = 3, dict(horizon=4)
    batch = gym.make_vec(IDS[name], num_envs=n, autoreset_mode=mode, **short)
    singles = gym.vector.SyncVectorEnv([lambda: gym.make(IDS[name], **short)] * n, autoreset_mode=mode)
    a, _ = batch.reset(seed=5)
    b, _ = singles.reset(seed=5)
    np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    rng = np.random.default_rng(1)
    ended = np.zeros(n, bool)
    for _ in range(11):
        if mode is AutoresetMode.DISABLED and ended.any():
            a, b = batch.reset(options={"reset_mask": ended})[0], singles.reset(options={"reset_mask": ended})[0]
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
        actions = rng.uniform(-1, 1, (n, *batch.single_action_space.shape))
        one, other = batch.step(actions), singles.step(actions)
        # A compiled batch may round differently from the plain floats of a single environment.
        for x, y in zip(one[:2], other[:2], strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9)
        for x, y in zip(one[2:4], other[2:4], strict=True):
            np.testing.assert_array_equal(x, y)
        ended = one[2] | one[3]
        if "cost" in other[4]:
            mask = other[4]["_cost"]
            np.testing.assert_allclose(one[4]["cost"][mask], other[4]["cost"][mask], atol=1e-9)
        if mode is AutoresetMode.SAME_STEP and ended.any():
            mask = other[4]["_final_obs"]
            np.testing.assert_array_equal(one[4]["_final_obs"], mask)
            for x, y in zip(one[4]["final_obs"][mask], other[4]["final_obs"][mask], strict=True):
                np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(one[4]["final_info"]["cost"][mask], other[4]["final_info"]["cost"][mask], atol=1e-9)


def test_batches_start_from_given_states_and_sauté_alike() -> None:
    envs = saute.SauteVectorWrapper(gym.make_vec(IDS["pendulum"], num_envs=2, autoreset_mode="SameStep", horizon=3), 1.0)
    obs, _ = envs.reset(seed=0, options={"state": [[0.0, 0.0], [np.pi, 0.0]]})
    np.testing.assert_allclose(obs, [[1.0, 0.0, 0.0, 1.0], [-1.0, 0.0, 0.0, 1.0]], atol=1e-12)
    for _ in range(3):
        obs, _, _, truncated, info = envs.step(np.zeros((2, 1)))
    assert truncated.all() and (obs[:, -1] == 1.0).all()
    np.testing.assert_allclose(info["final_info"]["remaining"], [-0.5, 1.0], atol=1e-12)
    np.testing.assert_allclose(info["final_obs"][0][-1], -0.5, atol=1e-12)
    np.testing.assert_array_equal(envs.reset(options={"state": np.zeros(2)})[0][:, 0], [1.0, 1.0])


@pytest.mark.parametrize("name", NATIVE)
def test_native_environments_vmap_scan_and_jit(name: str) -> None:
    env = getattr(saute.envs, name)()
    assert isinstance(env, Env)

    @jax.jit
    def episode(key: Any) -> Any:
        def step(state: Any, key: Any) -> Any:
            out = env.step(state, jax.random.uniform(key, env.action_space.shape, minval=-1.0), key)
            return out.state, out

        state, _ = env.reset(key)
        return jax.lax.scan(step, state, jax.random.split(key, 20))[1]

    out = jax.vmap(episode)(jax.random.split(jax.random.key(0), 7))
    assert out.obs.shape == (7, 20, SIZES[name][0]) and out.cost.shape == (7, 20)
    leaves = jax.tree.leaves(out)
    assert all(leaf.dtype in (np.float32, np.int32, bool) for leaf in leaves), "a 64-bit leak"
    assert all(np.isfinite(leaf).all() for leaf in leaves)


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
@pytest.mark.parametrize("name", ["pendulum", "car"])
def test_copies_continue_identically(name: str, clone: Any) -> None:
    env = saute.SauteWrapper(gym.make(IDS[name]), 5.0)
    env.reset(seed=0)
    twin = clone(env)
    action = np.full(env.action_space.shape, 0.5)
    np.testing.assert_array_equal(env.step(action)[0], twin.step(action)[0])
    np.testing.assert_array_equal(env.reset()[0], twin.reset()[0])
    np.testing.assert_array_equal(gym.make(env.spec).reset(seed=1)[0], env.reset(seed=1)[0])


BAD = [
    (dict(engine="bullet"), "unknown engine of double_pendulum 'bullet'.*Known: python, jax, mujoco"),
    (dict(mode="testing"), "unknown mode 'testing'; did you mean 'test'"),
    (dict(unsafe_angel=3.0), "unknown parameter of double_pendulum 'unsafe_angel'; did you mean 'unsafe_angle'"),
    (dict(render_mode="ansi"), "unknown render_mode 'ansi'"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gym.make(IDS["double_pendulum"], disable_env_checker=True, **arguments)


def test_engines_that_a_task_does_not_have() -> None:
    with pytest.raises(ValueError, match=r"unknown engine of car 'jax'.*Known: mujoco"):
        gym.make(IDS["car"], engine="jax")
    with pytest.raises(ValueError, match=r"unknown engine of pendulum 'mujoco'.*Known: python, jax"):
        gym.make(IDS["pendulum"], engine="mujoco")


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ([0.0, 0.0, 0.0], r"has shape \(3,\), expected \(2,\)"),
        (1.0, r"has shape \(\), expected \(2,\)"),
        ([np.nan, 0.0], "is not finite"),
        (["up", "still"], "is not numeric"),
    ],
)
def test_bad_states(made, state: Any, message: str) -> None:
    env = made["pendulum", "jax"]
    env.reset(options={"state": [0.1, 0.2]})
    with pytest.raises(ValueError, match=message):
        env.reset(options={"state": state})
    np.testing.assert_array_equal(env.unwrapped.state, [0.1, 0.2])


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ([0.0, 0.0], r"action has shape \(2,\), expected \(1,\)"),
        (0.0, r"action has shape \(\), expected \(1,\)"),
        ([np.nan], "is not finite; check the policy"),
        ([np.inf], "is not finite"),
        (["left"], "is not numeric"),
    ],
)
def test_bad_actions(made, action: Any, message: str) -> None:
    env = made["pendulum", "jax"].unwrapped
    env.reset(options={"state": [0.1, 0.2]})
    with pytest.raises(ValueError, match=message):
        env.step(action)
    np.testing.assert_array_equal(env.state, [0.1, 0.2])


def test_bad_batches() -> None:
    with pytest.raises(ValueError, match="num_envs=0 must be"):
        saute.GymVectorEnv(saute.envs.pendulum(), 0)
    envs = gym.make_vec(IDS["pendulum"], num_envs=2, autoreset_mode="Disabled", horizon=1)
    with pytest.raises(gym.error.ResetNeeded, match="before reset"):
        envs.step(np.zeros((2, 1)))
    envs.reset()
    with pytest.raises(ValueError, match=r"action has shape \(2,\), expected \(2, 1\)"):
        envs.step(np.zeros(2))
    envs.step(np.zeros((2, 1)))
    with pytest.raises(gym.error.ResetNeeded, match=r"envs \[0, 1\] have ended"):
        envs.step(np.zeros((2, 1)))
    with pytest.raises(ValueError, match=r'"reset_mask"\].* must be 2 bools'):
        envs.reset(options={"reset_mask": np.array([1, 0])})
    with pytest.raises(ValueError, match="3 seeds for 2 environments"):
        envs.reset(seed=[1, 2, 3])


def test_shapes_in_annotations_are_checked_while_testing() -> None:
    with pytest.raises(jaxtyping.TypeCheckError, match="rotation"):
        rotation(jax.numpy.zeros(3))


def test_native_tasks_are_those_with_physics_in_jax() -> None:
    assert [name for name in [*saute.envs.TASKS, "CartPole-v1"] if saute.envs.is_native(name)] == [*NATIVE, "point_goal1"]
