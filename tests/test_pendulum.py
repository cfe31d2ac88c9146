"""The pendulum's numbers against real MuJoCo (a rod on a hinge) and against the definition in plain Python."""

from __future__ import annotations

import math
import os

import gymnasium as gym
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import saute

N = 20_000 if os.environ.get("SAUTE_VERIFY") else 2_000
ROD = """
<mujoco>
  <option timestep=".05" gravity="0 0 -10" integrator="Euler"/>
  <worldbody>
    <body>
      <joint name="pivot" type="hinge" axis="0 1 0"/>
      <inertial pos="0 0 .5" mass="1" diaginertia=".08333333333333333 .08333333333333333 1e-9"/>
    </body>
  </worldbody>
  <actuator><motor joint="pivot" gear="1"/></actuator>
</mujoco>"""


def random_states(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    x = np.stack([rng.uniform(-4 * np.pi, 4 * np.pi, n), rng.uniform(-8, 8, n)], axis=1)
    x[: n // 4, 0] = np.deg2rad(rng.choice([-25.0, 75.0, 25.0, 0.0, 180.0, -180.0], n // 4)) + rng.normal(0, 1e-3, n // 4)
    x[n // 4 : n // 2, 1] = rng.choice([-8.0, 8.0], n // 4)
    return x, rng.uniform(-1.5, 1.5, (n, 1))


def step(x: np.ndarray, action: np.ndarray, **task) -> tuple[np.ndarray, ...]:
    env = saute.envs.pendulum(**task)

    def one(x, action):
        state, _ = env.start_from(x)
        result = env.step(state, action, None)
        return result.state.physical, result.obs, result.reward, result.cost

    with jax.enable_x64(x.dtype == np.float64):
        return tuple(map(np.asarray, jax.jit(jax.vmap(one))(x, action)))


def test_dynamics_are_mujocos_and_reward_and_cost_the_definitions() -> None:
    model = mujoco.MjModel.from_xml_string(ROD)
    data = mujoco.MjData(model)
    x, action = random_states(N, np.random.default_rng(0))
    x_next, obs, reward, cost = step(x, action)
    for i in range(N):
        torque = min(2.0, max(-2.0, 2.0 * action[i, 0]))
        data.qpos[0], data.qvel[0], data.ctrl[0] = *x[i], torque
        mujoco.mj_step(model, data)
        speed = min(8.0, max(-8.0, data.qvel[0]))
        assert abs(x_next[i, 0] - data.qpos[0]) < 1e-8 and abs(x_next[i, 1] - speed) < 1e-8
        assert np.abs(obs[i] - [math.cos(data.qpos[0]), math.sin(data.qpos[0]), speed]).max() < 1e-8
        angle = math.atan2(math.sin(x[i, 0]), math.cos(x[i, 0]))
        assert abs(reward[i] - (17 - angle**2 - 0.1 * x[i, 1] ** 2 - 0.001 * torque**2) / 17) < 1e-8
        degrees = math.degrees(angle)
        assert abs(cost[i] - ((50 - abs(degrees - 25)) / 50 if -25 <= degrees <= 75 else 0.0)) < 1e-8


def test_float32_agrees_to_1e_4() -> None:
    x, action = random_states(N, np.random.default_rng(1))
    x[:, 0] = np.remainder(x[:, 0] + np.pi, 2 * np.pi) - np.pi
    exact = step(x, action)
    single = step(x.astype(np.float32), action.astype(np.float32))
    for a, b in zip(exact[1:], single[1:], strict=True):
        assert b.dtype == np.float32 and np.abs(a - b).max() < 1e-4


def test_paper_literal_reward_scale_touches_zero() -> None:
    worst = np.array([[np.pi, 8.0]])
    action = np.ones((1, 1))
    assert step(worst, action)[2][0] > 0
    literal = step(worst, action, reward_scale=math.pi**2 + 6.404)[2][0]
    assert literal == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(("mode", "centre", "width", "speed"), [("train", 0.0, np.pi, 1.0), ("test", np.pi, 0.2, 0.1)])
def test_starts(mode: str, centre: float, width: float, speed: float) -> None:
    keys = jax.random.split(jax.random.key(0), 50_000)
    state, obs = jax.jit(jax.vmap(saute.envs.pendulum(mode).reset))(keys)
    x = np.asarray(state.physical)
    for column, middle, extent in ((x[:, 0], centre, width), (x[:, 1], 0.0, speed)):
        expected = middle + extent * np.array([-1, -0.5, 0, 0.5, 1])
        np.testing.assert_allclose(np.quantile(column, [0, 0.25, 0.5, 0.75, 1]), expected, atol=0.03 * extent)
        assert np.std(column) == pytest.approx(extent / math.sqrt(3), rel=0.02)
    np.testing.assert_allclose(obs, np.stack([np.cos(x[:, 0]), np.sin(x[:, 0]), x[:, 1]], 1), atol=1e-6)


def test_upright_costs_a_half_per_step_and_a_static_hold_left_of_it_nearly_nothing() -> None:
    env = gym.make("saute/SafePendulum-v0")
    env.reset(options={"state": [0.0, 0.0]})
    steps = [env.step([0.0]) for _ in range(200)]
    assert sum(s[4]["cost"] for s in steps) == pytest.approx(100.0)
    assert steps[-1][3] and not steps[-2][3] and not any(s[2] for s in steps)
    angle = -math.asin(0.4)
    env.reset(options={"state": [angle, 0.0]})
    _, _, _, _, info = env.step([1.0])
    np.testing.assert_allclose(env.unwrapped.state, [angle, 0.0], atol=1e-12)
    assert info["cost"] == pytest.approx(0.0284, abs=1e-4)


def test_jit_does_not_retrace() -> None:
    traces = 0
    env = saute.envs.pendulum()

    @jax.jit
    def run(state, action):
        nonlocal traces
        traces += 1
        return env.step(state, action, None).state

    state, _ = env.reset(jax.random.key(0))
    for _ in range(3):
        state = run(state, jnp.zeros(1))
    assert traces == 1
