"""RLlib as it is, with a sautéed vector: `make rllib` installs it and runs this; `make test` has no part in it."""

from __future__ import annotations

import importlib
import pathlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
import ray
import torch
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.metrics.metrics_logger import MetricsLogger

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
LENGTH = 20
"""Steps of an episode of the probe."""


class Finished(NamedTuple):
    """An episode as RLlib saw it."""

    infos: list[dict[str, Any]]
    observed: np.ndarray
    """The share z of its budget that remains, from the first observation to the last."""
    shaped_return: float


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The example, which imports `report` from its own folder; networks this small are slower on several threads."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    torch.set_num_threads(1)
    yield importlib.import_module("rllib_ppo")
    ray.shutdown()


def test_the_sauted_learner_keeps_its_budget_and_uses_it(example: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    sauted = example.train(4_160, sauted=True, seed=0)
    assert sauted.violation_rate <= 0.1
    # Never touching the greedy arm pays 10, spending the whole budget on it 12.5.
    assert 10.5 <= sauted.task_return <= 12.5
    assert "violation_rate" in capsys.readouterr().out


def test_without_it_a_learner_overspends(example: ModuleType) -> None:
    vanilla = example.train(1_280, sauted=False, seed=0)
    assert vanilla.violation_rate >= 0.9 and vanilla.task_return > 15.0


def test_rllib_reports_the_tasks_own_numbers_and_sees_each_episodes_own_budget(example: ModuleType) -> None:
    finished: list[Finished] = []

    class Kept(example.SafetyMetrics):
        def on_episode_end(
            self, *, episode: SingleAgentEpisode, metrics_logger: MetricsLogger, prev_episode_chunks: list, **more: object
        ) -> None:
            super().on_episode_end(episode=episode, metrics_logger=metrics_logger, **more)
            assert not prev_episode_chunks
            # Copied, since PPO adds a step to each episode before it learns from it.
            observed = np.array(episode.get_observations())[:, -1]
            finished.append(Finished(episode.get_infos()[1:], observed, episode.get_return()))

    example.started()
    algorithm = example.configuration(sauted=True, seed=0).callbacks(Kept).build_algo()
    numbers = algorithm.train()["env_runners"]
    algorithm.stop()
    assert len(finished) >= 8 and all(len(episode.infos) == LENGTH for episode in finished)
    costs = np.array([sum(info["cost"] for info in episode.infos) for episode in finished])
    returns = np.array([sum(info["task_reward"] for info in episode.infos) for episode in finished])
    expected = {
        "return": returns.mean(),
        "cost": costs.mean(),
        "worst_cost": costs.max(),
        "violation_rate": (costs > example.BUDGET).mean(),
    }
    assert numbers["safety"] == pytest.approx(expected)
    assert 0 < expected["violation_rate"] < 1, "both kinds of episodes, so that all numbers are seen to be right"
    shaped = np.mean([episode.shaped_return for episode in finished])
    assert numbers["episode_return_mean"] == pytest.approx(shaped) and shaped < expected["return"]
    observed = np.array([episode.observed for episode in finished])
    np.testing.assert_array_equal(observed[:, 0], 1.0)
    np.testing.assert_allclose(observed[:, -1], 1.0 - costs / example.BUDGET, atol=1e-6)
