"""SauteVectorWrapper against N single wrappers, in every autoreset mode."""

from __future__ import annotations

import multiprocessing
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from toys import KINDS, Scripted

import saute

N = 4
MODES = list(AutoresetMode)
# Other tests start JAX's threads in this process, which a plain fork must not inherit.
Async = partial(AsyncVectorEnv, context="forkserver")
multiprocessing.set_forkserver_preload(["saute", "toys"])
LENGTHS = [(3, 5), (4,), (2, 6, 1), (5, 3)]


def make(i: int, several: bool = False, kind: str = "float32", ends: str = "truncated") -> Scripted:
    """Environments that differ in cost, reward and episode lengths."""
    costs = [0.5 + 0.25 * i, 0.0, 1.0 + i]
    if several:
        costs = [np.array([c, 0.1 * i]) for c in costs]
    return Scripted(
        costs, (0.1 * (i + 1), 0.7, -0.2), ends=ends, key="costs" if several else "cost", lengths=LENGTHS[i], space=KINDS[kind]
    )


def single(i: int, budget: Any, options: dict[str, Any], **kwargs: Any) -> saute.SauteWrapper:
    return saute.SauteWrapper(make(i, **kwargs), budget, **options)


def rollout(envs: gym.vector.VectorEnv, steps: int, mode: AutoresetMode, seed: int = 11) -> list[dict[str, Any]]:
    """What each environment did, as (augmented next observation before any reset, reward, …) of true transitions."""
    obs, info = envs.reset(seed=seed)
    log: list[dict[str, Any]] = [{"obs": obs, "remaining": info["remaining"]}]
    ended = np.zeros(N, bool)
    for _ in range(steps):
        if mode is AutoresetMode.DISABLED and ended.any():
            obs, info = envs.reset(options={"reset_mask": ended})
            log.append({"obs": obs, "remaining": info["remaining"][ended]})
        obs, reward, terminated, truncated, info = envs.step(np.zeros((N, 1), np.float32))
        ended = terminated | truncated
        log.append({"obs": obs, "reward": reward, "terminated": terminated, "truncated": truncated, "info": info})
    return log


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, tuple) or (isinstance(a, np.ndarray) and a.dtype == object):
        return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b, strict=True))
    return a is b or bool(np.array_equal(a, b))


BUDGETS = {
    "fixed": (2.5, False),
    "random": (saute.uniform(1.0, 4.0), False),
    "several": ([2.5, 0.4], True),
    "several-random": ([saute.uniform(1.0, 4.0), saute.uniform(0.2, 0.5)], True),
}


@pytest.mark.parametrize("vectorisation", [SyncVectorEnv, Async])
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("mode", MODES)
def test_n_single_wrappers_and_one_vector_wrapper_give_identical_numbers(mode, budget, vectorisation) -> None:
    d, several = BUDGETS[budget]
    options = dict(unsafe_reward=-3.0, discount=0.95)
    inside = vectorisation([partial(single, i, d, options, several=several) for i in range(N)], autoreset_mode=mode)
    bare = vectorisation([partial(make, i, several) for i in range(N)], autoreset_mode=mode)
    outside = saute.SauteVectorWrapper(bare, d, **options)
    assert outside.observation_space == inside.observation_space
    assert outside.single_observation_space == inside.single_observation_space
    for a, b in zip(rollout(inside, 30, mode), rollout(outside, 30, mode), strict=True):
        for key in a.keys() - {"info"}:
            assert equal(a[key], b[key]), key
        if "info" in a:
            compare_infos(a["info"], b["info"], mode)
    inside.close()
    outside.close()


def compare_infos(inside: dict[str, Any], outside: dict[str, Any], mode: AutoresetMode) -> None:
    for key in ("cost", "task_reward", "remaining", "violated", "episode_cost", "episode_task_return", "episode_violated"):
        if key in inside:
            mask = inside[f"_{key}"]
            assert equal(inside[key][mask], outside[key][mask]), key
            assert outside[f"_{key}"][mask].all()
    if mode is AutoresetMode.SAME_STEP and "final_obs" in inside:
        assert equal(inside["final_obs"], outside["final_obs"])
        for key, value in inside["final_info"].items():
            mask = inside["final_info"][f"_{key.lstrip('_')}"]
            assert equal(value[mask], outside["final_info"][key][mask]), key


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", MODES)
def test_every_observation_kind(mode: AutoresetMode, kind: str) -> None:
    inside = SyncVectorEnv([partial(single, i, 2.5, {}, kind=kind) for i in range(N)], autoreset_mode=mode)
    outside = saute.SauteVectorWrapper(SyncVectorEnv([partial(make, i, kind=kind) for i in range(N)], autoreset_mode=mode), 2.5)
    assert outside.observation_space == inside.observation_space
    for a, b in zip(rollout(inside, 12, mode), rollout(outside, 12, mode), strict=True):
        assert equal(a["obs"], b["obs"])
        if "info" in a and "final_obs" in a["info"]:
            assert equal(a["info"]["final_obs"], b["info"]["final_obs"])
        assert b["obs"] in outside.observation_space


@pytest.mark.parametrize("ends", ["truncated", "terminated"])
@pytest.mark.parametrize("mode", MODES)
def test_the_last_observation_carries_the_episodes_own_budget_and_its_cost_counts(mode: AutoresetMode, ends: str) -> None:
    bare = SyncVectorEnv([lambda: Scripted(length=3, ends=ends)] * 2, autoreset_mode=mode)
    envs = saute.SauteVectorWrapper(bare, 12.0)
    envs.reset(seed=0)
    for _ in range(3):
        obs, _, terminated, truncated, info = envs.step(np.zeros((2, 1)))
    last = np.stack(info["final_obs"]) if mode is AutoresetMode.SAME_STEP else obs
    np.testing.assert_array_equal(last[:, -1], np.float32([0.75, 0.75]))
    np.testing.assert_array_equal(info["episode_cost"], [3.0, 3.0])
    np.testing.assert_array_equal(info["cost"], [1.0, 1.0])
    assert (terminated if ends == "terminated" else truncated).all()
    if mode is AutoresetMode.DISABLED:
        obs, _ = envs.reset(options={"reset_mask": np.array([True, False])})
        np.testing.assert_array_equal(obs[:, -1], np.float32([1.0, 0.75]))
        return
    if mode is AutoresetMode.NEXT_STEP:
        obs, reward, _, _, info = envs.step(np.zeros((2, 1)))
        np.testing.assert_array_equal(reward, [0.0, 0.0])
        assert not info["_cost"].any()
    np.testing.assert_array_equal(obs[:, -1], [1.0, 1.0])


@pytest.mark.parametrize("mode", MODES)
def test_integer_budgets_spent_exactly_are_no_violations(mode: AutoresetMode) -> None:
    budgets = np.arange(1, 201)
    envs = saute.SauteVectorWrapper(SyncVectorEnv([partial(Scripted, length=300)] * 200, autoreset_mode=mode), 1.0)
    envs.reset(options={"budget": budgets})
    for t in range(1, 202):
        *_, info = envs.step(np.zeros((200, 1)))
        assert (info["remaining"][budgets == t] == 0.0).all()
        np.testing.assert_array_equal(info["violated"], budgets < t)


@pytest.mark.parametrize("mode", MODES)
def test_a_batched_cost_function_sees_the_observations_before_any_reset(mode: AutoresetMode) -> None:
    seen: list[tuple[np.ndarray, np.ndarray]] = []

    def cost(obs: Any, action: Any, next_obs: Any, info: Any) -> np.ndarray:
        seen.append((obs.copy(), next_obs.copy()))
        return np.abs(next_obs[:, 0]).astype(float)

    envs = saute.SauteVectorWrapper(SyncVectorEnv([partial(make, i) for i in range(N)], autoreset_mode=mode), 2.5, cost=cost)
    one_by_one = SyncVectorEnv(
        [partial(single, i, 2.5, dict(cost=lambda o, a, n, i: abs(float(n[0])))) for i in range(N)], autoreset_mode=mode
    )
    for a, b in zip(rollout(envs, 20, mode), rollout(one_by_one, 20, mode), strict=True):
        assert equal(a["obs"], b["obs"])
    assert seen


def test_budget_option_one_for_all_or_one_each() -> None:
    envs = saute.SauteVectorWrapper(SyncVectorEnv([Scripted] * 3), 10.0)
    np.testing.assert_array_equal(envs.reset(options={"budget": 20.0})[1]["remaining"], [20.0] * 3)
    np.testing.assert_array_equal(envs.reset(options={"budget": [1.0, 2.0, 3.0]})[0][:, -1], np.float32([0.1, 0.2, 0.3]))
    mask = np.array([False, True, False])
    envs.step(np.zeros((3, 1)))
    envs.reset(options={"budget": [7.0, 8.0, 9.0], "reset_mask": mask})
    np.testing.assert_array_equal(envs.remaining, [0.0, 8.0, 2.0])
    with pytest.raises(ValueError, match=r"does not fit shape \(3,\)"):
        envs.reset(options={"budget": [1.0, 2.0]})


def test_terminate_with_the_caller_resetting() -> None:
    envs = saute.SauteVectorWrapper(
        SyncVectorEnv([lambda: Scripted(length=9)] * 2, autoreset_mode=AutoresetMode.DISABLED), 2.0, terminate=True
    )
    envs.reset()
    ends = [envs.step(np.zeros((2, 1)))[2].all() for _ in range(3)]
    assert ends == [False, False, True]
    obs, _ = envs.reset(options={"reset_mask": np.array([True, True])})
    np.testing.assert_array_equal(obs[:, -1], [1.0, 1.0])


def test_native_vector_environments_without_masks_draw_from_their_one_generator() -> None:
    class Native(gym.vector.VectorEnv):
        metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        num_envs = 3
        single_observation_space = KINDS["float32"]
        observation_space = gym.vector.utils.batch_space(KINDS["float32"], 3)
        single_action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
        action_space = gym.vector.utils.batch_space(single_action_space, 3)

        def reset(self, *, seed=None, options=None):
            gym.vector.VectorEnv.reset(self, seed=seed)
            self.time = 0
            return np.zeros((3, 3), np.float32), {}

        def step(self, actions):
            self.time += 1
            over = np.full(3, self.time % 2 == 0)
            info: dict[str, Any] = {"cost": np.ones(3)}
            if over.any():
                info |= {"final_obs": np.ones((3, 3), np.float32), "final_info": {"cost": np.full(3, 5.0)}}
            return np.zeros((3, 3), np.float32), np.ones(3), np.zeros(3, bool), over, info

    envs = saute.SauteVectorWrapper(Native(), saute.uniform(10.0, 20.0), reference_budget=10.0)
    first = envs.reset(seed=4)[1]["remaining"]
    assert len(set(first)) == 3
    envs.step(np.zeros((3, 1)))
    *_, info = envs.step(np.zeros((3, 1)))
    np.testing.assert_allclose(info["final_obs"][:, -1], (first - 6.0) / 10.0, rtol=1e-6)
    np.testing.assert_array_equal(info["cost"], [5.0] * 3)
    assert not np.any(info["remaining"] == first)
    np.testing.assert_array_equal(envs.reset(seed=4)[1]["remaining"], first)


def test_recorded_episode_statistics_keep_the_episode_entries() -> None:
    envs = saute.SauteVectorWrapper(SyncVectorEnv([lambda: Scripted(length=3)] * 2), 1.0)
    recorded = gym.wrappers.vector.RecordEpisodeStatistics(envs)
    recorded.reset()
    for _ in range(3):
        *_, info = recorded.step(np.zeros((2, 1)))
    np.testing.assert_array_equal(info["episode"]["r"], [1.0, 1.0])
    np.testing.assert_array_equal(info["episode_task_return"], [3.0, 3.0])


def test_missing_cost_names_the_environments() -> None:
    envs = saute.SauteVectorWrapper(SyncVectorEnv([Scripted, partial(Scripted, key="")]), 1.0)
    envs.reset()
    with pytest.raises(ValueError, match=r"no cost: info of envs \[1\] has no key 'cost'"):
        envs.step(np.zeros((2, 1)))
