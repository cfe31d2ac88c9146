"""Every example, with few steps: on the sautéed environment each learner keeps its budget; without it, it would not."""

from __future__ import annotations

import importlib
import runpy
from collections.abc import Iterator
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from scipy.stats import binom
from toys import KINDS, Scripted

import saute

EXAMPLES = Path(__file__).parent.parent / "examples"
STEPS = {
    "cleanrl_ppo": 4_160,
    "sb3_ppo": 4_160,
    "sb3_sac": 800,
    "sb3_contrib_trpo": 4_160,
    "sbx_ppo": 4_160,
    "tianshou_ppo": 4_160,
    "torchrl_ppo": 4_160,
}


@pytest.fixture(autouse=True)
def _as_a_script(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The examples import `report` from their own folder; networks this small are slower on several threads."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_every_example_is_run() -> None:
    """Those of other people's JAX tasks by `make worlds`, and RLlib's by `make rllib`."""
    elsewhere = {"brax_cart": "worlds", "gymnax_cartpole": "worlds", "rllib_ppo": "rllib"}
    for name, folder in elsewhere.items():
        assert name in Path(__file__).parent.joinpath(folder, f"test_{folder}.py").read_text()
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*STEPS, *elsewhere, "report", "mujoco_velocity", "own_costs"}


@pytest.mark.parametrize("name", STEPS)
def test_the_sauted_learner_keeps_its_budget_and_uses_it(name: str) -> None:
    sauted = importlib.import_module(name).train(STEPS[name], sauted=True, seed=0)
    assert sauted.violation_rate <= 0.1
    # Never touching the greedy arm pays 10, spending the whole budget on it 12.5.
    assert 10.5 <= sauted.task_return <= 12.5


def test_without_it_a_learner_overspends() -> None:
    vanilla = importlib.import_module("sb3_contrib_trpo").train(1_280, sauted=False, seed=0)
    assert vanilla.violation_rate >= 0.9 and vanilla.task_return > 15.0


@pytest.mark.parametrize("name", STEPS)
def test_run_as_a_script_it_compares_both_methods(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, int]] = []
    monkeypatch.setattr("report.compare", lambda train, steps: calls.append((train.__name__, steps)))
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert len(calls) == 1 and calls[0][0] == "train" and calls[0][1] >= STEPS[name]


@pytest.mark.slow
def test_the_mujoco_example_trains_and_reports_both_methods(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example = importlib.import_module("mujoco_velocity")
    env = gym.make("SpeedLimit-v0")
    env.reset(seed=0)
    for _ in range(200):
        *_, truncated, info = env.step(env.action_space.sample())
        assert info["cost"] == max(0.0, info["x_velocity"] - 1.0)
    assert truncated and example.make(2, sauted=True).horizon == 200
    monkeypatch.setattr("sys.argv", ["mujoco_velocity.py", "--steps", "1600", "--episodes", "2"])
    example.main()
    header, vanilla, sauted = capsys.readouterr().out.splitlines()
    assert header.endswith("violations (budget 10)") and vanilla.startswith("vanilla") and sauted.startswith("sautéed")
    assert "of 2 episodes, so ≤" in vanilla and "of 2 episodes, so ≤" in sauted


@pytest.mark.parametrize("sauted", [False, True])
def test_the_report_counts_the_task_reward_and_every_violation(sauted: bool, capsys: pytest.CaptureFixture[str]) -> None:
    report = importlib.import_module("report")
    env = gym.make("saute/TwoArms-v0")
    env = saute.SauteWrapper(env, budget=report.BUDGET) if sauted else env
    greedy = report.evaluate(lambda obs: np.ones(1, np.float32), env, episodes=3)
    assert greedy == (20.0, 20.0, 3, 3) and greedy.violation_rate == 1.0
    pulls = iter(([1.0] * 5 + [-1.0] * 15) * 2)
    exact = report.evaluate(lambda obs: np.full(1, next(pulls), np.float32), env, episodes=2)
    assert exact == (12.5, 5.0, 0, 2)

    report.compare(lambda steps, sauted, seed: exact if sauted else greedy, steps=0)
    header, vanilla, safe = capsys.readouterr().out.splitlines()
    assert header.split() == ["method", "task", "return", "cost", "violations", "(budget", "5)"]
    assert vanilla.split(maxsplit=3) == ["vanilla", "20.00", "20.00", "3 of 3 episodes, so ≤ 1.000 at 95 %"]
    assert safe.split(maxsplit=3) == ["sautéed", "12.50", "5.00", "0 of 2 episodes, so ≤ 0.776 at 95 %"]


@pytest.mark.parametrize(("violations", "episodes"), [(0, 1), (0, 100), (5, 100), (99, 100)])
def test_the_bound_is_the_probability_at_which_so_few_violations_are_a_5_percent_event(violations: int, episodes: int) -> None:
    bound = importlib.import_module("report").upper_bound(violations, episodes)
    assert binom.cdf(violations, episodes, bound) == pytest.approx(0.05)


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_torchrl_checks_every_kind_of_observation(kind: str, several: bool) -> None:
    envs = importlib.import_module("torchrl.envs")
    utils = importlib.import_module("torchrl.envs.utils")
    scripted = Scripted(costs=(np.ones(2) if several else 1.0,), key="costs" if several else "cost", space=KINDS[kind])
    env = saute.SauteWrapper(scripted, [3.0, 2.0] if several else 3.0)
    if kind == "tuple":
        with pytest.raises(RuntimeError, match="Stacking specs cannot occur"):  # as for the bare environment
            envs.GymWrapper(env)
        return
    utils.check_env_specs(envs.GymWrapper(env))


def test_torchrl_sees_the_episodes_own_budget_at_its_end_and_a_fresh_one_after() -> None:
    envs = importlib.import_module("torchrl.envs")
    costs = [(1.0,), (0.5,)]
    makers = [lambda c=c: saute.SauteWrapper(Scripted(costs=c, length=3), budget=2.0) for c in costs]
    rollout = envs.GymWrapper(SyncVectorEnv(makers, autoreset_mode=AutoresetMode.DISABLED)).rollout(
        4, break_when_any_done=False
    )
    z, next_z = rollout["observation"][..., -1].numpy(), rollout["next", "observation"][..., -1].numpy()
    np.testing.assert_array_equal(z, [[1.0, 0.5, 0.0, 1.0], [1.0, 0.75, 0.5, 1.0]])
    np.testing.assert_array_equal(next_z, [[0.5, 0.0, -0.5, 0.5], [0.75, 0.5, 0.25, 0.75]])
    np.testing.assert_array_equal(rollout["next", "truncated"][..., 0].numpy(), [[False, False, True, False]] * 2)
    np.testing.assert_array_equal(rollout["next", "reward"][..., 0].numpy(), [[1.0, 1.0, 0.0, 1.0], [1.0] * 4])
