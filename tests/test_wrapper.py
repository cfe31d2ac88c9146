"""SauteWrapper: numbers, spaces, seeding, copying, and what it writes into info."""

from __future__ import annotations

import copy
import pickle
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import NormalizeObservation, RecordEpisodeStatistics, TimeLimit
from toys import KINDS, Scripted, SixTuple, play, sauted

import saute


def test_the_paper_on_a_hand_computed_episode() -> None:
    env = sauted(3.0, unsafe_reward=-7.0, env=dict(costs=(1.0, 2.0, 0.0, 0.5), rewards=(0.1, 0.2, 0.3, 0.4), length=4))
    first, *steps = play(env, seed=0)
    assert first[0][-1] == 1.0 and first[1]["remaining"] == 3.0
    assert [s[4]["remaining"] for s in steps] == [2.0, 0.0, 0.0, -0.5]
    assert [s[1] for s in steps] == [0.1, 0.2, 0.3, -7.0]
    assert [s[4]["task_reward"] for s in steps] == [0.1, 0.2, 0.3, 0.4]
    assert [s[4]["violated"] for s in steps] == [False, False, False, True]
    assert [s[0][-1] for s in steps] == pytest.approx([2 / 3, 0.0, 0.0, -0.5 / 3])
    assert "episode_cost" not in steps[2][4]
    last = steps[-1][4]
    assert last["episode_cost"] == 3.5 and last["episode_violated"] is True
    assert last["episode_task_return"] == pytest.approx(1.0)


def test_discounted_costs_grow_the_remaining_budget() -> None:
    steps = play(sauted(10.0, discount=0.5, env=dict(costs=(4.0, 1.0), length=2)))
    assert [s[4]["remaining"] for s in steps[1:]] == [12.0, 22.0]


@pytest.mark.parametrize("d", [1, 7, 49, 200])
def test_integer_budget_spent_exactly_is_no_violation(d: int) -> None:
    last = play(sauted(d, env=dict(length=d)))[-1]
    assert last[4]["remaining"] == 0.0 and not last[4]["violated"] and last[0][-1] == 0.0
    assert play(sauted(d, env=dict(length=d + 1)))[-1][4]["violated"]


def test_several_constraints_are_unsafe_as_soon_as_one_is_overspent() -> None:
    costs = [np.array([1.0, 0.0]), np.array([0.0, 5.0]), np.array([0.0, 0.1])]
    env = sauted([10.0, 5.0], unsafe_reward=-1.0, env=dict(costs=costs, key="costs", length=3))
    first, *steps = play(env)
    assert env.observation_space.shape == (5,)
    np.testing.assert_array_equal(first[0][-2:], [1.0, 1.0])
    assert [s[4]["violated"] for s in steps] == [False, False, True]
    assert [s[1] for s in steps] == [1.0, 1.0, -1.0]
    np.testing.assert_allclose(steps[-1][4]["remaining"], [9.0, -0.1])
    np.testing.assert_allclose(steps[-1][4]["episode_cost"], [1.0, 5.1])


def test_several_costs_from_a_sequence_of_keys_and_from_a_function() -> None:
    class Two(Scripted):
        def step(self, action):
            obs, reward, terminated, truncated, _ = Scripted.step(self, action)
            return obs, reward, terminated, truncated, {"heat": 1.0, "wear": {"gear": 0.25}}

    by_key = play(saute.SauteWrapper(Two(), [5.0, 1.0], cost=["heat", "wear.gear"]))[-1]
    by_function = play(saute.SauteWrapper(Two(), [5.0, 1.0], cost=lambda o, a, n, i: (i["heat"], i["wear"]["gear"])))[-1]
    np.testing.assert_array_equal(by_key[4]["remaining"], [0.0, -0.25])
    np.testing.assert_array_equal(by_function[4]["remaining"], by_key[4]["remaining"])


def test_cost_function_sees_the_transition() -> None:
    seen = []

    def cost(obs, action, next_obs, info):
        seen.append((obs, next_obs))
        return float(action[0] ** 2)

    env = sauted(1.0, cost=cost)
    start, _ = env.reset(seed=0)
    obs, *_, info = env.step(np.array([0.5]))
    assert info["cost"] == 0.25
    np.testing.assert_array_equal(seen[0][0], start[:3])
    np.testing.assert_array_equal(seen[0][1], obs[:3])


def test_nested_cost_key() -> None:
    assert play(sauted(9.0, cost="safety.total", env=dict(key="safety.total")))[-1][4]["cost"] == 1.0


@pytest.mark.parametrize("value", [True, 1, np.float32(1.0), np.array(1.0), np.array([1.0])])
def test_cost_may_be_any_single_number(value) -> None:
    info = play(sauted(9.0, env=dict(costs=(value,), length=1)))[-1][4]
    assert info["cost"] == 1.0 and type(info["cost"]) is float


@pytest.mark.parametrize("constraints", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_every_observation_kind_passes_gymnasiums_checker(kind: str, constraints: int) -> None:
    cost, budget, key = (0.3, 1.0, "cost") if constraints == 1 else (np.array([0.3, 0.1]), [1.0, 2.0], "costs")
    env = sauted(budget, env=dict(costs=(cost,), key=key, space=KINDS[kind]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the checker finds the honest bounds ±∞ of z unusual
        check_env(env)
    for obs, *_ in play(env, seed=1):
        assert obs in env.observation_space


def test_observation_spaces_say_where_z_is() -> None:
    box = sauted(1.0).observation_space
    assert box.dtype == np.float32 and box.low[-1] == -np.inf and box.high[-1] == np.inf and box.high[0] == 1.0
    assert sauted(1.0, env=dict(space=KINDS["float64"])).observation_space.dtype == np.float64
    assert sauted(1.0, env=dict(space=KINDS["int"])).observation_space.dtype == np.float64
    assert sauted(1.0, env=dict(space=KINDS["uint8"])).observation_space.dtype == np.float32
    assert set(sauted(1.0, env=dict(space=KINDS["dict"])).observation_space.spaces) == {"position", "gear", "remaining_budget"}
    pair = sauted(1.0, env=dict(space=KINDS["image"])).observation_space
    assert isinstance(pair, spaces.Dict) and pair["observation"] == KINDS["image"]


def test_ablations_leave_the_observation_or_the_reward_alone() -> None:
    plain = sauted(0.5, augment=False)
    assert plain.observation_space == KINDS["float32"]
    assert play(plain)[-1][0].shape == (3,) and play(plain)[-1][1] == 0.0
    unshaped = play(sauted(0.5, shape=False))[-1]
    assert unshaped[1] == 1.0 and unshaped[4]["violated"] and unshaped[0].shape == (4,)


def test_terminate_ends_the_episode_at_the_violation() -> None:
    steps = play(sauted(2.0, terminate=True))[1:]
    assert len(steps) == 3 and steps[-1][2] and steps[-1][4]["episode_violated"]


def test_random_budgets_are_seeded_uniform_and_leave_the_starts_alone() -> None:
    env = sauted(saute.uniform(5.0, 100.0))
    draws = [env.reset(seed=7)[1]["remaining"]] + [env.reset()[1]["remaining"] for _ in range(1999)]
    again = [env.reset(seed=7)[1]["remaining"]] + [env.reset()[1]["remaining"] for _ in range(9)]
    assert draws[:10] == again and len(set(draws)) == 2000
    assert 5.0 <= min(draws) < 6.0 and 99.0 < max(draws) <= 100.0 and np.mean(draws) == pytest.approx(52.5, abs=2.0)
    assert draws[0] != env.reset(seed=8)[1]["remaining"]
    fixed = sauted(30.0)
    np.testing.assert_array_equal(env.reset(seed=3)[0][:3], fixed.reset(seed=3)[0][:3])
    np.testing.assert_array_equal(env.reset()[0][:3], fixed.reset()[0][:3])


def test_reference_budget_is_the_upper_end_by_default() -> None:
    assert sauted(saute.uniform(5.0, 100.0)).options.reference == 100.0
    obs, info = sauted(saute.uniform(5.0, 100.0), reference_budget=50.0).reset(seed=0)
    assert obs[-1] == np.float32(info["remaining"] / 50.0)


def test_a_list_may_mix_fixed_and_random_budgets() -> None:
    env = sauted([3.0, saute.uniform(1.0, 2.0)], env=dict(costs=((1.0, 0.0),), key="costs"))
    draws = np.array([env.reset(seed=s)[1]["remaining"] for s in range(50)])
    assert (draws[:, 0] == 3.0).all() and (draws[:, 1] >= 1.0).all() and (draws[:, 1] <= 2.0).all() and draws[:, 1].std() > 0.1


def test_budget_option_lasts_one_episode_and_is_not_passed_on() -> None:
    env = sauted(10.0)
    obs, info = env.reset(options={"budget": 25, "goal": "left"})
    assert info["remaining"] == 25.0 and obs[-1] == 2.5
    assert env.unwrapped.reset_options == {"goal": "left"}
    assert env.reset()[1]["remaining"] == 10.0


def test_spec_round_trip_rebuilds_the_wrapper() -> None:
    env = saute.SauteWrapper(gym.make("saute/TwoArms-v0"), saute.uniform(2.0, 4.0), unsafe_reward=-1.0, discount=0.9)
    again = gym.make(env.spec)
    assert isinstance(again, saute.SauteWrapper) and again.options == env.options
    np.testing.assert_array_equal(env.reset(seed=5)[0], again.reset(seed=5)[0])


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_copies_continue_identically(clone) -> None:
    env = saute.SauteWrapper(gym.make("saute/TwoArms-v0"), saute.uniform(2.0, 4.0))
    env.reset(seed=1)
    env.step([1.0])
    twin = clone(env)
    for _ in range(3):
        a, b = env.step([1.0]), twin.step([1.0])
        np.testing.assert_array_equal(a[0], b[0])
        assert a[1:] == b[1:]
    assert env.reset()[1] == twin.reset()[1]


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_copies_observe_their_own_state(clone) -> None:
    env = saute.SauteWrapper(gym.make("saute/SafePendulum-v0"), 30.0)
    env.reset(seed=1)
    twin = clone(env)
    for action in ([1.0], [-1.0]):
        np.testing.assert_array_equal(env.step(action)[0], twin.step(action)[0])
    assert (env.step([1.0])[0][:3] != twin.step([-1.0])[0][:3]).any()


def test_record_episode_statistics_keeps_the_episode_entries() -> None:
    info = play(RecordEpisodeStatistics(sauted(2.0)))[-1][4]
    assert info["episode"]["r"] == 2.0 and info["episode_task_return"] == 5.0 and info["episode_cost"] == 5.0


def test_six_tuples_both_ways() -> None:
    env = saute.SauteWrapper(saute.from_six_tuple(SixTuple()), 3.0)
    assert play(env)[-1][4]["remaining"] == -2.0
    six = saute.to_six_tuple(sauted(3.0))
    six.reset()
    assert six.step(np.zeros(1))[2] == 1.0 and len(six.step(np.zeros(1))) == 6


def test_a_normaliser_below_leaves_the_budget_as_it_is() -> None:
    env = saute.SauteWrapper(NormalizeObservation(Scripted()), 4.0)
    assert [obs[-1] for obs, *_ in play(env, seed=0)] == [1.0, 0.75, 0.5, 0.25, 0.0, -0.25]


@pytest.mark.parametrize("around", [lambda env: env, RecordEpisodeStatistics])
def test_a_time_limit_outside_is_warned_of_once_and_one_inside_is_not(around) -> None:
    env = around(TimeLimit(sauted(3.0, env=dict(length=9)), 2))
    with pytest.warns(UserWarning, match="put the limit inside"):
        env.reset(seed=0)
    assert "episode_cost" not in [env.step(env.action_space.sample()) for _ in range(2)][-1][4]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env.reset()
        inside = saute.SauteWrapper(TimeLimit(Scripted(length=9), 2), budget=3.0)
        around(inside).reset(seed=0)
    assert [inside.step(inside.action_space.sample()) for _ in range(2)][-1][4]["episode_cost"] == 2.0


@pytest.mark.parametrize("vector", [False, True])
def test_a_misspelt_budget_is_warned_of_and_other_options_are_the_environments_own(vector: bool) -> None:
    one = sauted(3.0)
    env = saute.SauteVectorWrapper(gym.vector.SyncVectorEnv([Scripted]), budget=3.0) if vector else one
    with pytest.warns(UserWarning, match="no option 'bugdet'.*\"budget\""):
        env.reset(options={"bugdet": 2.0})
    assert np.all(env.remaining == 3.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env.reset(options={"level": 2, "budget": 1.0})
    assert np.all(env.remaining == 1.0)
