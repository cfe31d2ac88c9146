"""The Car and the engine: real MuJoCo, in batches, as a pure function of state and action."""

from __future__ import annotations

import copy
import math
import pickle

import jax
import mujoco
import numpy as np
import pytest
from test_goal import GOAL, HAZARD, VERIFY, check_drive, float64, lidar_by_hand, starts

from saute.envs.car_goal import CarGoal
from saute.envs.engine import MujocoEngine
from saute.envs.point_goal import PointGoal


@pytest.fixture(scope="module")
def engine():
    engine = MujocoEngine(CarGoal(), threads=2)
    yield engine
    engine.close()


def begin(count):
    return starts(CarGoal())[:count].astype(float)


@pytest.fixture(scope="module")
def driven(engine):
    """States reached by hard random driving, and actions to go on with."""
    rng = np.random.default_rng(0)
    x = begin(64)
    for _ in range(12):
        x, _ = engine.advance(x, np.sign(rng.normal(size=(64, 2))))
    return x, rng.uniform(-1.2, 1.2, (64, 2))


def heading(x):
    """Of the car's front, which is its −y."""
    w, i, j, k = x[:, 3:7].T
    return np.arctan2(2 * (i * i + k * k) - 1, 2 * (w * k - i * j))


def test_the_model_is_the_car(engine):
    model = engine.model
    assert (model.nq, model.nv, model.nu, model.nsensordata) == (13, 11, 2, 16)
    assert [model.joint(k).name for k in range(model.njnt)] == ["robot", "left", "right", "rear"]
    assert model.body_mass.sum() == pytest.approx(0.03044, abs=5e-6)
    assert (model.dof_damping == [0] * 6 + [0.001] * 5).all()
    assert model.opt.timestep == 0.004 and (model.geom_condim == 6).all()
    data = mujoco.MjData(model)
    data.qpos[:] = begin(1)[0, :13]
    data.qpos[2] -= 1e-6
    mujoco.mj_forward(model, data)
    touching = {model.geom(contact.geom2).name for contact in data.contact}
    assert touching == {"left", "right", "rear"} and max(contact.dist for contact in data.contact) < 0


def test_forwards_is_minus_y_at_the_known_top_speed(engine):
    x = start = begin(16)
    speeds = []
    for _ in range(120):
        x, sensors = engine.advance(x, np.ones((16, 2)))
        speeds.append(sensors[:, 13:16])
    ahead = np.stack([np.cos(heading(start)), np.sin(heading(start))], axis=1)
    assert (np.sum((x - start)[:, :2] * ahead, axis=1) > 3).all()
    late = np.asarray(speeds[60:])
    print(f"top speed {-late[..., 1].mean():.3f} m/s")
    assert -late[..., 1].mean() == pytest.approx(0.78, abs=0.03)
    assert np.abs(late[..., 0].mean()) < 0.02


def test_plus_minus_turns_counter_clockwise(engine):
    x = begin(16)
    for _ in range(20):
        x, sensors = engine.advance(x, np.tile([1.0, -1.0], (16, 1)))
    assert (sensors[:, 12] > 0.5).all()


def observed_by_mujoco(model, data):
    place, frame = data.body("robot").xpos, data.body("robot").xmat.reshape(3, 3)
    sensors = data.sensordata
    ball = np.zeros(9)
    mujoco.mju_quat2Mat(ball, sensors[6:10])
    goal_lidar, hazard_lidar = (lidar_by_hand(target, place, frame) for target in (GOAL, HAZARD))
    parts = [sensors[:6], ball, goal_lidar, sensors[10:13], hazard_lidar, sensors[16:19], sensors[13:16]]
    return np.concatenate(parts)


def test_a_transition_equals_plain_mujoco(engine, driven):
    x, action = driven
    task = CarGoal()
    x_next, sensors = engine.advance(x, action)

    def judge(x, action, x_next, sensors):
        reward, cost = task.reward(x, action, x_next), task.cost(x, action, x_next)
        return task.observe(x_next, sensors), reward, cost, task.terminated(x_next)

    with float64():
        judged = jax.jit(jax.vmap(judge))(x, action, x_next, sensors)
        observation, reward, cost, terminated = map(np.asarray, judged)
    assert observation.shape[1] == task.observation_size == 56
    model = mujoco.MjModel.from_xml_string(task.mjcf().replace("</sensor>", "<magnetometer site='robot'/></sensor>"))
    data = mujoco.MjData(model)
    for k in range(len(x)):
        mujoco.mj_resetData(model, data)
        data.qpos[:], data.qvel[:], data.ctrl[:] = x[k, :13], x[k, 13:], action[k]
        mujoco.mj_step(model, data, nstep=10)
        mujoco.mj_forward(model, data)
        np.testing.assert_allclose(x_next[k], np.concatenate([data.qpos, data.qvel]), rtol=0, atol=1e-12)
        np.testing.assert_allclose(observation[k], observed_by_mujoco(model, data), rtol=0, atol=1e-8)
        before, after = math.dist(x[k, :2], GOAL), math.dist(data.body("robot").xpos[:2], GOAL)
        assert reward[k] == pytest.approx(before - after + (after <= 0.3), abs=1e-10)
        assert cost[k] == (math.dist(data.body("robot").xpos[:2], HAZARD) <= 0.7)
        assert terminated[k] == (after <= 0.3)


def test_sensors_belong_to_the_state_that_comes_with_them(engine, driven):
    x, action = driven
    x_next, sensors = engine.advance(x, action)
    data = mujoco.MjData(engine.model)
    for k in range(len(x)):
        mujoco.mj_resetData(engine.model, data)
        data.qpos[:], data.qvel[:], data.ctrl[:] = x_next[k, :13], x_next[k, 13:], action[k]
        mujoco.mj_forward(engine.model, data)
        # The contact solver begins elsewhere than inside the rollout, and stops within its tolerance.
        np.testing.assert_allclose(sensors[k], data.sensordata, rtol=0, atol=1e-4)
        assert (engine.sense(x_next[k : k + 1], action[k : k + 1])[0] == data.sensordata).all()


def test_a_result_depends_on_its_own_state_and_action_only(engine, driven):
    x, action = driven
    expected = engine.advance(x, action)
    first = engine.sense(x, action)
    order = np.random.default_rng(1).permutation(len(x))
    for got, want in zip(engine.advance(x[order], action[order]), expected, strict=True):
        assert (got == want[order]).all()
    for threads in 1, 3:
        other = MujocoEngine(CarGoal(), threads=threads)
        other.advance(begin(7), np.ones((7, 2)))
        for got, want in zip(other.advance(x, action), expected, strict=True):
            assert (got == want).all()
        for k in range(0, len(x), 9):
            alone = other.advance(x[k : k + 1], action[k : k + 1])
            assert all((got[0] == want[k]).all() for got, want in zip(alone, expected, strict=True))
        assert (other.sense(x, action) == first).all()
        other.close()
    assert all((got == want).all() for got, want in zip(engine.advance(x, action), expected, strict=True))


def test_results_are_not_overwritten_and_actions_are_clipped(engine, driven):
    x, action = driven
    kept = engine.advance(x, action)
    copies = [part.copy() for part in kept]
    engine.advance(x, -action)
    assert all((part == saved).all() for part, saved in zip(kept, copies, strict=True))
    clipped = engine.advance(x, np.clip(action, -1, 1))
    assert all((got == want).all() for got, want in zip(clipped, kept, strict=True))


def test_an_empty_batch_is_a_batch(engine):
    nothing, no_action = np.empty((0, 24)), np.empty((0, 2))
    x_next, sensors = engine.advance(nothing, no_action)
    assert x_next.shape == (0, 24) and sensors.shape == engine.sense(nothing, no_action).shape == (0, 16)


def test_the_engine_can_be_copied_pickled_closed_and_used_again(driven):
    x, action = driven
    engine = MujocoEngine(CarGoal(goal_radius=0.2), threads=1)
    expected = engine.advance(x, action)
    for other in copy.deepcopy(engine), pickle.loads(pickle.dumps(engine)):
        assert other.task == engine.task and other.threads == 1
        assert all((got == want).all() for got, want in zip(other.advance(x, action), expected, strict=True))
    engine.close()
    engine.close()
    assert all((got == want).all() for got, want in zip(engine.advance(x, action), expected, strict=True))


def test_a_model_with_more_state_is_refused():
    class Filtered(PointGoal):
        def mjcf(self):
            return super().mjcf().replace("<velocity", "<intvelocity actrange='-1 1' ", 1)

    with pytest.raises(ValueError, match="activations"):
        MujocoEngine(Filtered())


def test_a_scripted_drive_gives_the_known_returns_and_costs(engine):
    """Turn towards the goal, and drive once it is ahead: return 2.94 ± 0.48; cost 16.2, q90 49, q99 51."""
    task, count = CarGoal(), 600 if VERIFY else 120
    x, running = begin(count), np.ones(count, bool)
    judge = jax.jit(jax.vmap(lambda x, a, y: (task.reward(x, a, y), task.cost(x, a, y), task.terminated(y))))
    returns, costs, tilt = np.zeros(count), np.zeros(count), 0.0
    for _ in range(task.horizon):
        error = np.arctan2(1.1 - x[:, 1], 1.1 - x[:, 0]) - heading(x)
        error = (error + np.pi) % (2 * np.pi) - np.pi
        turn = error - 0.2 * x[:, 18]
        ahead = np.abs(error) < 0.3
        action = 0.02 * np.stack([ahead + turn, ahead - turn], axis=1)
        x_next = x.copy()
        x_next[running], _ = engine.advance(x[running], action[running])
        reward, cost, terminated = map(np.asarray, judge(x, action, x_next))
        returns += running * reward
        costs += running * cost
        x, running = x_next, running & ~terminated
        tilt = max(tilt, np.degrees(np.arccos(1 - 2 * (x[:, 4] ** 2 + x[:, 5] ** 2))).max())
    check_drive("Car", returns, costs, episodes=600, known=(2.94, 0.48, 16.2, 49, 51))
    print(f"tilt up to {tilt:.1f}°")
    assert not running.any() and tilt < 3.7
