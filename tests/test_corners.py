"""Corners of the wrappers in which a cost, a budget or an error could get lost."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from toys import Scripted, play, sauted

import saute
from saute.core.protocol import Step
from saute.envs.from_gym import HostEnvs

A = np.zeros((2, 1))


def test_a_cost_function_that_reads_info_gets_the_last_step_of_ended_environments() -> None:
    for mode in AutoresetMode:
        bare = SyncVectorEnv(
            [partial(Scripted, length=2, key="speed"), partial(Scripted, length=3, key="speed")], autoreset_mode=mode
        )
        envs = saute.SauteVectorWrapper(bare, 10.0, cost=lambda o, a, n, info: info["speed"])
        envs.reset(seed=0)
        envs.step(A)
        *_, info = envs.step(A)
        np.testing.assert_array_equal(info["cost"], [1.0, 1.0])
        assert info["episode_cost"][0] == 2.0


def test_nested_observations_reach_a_cost_function_whole() -> None:
    space = gym.spaces.Dict(
        {"a": gym.spaces.Dict({"b": gym.spaces.Box(0.0, 1.0, (2,), np.float32)}), "c": gym.spaces.Discrete(3)}
    )

    def cost(obs: Any, action: Any, next_obs: Any, info: Any) -> np.ndarray:
        return next_obs["a"]["b"][:, 0].astype(float)

    bare = SyncVectorEnv([partial(Scripted, length=2, space=space)] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    envs = saute.SauteVectorWrapper(bare, 10.0, cost=cost)
    envs.reset(seed=0)
    envs.step(A)
    *_, info = envs.step(A)
    np.testing.assert_array_equal(info["cost"], [obs["a"]["b"][0] for obs in info["final_obs"]])


class Reusing(Scripted):
    """Writes each observation into the arrays of the last one."""

    def step(self, action: Any) -> Any:
        obs, *rest = Scripted.step(self, action)
        for old, new in zip(leaves(self.last), leaves(obs), strict=True):
            old[...] = new
        return self.last, *rest

    def reset(self, **asked: Any) -> Any:
        self.last, info = Scripted.reset(self, **asked)
        return self.last, info


def leaves(obs: Any) -> list[np.ndarray]:
    return [leaf for part in obs.values() for leaf in leaves(part)] if isinstance(obs, dict) else [obs]


@pytest.mark.parametrize("nested", [False, True])
def test_cost_functions_see_the_previous_observation_as_it_was(nested: bool) -> None:
    point = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
    space = gym.spaces.Dict({"a": gym.spaces.Dict({"b": point})}) if nested else point

    def cost(obs: Any, action: Any, next_obs: Any, info: Any) -> float:
        return sum(float(np.abs(new - old).max()) for old, new in zip(leaves(obs), leaves(next_obs), strict=True))

    fresh, reusing = (saute.SauteWrapper(kind(space=space), 1e9, cost=cost, augment=False) for kind in (Scripted, Reusing))
    costs = [info["cost"] for *_, info in play(fresh, seed=0)[1:]]
    assert min(costs) > 0 and [info["cost"] for *_, info in play(reusing, seed=0)[1:]] == costs


def test_after_a_step_without_a_cost_the_budgets_cannot_leak_into_the_next_episode() -> None:
    class Forgetful(Scripted):
        def step(self, action: Any) -> Any:
            *rest, info = Scripted.step(self, action)
            return *rest, {} if self.time == 2 else info

    envs = saute.SauteVectorWrapper(SyncVectorEnv([partial(Scripted, length=2), partial(Forgetful, length=9)]), 10.0)
    envs.reset()
    envs.step(A)
    with pytest.raises(ValueError, match=r"info of envs \[1\] has no key 'cost'"):
        envs.step(A)
    with pytest.raises(gym.error.ResetNeeded, match="the last step failed, so that its costs are not known"):
        envs.step(A)
    np.testing.assert_array_equal(envs.reset()[1]["remaining"], [10.0, 10.0])
    np.testing.assert_array_equal(envs.step(A)[4]["remaining"], [9.0, 9.0])


def test_environments_that_the_wrapper_ended_must_be_reset() -> None:
    bare = SyncVectorEnv([partial(Scripted, length=9)] * 2, autoreset_mode=AutoresetMode.DISABLED)
    envs = saute.SauteVectorWrapper(bare, 0.5, terminate=True)
    envs.reset()
    envs.step(A)
    with pytest.raises(gym.error.ResetNeeded, match=r"envs \[0, 1\] have ended"):
        envs.step(A)


def test_a_violation_at_the_time_limit_terminates_alike_everywhere() -> None:
    last = play(sauted(2.5, terminate=True, env=dict(length=3)))[-1]
    assert (last[2], last[3]) == (True, False)
    bare = SyncVectorEnv([partial(Scripted, length=3)] * 2, autoreset_mode=AutoresetMode.DISABLED)
    envs = saute.SauteVectorWrapper(bare, 2.5, terminate=True)
    envs.reset()
    for _ in range(3):
        _, _, terminated, truncated, _ = envs.step(A)
    assert terminated.all() and not truncated.any()


def test_what_is_handed_out_is_a_copy() -> None:
    env = sauted([5.0, 5.0], env=dict(costs=((1.0, 1.0),), key="costs"))
    env.reset()
    env.remaining[0] = -99.0
    np.testing.assert_array_equal(env.step(np.zeros(1))[4]["remaining"], [4.0, 4.0])


def test_several_constraints_in_six_tuples_and_on_the_host() -> None:
    six = saute.to_six_tuple(sauted([5.0, 5.0], env=dict(costs=((1.0, 2.0),), key="costs")))
    six.reset()
    np.testing.assert_array_equal(six.step(np.zeros(1))[2], [1.0, 2.0])
    bare = SyncVectorEnv([partial(Scripted, costs=(np.ones(2),), key="costs")] * 3, autoreset_mode=AutoresetMode.DISABLED)
    host = HostEnvs(saute.SauteVectorWrapper(bare, [5.0, 5.0]))
    host.reset(0)
    assert host.step(np.zeros((3, 1))).cost.shape == (3, 2)


def test_the_jax_side_refuses_costs_and_budgets_that_do_not_fit() -> None:
    env = saute.saute(saute.envs.pendulum(), budget=[5.0, 6.0])
    state, _ = env.reset(jax.random.key(0))
    with pytest.raises(ValueError, match=r"cost has shape \(\), expected \(2,\)"):
        env.step(state, jnp.zeros(1), jax.random.key(1))
    with pytest.raises(ValueError, match=r"budget=.*must be a positive"):
        saute.saute(saute.envs.pendulum()).reset(jax.random.key(0), -1.0)


def test_a_sauted_jax_environment_in_gymnasium_keeps_its_books_and_is_not_sauted_again() -> None:
    env = saute.GymEnv(saute.saute(saute.envs.pendulum(), budget=5.0), render_mode="rgb_array")
    env.reset(seed=0)
    *_, info = env.step(np.zeros(1))
    assert info["remaining"] == pytest.approx(5.0 - info["cost"]) and not info["violated"] and info["task_reward"] > 0
    assert env.state.shape == (2,) and env.render().shape == (480, 480, 3)
    with pytest.raises(ValueError, match="sautéed already"):
        saute.SauteWrapper(env, 1.0)
    with pytest.raises(ValueError, match="cannot start from a physical state"):
        env.reset(options={"state": [0.0, 0.0]})
    with pytest.raises(ValueError, match="needs SauteWrapper"):
        env.reset(options={"budget": 1.0})
    envs = saute.GymVectorEnv(saute.saute(saute.envs.pendulum(), budget=5.0), 2)
    envs.reset(seed=0)
    assert envs.step(A)[4]["remaining"].shape == (2,)
    with pytest.raises(ValueError, match="sautéed already"):
        saute.SauteVectorWrapper(envs, 1.0)


def test_specs_survive_json_and_budgets_may_be_jax_arrays() -> None:
    env = saute.SauteWrapper(gym.make("saute/TwoArms-v0"), saute.uniform(1.0, 2.0))
    again = gym.make(EnvSpec.from_json(env.spec.to_json()))
    assert again.get_wrapper_attr("options").high == 2.0
    assert sauted(jnp.array([1.0, 2.0]), env=dict(key="costs")).options.constraints == 2


def test_only_numbers_are_budgets_and_rows_are_costs() -> None:
    envs = saute.SauteVectorWrapper(SyncVectorEnv([Scripted] * 2), 1.0)
    for bad in (True, "30"):
        with pytest.raises(ValueError, match=r'options\["budget"\]='):
            envs.reset(options={"budget": bad})

    class Scalar(gym.vector.VectorWrapper):
        def step(self, actions: Any) -> Any:
            *rest, _ = self.env.step(actions)
            return *rest, {"cost": 1.0}

    scalar = saute.SauteVectorWrapper(Scalar(SyncVectorEnv([Scripted] * 2)), 1.0)
    scalar.reset()
    with pytest.raises(ValueError, match=r"has shape \(\) for 2 environments"):
        scalar.step(A)


def test_time_limits_can_only_shorten() -> None:
    envs = gym.make_vec("saute/SafePendulum-v0", num_envs=1, max_episode_steps=300)
    assert envs.unwrapped.env.horizon == 200
    assert gym.make("saute/TwoArms-v0", horizon=50).unwrapped.horizon == 50
    assert len(play(gym.make("saute/TwoArms-v0", horizon=50))) == 51
    with pytest.raises(ValueError, match="unknown render_mode 'human' of a batch"):
        gym.make_vec("saute/SafePendulum-v0", num_envs=1, render_mode="human")


def test_deepcopied_vector_wrappers_go_their_own_way() -> None:
    envs = saute.SauteVectorWrapper(SyncVectorEnv([Scripted] * 2), saute.uniform(1.0, 9.0))
    envs.reset(seed=0)
    twin = copy.deepcopy(envs)
    np.testing.assert_array_equal(envs.step(A)[0], twin.step(A)[0])
    np.testing.assert_array_equal(envs.reset()[1]["remaining"], twin.reset()[1]["remaining"])


def test_a_sauted_jax_environment_shows_its_budget_at_the_reset_and_its_options() -> None:
    bare, native = saute.envs.pendulum(horizon=1), saute.saute(saute.envs.pendulum(horizon=1), budget=5.0)
    env = saute.GymEnv(native)
    assert env.options == native.options and env.reset(seed=0)[1] == {"remaining": 5.0}
    assert saute.GymEnv(bare).options is None and saute.GymEnv(bare).reset()[1] == {}
    assert saute.GymVectorEnv(bare, 2).options is None and saute.GymVectorEnv(bare, 2).reset()[1] == {}
    envs = saute.GymVectorEnv(native, 2, AutoresetMode.DISABLED)
    assert envs.options == native.options
    np.testing.assert_array_equal(envs.reset(seed=0)[1]["remaining"], [5.0, 5.0])
    cost = envs.step(A)[4]["cost"]
    assert (cost > 0).any()
    first, second = np.array([True, False]), np.array([False, True])
    for mask, expected in ((first, [5.0, 5.0 - cost[1]]), (second, [5.0, 5.0])):
        info = envs.reset(options={"reset_mask": mask})[1]
        np.testing.assert_array_equal(info["remaining"], expected)
        np.testing.assert_array_equal(info["_remaining"], mask)


def test_a_batch_that_resets_itself_keeps_the_last_budget_in_final_info() -> None:
    envs = saute.GymVectorEnv(saute.saute(saute.envs.pendulum(horizon=1), budget=5.0), 2, AutoresetMode.SAME_STEP)
    envs.reset(seed=0)
    *_, info = envs.step(A)
    np.testing.assert_array_equal(info["remaining"], [5.0, 5.0])
    np.testing.assert_array_equal(info["final_info"]["remaining"], 5.0 - info["cost"])
    np.testing.assert_array_equal(info["final_info"]["violated"], [False, False])


class Priced(gym.Env):
    """Ten steps whose action is their cost."""

    observation_space = gym.spaces.Box(0.0, 1.0, (1,), np.float64)
    action_space = gym.spaces.Box(0.0, np.inf, (1,), np.float64)
    render_mode = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.time = 0
        return np.zeros(1), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return np.zeros(1), 1.0, False, self.time == 10, {"cost": float(action[0])}


class NativePriced:
    """The same in JAX."""

    observation_space, action_space, horizon = Priced.observation_space, Priced.action_space, 10

    def reset(self, key: Any) -> Any:
        return jnp.zeros((), int), jnp.zeros(1)

    def step(self, state: Any, action: Any, key: Any) -> Step:
        return Step(state + 1, jnp.zeros(1), jnp.ones(()), action[0], jnp.zeros((), bool), state + 1 == self.horizon)


def ends(budgets: np.ndarray, costs: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Remaining budget, and whether it was overspent, at the end of one episode per row, in each form of the transformation."""
    one = saute.SauteWrapper(Priced(), 1.0)
    single = []
    for budget, row in zip(budgets, costs, strict=True):
        one.reset(options={"budget": budget})
        info = [one.step(cost)[4] for cost in row[:, None]][-1]
        single.append((info["remaining"], info["episode_violated"]))
    envs = saute.SauteVectorWrapper(SyncVectorEnv([Priced] * len(budgets), autoreset_mode=AutoresetMode.DISABLED), 1.0)
    envs.reset(options={"budget": budgets})
    info = [envs.step(cost[:, None])[4] for cost in costs.T][-1]
    env = saute.saute(NativePriced(), 1.0)

    def episode(budget: Any, row: Any) -> Any:
        key = jax.random.key(0)
        start, _ = env.reset(key, budget)
        return jax.lax.scan(lambda state, cost: (env.step(state, cost[None], key).state, None), start, row)[0]

    with jax.enable_x64(True):
        last = jax.jit(jax.vmap(episode))(jnp.asarray(budgets), jnp.asarray(costs))
        native = np.asarray(last.remaining), np.asarray(last.violated)
    remaining, violated = zip(*single, strict=True)
    return {
        "single": (np.array(remaining), np.array(violated)),
        "vector": (info["remaining"], info["episode_violated"]),
        "native": native,
    }


def tenths(episodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Whole budgets and costs of which every other episode spends its budget exactly."""
    rng = np.random.default_rng(0)
    costs = rng.integers(0, 4, (episodes, 10))
    costs[:, 0] += 1
    budgets = np.where(np.arange(episodes) % 2, rng.integers(1, 30, episodes), costs.sum(1))
    return budgets.astype(float), costs.astype(float)


def test_every_form_carries_the_same_budget_when_costs_are_tenths() -> None:
    budgets, costs = tenths(2000)
    forms = ends(budgets / 10, costs / 10)
    for form in ("vector", "native"):
        for got, expected in zip(forms[form], forms["single"], strict=True):
            np.testing.assert_array_equal(got, expected, form)
    remaining, violated = forms["single"]
    np.testing.assert_array_equal(violated, remaining < 0)
    clear = budgets != costs.sum(1)
    np.testing.assert_array_equal(violated[clear], (costs.sum(1) > budgets)[clear])


def test_every_form_spends_whole_costs_exactly() -> None:
    budgets, costs = tenths(2000)
    for remaining, violated in ends(budgets, costs).values():
        np.testing.assert_array_equal(remaining, budgets - costs.sum(1))
        np.testing.assert_array_equal(violated, costs.sum(1) > budgets)


def test_tenths_spend_a_budget_up_to_rounding() -> None:
    costs = np.zeros((2, 10))
    costs[0, :3], costs[1] = 0.1, 0.1
    for remaining, violated in ends(np.array([0.3, 1.0]), costs).values():
        np.testing.assert_array_equal(remaining, [0.3 - 0.1 - 0.1 - 0.1, 2.0**-53 + 2.0**-55])
        np.testing.assert_array_equal(violated, [True, False])
