"""The double pendulum written out in JAX against MuJoCo itself, transition by transition."""

import os
from pathlib import Path

import gymnasium
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from scipy import linalg, stats

from saute.envs.rigid import IMPEDANCE_WIDTH, LEAST_IMPEDANCE, MOST_IMPEDANCE, TIME_CONSTANT, sin_cos
from saute.envs.safe_double_pendulum import (
    CART,
    DAMPING,
    DRIFT,
    GEAR,
    GRAVITY,
    LENGTH,
    MARGIN,
    POLE,
    RAIL,
    RAIL_WEIGHT,
    TIMESTEP,
    DoublePendulum,
)
from saute.envs.task import TaskEnv

TRANSITIONS = 12_000 if os.environ.get("SAUTE_VERIFY") == "1" else 2_000
XML = Path(gymnasium.__file__).parent / "envs/mujoco/assets/inverted_double_pendulum.xml"


def transitions(n, seed=0):
    """States and actions: a third anywhere, a third at the rail's ends, the rest at edges of cost, fall and margin."""
    rng = np.random.default_rng(seed)
    x = np.concatenate([rng.uniform(-1, 1, (n, 3)), rng.normal(size=(n, 3)) * [2, 5, 5]], axis=1)
    actions = rng.uniform(-1.3, 1.3, (n, 1))
    wall, edge, margin, height = np.array_split(np.arange(n // 3, n), [n // 3, n // 2, 7 * n // 12])
    x[wall, 0] = rng.choice([-1, 1], len(wall)) * rng.uniform(0.985, 1.05, len(wall))
    x[edge, 1] = np.deg2rad(rng.choice([-25, 25, 75], len(edge))) + rng.choice([-1e-3, -1e-9, 0, 1e-9], len(edge))
    x[margin, 0] = rng.choice([-1, 1], len(margin)) * rng.choice([0.99, 0.9905, 0.991, 1.0], len(margin))
    calm = rng.choice([TIME_CONSTANT, 1], (len(margin), 1))
    x[margin, 1:], actions[margin] = calm * x[margin, 1:], calm * actions[margin]
    x[height, 1] = rng.uniform(-0.8, 0.8, len(height))
    x[height, 2] = np.arccos(1 / 0.6 - np.cos(x[height, 1])) * rng.choice([-1, 1], len(height)) - x[height, 1]
    x[height, 3:] *= 0.1
    return x, actions


def simulate(states, actions):
    """What plain MuJoCo makes of it: next states, observations, rewards, costs, heights of the tip."""
    model = mujoco.MjModel.from_xml_path(str(XML))
    model.opt.tolerance = 0
    data = mujoco.MjData(model)
    rows = []
    for x, action in zip(states, actions, strict=True):
        mujoco.mj_resetData(model, data)
        data.qpos[:], data.qvel[:], data.ctrl[:] = x[:3], x[3:], action
        mujoco.mj_step(model, data, 5)
        mujoco.mj_forward(model, data)
        q, v, force = data.qpos.copy(), data.qvel.copy(), data.qfrc_constraint.copy()
        assert data.ncon == 0 and data.nefc <= 1
        obs = [q[:1], np.sin(q[1:]), np.cos(q[1:]), np.clip(v, -10, 10), np.clip(force, -10, 10)]
        across, _, height = data.site("tip").xpos
        reward = (10 - (0.01 * across**2 + (height - 2) ** 2) - (1e-3 * v[1] ** 2 + 5e-3 * v[2] ** 2)) / 10
        angle = np.rad2deg(np.arctan2(np.sin(x[1]), np.cos(x[1])))
        cost = (50 - abs(angle - 25)) / 50 if -25 <= angle <= 75 else 0.0
        rows.append((np.r_[q, v], np.concatenate(obs), reward, cost, height))
    return [np.array(column) for column in zip(*rows, strict=True)]


def play(states, actions):
    env = TaskEnv(DoublePendulum())
    step = jax.jit(jax.vmap(lambda x, action: env.step(env.start_from(x)[0], action)))(states, actions)
    return jax.tree.map(np.asarray, step)


def test_every_transition_is_that_of_mujoco():
    states, actions = transitions(TRANSITIONS)
    x_next, obs, reward, cost, height = simulate(states, actions)
    with jax.enable_x64(True):
        step = play(states, actions)
    np.testing.assert_allclose(step.state.physical, x_next, rtol=0, atol=1e-8)
    np.testing.assert_allclose(step.obs, obs, rtol=0, atol=1e-8)
    np.testing.assert_allclose(step.reward, reward, rtol=0, atol=1e-8)
    np.testing.assert_allclose(step.cost, cost, rtol=0, atol=1e-8)
    clear = np.abs(height - 1) > 1e-8
    np.testing.assert_array_equal(step.terminated[clear], (height <= 1)[clear])
    force = np.abs(obs[:, 8])
    assert (force > 0).mean() > 0.1 and ((force > 0) & (force < 10)).mean() > 0.005
    assert 0.2 < step.terminated.mean() < 0.9 and (cost > 0).mean() > 0.2


def test_single_precision_stays_close():
    """All but the rail's force agrees to 1e-4, and where that force shows unclipped it agrees to 0.2 % of its ±10 N.

    It grows by 3e4 N per metre and 1e3 N per m/s, so the rounding of a position near 1 (a few 6e-8) and of a speed (a
    few 1e-6) already makes up to 1e-2 N; and within 1e-6 of the margin, rounding decides whether there is a force.
    """
    states, actions = (rows.astype(np.float32) for rows in transitions(TRANSITIONS))
    x_next, obs, reward, cost, height = simulate(states, actions)
    step = play(states, actions)
    assert {leaf.dtype for leaf in (step.obs, step.reward, step.cost)} == {jnp.dtype(jnp.float32)}
    np.testing.assert_allclose(step.state.physical, x_next, rtol=0, atol=1e-4)
    np.testing.assert_allclose(np.delete(step.obs, 8, axis=1), np.delete(obs, 8, axis=1), rtol=0, atol=1e-4)
    np.testing.assert_allclose(step.reward, reward, rtol=0, atol=1e-4)
    np.testing.assert_allclose(step.cost, cost, rtol=0, atol=1e-4)
    decided = np.abs(np.abs(x_next[:, 0]) - 0.99) > 1e-6
    np.testing.assert_allclose(step.obs[decided, 8], obs[decided, 8], rtol=0, atol=0.02)
    clear = np.abs(height - 1) > 1e-5
    np.testing.assert_array_equal(step.terminated[clear], (height <= 1)[clear])


def test_model_senses_the_same():
    task = DoublePendulum()
    model = task.model()
    model.opt.tolerance = 0
    data = mujoco.MjData(model)
    states, actions = transitions(600)
    with jax.enable_x64(True):
        sensed = np.asarray(jax.jit(jax.vmap(task.sense))(states, actions))
    for x, action, expected in zip(states, actions, sensed, strict=True):
        data.qpos[:], data.qvel[:], data.ctrl[:] = x[:3], x[3:], action
        mujoco.mj_forward(model, data)
        np.testing.assert_allclose(data.sensordata, expected, rtol=1e-10, atol=1e-8)
        np.testing.assert_allclose(data.qfrc_constraint, [-np.sign(x[0]) * expected[0], 0, 0], rtol=1e-10, atol=1e-8)


def test_numbers_are_those_of_the_compiled_model():
    model = DoublePendulum().model()
    cart, pole, upper = (model.body(name) for name in ("cart", "pole", "pole2"))
    np.testing.assert_allclose(
        [cart.mass[0], pole.mass[0], upper.mass[0], pole.inertia[0], upper.inertia[0]],
        [CART.mass, *[POLE.mass] * 2, *[POLE.inertia] * 2],
        rtol=1e-12,
    )
    np.testing.assert_allclose([upper.pos[2], model.site("tip").pos[2], 2 * pole.ipos[2]], LENGTH)
    np.testing.assert_allclose(model.dof_invweight0[0], RAIL_WEIGHT, rtol=1e-12)
    np.testing.assert_array_equal(model.dof_damping, DAMPING)
    np.testing.assert_array_equal(model.dof_armature, 0)
    np.testing.assert_array_equal(model.opt.gravity, [DRIFT, 0, -GRAVITY])
    np.testing.assert_array_equal(model.jnt_range[0], [-RAIL, RAIL])
    np.testing.assert_array_equal(model.jnt_limited, [1, 0, 0])
    np.testing.assert_array_equal(model.jnt_solref[0], [TIME_CONSTANT, 1])
    np.testing.assert_array_equal(model.jnt_solimp[0], [LEAST_IMPEDANCE, MOST_IMPEDANCE, IMPEDANCE_WIDTH, 0.5, 2])
    assert model.jnt_margin[0] == MARGIN and model.actuator_gear[0, 0] == GEAR
    assert model.opt.timestep == TIMESTEP and model.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-15), (np.float32, 4e-7)])
def test_sine_and_cosine(dtype, tolerance):
    angles = np.linspace(-20, 20, 100_001, dtype=dtype)
    with jax.enable_x64(dtype == np.float64):
        values = jax.jit(lambda x: jax.jvp(sin_cos, (x,), (jnp.ones_like(x),)))(angles)
        (sin, cos), (slope, _) = jax.tree.map(np.asarray, values)
    exact = angles.astype(float)
    np.testing.assert_allclose(sin, np.sin(exact), rtol=0, atol=tolerance)
    np.testing.assert_allclose(cos, np.cos(exact), rtol=0, atol=tolerance)
    np.testing.assert_allclose(slope, np.cos(exact), rtol=0, atol=4 * tolerance)
    assert sin.dtype == cos.dtype == dtype


def test_starts():
    keys = jax.random.split(jax.random.key(0), 5_000)
    x = np.asarray(jax.jit(jax.vmap(DoublePendulum().start))(keys))
    np.testing.assert_allclose(DoublePendulum(mode="test").start(keys[0]), x[0], rtol=1e-6)
    for i in range(3):
        assert stats.kstest(x[:, i], stats.uniform(-0.1, 0.2).cdf).pvalue > 1e-3
        assert stats.kstest(x[:, 3 + i], stats.norm(0, 0.1).cdf).pvalue > 1e-3
    assert np.abs(np.corrcoef(x.T) - np.eye(6)).max() < 0.06


def test_tip_at_height_one_has_fallen():
    task = DoublePendulum()
    tilt = np.arccos(1 / 1.2)
    with jax.enable_x64(True):
        falls = [bool(task.terminated(jnp.array([0, tilt + ε, 0, 0, 0, 0]))) for ε in (-1e-9, 1e-9)]
        level = DoublePendulum(least_height=1.2).terminated(jnp.zeros(6))
    assert falls == [False, True] and level


def regulator(ε=1e-5):
    """Gain K of the action −K x that keeps the poles upright at least quadratic cost, from differences in MuJoCo."""
    nudges = ε * np.concatenate([np.eye(7), -np.eye(7)])
    ahead, behind = np.split(simulate(nudges[:, :6], nudges[:, 6:])[0], 2)
    A, B = np.split((ahead - behind).T / (2 * ε), [6], axis=1)
    P = linalg.solve_discrete_are(A, B, np.eye(6), np.eye(1))
    return np.linalg.solve(np.eye(1) + B.T @ P @ B, B.T @ P @ A).astype(np.float32)


def test_balancing_earns_and_costs_what_it_must():
    """Upright poles: 200 steps of .936 and of about .5, then a time-out."""
    env, gain = TaskEnv(DoublePendulum()), regulator()

    def step(state, _):
        step = env.step(state, -gain @ state.physical)
        return step.state, (step.reward, step.cost, step.terminated, step.truncated)

    states = jax.jit(jax.vmap(lambda key: env.reset(key)[0]))(jax.random.split(jax.random.key(0), 200))
    episodes = jax.jit(jax.vmap(lambda state: jax.lax.scan(step, state, length=200)[1]))(states)
    reward, cost, terminated, truncated = map(np.asarray, episodes)
    assert not terminated.any() and truncated[:, -1].all() and not truncated[:, :-1].any()
    assert abs(reward.sum(1).mean() - 187.2) < 0.2
    assert abs(cost.sum(1).mean() - 99.8) < 0.5


def test_precision_follows_the_state():
    task = DoublePendulum()
    with jax.enable_x64(True):
        x, action = jnp.full(6, 0.1, jnp.float32), jnp.zeros(1, jnp.float32)
        sensors = jax.eval_shape(task.sense, x, action)
        outputs = [sensors, jax.eval_shape(task.advance, x, action), jax.eval_shape(task.observe, x, sensors)]
        outputs += [jax.eval_shape(task.reward, x, action, x), jax.eval_shape(task.cost, x, action, x)]
    assert {output.dtype for output in outputs} == {jnp.dtype(jnp.float32)}
