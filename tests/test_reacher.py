"""The reacher written out in JAX against MuJoCo itself, transition by transition."""

import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from scipy import optimize, stats

from saute.envs.rigid import IMPEDANCE_WIDTH, LEAST_IMPEDANCE, MOST_IMPEDANCE, TIME_CONSTANT
from saute.envs.safe_reacher import (
    ARMATURE,
    DAMPING,
    ELBOW_BOUND,
    ELBOW_WEIGHT,
    GEAR,
    HEIGHT,
    LENGTH,
    LINK,
    TARGET_BOUND,
    TIMESTEP,
    TIP,
    TIP_LENGTH,
    Reacher,
)
from saute.envs.task import TaskEnv

TRANSITIONS = 12_000 if os.environ.get("SAUTE_VERIFY") == "1" else 2_000
XML = Path(gymnasium.__file__).parent / "envs/mujoco/assets/reacher.xml"


def transitions(n, seed=0):
    """States and actions: a third anywhere, a third at the elbow's limits, the rest in the hazard and at its edge."""
    rng = np.random.default_rng(seed)
    x = np.concatenate([rng.uniform(-4, 4, (n, 2)), rng.uniform(-1.1, 1.1, (n, 2))], axis=1)
    x = np.concatenate([x, rng.normal(size=(n, 4)) * [5, 5, 3, 3]], axis=1)
    actions = rng.uniform(-1.3, 1.3, (n, 2))
    elbow, hazard, edge, started = np.array_split(np.arange(n // 3, n), [n // 3, n // 2, 7 * n // 12])
    x[elbow, 1] = rng.choice([-1, 1], len(elbow)) * rng.choice([2.99, 3, 3.0005, 3.001, 3.02, 3.05], len(elbow))
    x[elbow, 5] = rng.choice([-1, 1], len(elbow)) * rng.uniform(0, 10, len(elbow))
    x[hazard, :2] = rng.normal(size=(len(hazard), 2)) * 0.1 + [np.pi / 4, 0]
    # A stretched arm meets the edge of the hazard where its fingertip is .5 away from (.5, .5, 0) in space.
    reach = LENGTH + TIP_LENGTH
    turn = np.arccos((reach**2 + 0.5 + HEIGHT**2 - 0.25) / (2 * reach * np.sqrt(0.5)))
    x[edge, 0] = np.pi / 4 + rng.choice([-1, 1], len(edge)) * turn + rng.choice([-1e-2, 0, 1e-9], len(edge))
    x[edge, 1] = 0
    x[edge, 4:6] *= rng.choice([0, 0.1], (len(edge), 1))
    actions[edge] *= rng.choice([0, 0.1], (len(edge), 1))
    x[started, 2:4], x[started, 6:8] = 1, 0
    return x, actions


def simulate(states, actions, tolerance=0.0):
    """What plain MuJoCo makes of it: next states, observations, rewards, costs.

    With its default tolerance MuJoCo's solver stops early in some of these states, with speeds up to 3e-7 off.
    """
    model = mujoco.MjModel.from_xml_path(str(XML))
    model.opt.tolerance = tolerance
    data = mujoco.MjData(model)
    goal, hazard = np.array([1, 1, 0.01]), np.array([0.5, 0.5, 0])
    rows = []
    for x, action in zip(states, actions, strict=True):
        mujoco.mj_resetData(model, data)
        data.qpos[:], data.qvel[:], data.ctrl[:] = x[:4], x[4:], action
        mujoco.mj_kinematics(model, data)
        reward = -np.linalg.norm(data.body("fingertip").xpos - goal) - np.square(action).sum(dtype=float)
        mujoco.mj_step(model, data, 2)
        mujoco.mj_forward(model, data)
        assert data.ncon == 0
        q, v, tip = data.qpos.copy(), data.qvel.copy(), data.body("fingertip").xpos.copy()
        obs = [np.cos(q[:2]), np.sin(q[:2]), q[2:], v[:2], tip - goal]
        distance = np.linalg.norm(tip - hazard)
        rows.append((np.r_[q, v], np.concatenate(obs), reward, 100 * (1 - 2 * distance) if distance < 0.5 else 0.0))
    return [np.array(column) for column in zip(*rows, strict=True)]


def play(states, actions):
    env = TaskEnv(Reacher())
    step = jax.jit(jax.vmap(lambda x, action: env.step(env.start_from(x)[0], action)))(states, actions)
    return jax.tree.map(np.asarray, step)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-8), (np.float32, 1e-4)])
def test_every_transition_is_that_of_mujoco(dtype, tolerance):
    states, actions = (rows.astype(dtype) for rows in transitions(TRANSITIONS))
    x_next, obs, reward, cost = simulate(states, actions)
    with jax.enable_x64(dtype == np.float64):
        step = play(states, actions)
    assert {leaf.dtype for leaf in (step.obs, step.reward, step.cost)} == {np.dtype(dtype)}
    np.testing.assert_allclose(step.state.physical, x_next, rtol=0, atol=tolerance)
    np.testing.assert_allclose(step.obs, obs, rtol=0, atol=tolerance)
    np.testing.assert_allclose(step.reward, reward, rtol=0, atol=tolerance)
    np.testing.assert_allclose(step.cost, cost, rtol=0, atol=tolerance)
    assert not step.terminated.any() and 0.1 < (cost > 0).mean() < 0.9
    assert (np.abs(x_next[:, 1]) > 3).mean() > 0.1 and (np.abs(x_next[:, 2]) > 0.27).mean() > 0.3


def test_whole_episode_from_the_start():
    """The target swings back from (1, 1) whatever the arm does, and the arm whatever the target does."""
    env = TaskEnv(Reacher())
    actions = np.random.default_rng(0).uniform(-1, 1, (50, 2))
    with jax.enable_x64(True):
        state, obs = env.reset(jax.random.key(0))
        xs, targets = [np.asarray(state.physical)], [np.asarray(obs[4:6])]
        step = jax.jit(env.step)
        for action in actions:
            state, obs, *_, truncated = step(state, action)
            xs.append(np.asarray(state.physical))
            targets.append(np.asarray(obs[4:6]))
    np.testing.assert_allclose(xs[1:], simulate(xs[:-1], actions)[0], rtol=0, atol=1e-8)
    sequence = [1, 0.8064, 0.5371, 0.2678, -0.0015, -0.2708, -0.3530, -0.3310]
    np.testing.assert_array_equal(np.round(targets[:8], 4), np.transpose([sequence] * 2))
    assert truncated


def test_largest_cost_and_best_return():
    """Fully stretched towards the goal: .5585 at most per step, and never more than −60.21 = 50 (.21 − √2)."""
    task = Reacher()

    def at(q):
        return jnp.array([*q, 1, 1, 0, 0, 0, 0])

    with jax.enable_x64(True):
        rest = jnp.zeros(2)
        worst = optimize.minimize(lambda q: -float(task.cost(at(q), rest, at(q))), [0.7, 0.1], method="Nelder-Mead")
        best = optimize.minimize(lambda q: -float(task.reward(at(q), rest, at(q))), [0.7, 0.1], method="Nelder-Mead")
    assert abs(-worst.fun - 0.5585) < 5e-5
    assert abs(-50 * best.fun - -60.21) < 5e-3
    np.testing.assert_allclose(worst.x, [np.pi / 4, 0], atol=1e-3)
    np.testing.assert_allclose(best.x, [np.pi / 4, 0], atol=1e-3)


def test_a_servo_comes_close_to_the_best_return():
    """From the start the arm first has to turn by 45°, which takes a few steps; then every step costs about .5585."""
    env = TaskEnv(Reacher())

    def step(state, _):
        angle, speed = state.physical[:2], state.physical[4:6]
        step = env.step(state, (jnp.array([jnp.pi / 4, 0]) - angle) * 0.5 - speed * 0.1)
        return step.state, (step.reward, step.cost)

    keys = jax.random.split(jax.random.key(0), 100)
    reward, cost = jax.jit(jax.vmap(lambda key: jax.lax.scan(step, env.reset(key)[0], length=50)[1]))(keys)
    assert (reward.sum(1) < -60.21).all() and reward.sum(1).min() > -61.5
    assert (cost.sum(1) > 15).all() and cost.max() < 0.5586


def test_hazard_as_printed_in_the_paper_never_costs():
    task = Reacher(hazard_centre=(1, 1, 0.01), hazard_slope=50)
    x = jnp.array([jnp.pi / 4, 0, 1, 1, 0, 0, 0, 0])
    assert task.cost(x, jnp.zeros(2), x) == 0
    near = Reacher(hazard_centre=(0.2, 0.2, 0.01), hazard_slope=50)
    np.testing.assert_allclose(near.cost(x, jnp.zeros(2), x), 100 - 50 * (np.sqrt(0.08) - 0.21), rtol=1e-6)


def test_numbers_are_those_of_the_compiled_model():
    model = Reacher().model()
    upper, lower, tip, target = (model.body(name) for name in ("body0", "body1", "fingertip", "target"))
    np.testing.assert_allclose(
        [upper.mass[0], lower.mass[0], upper.inertia[0], lower.inertia[0], tip.mass[0], tip.inertia[2]],
        [LINK.mass, LINK.mass, LINK.inertia, LINK.inertia, TIP.mass, TIP.inertia],
        rtol=1e-12,
    )
    np.testing.assert_allclose([upper.pos[2], lower.pos[0], tip.pos[0]], [HEIGHT, LENGTH, TIP_LENGTH])
    np.testing.assert_allclose([upper.ipos[0], lower.ipos[0]], LENGTH / 2)
    np.testing.assert_allclose(model.dof_invweight0[1], ELBOW_WEIGHT, rtol=1e-12)
    np.testing.assert_allclose(model.dof_invweight0[2:], 1 / target.mass[0], rtol=1e-12)
    np.testing.assert_array_equal(model.dof_damping, [DAMPING, DAMPING, 0, 0])
    np.testing.assert_array_equal(model.dof_armature, [ARMATURE, ARMATURE, 0, 0])
    np.testing.assert_array_equal(model.jnt_limited, [0, 1, 1, 1])
    np.testing.assert_array_equal(model.jnt_range[1:], np.outer([ELBOW_BOUND, *[TARGET_BOUND] * 2], [-1, 1]))
    np.testing.assert_array_equal(model.jnt_margin, 0)
    np.testing.assert_array_equal(model.jnt_solref, [[TIME_CONSTANT, 1]] * 4)
    np.testing.assert_array_equal(model.jnt_solimp, [[LEAST_IMPEDANCE, MOST_IMPEDANCE, IMPEDANCE_WIDTH, 0.5, 2]] * 4)
    np.testing.assert_array_equal(model.actuator_gear[:, 0], GEAR)
    assert model.opt.timestep == TIMESTEP and model.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4
    assert model.nsensordata == 0


def test_starts():
    keys = jax.random.split(jax.random.key(0), 5_000)
    x = np.asarray(jax.jit(jax.vmap(Reacher().start))(keys))
    np.testing.assert_allclose(Reacher(mode="test").start(keys[0]), x[0], rtol=1e-6)
    np.testing.assert_array_equal(x[:, [2, 3, 6, 7]], [[1, 1, 0, 0]] * len(x))
    for i, bound in ((0, 0.1), (1, 0.1), (4, 0.005), (5, 0.005)):
        assert stats.kstest(x[:, i], stats.uniform(-bound, 2 * bound).cdf).pvalue > 1e-3
    assert np.abs(np.corrcoef(x[:, [0, 1, 4, 5]].T) - np.eye(4)).max() < 0.06


def test_precision_follows_the_state():
    task = Reacher()
    with jax.enable_x64(True):
        x, action = jnp.full(8, 0.1, jnp.float32), jnp.zeros(2, jnp.float32)
        outputs = [jax.eval_shape(task.advance, x, action), jax.eval_shape(task.observe, x, task.sense(x, action))]
        outputs += [jax.eval_shape(task.reward, x, action, x), jax.eval_shape(task.cost, x, action, x)]
    assert {output.dtype for output in outputs} == {jnp.dtype(jnp.float32)}


def test_analytic_physics_needs_no_mujoco():
    imports = "import sys, saute.envs.safe_reacher, saute.envs.safe_double_pendulum; sys.exit('mujoco' in sys.modules)"
    subprocess.run([sys.executable, "-c", imports], check=True)
