"""What every example shares: the task, a fair evaluation, and a table of vanilla against sautéed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from scipy.stats import beta

BUDGET = 5.0


class Report(NamedTuple):
    """Means over the evaluated episodes; the return is the task's own, never the shaped one."""

    task_return: float
    cost: float
    violations: int
    episodes: int

    @property
    def violation_rate(self) -> float:
        return self.violations / self.episodes


def evaluate(act: Callable[[Any], Any], env: gym.Env, episodes: int = 100, seed: int = 1_000_000) -> Report:
    """Run a policy obs → action on seeds that training never saw, and add up its costs without the wrapper's help."""
    returns, costs = np.zeros(episodes), np.zeros(episodes)
    for episode in range(episodes):
        obs, _ = env.reset(seed=seed + episode)
        done = False
        while not done:
            obs, reward, terminated, truncated, info = env.step(act(obs))
            returns[episode] += info.get("task_reward", reward)  # a sautéed environment shapes the reward
            costs[episode] += info["cost"]
            done = terminated or truncated
    return Report(float(returns.mean()), float(costs.mean()), int((costs > BUDGET).sum()), episodes)


def upper_bound(violations: int, episodes: int, confidence: float = 0.95) -> float:
    """Exact (Clopper–Pearson) one-sided upper bound on the probability of a violation."""
    return 1.0 if violations == episodes else float(beta.ppf(confidence, violations + 1, episodes - violations))


def compare(train: Callable[..., Report], steps: int, seed: int = 0) -> None:
    """Train without and with Sauté, and print a table.

    This task and the evaluated policies are deterministic; the bound shows how to report a task with random starts.
    """
    torch.set_num_threads(1)  # networks this small are slower on several threads
    print(f"{'method':8} {'task return':>11} {'cost':>6}   violations (budget {BUDGET:g})")
    for name, sauted in (("vanilla", False), ("sautéed", True)):
        report = train(steps, sauted=sauted, seed=seed)
        bound = upper_bound(report.violations, report.episodes)
        violations = f"{report.violations} of {report.episodes} episodes, so ≤ {bound:.3f} at 95 %"
        print(f"{name:8} {report.task_return:11.2f} {report.cost:6.2f}   {violations}")
