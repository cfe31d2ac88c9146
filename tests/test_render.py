"""Pictures: geometry against the tasks' own formulas and MuJoCo's, colours, the gauge, and windows without a display."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import math
import os
import pickle
import subprocess
import sys
from typing import Any

import gymnasium as gym
import jax.numpy as jnp
import numpy as np
import pytest

import saute
from saute.core import gauge
from saute.envs import TASKS, make_task, render
from saute.envs.render import FAINT, GOAL, HAZARD, INK, PAPER, ROBOT, ROBOT_DARK, STEEL, draw, picture_of

IDS = {
    "pendulum": "saute/SafePendulum-v0",
    "double_pendulum": "saute/SafeDoublePendulum-v0",
    "reacher": "saute/SafeReacher-v0",
    "point": "saute/StaticPointGoal-v0",
    "car": "saute/StaticCarGoal-v0",
    "half_cheetah_velocity": "saute/HalfCheetahVelocity-v0",
}


def car(x: float, y: float, turn: float) -> np.ndarray:
    """The Car at rest, turned counter-clockwise; at turn 0 it looks along −y."""
    state = np.zeros(24)
    state[:7] = x, y, 0.1, math.cos(turn / 2), 0, 0, math.sin(turn / 2)
    state[9] = 1.0
    return state


def layout(x: float) -> np.ndarray:
    """PointGoal1 with its Point at (x, 0), its goal at (1, −0.5) and hazards along a diagonal."""
    along = np.linspace(-1.2, 1.2, 8)
    return np.array([x, 0.0, 0.7, 0, 0, 0, 1.0, -0.5, *np.stack([along, along], 1).ravel()])


def running(name: str, share: float) -> np.ndarray:
    """A robot at rest in its joints, half a metre from the start, at a share of the speed that costs."""
    task: Any = make_task(name)
    state = np.array([*task.rest, *[0.0] * task.speeds])
    state[0], state[task.positions] = 0.5, share * task.threshold
    return state


STATES: dict[str, list[Any]] = {
    "pendulum": [(0.3, 0.0), (-2.0, 1.0)],
    "double_pendulum": [np.zeros(6), (0.4, 0.3, -0.2, 0, 0, 0)],
    "reacher": [(0.1, 0.2, 1, 1, 0, 0, 0, 0), (2.0, -1.0, 1, 1, 0, 0, 0, 0)],
    "point": [(-1.0, 0.2, 0.3, 0, 0, 0), (0.4, 0.4, 3.0, 0, 0, 0)],
    "car": [car(-1.0, 0.2, 0.3), car(0.4, 0.4, 3.0)],
    "point_goal1": [layout(0.0), layout(0.5)],
} | {name: [running(name, 0.3), running(name, 1.3)] for name in TASKS if name.endswith("_velocity")}


def colour_at(frame: np.ndarray, task: Any, x: float, y: float) -> np.ndarray:
    """The pixel at a place of the plane, in metres."""
    view, size = picture_of(task).view, len(frame)
    column = (x - view.x + view.half) / (2 * view.half) * size
    row = (view.y + view.half - y) / (2 * view.half) * size
    return frame[int(row), int(column)].astype(int)


def close(seen: np.ndarray, wanted: Any, tolerance: int = 8) -> bool:
    return bool(np.abs(seen - np.asarray(wanted)).max() <= tolerance)


def red(seen: np.ndarray) -> float:
    """How far a colour is from the paper towards the hazard's red."""
    return float((PAPER[1] - seen[1]) / (PAPER[1] - HAZARD[1])) if seen[0] > seen[1] else 0.0


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("size", [48, 131, 480])
def test_pictures_are_rgb_repeatable_and_show_the_state(name: str, size: int) -> None:
    task = make_task(name)
    first, other = (draw(task, x, size) for x in STATES[name])
    assert first.shape == (size, size, 3) and first.dtype == np.uint8
    assert not np.array_equal(first, other)
    kept = first.copy()
    first[:] = 0
    np.testing.assert_array_equal(draw(task, STATES[name][0], size), kept)


@pytest.mark.parametrize("θ", [0.0, math.pi / 2, -math.pi / 2, math.pi, 2.0, -0.7, 7.0])
def test_the_bob_is_where_the_angle_says(θ: float) -> None:
    task = make_task("pendulum")
    frame = draw(task, (θ, 0.0))
    assert close(colour_at(frame, task, -math.sin(θ), math.cos(θ)), ROBOT)
    assert close(colour_at(frame, task, -0.5 * math.sin(θ), 0.5 * math.cos(θ)), INK)
    assert not close(colour_at(frame, task, 0.5 * math.sin(θ), -0.5 * math.cos(θ)), INK)


def test_the_pendulum_leans_to_the_same_side_as_gymnasiums() -> None:
    theirs = gym.make("Pendulum-v1", render_mode="rgb_array")
    theirs.reset(seed=0)
    theirs.unwrapped.state = np.array([1.0, 0.0])  # type: ignore[attr-defined]
    theirs.unwrapped.last_u = None  # type: ignore[attr-defined]
    frame = theirs.render().astype(int)
    theirs.close()
    rod = np.argwhere((frame[..., 0] > 150) & (frame[..., 1] < 120))
    assert rod[:, 1].mean() < 240 and rod[:, 0].mean() < 250
    ours = draw(make_task("pendulum"), (1.0, 0.0)).astype(int)
    bob = np.argwhere(np.abs(ours - ROBOT).max(-1) < 8)
    assert bob[:, 1].mean() < 100 and 100 < bob[:, 0].mean() < 240


@pytest.mark.parametrize(("name", "lean"), [("pendulum", -1), ("double_pendulum", 1)])
def test_the_wedge_is_as_red_as_the_angle_costs(name: str, lean: int) -> None:
    task = make_task(name)
    hanging = np.zeros(task.state_size)
    # The cart is moved, so that its wedge has to follow; the poles hang out of the way.
    hanging[:2] = (math.pi, 0.0) if name == "pendulum" else (0.5, math.pi)
    frame = draw(task, hanging)
    centre, radius = (0.0, 0.6) if name == "pendulum" else (0.5, 0.5)

    def redness(degrees: float) -> float:
        θ = math.radians(degrees)
        return red(colour_at(frame, task, centre + lean * radius * math.sin(θ), radius * math.cos(θ)))

    def cost(degrees: float) -> float:
        x = np.zeros(task.state_size)
        x[0 if name == "pendulum" else 1] = math.radians(degrees)
        return float(task.cost(jnp.asarray(x), jnp.zeros(task.action_size), jnp.asarray(x)))

    angles = (25, 41, 4, 58, -15, 73)
    assert [cost(degrees) for degrees in angles] == sorted(map(cost, angles), reverse=True)
    shades = [redness(degrees) for degrees in angles]
    assert (np.diff(shades) < -0.02).all() and shades[0] > 0.5 and shades[-1] > 0.05, "redder where it costs more"
    assert redness(10) == pytest.approx(redness(40), abs=0.04) and cost(10) == pytest.approx(cost(40))
    for degrees in (-28, 78, 140, -100):
        assert redness(degrees) == cost(degrees) == 0.0
    moved = draw(dataclasses.replace(task, unsafe_angle=-60.0), hanging)
    x, y = centre + lean * radius * math.sin(-1.05), radius * math.cos(-1.05)
    assert red(colour_at(moved, task, x, y)) > 0.5 > red(colour_at(frame, task, x, y))


@pytest.mark.parametrize("x", [(0.0, 0.0, 0.0), (-0.8, 0.4, -0.6), (0.9, -0.5, 0.3)])
def test_cart_and_poles(x: tuple[float, ...]) -> None:
    from saute.envs.safe_double_pendulum import _tip

    task = make_task("double_pendulum")
    frame = draw(task, (*x, 0, 0, 0))
    s, θ, _ = x
    across, height = map(float, _tip(jnp.asarray(x)))
    assert close(colour_at(frame, task, across, height), ROBOT_DARK)
    assert close(colour_at(frame, task, s + 0.3 * math.sin(θ), 0.3 * math.cos(θ)), ROBOT_DARK)
    assert close(colour_at(frame, task, (s + 0.6 * math.sin(θ) + across) / 2, (0.6 * math.cos(θ) + height) / 2), ROBOT)
    assert close(colour_at(frame, task, s - 0.12, -0.05), INK)


def test_rail_stops_and_the_height_of_falling() -> None:
    task = make_task("double_pendulum")
    frame = draw(task, np.zeros(6))
    # The cart is 0.34 wide, so it touches the stops at ±1.
    assert close(colour_at(frame, task, 1.19, 0.05), INK) and close(colour_at(frame, task, -1.19, 0.05), INK)
    higher = draw(dataclasses.replace(task, least_height=1.5), np.zeros(6))

    def dashes(picture: np.ndarray, height: float) -> int:
        row = [colour_at(picture, task, x, height) for x in np.linspace(0.2, 1.6, 400)]
        return int(np.count_nonzero(np.diff([pixel.sum() < 650 for pixel in row])))

    assert dashes(frame, 1.0) > 20 and dashes(frame, 1.5) == 0
    assert dashes(higher, 1.0) == 0 and dashes(higher, 1.5) > 20


@pytest.mark.parametrize("arm", [(0.0, 0.0), (0.785, 0.0), (2.0, -1.0), (-2.5, 2.0)])
def test_the_fingertip_is_where_the_observation_says(arm: tuple[float, float]) -> None:
    task = make_task("reacher")
    x = np.array([*arm, 1, 1, 0, 0, 0, 0], float)
    tip = np.asarray(task.observe(jnp.asarray(x), jnp.zeros(0)))[8:10] + task.goal
    frame = draw(task, x)
    assert close(colour_at(frame, task, *tip), INK)
    assert close(colour_at(frame, task, 0.05 * math.cos(arm[0]), 0.05 * math.sin(arm[0])), ROBOT_DARK)


def test_the_reachers_hazard_and_goal() -> None:
    task = make_task("reacher")
    frame = draw(task, (-2.5, 0, 1, 1, 0, 0, 0, 0))
    assert red(colour_at(frame, task, 0.15, 0.16)) > 0.05
    assert red(colour_at(frame, task, 0.18, 0.27)) > red(colour_at(frame, task, 0.16, 0.17))
    assert close(colour_at(frame, task, 0.13, 0.13), PAPER) and close(colour_at(frame, task, -0.2, 0.2), PAPER)
    green = np.argwhere(np.abs(frame.astype(int) - GOAL).max(-1) < 8)
    assert len(green) > 100 and green[:, 0].max() < 80 and green[:, 1].min() > 400


@pytest.mark.parametrize("name", ["point", "car"])
def test_hazard_and_goal_of_the_arena(name: str) -> None:
    task = make_task(name)
    frame = draw(task, STATES[name][0])
    for x, y in [(0, 0), (0.68, 0), (0, -0.68), (-0.45, 0.45)]:
        assert red(colour_at(frame, task, x, y)) > 0.3
    for x, y in [(0.74, 0), (0.55, -0.55), (1.5, 0.0), (-1.3, -1.3)]:
        assert close(colour_at(frame, task, x, y), PAPER)
    for x, y in [(1.05, 1.05), (1.3, 1.25), (0.9, 1.0)]:
        seen = colour_at(frame, task, x, y)
        assert seen[1] > seen[0] + 30 and seen[1] > seen[2]
    moved = draw(dataclasses.replace(task, goal=(-1.2, -1.2), hazard_radius=0.2), STATES[name][0])
    assert close(colour_at(moved, task, 0.5, 0.0), PAPER)
    assert colour_at(moved, task, -1.3, -1.3)[1] > colour_at(moved, task, -1.3, -1.3)[0] + 30


@pytest.mark.parametrize("heading", [0.0, 1.0, math.pi, -2.0])
def test_the_point_looks_along_its_heading(heading: float) -> None:
    task = make_task("point")
    frame = draw(task, (-1.0, -0.9, heading, 0, 0, 0))

    def ahead(distance: float) -> np.ndarray:
        return colour_at(frame, task, -1.0 + distance * math.cos(heading), -0.9 + distance * math.sin(heading))

    assert close(ahead(0.0), ROBOT) and close(ahead(0.125), ROBOT_DARK)
    assert close(ahead(-0.125), PAPER) and not close(ahead(0.3), PAPER) and close(ahead(-0.3), PAPER)


@pytest.mark.parametrize("turn", [0.0, 1.0, math.pi / 2, -2.5])
def test_the_cars_parts_are_where_mujoco_has_them(turn: float) -> None:
    mujoco = importlib.import_module("mujoco")
    task = make_task("car")
    x = car(-0.9, -1.0, turn)
    # Tilted a little, and with a quaternion that is not quite normalised, as they come out of the physics.
    x[3:7] = 1.001 * (x[3:7] + np.array([0, 0.02, 0.01, 0]))
    model = task.model()
    data = mujoco.MjData(model)
    data.qpos[:] = x[: model.nq]
    mujoco.mj_kinematics(model, data)
    frame = draw(task, x, 960)
    for part, colour in {"left": INK, "right": INK, "front bumper": ROBOT_DARK, "back bumper": ROBOT_DARK}.items():
        assert close(colour_at(frame, task, *data.geom(part).xpos[:2]), colour), part
    assert close(colour_at(frame, task, -0.9, -1.0), ROBOT)
    ahead = 0.38 * np.array([math.sin(turn), -math.cos(turn)])
    assert not close(colour_at(frame, task, -0.9 + ahead[0], -1.0 + ahead[1]), PAPER)
    assert close(colour_at(frame, task, -0.9 - ahead[0], -1.0 - ahead[1]), PAPER)


@pytest.mark.parametrize("place", [(5.0, 0.3), (-1e6, 0.3), (0.3, 1e300)])
def test_a_robot_outside_the_picture_is_pointed_at(place: tuple[float, float]) -> None:
    task = make_task("point")
    frame = draw(task, (*place, 0, 0, 0, 0)).astype(int)
    blue = np.argwhere(np.abs(frame - ROBOT).max(-1) < 8)
    assert 50 < len(blue) < 500
    if place[0] != 0.3:
        assert (blue[:, 1].mean() > 440) == (place[0] > 0) and abs(blue[:, 0].mean() - 240 + 0.3 / 3.5 * 480) < 6
    else:
        assert blue[:, 0].mean() < 40


def test_what_cannot_be_drawn() -> None:
    with pytest.raises(TypeError, match="cannot draw a object; the tasks that can be drawn are Pendulum"):
        draw(object(), (0.0, 0.0))
    task = make_task("pendulum")
    with pytest.raises(ValueError, match="pass 2 finite numbers"):
        draw(task, (0.0, 0.0, 0.0))
    with pytest.raises(ValueError, match="pass 2 finite numbers"):
        draw(task, (0.0, float("nan")))
    with pytest.raises(ValueError, match="size=8 is too small"):
        draw(task, (0.0, 0.0), 8)


def test_a_task_derived_from_another_is_drawn_like_it() -> None:
    from saute.envs.safe_pendulum import Pendulum

    class Mine(Pendulum):
        pass

    np.testing.assert_array_equal(draw(Mine(), (0.3, 0.0)), draw(Pendulum(), (0.3, 0.0)))


def test_drawing_needs_neither_a_window_nor_mujoco_and_loading_it_not_even_jax() -> None:
    code = """
import sys
from saute.envs.render import draw
assert not {"jax", "pygame", "mujoco"} & set(sys.modules)
from saute.envs.safe_pendulum import Pendulum
assert draw(Pendulum(), (1.0, 0.0)).shape == (480, 480, 3)
print(sorted({"pygame", "mujoco"} & set(sys.modules)))
"""
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip() == "[]"


def bars(frame: np.ndarray, count: int = 1) -> list[np.ndarray]:
    """The middle column of each bar, from its lower end up."""
    top, bottom, columns, thick = gauge.layout(*frame.shape[:2], count)
    return [frame[top:bottom, left + thick // 2][::-1].astype(int) for left in columns]


def level(frame: np.ndarray, z: float) -> float:
    """Which part of the bar has the colour of z."""
    (column,) = bars(frame)
    return float(np.mean(np.abs(column - gauge.colour(z)).max(-1) < 12))


@pytest.mark.parametrize("shape", [(480, 480), (400, 600), (101, 63), (210, 160)])
@pytest.mark.parametrize("z", [1.0, 0.75, 0.5, 0.25, 0.1])
def test_the_gauge_is_filled_in_proportion(shape: tuple[int, int], z: float) -> None:
    frame = np.full((*shape, 3), 128, np.uint8)
    painted = gauge.paint(frame, z)
    assert painted.shape == frame.shape and painted.dtype == np.uint8 and (frame == 128).all()
    # Less than its length in rows by the round ends and the row of the level itself.
    assert level(painted, z) == pytest.approx(z, abs=3 / (0.6 * shape[0]))
    assert (painted[:, shape[1] // 2 :] == 128).all()


def test_the_gauges_colours() -> None:
    green, amber, nearly_empty = (gauge.colour(z) for z in (1.0, 0.5, 0.02))
    assert green[1] > green[0] + 80 and amber[0] > amber[2] + 100 and amber[1] > 140
    assert nearly_empty[0] > nearly_empty[1] + 100
    np.testing.assert_array_equal(gauge.colour(3.0), green)


def test_overspent_full_and_undefined_gauges() -> None:
    frame = np.full((480, 480, 3), 240, np.uint8)
    pictures = {z: gauge.paint(frame, z) for z in (1.0, 1.7, 0.0, -0.01, -5.0)}
    np.testing.assert_array_equal(pictures[1.0], pictures[1.7])
    np.testing.assert_array_equal(pictures[-0.01], pictures[-5.0])
    (overspent,), (empty,), (full,) = (bars(pictures[z]) for z in (-0.01, 0.0, 1.0))
    dark = (overspent.sum(-1) < 250) & (overspent[:, 0] > overspent[:, 1] + 60)
    # All along the bar, unlike any level ≥ 0.
    assert 0.3 < dark.mean() < 0.8 and dark[:20].any() and dark[-20:].any()
    assert not (empty.sum(-1) < 250).any() and not (full.sum(-1) < 250).any()
    np.testing.assert_array_equal(gauge.paint(frame, float("nan")), pictures[0.0])


def test_one_bar_per_constraint() -> None:
    painted = gauge.paint(np.full((300, 300, 3), 128, np.uint8), np.array([1.0, 0.5, -1.0]))
    first, second, third = bars(painted, 3)
    assert np.mean(np.abs(first - gauge.colour(1.0)).max(-1) < 12) > 0.97
    assert np.mean(np.abs(second - gauge.colour(0.5)).max(-1) < 12) == pytest.approx(0.5, abs=0.03)
    assert (third.sum(-1) < 250).any()


@pytest.mark.parametrize(
    ("frame", "z"),
    [
        (np.zeros((39, 500, 3), np.uint8), 1.0),
        (np.zeros((500, 39, 3), np.uint8), 1.0),
        (np.zeros((100, 100), np.uint8), 1.0),
        (np.zeros((100, 100, 4), np.uint8), 1.0),
        (np.zeros((100, 100, 3), np.float32), 1.0),
        (np.zeros((50, 50, 3), np.uint8), np.ones(30)),
        (np.zeros((50, 50, 3), np.uint8), np.ones(0)),
    ],
)
def test_frames_without_room_or_colours_stay_as_they_are(frame: np.ndarray, z: Any) -> None:
    np.testing.assert_array_equal(gauge.paint(frame, z), frame)


def test_a_robot_that_is_too_fast_is_shown_in_red_and_its_marks_go_past() -> None:
    task: Any = make_task("half_cheetah_velocity")
    slow, fast, farther = running("half_cheetah_velocity", 0.5), running("half_cheetah_velocity", 1.5), None
    farther = fast.copy()
    farther[0] += 0.25
    frames = [draw(task, x) for x in (slow, fast, farther)]
    view = picture_of(task).view
    top = view.y + 0.9 * view.half
    for place, colours in ((-0.75, (GOAL, GOAL)), (-0.25, (FAINT, GOAL)), (0.25, (FAINT, HAZARD)), (0.75, (FAINT, FAINT))):
        for frame, colour in zip(frames, colours, strict=False):
            assert close(colour_at(frame, task, 0.8 * view.half * place, top), colour)
    assert close(colour_at(frames[1], task, 0.5, -0.1), STEEL) and not close(colour_at(frames[2], task, 0.5, -0.1), STEEL)
    assert close(colour_at(frames[2], task, 0.25, -0.1), STEEL)


def test_goals_and_hazards_are_where_the_state_has_them() -> None:
    task = make_task("point_goal1")
    frame = draw(task, layout(0.0))
    assert red(colour_at(frame, task, 1.2, 1.2)) > 0.3 and red(colour_at(frame, task, -1.2, 1.2)) == 0.0
    green = colour_at(frame, task, 1.0, -0.5)
    assert green[1] > green[0] + 20 and close(colour_at(frame, task, 0.0, 0.0), ROBOT)


@pytest.mark.parametrize("name", IDS)
def test_every_task_renders_through_gymnasium(name: str) -> None:
    # The pictures do not depend on the engine, and MuJoCo's has less to compile.
    env: Any = gym.make(IDS[name], render_mode="rgb_array", engine=TASKS[name][2][-1])
    env.reset(seed=1)
    before = env.render()
    for _ in range(3):
        env.step(np.ones(env.action_space.shape, np.float32))
    after = env.render()
    assert before.shape == (480, 480, 3) and before.dtype == np.uint8 and not np.array_equal(before, after)
    np.testing.assert_array_equal(after, draw(env.unwrapped.env.task, env.unwrapped.state))

    sauted = saute.SauteWrapper(env, budget=4.0)
    np.testing.assert_array_equal(sauted.render(), env.render())
    sauted.reset(seed=1, options={"budget": 2.0})
    np.testing.assert_array_equal(sauted.render(), gauge.paint(env.render(), 0.5))
    assert level(sauted.render(), 0.5) == pytest.approx(0.5, abs=0.02)
    env.close()


@pytest.mark.parametrize("name", IDS)
def test_every_task_renders_as_a_vector(name: str) -> None:
    bare: Any = gym.make_vec(IDS[name], num_envs=2, render_mode="rgb_array", engine=TASKS[name][2][-1])
    envs = saute.SauteVectorWrapper(bare, budget=4.0)
    envs.reset(seed=3, options={"budget": [4.0, 1.0]})
    frames, plain = envs.render(), bare.render()
    assert isinstance(frames, tuple) and len(frames) == 2
    for frame, picture, z in zip(frames, plain, (1.0, 0.25), strict=True):
        np.testing.assert_array_equal(frame, gauge.paint(picture, z))
        assert level(frame, z) == pytest.approx(z, abs=0.02)
    assert not np.array_equal(plain[0], plain[1])
    envs.close()


class Photo(gym.Env):
    """An environment with a grey picture, two costs, and a window of somebody else's."""

    metadata = {"render_modes": ["rgb_array", "human", "ansi"]}
    observation_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, render_mode: str | None = None):
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        gym.Env.reset(self, seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(1, np.float32), 1.0, False, False, {"costs": np.array([1.0, 3.0])}

    def render(self) -> Any:
        return {"rgb_array": np.full((200, 200, 3), 128, np.uint8), "ansi": "picture"}.get(str(self.render_mode))


def test_other_environments_get_a_gauge_for_each_constraint_and_keep_their_other_modes() -> None:
    env = saute.SauteWrapper(Photo("rgb_array"), budget=[4.0, 6.0])
    env.reset(seed=0)
    env.step(np.zeros(1))
    np.testing.assert_array_equal(env.render(), gauge.paint(Photo("rgb_array").render(), [0.75, 0.5]))
    for mode, picture in {"ansi": "picture", "human": None}.items():
        other = saute.SauteWrapper(Photo(mode), budget=[1.0, 1.0])
        other.reset(seed=0)
        assert other.render() == picture
    envs = saute.SauteVectorWrapper(gym.vector.SyncVectorEnv([lambda: Photo("ansi")] * 2), budget=[1.0, 1.0])
    envs.reset(seed=0)
    assert envs.render() == ("picture", "picture")


@pytest.fixture
def headless(monkeypatch: pytest.MonkeyPatch) -> Any:
    """No display, and none chosen; afterwards none may be open."""
    pygame = importlib.import_module("pygame")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    yield pygame
    assert not pygame.display.get_init()


def test_the_human_window_shows_the_gauge_without_a_display(headless: Any) -> None:
    env: Any = gym.make(IDS["pendulum"], render_mode="human")
    sauted = saute.SauteWrapper(env, budget=10.0)
    sauted.reset(seed=0)
    z = sauted.step(np.zeros(1))[0][-1]
    assert headless.display.get_driver() == "dummy" and "SDL_VIDEODRIVER" not in os.environ
    shown = np.swapaxes(headless.surfarray.array3d(headless.display.get_surface()), 0, 1)
    assert z < 1
    np.testing.assert_array_equal(shown, gauge.paint(draw(env.unwrapped.env.task, env.unwrapped.state), z))
    twin = copy.deepcopy(sauted)
    assert twin.unwrapped.overlay.__self__ is twin and env.unwrapped.overlay.__self__ is sauted
    twin.close()
    assert headless.display.get_init(), "the copy has no part in the window"
    sauted.close()


def test_a_sauted_window_can_be_copied_and_pickled() -> None:
    env = Photo("human")
    env.overlay = None  # type: ignore[attr-defined]
    sauted: Any = saute.SauteWrapper(env, budget=[4.0, 6.0])
    sauted.reset(seed=0)
    for twin in (copy.deepcopy(sauted), pickle.loads(pickle.dumps(sauted))):
        twin.step(np.zeros(1))
        assert twin.unwrapped.overlay.__self__ is twin
        np.testing.assert_array_equal(sauted.remaining, [4.0, 6.0])
        frame = np.zeros((100, 100, 3), np.uint8)
        np.testing.assert_array_equal(twin.unwrapped.overlay(frame), gauge.paint(frame, [0.75, 0.5]))


def test_a_window_opens_resizes_closes_and_opens_again(headless: Any) -> None:
    window = render.Window(fps=1000)
    window.close()
    for size in (100, 60):
        frame = draw(make_task("pendulum"), (1.0, 0.0), size)
        window.show(frame)
        assert headless.display.get_surface().get_size() == (size, size)
        np.testing.assert_array_equal(np.swapaxes(headless.surfarray.array3d(headless.display.get_surface()), 0, 1), frame)
    window.close()
    assert not headless.display.get_init()
    window.show(frame)
    assert headless.display.get_init()
    window.close()
    window.close()


def test_a_window_that_the_user_closes_stays_closed(headless: Any) -> None:
    window = render.Window(fps=1000)
    frame = np.zeros((50, 50, 3), np.uint8)
    window.show(frame)
    headless.event.post(headless.event.Event(headless.QUIT))
    window.show(frame)
    assert not headless.display.get_init()
    window.show(frame)
    assert not headless.display.get_init()
