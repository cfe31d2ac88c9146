"""Static goal: lidar and starts against brute force, and the Point against plain MuJoCo, transition by transition."""

from __future__ import annotations

import functools
import math
import os

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from saute.envs.car_goal import CarGoal
from saute.envs.engine import MujocoEngine
from saute.envs.goal import lidar, rotation
from saute.envs.point_goal import CENTRE, INERTIA, MASS, PointGoal
from saute.envs.task import TaskEnv
from saute.runs.build import configured, environment_of
from saute.runs.config import Config, Experiment
from saute.runs.presets import changed

VERIFY = os.environ.get("SAUTE_VERIFY") == "1"
GOAL, HAZARD = (1.1, 1.1), (0.0, 0.0)
float64 = functools.partial(jax.enable_x64, True)


def lidar_by_hand(place, position, frame, bins=16, reach=3.0):
    """The rule as told: one bin for the object, and the two neighbours get its share of the bin."""
    difference = [place[0] - position[0], place[1] - position[1], -position[2]]
    ahead, left = (sum(frame[row][column] * difference[row] for row in range(3)) for column in range(2))
    strength = max(0.0, reach - math.sqrt(ahead**2 + left**2)) / reach
    angle = math.atan2(left, ahead) % (2 * math.pi)
    width = 2 * math.pi / bins
    home = math.floor(angle / width)
    fraction = angle / width - home
    readings = [0.0] * bins
    for k, share in (home, 1.0), (home + 1, fraction), (home - 1, 1 - fraction):
        readings[k % bins] = max(readings[k % bins], share * strength)
    return readings


def lidars(offsets, bins=16, reach=3.0):
    return jax.jit(jax.vmap(lambda offset: lidar(offset, bins, reach)))(jnp.asarray(offsets))


def random_frame(rng):
    q = rng.normal(size=4)
    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, q / np.linalg.norm(q))
    return q, matrix.reshape(3, 3)


def test_lidar_follows_the_rule_at_thousands_of_poses():
    rng = np.random.default_rng(0)
    offsets = rng.uniform(-3, 3, (4000, 2))
    expected = [lidar_by_hand(offset, (0, 0, 0), np.eye(3)) for offset in offsets]
    with float64():
        readings = lidars(offsets)
    np.testing.assert_allclose(readings, expected, rtol=0, atol=1e-12)


def test_lidar_on_the_edges_of_its_bins_and_at_the_object():
    edges = [k * 2 * math.pi / 16 + nudge for k in range(-16, 33) for nudge in (-1e-9, 0.0, 1e-9)]
    offsets = [(d * math.cos(a), d * math.sin(a)) for a in edges for d in (1e-3, 1.0, 2.999, 3.0, 3.5)]
    offsets += [(0.0, 0.0), (-1.0, 0.0), (-1.0, -0.0), (1.0, -0.0), (1.0, -1e-300), (0.0, -1.0)]
    expected = np.asarray([lidar_by_hand(offset, (0, 0, 0), np.eye(3)) for offset in offsets])
    with float64():
        readings = lidars(offsets)
    np.testing.assert_allclose(readings, expected, rtol=0, atol=1e-12)
    single = lidars(offsets)
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("bins", [8, 15, 32])
def test_lidar_with_other_numbers_of_bins(bins):
    rng = np.random.default_rng(bins)
    offsets = rng.uniform(-3, 3, (500, 2))
    expected = [lidar_by_hand(offset, (0, 0, 0), np.eye(3), bins, 2.0) for offset in offsets]
    with float64():
        readings = lidars(offsets, bins, 2.0)
    np.testing.assert_allclose(readings, expected, rtol=0, atol=1e-12)


def test_lidars_and_magnetometer_of_a_tilted_robot():
    rng = np.random.default_rng(1)
    poses = [(rng.uniform(-2, 2, 3), *random_frame(rng)) for _ in range(2000)]
    positions, quaternions, frames = map(np.asarray, zip(*poses, strict=True))
    with float64():
        np.testing.assert_allclose(jax.jit(jax.vmap(rotation))(quaternions), frames, rtol=0, atol=1e-12)
        blank = jnp.zeros(3)
        view = jax.vmap(lambda position, frame: PointGoal().view(position, frame, blank, blank, blank))
        observed = np.asarray(jax.jit(view)(positions, frames))
    expected = [lidar_by_hand(GOAL, p, f) for p, _, f in poses]
    np.testing.assert_allclose(observed[:, 3:19], expected, rtol=0, atol=1e-12)
    expected = [lidar_by_hand(HAZARD, p, f) for p, _, f in poses]
    np.testing.assert_allclose(observed[:, 22:38], expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(observed[:, 38:41], [f.T @ (0, -0.5, 0) for _, _, f in poses], rtol=0, atol=1e-12)


@functools.cache
def starts(task):
    count = 200_000 if VERIFY else 40_000
    return np.asarray(jax.jit(jax.vmap(task.start))(jax.random.split(jax.random.key(0), count)))


def starts_by_rejection(rng, count):
    xy = rng.uniform(-1.1, 1.1, (12 * count, 2))
    xy = xy[(np.linalg.norm(xy, axis=1) >= 1.105) & (np.linalg.norm(xy - 1.1, axis=1) >= 0.705)]
    return xy[:count]


def test_starts_have_the_distribution_of_plain_rejection():
    x = starts(PointGoal()).astype(float)
    xy, count = x[:, :2], len(x)
    expected = starts_by_rejection(np.random.default_rng(0), 10 * count)
    radius, to_goal = np.linalg.norm(xy, axis=1), np.linalg.norm(xy - 1.1, axis=1)
    assert np.abs(xy).max() <= 1.1 + 1e-6 and np.abs(xy).max() > 1.099
    assert radius.min() >= 1.105 - 1e-6 and radius.min() < 1.106
    assert to_goal.min() >= 0.705 - 1e-6 and to_goal.min() < 0.71
    assert (x[:, 3:] == 0).all()

    features = [lambda z: z[:, 0], lambda z: z[:, 1], lambda z: z[:, 0] * z[:, 1], lambda z: np.linalg.norm(z, axis=1)]
    for feature in features:
        ours, theirs = feature(xy), feature(expected)
        for power in 1, 2, 3:
            tolerance = 4.5 * np.std(theirs**power) / math.sqrt(count / 1.1)
            assert abs(np.mean(ours**power) - np.mean(theirs**power)) < tolerance
        levels = np.linspace(0.02, 0.98, 25)
        reached = np.mean(ours[:, None] <= np.quantile(theirs, levels), axis=0)
        assert np.abs(reached - levels).max() < 4.5 * 0.5 / math.sqrt(count / 1.1)

    edges = np.linspace(-1.1, 1.1, 12)
    counted, wanted = (np.histogram2d(*z.T, bins=[edges, edges])[0] for z in (xy, expected))
    wanted = wanted * count / len(expected)
    used = wanted > 20
    assert (counted[wanted == 0] == 0).all()
    statistic = np.sum((counted - wanted)[used] ** 2 / (1.1 * wanted[used]))
    assert abs(statistic - used.sum()) < 5 * math.sqrt(2 * used.sum())

    heading = x[:, 2]
    assert 0 <= heading.min() < 0.01 and 2 * math.pi - 0.01 < heading.max() <= 2 * math.pi + 1e-5
    ranks = np.sort(heading) / (2 * math.pi) - (np.arange(count) + 0.5) / count
    assert np.abs(ranks).max() < 2.0 / math.sqrt(count)
    assert np.abs(np.corrcoef(x[:, :3].T)[2, :2]).max() < 4.5 / math.sqrt(count)


def test_starts_are_alike_in_both_modes_and_follow_precision_and_parameters():
    key = jax.random.key(1)
    train, test = (str(jax.make_jaxpr(PointGoal(mode=mode).start)(key)) for mode in ("train", "test"))
    assert train == test and starts(PointGoal()).dtype == jnp.float32
    with float64():
        assert jax.eval_shape(PointGoal().start, key).dtype == jnp.float64
    moved = PointGoal(hazard=(0.5, 0.5), hazard_keepout=0.8, goal=(-1.0, 0.0), goal_keepout=0.4, start_extent=1.5)
    xy = starts(moved)[:, :2]
    assert 0.8 - 1e-6 <= np.linalg.norm(xy - 0.5, axis=1).min() < 0.81
    assert 0.4 - 1e-6 <= np.linalg.norm(xy - np.asarray([-1.0, 0.0]), axis=1).min() < 0.42
    assert np.abs(xy).max() > 1.49
    with pytest.raises(ValueError, match="no start"):
        PointGoal(hazard_keepout=2.0).start(key)


def test_the_car_starts_at_rest_where_the_point_does():
    point_start, car_start = starts(PointGoal()), starts(CarGoal())
    assert (car_start[:, :2] == point_start[:, :2]).all() and (car_start[:, 2] == np.float32(0.1)).all()
    half = point_start[:, 2] / 2
    np.testing.assert_allclose(car_start[:, 3], np.cos(half), rtol=0, atol=1e-6)
    np.testing.assert_allclose(car_start[:, 6], np.sin(half), rtol=0, atol=1e-6)
    rest = car_start.copy()
    rest[:, [0, 1, 2, 3, 6, 9]] = 0
    assert (rest == 0).all() and (car_start[:, 9] == 1).all()


def test_constants_of_the_point_are_those_of_its_model():
    model = PointGoal().model()
    robot = model.body("robot").id
    assert model.body_mass[robot] == pytest.approx(MASS, rel=1e-14) == pytest.approx(0.0051888, abs=5e-8)
    np.testing.assert_allclose(model.body_ipos[robot], [CENTRE, 0, 0], rtol=0, atol=1e-15)
    assert pytest.approx(0.0192723, abs=5e-8) == CENTRE
    frame = np.zeros(9)
    mujoco.mju_quat2Mat(frame, model.body_iquat[robot])
    frame = frame.reshape(3, 3)
    inertia = frame @ np.diag(model.body_inertia[robot]) @ frame.T
    assert inertia[2, 2] == pytest.approx(INERTIA, rel=1e-12) == pytest.approx(2.64946e-5, abs=5e-11)
    assert (model.nq, model.nv, model.nu, model.nsensordata) == (3, 3, 2, 9)


def point_transitions(count, seed=0):
    """States everywhere, among them inside the hazard and on its edge, at the goal, and in fast spins."""
    rng = np.random.default_rng(seed)
    place, turn, velocity = rng.uniform(-2, 2, (count, 2)), rng.uniform(-7, 7, (count, 1)), rng.normal(size=(count, 3))
    x = np.concatenate([place, turn, velocity], axis=1)
    angle = rng.uniform(0, 2 * np.pi, count)
    around = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    part = np.array_split(np.arange(count), 8)
    x[part[0], :2] = (0.7 * np.sqrt(rng.uniform(size=count))[:, None] * around)[part[0]]
    x[part[1], :2] = ((0.7 + rng.normal(scale=0.01, size=count))[:, None] * around)[part[1]]
    x[part[2], :2] = (1.1 + (0.3 + rng.normal(scale=0.02, size=count))[:, None] * around)[part[2]]
    x[part[3], 5] = 20 * rng.normal(size=len(part[3]))
    x[part[4], 3:] = 0
    x[part[5], 5] = rng.uniform(-3.4, 3.4, len(part[5]))
    action = rng.uniform(-1.2, 1.2, (count, 2))
    action[::3, 0] *= 0.05
    action[::5, 1] = 0.3 * x[::5, 5] + rng.uniform(-0.06, 0.06, len(x[::5]))
    # Whole numbers of float32 steps, so that both precisions start from the very same numbers.
    return x.astype(np.float32).astype(float), action.astype(np.float32).astype(float)


def point_by_mujoco(x, action):
    """Ten steps and what MuJoCo says at the new state: (state, observation, reward, cost, terminated)."""
    mjcf = PointGoal().mjcf().replace("</sensor>", "<magnetometer site='robot'/></sensor>")
    model = mujoco.MjModel.from_xml_string(mjcf)
    data = mujoco.MjData(model)
    results = []
    for before, held in zip(x, action, strict=True):
        mujoco.mj_resetData(model, data)
        data.qpos[:], data.qvel[:], data.ctrl[:] = before[:3], before[3:], held
        mujoco.mj_forward(model, data)
        start = data.body("robot").xpos.copy()
        mujoco.mj_step(model, data, nstep=10)
        mujoco.mj_forward(model, data)
        place, frame = data.body("robot").xpos, data.body("robot").xmat.reshape(3, 3)
        accelerometer, gyro, velocimeter, magnetometer = data.sensordata.reshape(4, 3)
        goal_lidar, hazard_lidar = (lidar_by_hand(target, place, frame) for target in (GOAL, HAZARD))
        left = math.dist(place[:2], GOAL)
        results.append(
            (
                np.concatenate([data.qpos, data.qvel]),
                np.concatenate([accelerometer, goal_lidar, gyro, hazard_lidar, magnetometer, velocimeter]),
                math.dist(start[:2], GOAL) - left + (left <= 0.3),
                float(math.dist(place[:2], HAZARD) <= 0.7),
                left <= 0.3,
            )
        )
    return [np.asarray(column) for column in zip(*results, strict=True)]


@pytest.fixture(scope="module")
def transitions():
    x, action = point_transitions(16_000 if VERIFY else 2_400)
    return x, action, point_by_mujoco(x, action)


def step_from(x, action):
    env = TaskEnv(PointGoal())
    step = jax.jit(jax.vmap(lambda x, action: env.step(env.start_from(x)[0], action)))(x, action)
    return jax.tree.map(np.asarray, step)


def test_point_equals_mujoco(transitions):
    x, action, (state, observation, reward, cost, terminated) = transitions
    with float64():
        step = step_from(x, action)
    assert step.obs.dtype == jnp.float64 and step.obs.shape[1] == PointGoal().observation_size == 44
    worst = np.abs(step.obs - observation).max()
    print(f"{len(x)} transitions: state {np.abs(step.state.physical - state).max():.1e}, observation {worst:.1e}")
    np.testing.assert_allclose(step.state.physical, state, rtol=0, atol=1e-8)
    np.testing.assert_allclose(step.obs, observation, rtol=0, atol=1e-8)
    np.testing.assert_allclose(step.reward, reward, rtol=0, atol=1e-8)
    assert (step.cost == cost).all() and (step.terminated == terminated).all()
    assert 0.05 < cost.mean() < 0.95 and 0.02 < terminated.mean() < 0.5


class OneSubstep(PointGoal):
    substeps = 1


def lively_substeps(x, action):
    """In how many of the ten substeps the velocity actuator is not saturated."""
    count = np.zeros(len(x), int)
    with float64():
        advance = jax.jit(jax.vmap(OneSubstep().advance))
        for _ in range(10):
            count += np.abs(np.clip(action[:, 1], -1, 1) - 0.3 * np.asarray(x[:, 5])) < 0.05
            x = advance(x, action)
    return count


def test_point_in_float32(transitions):
    """Rounding grows 4.2-fold in each substep in which the velocity actuator is not saturated, and nowhere else.

    Its torque 0.3 (a₂ − 0.3 ω) turns an inertia of 3.7e-5 (with h × damping) for h = 0.002: ω' − ω* = −4.2 (ω − ω*), so
    ω* = a₂ / 0.3 is unstable, and ω hops around it from one saturation to the other. After k such substeps of ten, ω
    has an error of 4.2ᵏ roundings, of which the sideways accelerometer sees 65 /s. All else sees next to nothing of it.
    """
    x, action, (state, observation, reward, cost, terminated) = transitions
    slow = np.abs(x[:, 5]) < 10
    growth = 4.2 ** lively_substeps(x, action)
    step = step_from(jnp.asarray(x, jnp.float32), jnp.asarray(action, jnp.float32))
    assert step.obs.dtype == step.reward.dtype == step.cost.dtype == jnp.float32
    error = np.abs(step.obs - observation)[slow]
    sideways, spin = error[:, 1], error[:, 21]
    calm = np.delete(error, [1, 21], axis=1)
    growth = growth[slow]
    print(f"float32: sideways {sideways.max():.1e}, spin {spin.max():.1e}, others {calm.max():.1e}")
    assert calm[growth < 4.2**5.5].max() < 1e-4
    assert (spin < 2e-6 * growth).all() and (sideways < 1.5e-4 * growth).all()
    assert np.abs(step.reward - reward).max() < 1e-5
    clear = np.abs(np.linalg.norm(state[:, :2], axis=1) - 0.7) > 1e-5
    assert (step.cost == cost)[clear].all()
    clear = np.abs(np.linalg.norm(state[:, :2] - 1.1, axis=1) - 0.3) > 1e-5
    assert (step.terminated == terminated)[clear].all()


def test_point_senses_in_float32_what_it_senses_in_float64(transitions):
    x, action, (state, *_) = transitions
    state = state[np.abs(x[:, 5]) < 10].astype(np.float32)
    action = action[np.abs(x[:, 5]) < 10].astype(np.float32)
    sense = jax.jit(jax.vmap(PointGoal().sense))
    single = sense(state, action)
    with float64():
        double = sense(state.astype(float), action.astype(float))
    np.testing.assert_allclose(single, double, rtol=0, atol=1e-4)


def test_the_engine_gives_the_point_its_own_physics():
    x, action = point_transitions(500, seed=3)
    task = PointGoal()
    with float64():
        advance, sense = jax.jit(jax.vmap(task.advance)), jax.jit(jax.vmap(task.sense))
        state = advance(x, action)
        sensors, first = sense(state, action), sense(x, action)
    engine = MujocoEngine(task)
    ours, sensed = engine.advance(x, action)
    np.testing.assert_allclose(ours, state, rtol=0, atol=1e-8)
    np.testing.assert_allclose(sensed, sensors, rtol=0, atol=1e-8)
    np.testing.assert_allclose(engine.sense(x, action), first, rtol=0, atol=1e-8)
    engine.close()


def test_reward_cost_and_end_on_the_circles_themselves():
    task = PointGoal()
    place = lambda *xy: jnp.asarray([*xy, 0.0, 0.0, 0.0, 0.0])  # noqa: E731
    rest = jnp.zeros(2)
    assert task.cost(place(9, 9), rest, place(0.7, 0.0)) == 1 and task.cost(place(0, 0), rest, place(0.7001, 0.0)) == 0
    assert task.terminated(place(1.1, 0.8001)) and not task.terminated(place(1.1, 0.7999))
    assert task.reward(place(1.1, 0.1), rest, place(1.1, 0.35)) == pytest.approx(0.25, abs=1e-6)
    assert task.reward(place(1.1, 0.1), rest, place(1.1, 1.0)) == pytest.approx(1.9, abs=1e-6)


def test_a_scripted_drive_gives_the_known_returns_and_costs():
    """Turn towards the goal, and drive once it is ahead: return 2.95 ± 0.47; cost 18.9, q90 52, q99 55."""
    task, count = PointGoal(), 1000 if VERIFY else 400

    def drive(x):
        error = jnp.arctan2(1.1 - x[1], 1.1 - x[0]) - x[2]
        error = (error + jnp.pi) % (2 * jnp.pi) - jnp.pi
        return jnp.stack([jnp.abs(error) < 1.3, jnp.clip(2 * error, -1, 1)])

    def step(carry, _):
        x, running = carry
        action = drive(x)
        x_next = task.advance(x, action)
        gained = running * jnp.stack([task.reward(x, action, x_next), task.cost(x, action, x_next)])
        return (x_next, running & ~task.terminated(x_next)), gained

    def episode(key):
        (_, running), gained = jax.lax.scan(step, (task.start(key), jnp.asarray(True)), length=task.horizon)
        return jnp.concatenate([gained.sum(0), running[None]])

    returns, costs, running = np.asarray(jax.jit(jax.vmap(episode))(jax.random.split(jax.random.key(0), count))).T
    check_drive("Point", returns, costs, episodes=1000, known=(2.95, 0.47, 18.9, 52, 55))
    assert running.mean() < 0.01


def check_drive(name, returns, costs, episodes, known):
    """Both the known row and ours are samples: four standard errors of their difference, and 5 % on the quantiles."""
    q90, q99 = np.quantile(costs, [0.9, 0.99])
    row = f"return {returns.mean():.2f}±{returns.std():.2f}, cost {costs.mean():.1f}, q90 {q90:.0f}, q99 {q99:.0f}"
    print(f"{name}, {len(returns)} drives: {row}")
    spread = math.sqrt(1 / len(returns) + 1 / episodes)
    assert abs(returns.mean() - known[0]) < 4 * known[1] * spread
    assert returns.std() == pytest.approx(known[1], abs=4 * known[1] * spread / math.sqrt(2))
    assert abs(costs.mean() - known[2]) < 4 * costs.std() * spread
    assert q90 == pytest.approx(known[3], rel=0.05) and q99 == pytest.approx(known[4], rel=0.05)
    assert 0.4 < np.mean(costs == 0) < 0.75


def nearest_start(config: Config, mode: str = "train") -> float:
    """As the lidar of the hazard tells it; its bins come after acceleration, the ball of the Car, the goal and the gyro."""
    env = environment_of(config, mode, num_envs=500)
    native = config.experiment.env == "point"
    obs = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), 2000))[1] if native else env.reset(0)
    first = 22 if native else 34
    return 3.0 - 3.0 * float(np.max(obs[:, first : first + 16]))


def test_only_sauted_policies_of_the_fast_preset_begin_nearer_to_the_hazard_and_only_in_training() -> None:
    def point(preset: str, method: str, mode: str) -> float:
        return nearest_start(configured(Experiment("point", method=method, preset=preset)), mode)

    assert 0.799 <= point("fast", "saute", "train") < 0.82
    for other in (("fast", "saute", "test"), ("fast", "lagrangian", "train"), ("paper", "saute", "train")):
        assert 1.104 <= point(*other) < 1.12


@pytest.mark.parametrize(("env", "gentler"), [("point", -0.2), ("car", -0.05)])
def test_fast_presets_train_with_a_gentler_unsafe_reward_than_tests_have_unless_one_is_given(env, gentler) -> None:
    def unsafe(preset: str, given: float | None) -> list[float]:
        config = configured(Experiment(env, preset=preset, unsafe_reward=given))
        assert Config.from_json(config.as_json()) == config
        return [environment_of(config, mode).options.unsafe_reward for mode in ("train", "test")]

    assert unsafe("fast", None) == [gentler, -1.0] and unsafe("fast", -3.0) == [-3.0, -3.0]
    assert unsafe("paper", None) == [-1.0, -1.0]


def test_the_car_begins_as_near_as_its_settings_say() -> None:
    usual = configured(Experiment("car"))
    near = changed(usual, "task.hazard_keepout", 0.75)
    assert Config.from_json(near.as_json()) == near and usual.as_json()["task"] == {}
    assert 0.749 <= nearest_start(near) < 0.8 and nearest_start(near, "test") >= 1.104 and nearest_start(usual) >= 1.104
    assert 0.799 <= nearest_start(configured(Experiment("car", preset="fast"))) < 0.83
