"""Both bodies of the driver: the same rows, own last observations, and whole episodes that are counted honestly."""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from functools import partial
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from learner_toys import Slope, TwoCosts, assert_same, hosted
from toys import Scripted

import saute
from saute.core.options import Options, options
from saute.core.protocol import Episodes, Step, Transition
from saute.envs.from_gym import HostEnvs
from saute.learn import drive as driving
from saute.learn.agent import Acted, unchanged
from saute.learn.drive import Training, Window, drive, host_steps, rollout, window_of
from saute.learn.stream import begin, begin_on_host

TASK = dict(mode="test", horizon=7)


@dataclasses.dataclass(frozen=True)
class Player:
    """Plays one action, or if there is none any, and learns nothing; its memory counts the steps of an episode."""

    action: float | None = None
    steps_per_epoch: int = 20
    num_envs: int | None = None

    prepare = begin = observe = learn = staticmethod(unchanged)

    @property
    def settings(self) -> Any:
        return self

    def init(self, key: Any) -> Any:
        return jnp.zeros(1)

    def memory(self, count: int) -> Any:
        return jnp.zeros(count, jnp.int32)

    def act(self, state: Any, memory: Any, obs: Any, key: Any) -> Acted:
        shape = (len(obs), 1)
        action = jax.random.normal(key, shape) if self.action is None else jnp.full(shape, self.action)
        return Acted(action, memory + 1, {"first": obs[:, 0], "time": memory})

    def export(self, state: Any) -> Any:
        return state

    vital = export

    @property
    def policy(self) -> Any:
        return self

    def objection(self, metrics: dict[str, float]) -> None:
        return None


def native_rows(
    env: Any, player: Player, num_envs: int, steps: int, ledger: Options | None = None, fresh: bool = True
) -> tuple[Transition, Episodes]:
    play = rollout(player, env, Window(num_envs, steps, fresh), ledger)  # type: ignore[arg-type]
    stream = begin(env, jax.random.key(1), num_envs, player.memory(num_envs), ledger)
    rows, episodes, _ = jax.jit(play)((), stream, jax.random.split(jax.random.key(3), steps))[2]
    return rows, episodes


def host_rows(
    envs: HostEnvs, player: Player, steps: int, ledger: Options | None = None, fresh: bool = True
) -> tuple[Transition, Episodes]:
    keys = [jax.random.split(key, 4)[0] for key in jax.random.split(jax.random.key(3), steps)]
    blank = player.memory(envs.num_envs)
    stepping = host_steps(
        envs,
        lambda memory, obs, time: player.act((), memory, obs, keys[time]),
        begin_on_host(envs, 1, blank, ledger),
        blank,
        ledger,
        fresh,
    )
    seen = [(rows, episodes) for _, rows, episodes in itertools.islice(stepping, steps)]
    return jax.tree.map(lambda *column: np.stack(column), *seen)


@dataclasses.dataclass(frozen=True)
class Fixed:
    """The pendulum from one known state, so that both bodies start alike."""

    env: Any
    horizon = 7

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def reset(self, key: Any) -> Any:
        return self.env.start_from(jnp.array([3.0, 0.1]))

    def step(self, state: Any, action: Any, key: Any) -> Any:
        return self.env.step(state, action, key)


class Restarting(gym.vector.VectorWrapper):
    """Every reset leads to the same physical state."""

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self.env.reset(seed=seed, options={**(options or {}), "state": [3.0, 0.1]})


@pytest.mark.parametrize("ledger", [None, options(0.5, discount=0.9)], ids=["free", "ledger"])
@pytest.mark.parametrize("sauted", [False, True])
def test_both_bodies_give_the_same_rows_and_episodes(sauted: bool, ledger: Options | None) -> None:
    native = Fixed(saute.envs.pendulum(**TASK))
    host = Restarting(gym.make_vec("saute/SafePendulum-v0", num_envs=3, autoreset_mode=AutoresetMode.DISABLED, **TASK))
    if sauted:
        native = saute.saute(native, budget=0.5, unsafe_reward=-1.0)
        host = saute.SauteVectorWrapper(host, 0.5, unsafe_reward=-1.0)
    a, b = native_rows(native, Player(), 3, 20, ledger), host_rows(HostEnvs(host), Player(), 20, ledger)
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.shape == y.shape
        np.testing.assert_allclose(x, y, atol=2e-5)


@pytest.fixture(scope="module")
def sauted_rows() -> Any:
    """Twelve steps of four pendulums, whose episodes have five."""
    env = saute.saute(saute.envs.pendulum(mode="test", horizon=5), budget=30.0)
    return jax.tree.map(np.asarray, native_rows(env, Player(), 4, 12))


def test_last_observations_are_the_episodes_own(sauted_rows: Any) -> None:
    rows, episodes = sauted_rows
    assert rows.obs.shape == (12, 4, 4) and rows.truncated.sum() == 8
    ends = episodes.ended[:-1]
    np.testing.assert_array_equal(rows.next_obs[:-1][~ends], rows.obs[1:][~ends])
    assert (rows.obs[1:][ends][:, -1] == 1.0).all(), "the next episode begins with its full budget"
    assert not np.array_equal(rows.next_obs[:-1][ends], rows.obs[1:][ends])


def test_sums_are_of_whole_episodes(sauted_rows: Any) -> None:
    rows, episodes = sauted_rows
    np.testing.assert_array_equal(episodes.length[episodes.ended], 5)
    np.testing.assert_allclose(episodes.cost[4], rows.cost[:5].sum(0), rtol=1e-6)
    np.testing.assert_allclose(episodes.cost[9], rows.cost[5:10].sum(0), rtol=1e-6)
    np.testing.assert_allclose(episodes.task_return[9], rows.task_reward[5:10].sum(0), rtol=1e-6)


def test_what_a_learner_remembers_ends_with_the_episode(sauted_rows: Any) -> None:
    np.testing.assert_array_equal(sauted_rows[0].extras["time"], np.tile(np.arange(12)[:, None] % 5, 4))
    envs = HostEnvs(partial(Scripted, length=3), num_envs=2)
    np.testing.assert_array_equal(host_rows(envs, Player(), 7)[0].extras["time"][:, 0], [0, 1, 2, 0, 1, 2, 0])


def test_learners_see_the_shaped_reward_and_the_return_is_the_tasks_own() -> None:
    env = saute.saute(Slope(horizon=3), budget=0.75, unsafe_reward=-9.0)
    rows, episodes = native_rows(env, Player(0.5), 2, 3)
    np.testing.assert_array_equal(rows.reward[:, 0], [0.5, -9.0, -9.0])
    np.testing.assert_array_equal(episodes.task_return[-1], [1.5, 1.5])
    scripted = saute.SauteVectorWrapper(
        gym.vector.SyncVectorEnv([partial(Scripted, length=3)] * 2, autoreset_mode=AutoresetMode.DISABLED),
        1.0,
        unsafe_reward=-9.0,
    )
    rows, episodes = host_rows(HostEnvs(scripted), Player(0.0), 3)
    np.testing.assert_array_equal(rows.reward[:, 0], [1.0, -9.0, -9.0])
    np.testing.assert_array_equal(episodes.task_return[-1], [3.0, 3.0])
    np.testing.assert_array_equal(rows.next_obs[-1, :, -1], [-2.0, -2.0])


def test_environments_are_given_bounded_actions_and_learners_keep_their_own() -> None:
    for rows, episodes in (native_rows(Slope(), Player(7.0), 2, 10), host_rows(hosted(2), Player(7.0), 10)):
        assert (rows.action == 7.0).all() and (rows.task_reward == 1.0).all()
        np.testing.assert_array_equal(episodes.cost[-1], [10.0, 10.0])


@dataclasses.dataclass(frozen=True)
class Falls:
    """Half of the episodes end after 2 steps, the others after 20; each step costs 1."""

    horizon: int = 20
    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, key: Any) -> Any:
        return (jnp.where(jax.random.bernoulli(key), 2, 20), jnp.zeros((), jnp.int32)), jnp.zeros(1)

    def step(self, state: Any, action: Any, key: Any) -> Step:
        length, time = state[0], state[1] + 1
        return Step((length, time), jnp.zeros(1), jnp.ones(()), jnp.ones(()), time >= length, time >= self.horizon)


def test_every_episode_has_the_same_chance_to_be_counted_whatever_its_length() -> None:
    """Their mean cost is 11; all that end within 20 steps, one short one and half a long one per environment, have 8.

    The second window begins in the middle of 1000 streams that have gone on for long.
    """
    _, begun = native_rows(Falls(), Player(0.0), 1000, 20)
    _, going = native_rows(Falls(), Player(0.0), 1000, 220, fresh=False)
    late = jax.tree.map(lambda column: column[20:], going)
    for seen in (begun, late):
        assert np.asarray(seen.cost)[np.asarray(seen.counted)].mean() == pytest.approx(11.0, abs=1.0)
    assert begun.counted.sum() == 1000 and late.counted.sum() == late.ended.sum() > 10_000
    assert np.asarray(begun.cost)[np.asarray(begun.ended)].mean() == pytest.approx(8.0, abs=0.5)


def test_on_the_host_too_only_the_first_episode_of_a_window_that_begins_anew_counts() -> None:
    envs = HostEnvs(partial(Scripted, lengths=(3, 1, 2)), num_envs=2)
    for fresh, counted in ((True, [3]), (False, [3, 1, 2, 3])):
        envs = HostEnvs(partial(Scripted, lengths=(3, 1, 2)), num_envs=2)
        _, episodes = host_rows(envs, Player(0.0), 9, fresh=fresh)
        assert episodes.length[episodes.counted[:, 0], 0].tolist() == counted
        assert episodes.length[episodes.ended[:, 1], 1].tolist() == [3, 1, 2, 3]


@pytest.mark.parametrize(
    ("settings", "env", "window"),
    [
        (Player(steps_per_epoch=400), Slope(), (40, 10, True)),
        (Player(steps_per_epoch=405, num_envs=3), Slope(), (3, 135, True)),
        (Player(steps_per_epoch=9), Slope(), (1, 9, False)),
        (Player(steps_per_epoch=60, num_envs=8), Slope(), (8, 7, False)),
        (Player(steps_per_epoch=60, num_envs=8), hosted(6, seeds=2), (3, 20, True)),
        (Player(steps_per_epoch=60), HostEnvs(Scripted, num_envs=2), (2, 30, False)),
    ],
)
def test_an_epoch_begins_anew_if_it_is_long_enough_for_every_episode(settings: Any, env: Any, window: Any) -> None:
    assert window_of(settings, env) == window


def epochs_of(player: Player, env: Any, count: int, ledger: Options | None = None) -> list[dict[str, float]]:
    """The numbers of one seed."""
    body, numbers = drive(player, env, ledger), []  # type: ignore[arg-type]
    seeds = body.first([jax.random.key(0)])
    for i in range(count):
        ((seed, metrics),) = body.epoch(seeds, [jax.random.key(i)])
        seeds = [seed]
        numbers.append({name: float(value) for name, value in metrics.items()})
    return numbers


@pytest.mark.parametrize("env", [Slope(), hosted(1)], ids=["native", "host"])
def test_episodes_go_on_from_epoch_to_epoch_and_count_when_they_end(env: Any) -> None:
    """Ten steps of 0.5 pay and cost 5; an epoch has four of them."""
    numbers = epochs_of(Player(0.5, steps_per_epoch=4, num_envs=1), env, 6)
    assert [epoch["episodes"] for epoch in numbers] == [0, 0, 1, 0, 1, 0]
    assert [epoch["task_return"] for epoch in numbers] == pytest.approx([np.nan, np.nan, 5.0, np.nan, 5.0, np.nan], nan_ok=True)
    for name in ("cost", "worst_cost", "length"):
        assert np.isnan([epoch[name] for epoch in numbers]).tolist() == [True, True, False, True, False, True]
    assert numbers[2]["length"] == 10 and all(epoch["cost_per_step"] == 0.5 for epoch in numbers)


def test_a_stream_can_be_saved_between_two_epochs() -> None:
    body = drive(Player(steps_per_epoch=4, num_envs=1), saute.saute(Slope(), 3.0))  # type: ignore[arg-type]
    (seed,), numbers = body.first([jax.random.key(0)]), []
    for i in range(3):
        stored = jax.tree.map(np.asarray, seed)
        assert isinstance(stored, Training) and stored.stream.books.length.tolist() == [4 * i]
        (going,), (restored,) = (body.epoch([one], [jax.random.key(i)]) for one in (seed, stored))
        assert_same(going, restored)
        seed, metrics = going
        numbers.append(int(metrics["episodes"]))
    assert numbers == [0, 0, 1]


@dataclasses.dataclass(frozen=True)
class Looking(Player):
    """Knows the largest observation before training, and counts what it observes in it."""

    def prepare(self, state: Any, obs: Any) -> Any:
        return state + obs.max(), {}

    def observe(self, state: Any, rows: Any, key: Any) -> Any:
        return state + 100 * rows.terminated.shape[0], {}


@pytest.mark.parametrize("env", [Slope(), HostEnvs(hosted(1).envs.env)], ids=["native", "host"])
def test_what_is_seen_before_training_only_prepares(env: Any) -> None:
    body = drive(Looking(0.5), env)  # type: ignore[arg-type]
    (seed,) = body.first([jax.random.key(0)])
    assert seed.state == pytest.approx(0.9)
    ((seed, _),) = body.epoch([seed], [jax.random.key(0)])
    assert seed.state == pytest.approx(2000.9)


BOTH = pytest.mark.parametrize("make", [Slope, lambda: HostEnvs(hosted(2).envs.env)], ids=["native", "host"])


@BOTH
@pytest.mark.parametrize(
    ("ledger", "rate"),
    [
        (options(5.0), 0.0),
        (options(4.99), 1.0),
        # Σ 0.9ᵗ/2 over ten steps is 3.2566.
        (options(3.26, discount=0.9), 0.0),
        (options(3.25, discount=0.9), 1.0),
    ],
)
def test_violations_are_what_the_ledger_says(make: Any, ledger: Options, rate: float) -> None:
    (numbers,) = epochs_of(Player(0.5), make(), 1, ledger)
    assert numbers["violation_rate"] == rate and numbers["cost"] == pytest.approx(5.0)


@BOTH
def test_without_any_budget_there_is_no_violation_rate(make: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (numbers,) = epochs_of(Player(0.5), make(), 1)
    assert np.isnan(numbers["violation_rate"]) and numbers["episodes"] == 2


def test_without_any_budget_nothing_is_violated() -> None:
    for _, episodes in (native_rows(Slope(), Player(0.5), 2, 10), host_rows(HostEnvs(hosted(2).envs.env), Player(0.5), 10)):
        assert not episodes.violated.any()


@pytest.mark.parametrize(("budget", "rate"), [(5.0, 0.0), (4.99, 1.0)])
def test_sauted_environments_carry_their_own_budget(budget: float, rate: float) -> None:
    """Whatever the ledger says; of several budgets, one that is overspent is enough."""
    env = saute.saute(Slope(), budget)
    assert epochs_of(Player(0.5), env, 1, options(1.0))[0]["violation_rate"] == rate
    two = saute.saute(TwoCosts(), [1.0 if rate else 100.0, 1.0])
    (numbers,) = epochs_of(Player(0.25), two, 1, two.options)
    assert numbers["violation_rate"] == rate and numbers["cost_1"] == 0.0 < numbers["cost_0"] == numbers["worst_cost_0"]


def test_spent_is_discounted_and_cost_is_not() -> None:
    for _, episodes in (
        native_rows(Slope(), Player(0.5), 1, 10, options(3.0, discount=0.9)),
        host_rows(HostEnvs(hosted(1).envs.env), Player(0.5), 10, options(3.0, discount=0.9)),
    ):
        assert episodes.cost[-1, 0] == pytest.approx(5.0)
        assert episodes.spent[-1, 0] == pytest.approx(0.5 * (1 - 0.9**10) / 0.1, rel=1e-6)


def test_host_takes_a_function_that_makes_one_environment() -> None:
    envs = HostEnvs(partial(Scripted, length=2), num_envs=3)
    rows, episodes = host_rows(envs, Player(0.0), 5)
    assert episodes.ended.sum() == 6 and rows.obs.dtype == np.float32


def test_host_refuses_what_it_cannot_step() -> None:
    with pytest.raises(ValueError, match="resets itself"):
        HostEnvs(gym.vector.SyncVectorEnv([Scripted]))
    with pytest.raises(ValueError, match="cannot be flattened"):
        HostEnvs(lambda: Scripted(space=gym.spaces.Text(3)))
    with pytest.raises(ValueError, match="no cost"):
        host_rows(HostEnvs(partial(Scripted, key="")), Player(0.0), 1)


@dataclasses.dataclass(frozen=True)
class Lucky(Player):
    """Adds up random whole numbers, which are drawn ahead."""

    def luck(self, key: Any, count: int) -> Any:
        return jax.random.randint(key, (count,), 0, 1000)

    def observe(self, state: Any, rows: Any, luck: Any) -> Any:
        return state + luck.sum(), {}


class Drawing(Player):
    """Draws them when it needs them."""

    def observe(self, state: Any, rows: Any, key: Any) -> Any:
        return state + jax.random.randint(key, (len(rows.terminated),), 0, 1000).sum(), {}


@pytest.mark.parametrize("ahead", [1, 7, 250])
@pytest.mark.parametrize("make", [Slope, lambda: hosted(2)], ids=["native", "host"])
def test_what_is_drawn_ahead_is_what_every_step_would_have_drawn(make: Any, ahead: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(driving, "AHEAD", ahead)
    found = []
    for player in (Lucky(0.5, 40, 2), Drawing(0.5, 40, 2)):
        body = drive(player, make())  # type: ignore[arg-type]
        found.append(body.epoch(body.first([jax.random.key(0)]), [jax.random.key(1)]))
    assert_same(*found)
    assert found[0][0][0].state != 0.0
