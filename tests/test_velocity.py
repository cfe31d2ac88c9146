"""The velocity tasks against Gymnasium's own loop over the same robots, step by step."""

from __future__ import annotations

import builtins
import pathlib
import warnings
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import saute
from saute.envs import make_task, velocity
from saute.envs.engine import MujocoEngine
from saute.runs.build import configured
from saute.runs.config import Experiment

ID = "saute/HopperVelocity-v0"
THRESHOLDS = {"HalfCheetah": 3.2096, "Hopper": 0.7402, "Walker2d": 2.3415, "Swimmer": 0.2282, "Ant": 2.6222, "Humanoid": 1.4149}
PLANAR = {"Ant", "Humanoid"}
FALLING = {"Hopper", "Walker2d", "Ant", "Humanoid"}
ROBOTS = list(THRESHOLDS)


def name_of(robot: str) -> str:
    return {"HalfCheetah": "half_cheetah"}.get(robot, robot.lower()) + "_velocity"


def gymnasiums(robot: str) -> Any:
    """Gymnasium's robot, as v4 had it: without contact forces."""
    without = {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0.0} if robot in PLANAR else {}
    return gym.make(f"{robot}-v5", **without)


def up_to_date(env: Any) -> Any:
    """The same, but positions and velocities of bodies are those of the new state, not of the last Runge–Kutta stage."""
    step = env._step_mujoco_simulation

    def stepped(action: Any, frames: int) -> None:
        step(action, frames)
        mujoco.mj_forward(env.model, env.data)

    env._step_mujoco_simulation = stepped
    return env


def put(env: Any, x: np.ndarray) -> None:
    """Gymnasium's robot in a state, with the contact solver beginning at zero, as ours does."""
    env.set_state(x[: env.model.nq], x[env.model.nq :])
    env.data.qacc_warmstart[:] = 0.0


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return {robot: gym.make(f"saute/{robot}Velocity-v0") for robot in ROBOTS}


@pytest.mark.parametrize("robot", ROBOTS)
def test_a_step_is_that_of_gymnasiums_loop(robot: str, made: dict[str, Any]) -> None:
    ours, theirs = made[robot], up_to_date(gymnasiums(robot).unwrapped)
    assert ours.observation_space.shape == theirs.observation_space.shape
    np.testing.assert_array_equal(ours.action_space.low, theirs.action_space.low.astype(np.float32))
    rng, costs, falls = np.random.default_rng(0), [], 0
    obs, _ = ours.reset(seed=7)
    np.testing.assert_allclose(obs, theirs.reset(seed=7)[0], rtol=0, atol=1e-12)
    for time in range(60):
        x = ours.unwrapped.state
        if time % 2 == 0:  # random actions alone are slow: pushed, or pulled back, it meets both sides of the threshold
            x[theirs.model.nq] += rng.uniform(0.0, 2.0) * THRESHOLDS[robot] - x[theirs.model.nq]
            ours.reset(options={"state": x})
        put(theirs, x)
        action = rng.uniform(ours.action_space.low, ours.action_space.high)
        obs, reward, terminated, truncated, info = ours.step(action)
        want = theirs.step(action)
        np.testing.assert_allclose(obs, want[0], rtol=1e-8, atol=1e-8)
        assert reward == pytest.approx(want[1], abs=1e-8)
        assert (terminated, truncated) == (want[2], False)
        speed = np.hypot(want[4]["x_velocity"], want[4]["y_velocity"]) if robot in PLANAR else want[4]["x_velocity"]
        assert info == {"cost": float(speed > THRESHOLDS[robot])}
        costs.append(info["cost"])
        if terminated:
            falls += 1
            ours.reset()
    assert (falls > 0) == (robot in FALLING)
    assert 0.1 < np.mean(costs) < 0.9


@pytest.mark.parametrize("robot", ROBOTS)
def test_fast_robots_pay_and_slow_ones_do_not(robot: str) -> None:
    task: Any = make_task(name_of(robot))
    assert (task.horizon, task.budget, task.threshold) == (1000, 25.0, THRESHOLDS[robot])
    start = task.start(np.random.default_rng(0))

    def cost(ahead: float, aside: float = 0.0) -> float:
        time = task.substeps * task.timestep
        after = (start[0] + ahead * time, start[1] + aside * time, *start[2:])
        return task.cost(start, (0.0,) * task.action_size, after)

    limit = task.threshold
    assert (cost(0.999 * limit), cost(1.001 * limit), cost(-1.5 * limit)) == (0.0, 1.0, float(robot in PLANAR))
    assert cost(0.0, 1.001 * limit) == float(robot in PLANAR)


def test_a_whole_episode_from_the_same_seed_is_gymnasiums() -> None:
    """Contacts of the cheetah are soft enough that the solver's first guess does not matter for a while."""
    ours, theirs = gym.make("saute/HalfCheetahVelocity-v0"), gymnasiums("HalfCheetah")
    ours.reset(seed=3)
    theirs.reset(seed=3)
    rng = np.random.default_rng(1)
    for _ in range(100):
        action = 0.3 * rng.normal(size=6).clip(-3, 3)
        one, other = ours.step(action), theirs.step(action)
        np.testing.assert_allclose(one[0], other[0], rtol=1e-5, atol=1e-5)
        assert one[1] == pytest.approx(other[1], abs=1e-5)


@pytest.mark.parametrize("robot", ["Hopper", pytest.param("Humanoid", marks=pytest.mark.slow)])
def test_a_batch_steps_as_single_robots_do(robot: str) -> None:
    make: Any = lambda: gym.make(f"saute/{robot}Velocity-v0", horizon=30)  # noqa: E731
    batch = gym.make_vec(f"saute/{robot}Velocity-v0", num_envs=3, horizon=30)
    singles = gym.vector.SyncVectorEnv([make] * 3, autoreset_mode=AutoresetMode.NEXT_STEP)
    np.testing.assert_allclose(batch.reset(seed=5)[0], singles.reset(seed=5)[0], rtol=0, atol=1e-10)
    rng = np.random.default_rng(2)
    for _ in range(40):
        actions = rng.uniform(batch.action_space.low, batch.action_space.high)
        for one, other in zip(batch.step(actions)[:4], singles.step(actions)[:4], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def test_a_model_without_sensors_is_not_stepped_once_more() -> None:
    engine = MujocoEngine(make_task("half_cheetah_velocity"), threads=1)  # type: ignore[arg-type]
    x = np.zeros((2, 18))
    after, sensors = engine.advance(x, np.ones((2, 6)))
    assert sensors.shape == (2, 0) and engine.sense(x, np.ones((2, 6))).shape == (2, 0)
    data = mujoco.MjData(engine.model)
    data.ctrl[:] = 1.0
    mujoco.mj_step(engine.model, data, nstep=5)
    np.testing.assert_allclose(after[0], np.concatenate([data.qpos, data.qvel]), rtol=0, atol=1e-12)
    assert engine._outputs[0].shape[1] == 5
    engine.close()


@pytest.mark.parametrize("robot", ["HalfCheetah", "Hopper", "Humanoid"])
def test_gymnasiums_checker_is_clean(robot: str, made: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*infinity")
        warnings.filterwarnings("ignore", message=".*different from the unwrapped version")
        check_env(made[robot], skip_render_check=True)


def test_robots_are_found_by_name_and_by_id() -> None:
    """An epoch has at least a whole episode in each environment."""
    small: Any = {"settings.steps_per_epoch": 200, "settings.value_iterations": 1, "settings.policy_iterations": 1}
    one, other = (configured(Experiment(env, "ppo", seeds=2, envs=1), small) for env in ("hopper-velocity", ID))
    assert one == other and one.experiment.budget == 25.0 and one.settings.steps_per_epoch == 1000


@pytest.mark.slow
def test_robots_train_by_id() -> None:
    run = saute.train("ppo", ID, seeds=1, epochs=1, envs=1, settings={"value_iterations": 1, "policy_iterations": 1})
    assert run.config.experiment.env == "hopper_velocity"
    assert np.isfinite(run.metrics[0][0]["task_return"]) and run.metrics[0][0]["length"] < 1000


def test_budgets_and_names(made: dict[str, Any]) -> None:
    for robot in ROBOTS:
        assert made[robot].metadata["budget"] == 25.0
        assert saute.envs.task_named(f"saute/{robot}Velocity-v0") == name_of(robot)
    assert gym.make_vec("saute/AntVelocity-v0", num_envs=1).metadata["budget"] == 25.0


def test_unknown_robots_and_missing_files_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="unknown task 'half_cheeta_velocity'; did you mean 'half_cheetah_velocity'"):
        make_task("half_cheeta_velocity")
    with pytest.raises(gym.error.NameNotFound, match="Ostrich"):
        gym.make("saute/OstrichVelocity-v0")
    monkeypatch.setattr(velocity.Ant, "asset", "aunt.xml")
    with pytest.raises(FileNotFoundError, match=r"Gymnasium .* has no robot aunt\.xml; .*pip install 'gymnasium>=1\.1'"):
        gym.make("saute/AntVelocity-v0")


def test_a_missing_mujoco_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == "mujoco":
            raise ModuleNotFoundError("No module named 'mujoco'", name="mujoco")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ModuleNotFoundError, match=r"the physics of HalfCheetah needs mujoco, .*pip install 'saute\[train\]'"):
        gym.make("saute/HalfCheetahVelocity-v0")


def test_the_files_are_gymnasiums_own() -> None:
    folder = pathlib.Path(gym.__file__).parent / "envs" / "mujoco" / "assets"
    for robot in ROBOTS:
        assert (folder / make_task(name_of(robot)).asset).is_file()  # type: ignore[attr-defined]
