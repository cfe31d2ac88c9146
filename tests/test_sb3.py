"""Stable-Baselines3 with a sautéed environment: its checker, its time-outs, its monitor, its normaliser and our callback."""

from __future__ import annotations

import csv
import importlib
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.logger import KVWriter, Logger
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize
from toys import KINDS, Scripted, sauted

import saute
from saute.sb3 import SafetyCallback

LENGTH = 4
TOTALS = ("episode_cost", "episode_task_return", "episode_violated")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Networks this small are slower on several threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def two_arms(budget: Any = 3.0, **kwargs: Any) -> saute.SauteWrapper:
    """Episodes that a time limit inside cuts after 4 of the 20 steps."""
    return saute.SauteWrapper(gym.make("saute/TwoArms-v0", max_episode_steps=LENGTH), budget, **kwargs)


def of_kind(kind: str, several: bool = False) -> saute.SauteWrapper:
    env = Scripted(costs=(np.ones(2) if several else 1.0,), key="costs" if several else "cost", space=KINDS[kind])
    return saute.SauteWrapper(env, [3.0, 2.0] if several else 3.0)


def levels(actions: np.ndarray, budget: float) -> tuple[np.ndarray, np.ndarray]:
    """What z must be before and after each action of one environment, by the paper's own recursion."""
    before, after, z = [], [], 1.0
    for step, action in enumerate(actions.ravel()):
        z = 1.0 if step % LENGTH == 0 else z
        before.append(z)
        z -= float(action > 0) / budget
        after.append(z)
    return np.array(before), np.array(after)


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_check_env_has_nothing_to_say_about_any_kind_of_observation(kind: str, several: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(of_kind(kind, several))


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_ppo_learns_from_every_kind_of_observation_that_sb3_has(kind: str, several: bool) -> None:
    env = of_kind(kind, several)
    policy = "MultiInputPolicy" if isinstance(env.observation_space, gym.spaces.Dict) else "MlpPolicy"
    if kind == "tuple":
        with pytest.raises(NotImplementedError, match="Nested observation spaces are not supported"):
            PPO(policy, env)
        return
    model = PPO(policy, env, n_steps=8, batch_size=8, n_epochs=1, seed=0, device="cpu").learn(8)
    obs, _ = env.reset(seed=0)
    assert env.action_space.contains(model.predict(obs, deterministic=True)[0])


@pytest.mark.parametrize("vector", [DummyVecEnv, SubprocVecEnv])
def test_a_time_out_shows_the_episodes_own_budget_and_the_next_episode_a_fresh_one(vector: Any) -> None:
    envs = vector([two_arms, lambda: two_arms(5.0)])
    try:
        np.testing.assert_array_equal(envs.reset()[:, -1], [1.0, 1.0])
        for step in range(1, 2 * LENGTH + 1):
            obs, rewards, dones, infos = envs.step(np.array([[1.0], [1.0 if step % 2 else -1.0]], np.float32))
            over = step % LENGTH == 0
            assert dones.tolist() == [over, over]
            assert [info["TimeLimit.truncated"] for info in infos] == [over, over]
            if not over:
                assert not any("terminal_observation" in info for info in infos)
                continue
            last = np.stack([info["terminal_observation"] for info in infos])
            np.testing.assert_allclose(last, [[0.2, -1 / 3], [0.2, 3 / 5]], rtol=1e-6)
            np.testing.assert_array_equal(obs, [[0.0, 1.0], [0.0, 1.0]])
            np.testing.assert_array_equal(rewards, [0.0, 0.5])
            assert [info["remaining"] for info in infos] == [-1.0, 3.0]
            assert [info["episode_cost"] for info in infos] == [4.0, 2.0]
            assert [info["episode_task_return"] for info in infos] == [4.0, 3.0]
            assert [info["episode_violated"] for info in infos] == [True, False]
    finally:
        envs.close()


def test_a_violation_that_ends_the_episode_is_no_time_out() -> None:
    envs = DummyVecEnv([lambda: two_arms(1.0, terminate=True)])
    envs.reset()
    envs.step(np.ones((1, 1), np.float32))
    obs, _, dones, infos = envs.step(np.ones((1, 1), np.float32))
    assert dones[0] and not infos[0]["TimeLimit.truncated"]
    assert infos[0]["terminal_observation"][-1] == -1.0 and obs[0, -1] == 1.0


def test_ppo_bootstraps_a_time_out_from_the_budget_that_was_left() -> None:
    # A learning rate of 0 keeps the network that made the rollout, so that its values can be asked for afterwards.
    model = PPO("MlpPolicy", two_arms(), n_steps=4 * LENGTH, batch_size=4, learning_rate=0.0, seed=0, device="cpu")
    model.learn(4 * LENGTH)
    buffer = model.rollout_buffer
    greedy = buffer.actions.ravel() > 0
    before, after = levels(buffer.actions, 3.0)
    np.testing.assert_allclose(buffer.observations.reshape(-1, 2)[:, -1], before, atol=1e-6)
    shaped = np.where(after < -1e-6, 0.0, np.where(greedy, 1.0, 0.5))
    last = torch.tensor(np.stack([np.full(4, LENGTH / 20), after[LENGTH - 1 :: LENGTH]], 1), dtype=torch.float32)
    fresh = torch.tensor([[0.0, 1.0]])
    with torch.no_grad():
        values, fresh_value = (model.policy.predict_values(obs).numpy().ravel() for obs in (last, fresh))
    expected = shaped.copy()
    expected[LENGTH - 1 :: LENGTH] += model.gamma * values
    np.testing.assert_allclose(buffer.rewards.ravel(), expected, atol=1e-5)
    assert np.abs(values - fresh_value).min() > 1e-3  # else the test could not tell the two apart


def test_the_replay_buffer_keeps_the_true_next_observation_of_time_outs() -> None:
    steps = 5 * LENGTH
    model = SAC("MlpPolicy", two_arms(), learning_starts=steps, buffer_size=steps + 1, seed=0, device="cpu").learn(steps)
    buffer = model.replay_buffer
    before, after = levels(buffer.actions[:steps], 3.0)
    is_last = np.arange(1, steps + 1) % LENGTH == 0
    np.testing.assert_array_equal(buffer.timeouts[:steps, 0], is_last)
    np.testing.assert_allclose(buffer.observations[:steps, 0, -1], before, atol=1e-6)
    np.testing.assert_allclose(buffer.next_observations[:steps, 0, -1], after, atol=1e-6)
    np.testing.assert_allclose(buffer.next_observations[:steps, 0, 0][is_last], LENGTH / 20, rtol=1e-6)
    assert (after[is_last] < 1.0).any()


def test_the_monitor_records_the_totals_of_every_episode(tmp_path: Path) -> None:
    env = Monitor(two_arms(), str(tmp_path / "run"), info_keywords=TOTALS)
    for action in (1.0, -1.0):
        env.reset()
        for _ in range(LENGTH):
            *_, info = env.step(np.full(1, action, np.float32))
        assert {key: info["episode"][key] for key in TOTALS} == {key: info[key] for key in TOTALS}
    assert env.get_episode_rewards() == [3.0, 2.0]  # shaped, since the monitor is outside
    env.close()
    lines = (tmp_path / "run.monitor.csv").read_text().splitlines()
    rows = [{key: row[key] for key in TOTALS} for row in csv.DictReader(lines[1:])]
    assert rows == [dict(zip(TOTALS, row, strict=True)) for row in (("4.0", "4.0", "True"), ("0.0", "2.0", "False"))]


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (two_arms, {"norm_obs": False}),
        (lambda: of_kind("dict"), {"norm_obs_keys": ["position"]}),
    ],
)
def test_vec_normalize_that_leaves_the_budget_out_leaves_its_zero_where_it_is(make: Any, options: dict[str, Any]) -> None:
    envs = VecNormalize(DummyVecEnv([make]), **options)
    envs.reset()
    levels = []
    for _ in range(3):
        obs, *_ = envs.step(np.ones((1, 1), np.float32))
        levels.append((obs["remaining_budget"] if isinstance(obs, dict) else obs[:, 1:]).item())
    assert levels == pytest.approx([2 / 3, 1 / 3, 0.0], abs=1e-6)


class Memory(KVWriter):
    """Keeps every table that SB3 writes."""

    def __init__(self) -> None:
        self.tables: list[dict[str, Any]] = []

    def write(self, key_values: dict[str, Any], key_excluded: Any, step: int = 0) -> None:
        self.tables.append({key: value for key, value in key_values.items() if key.startswith(("safety/", "rollout/"))})


def logged(model: Any, steps: int, **kwargs: Any) -> list[dict[str, Any]]:
    memory = Memory()
    model.set_logger(Logger(None, [memory]))
    model.learn(steps, callback=SafetyCallback(), **kwargs)
    return memory.tables


def paying(cost: Any, length: int) -> Any:
    """Costs and a reward of 2 on every step, whatever is done."""
    key = "cost" if np.ndim(cost) == 0 else "costs"
    return lambda: Monitor(
        sauted(2.5 if key == "cost" else [2.5, 2.5], env=dict(costs=(cost,), rewards=(2.0,), length=length, key=key))
    )


@pytest.mark.parametrize("vector", [DummyVecEnv, SubprocVecEnv])
def test_the_callback_logs_the_tasks_own_numbers_beside_the_shaped_reward(vector: Any) -> None:
    """Episodes of 4 steps cost 4 and violate a budget of 2.5; those of 6 steps cost 1.5. Rollouts are of 5 steps."""
    envs = VecNormalize(vector([paying(1.0, 4), paying(0.25, 6)]), norm_obs=False)
    try:
        tables = logged(PPO("MlpPolicy", envs, n_steps=5, batch_size=10, n_epochs=1, device="cpu"), 30)
    finally:
        envs.close()
    own = [{key.removeprefix("safety/"): value for key, value in table.items() if "safety" in key} for table in tables]
    names = ("return", "cost", "worst_cost", "violation_rate", "violations", "episodes")
    assert own[0] == dict(zip(names, (8.0, 4.0, 4.0, 1.0, 1, 1), strict=True)), "after 5 steps"
    assert own[1] == dict(zip(names, ((8 + 8 + 12) / 3, (4 + 4 + 1.5) / 3, 4.0, 2 / 3, 2, 3), strict=True)), "after 10 steps"
    assert own[2] == dict(zip(names, ((24 + 24) / 5, (12 + 3) / 5, 4.0, 3 / 5, 3, 5), strict=True)), "after 15 steps"
    assert tables[0]["rollout/ep_rew_mean"] == 4.0, "two safe steps of 2, then nothing"


def test_nothing_is_logged_before_an_episode_has_finished_and_the_last_numbers_stay() -> None:
    model = PPO("MlpPolicy", paying(1.0, 6)(), n_steps=4, batch_size=4, n_epochs=1, stats_window_size=1, device="cpu")
    tables = logged(model, 16)
    assert tables[0] == {}
    assert [table["safety/cost"] for table in tables[1:]] == [6.0, 6.0, 6.0]
    assert [table["safety/episodes"] for table in tables[1:]] == [1, 1, 1], "the model asks for windows of one episode"
    assert all("rollout/ep_rew_mean" in table for table in tables[1:])


def test_the_callback_logs_one_cost_for_each_constraint_and_knows_off_policy_learners_too() -> None:
    model = SAC("MlpPolicy", paying(np.array([0.5, 1.0]), 4)(), learning_starts=100, buffer_size=10, device="cpu")
    (table,) = logged(model, 8, log_interval=2)
    costs = {
        f"safety/{name}": value for name, value in dict(cost_0=2.0, cost_1=4.0, worst_cost_0=2.0, worst_cost_1=4.0).items()
    }
    whole = {"safety/return": 8.0, "safety/violation_rate": 1.0, "safety/violations": 2, "safety/episodes": 2}
    assert {key: value for key, value in table.items() if "safety" in key} == costs | whole


def test_the_callback_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = DummyVecEnv([paying(1.0, 4), lambda: Scripted(space=gym.spaces.Box(-1.0, 1.0, (4,)))])
    with pytest.raises(
        ValueError, match=r"no saute.SauteWrapper in the environments \[1\].*saute.SauteWrapper\(env, budget=d\)"
    ):
        PPO("MlpPolicy", bare, device="cpu").learn(1, callback=SafetyCallback())
    outside = gym.wrappers.TimeLimit(paying(1.0, 8)(), 4)
    with pytest.raises(ValueError, match=r"environment 0 ended without 'episode_task_return'.*TimeLimit, inside"):
        PPO("MlpPolicy", outside, n_steps=4, batch_size=4, device="cpu").learn(8, callback=SafetyCallback())
    monkeypatch.delitem(sys.modules, "saute.sb3")
    for name in [name for name in sys.modules if name.startswith("stable_baselines3")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    with pytest.raises(ModuleNotFoundError, match=r"saute.sb3 needs stable_baselines3.*pip install 'saute\[sb3\]'"):
        importlib.import_module("saute.sb3")
