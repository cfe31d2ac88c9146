"""PointGoal1 without its vase: lidar against brute force, layouts and goals by their distribution, costs, and bad input."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import jax
import numpy as np
import pytest
from scipy.stats import ks_2samp
from test_goal import float64

import saute
from saute.envs import make_task
from saute.envs.point_goal import PointGoal
from saute.envs.point_goals import PointGoal1
from saute.envs.task import Clocked

TASK = PointGoal1()
KEEPOUTS = np.array([0.4, 0.305, *[0.18] * 8])
ENV = saute.envs.point_goal1()
START, RENEW = jax.jit(jax.vmap(TASK.start)), jax.jit(jax.vmap(TASK.renew))


def states(count: int, seed: int = 0) -> np.ndarray:
    with float64():
        return np.array(START(jax.random.split(jax.random.key(seed), 3000)))[:count]


def places(x: np.ndarray) -> np.ndarray:
    """Robot, goal and hazards."""
    return np.concatenate([x[..., :2], x[..., 6:]], -1).reshape(*x.shape[:-1], 10, 2)


def layout_by_hand(rng: np.random.Generator) -> np.ndarray:
    """One object after the other, redrawn while too near to one of those before."""
    found: list[np.ndarray] = []
    for keepout in KEEPOUTS:
        while True:
            place = rng.uniform(keepout - 1.5, 1.5 - keepout, 2)
            if all(math.dist(place, other) >= keepout + KEEPOUTS[j] for j, other in enumerate(found)):
                break
        found.append(place)
    return np.array(found)


def lidar_by_hand(robot: np.ndarray, heading: float, others: np.ndarray) -> np.ndarray:
    """The usual rule: the bin of an object, and its two neighbours by how near the object is to them."""
    bins, width = np.zeros(16), 2 * math.pi / 16
    for dx, dy in others - robot:
        angle = (math.atan2(dy, dx) - heading) % (2 * math.pi)
        near = max(0.0, 3.0 - math.hypot(dx, dy)) / 3.0
        bin = int(angle / width) % 16
        into = angle / width - int(angle / width)
        for k, value in ((bin, near), ((bin + 1) % 16, into * near), ((bin - 1) % 16, (1 - into) * near)):
            bins[k] = max(bins[k], value)
    return bins


@pytest.fixture(scope="module")
def stepped() -> tuple[np.ndarray, np.ndarray, Any]:
    """A step of robots that move, some of which are near to their goal or to a hazard."""
    x, rng = states(200), np.random.default_rng(0)
    x[:, 3:5] = rng.normal(size=(200, 2))
    x[:50, 6:8] = x[:50, :2] + 0.2
    x[50:100, 8:10] = x[50:100, :2] + 0.14
    actions = rng.uniform(-1, 1, (200, 2))
    with float64():
        begun = Clocked(x, np.zeros(200, np.int32))
        return x, actions, jax.jit(jax.vmap(ENV.step))(begun, actions, jax.random.split(jax.random.key(0), 200))


def test_what_is_observed_against_brute_force(stepped: Any) -> None:
    seen, after = np.asarray(stepped[2].obs), np.asarray(stepped[2].state.physical)
    assert seen.shape == (200, 44) and ENV.observation_space.shape == (44,)
    for obs, one in zip(seen, after, strict=True):
        robot, heading = one[:2], one[2]
        turn = np.array([[math.cos(heading), math.sin(heading)], [-math.sin(heading), math.cos(heading)]])
        np.testing.assert_allclose(obs[2], 9.81)
        np.testing.assert_allclose(obs[3:6], [*(turn @ one[3:5]), 0.0], atol=1e-12)
        np.testing.assert_allclose(obs[6:9], [0, 0, one[5]], atol=1e-12)
        np.testing.assert_allclose(obs[9:12], [*(turn @ [0.0, -0.5]), 0.0], atol=1e-12)
        np.testing.assert_allclose(obs[12:28], lidar_by_hand(robot, heading, one[None, 6:8]), atol=1e-9)
        np.testing.assert_allclose(obs[28:], lidar_by_hand(robot, heading, one[8:].reshape(8, 2)), atol=1e-9)


def test_layouts_have_the_distribution_of_one_object_after_the_other() -> None:
    ours, rng = places(states(3000)), np.random.default_rng(1)
    theirs = np.stack([layout_by_hand(rng) for _ in range(3000)])
    gaps = np.linalg.norm(ours[:, :, None] - ours[:, None], axis=-1) - KEEPOUTS[:, None] - KEEPOUTS
    gaps[:, range(10), range(10)] = 0.0
    assert gaps.min() >= 0.0 and (np.abs(ours) <= 1.5 - KEEPOUTS[:, None]).all()
    for i in range(10):
        for numbers in (lambda one, i=i: one[:, i, 0], lambda one, i=i: np.linalg.norm(one[:, i] - one[:, i - 1], axis=1)):
            assert ks_2samp(numbers(ours), numbers(theirs)).pvalue > 1e-4
    headings = states(3000)[:, 2]
    assert ks_2samp(headings, rng.uniform(0, 2 * math.pi, 3000)).pvalue > 1e-4


def test_goals_move_on_uniformly_to_where_it_is_clear() -> None:
    """From one state, with many keys: against proposals in the whole square, of which the clear ones are kept."""
    x = states(1)[0]
    x[6:8] = x[:2] + 0.1
    count, rng = 4000, np.random.default_rng(2)
    with float64():
        keys = jax.random.split(jax.random.key(3), count)
        after = np.asarray(RENEW(np.tile(x, (count, 1)), keys))
    assert (np.delete(after, [6, 7], axis=1) == np.delete(x, [6, 7])).all()
    proposals = rng.uniform(-1.195, 1.195, (20 * count, 2))
    others = np.concatenate([x[None, :2], x[8:].reshape(8, 2)])
    gaps = np.linalg.norm(proposals[:, None] - others, axis=-1) - [0.4, *[0.18] * 8] - 0.305
    wanted = proposals[(gaps >= 0).all(1)]
    for numbers in (lambda goal: goal[:, 0], lambda goal: goal[:, 1], lambda goal: goal.sum(1)):
        assert ks_2samp(numbers(after[:, 6:8]), numbers(wanted)).pvalue > 1e-4


def test_only_reached_goals_move_and_each_by_its_own_key() -> None:
    x = states(64)
    x[::7, 6:8] = x[::7, :2] + 0.05
    keys = jax.random.split(jax.random.key(5), 64)
    with float64():
        together = np.asarray(RENEW(x, keys))
        one = jax.jit(TASK.renew)
        np.testing.assert_array_equal(together, [one(*pair) for pair in zip(x, keys, strict=True)])
        # The same keys for all: only the states are a batch.
        np.testing.assert_array_equal(jax.jit(jax.vmap(TASK.renew, (0, None)))(x, keys[0])[7], one(x[7], keys[0]))
    moved = (together[:, 6:8] != x[:, 6:8]).any(1)
    np.testing.assert_array_equal(np.flatnonzero(moved), np.arange(0, 64, 7))
    assert len(np.unique(together[moved, 6])) == moved.sum()


def test_where_no_place_is_clear_the_least_crowded_is_taken() -> None:
    """Hazards on a grid leave no place with a gap of 0.485; the goal must not stay where it can be reached again and again."""
    task = PointGoal1(hazards=16, hazard_keepout=0.1, goal_keepout=0.35)
    grid = np.array([(a, b) for a in (-1.05, -0.35, 0.35, 1.05) for b in (-1.05, -0.35, 0.35, 1.05)])
    x = np.concatenate([[0.7, 0.7, 0.0, 0, 0, 0, 0.7, 0.7], grid.ravel()])
    with float64():
        goal = np.asarray(jax.jit(task.renew)(x, jax.random.key(0)))[6:8]
    assert math.dist(goal, x[:2]) >= 0.75 and np.linalg.norm(grid - goal, axis=1).min() > 0.4


def test_rewards_costs_and_goals_of_a_step(stepped: Any) -> None:
    x, actions, step = stepped
    with float64():
        moved = np.asarray(jax.jit(jax.vmap(PointGoal().advance))(x[:, :6], actions))
    after = np.asarray(step.state.physical)
    np.testing.assert_allclose(after[:, :6], moved, atol=1e-12)
    near, nearer = (np.linalg.norm(one[:, :2] - x[:, 6:8], axis=1) for one in (x, after))
    np.testing.assert_allclose(step.reward, near - nearer + (nearer <= 0.3), atol=1e-12)
    hazards = np.linalg.norm(after[:, None, :2] - x[:, 8:].reshape(200, 8, 2), axis=-1).min(1)
    np.testing.assert_array_equal(step.cost, (hazards <= 0.2).astype(float))
    assert 30 < np.sum(nearer <= 0.3) < 60 and 20 < np.sum(step.cost) < 100
    np.testing.assert_array_equal((after[:, 6:8] != x[:, 6:8]).any(1), nearer <= 0.3)
    assert not np.asarray(step.terminated).any() and not np.asarray(step.truncated).any()


def test_a_step_without_a_key_is_refused() -> None:
    with pytest.raises(ValueError, match="PointGoal1 draws random numbers in its steps; pass a key"):
        ENV.step(Clocked(jax.numpy.zeros(24), jax.numpy.zeros((), int)), jax.numpy.zeros(2))


@pytest.mark.slow
def test_gymnasium_meets_it_alone_and_in_batches() -> None:
    alone, batch = gym.make("saute/PointGoal1-v0", horizon=5), gym.make_vec("saute/PointGoal1-v0", num_envs=2, horizon=5)
    assert alone.metadata["budget"] == 25.0 and ENV.horizon == 1000
    first, _ = alone.reset(seed=3)
    both, _ = batch.reset(seed=3)
    np.testing.assert_allclose(both[0], first, atol=1e-12)
    for _ in range(5):
        one, many = alone.step(np.array([0.5, 0.2])), batch.step(np.tile([0.5, 0.2], (2, 1)))
        np.testing.assert_allclose(many[0][0], one[0], atol=1e-9)
        assert many[1][0] == pytest.approx(one[1], abs=1e-9) and many[4]["cost"][0] == one[4]["cost"]
    assert one[3] and many[3].all() and not one[2]
    x: Any = alone.unwrapped
    alone.reset(options={"state": x.state})
    assert x.state.shape == (24,)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"hazards": 80}, r"80 hazards with a keep-out of 0\.18.* cannot be placed within ±1\.5; use fewer hazards"),
        ({"extent": 0.35}, r"8 hazards .* cannot be placed within ±0\.35"),
        ({"robot_keepout": 2.0}, r"a robot with 2\.0 cannot be placed"),
        ({"hazards": 0}, "hazards=0 must be a whole number ≥ 1"),
        ({"vases": 1}, "unknown parameter of point_goal1 'vases'"),
    ],
)
def test_layouts_that_cannot_be_placed_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_task("point_goal1", **wrong)
