"""Do the numbers of training hold? Training episodes beside fresh ones of the very policies that trained: one line per task.

    python scripts/agreement.py sac HalfCheetah-v5 Hopper-v5 Ant-v5 --last 20

A learner changes its policy all the time, so the policy at the end is not the one whose episodes training told of. Here the
policy is kept after each of the last epochs, and each draws its actions in fresh episodes. If training tells the truth, both
samples are of one distribution but for what is learned within an epoch. The tests take epochs for the sample, since episodes of
one epoch have their policy in common: Welch's of returns and of costs, a permutation test of the shares that violate.
"""

from __future__ import annotations

import argparse
import pathlib
import shutil
import tempfile
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

import saute
from saute.core.seeds import VALIDATION
from saute.runs.outcomes import Elsewhere, outcomes_of

BUDGET = 25.0


def speeding(obs: Any, action: Any, next_obs: Any, info: dict[str, Any]) -> float:
    """A cost of 1 for every step faster than 1 m/s."""
    return float(info["x_velocity"] > 1.0)


class Sample(NamedTuple):
    """Means of episodes, one of each epoch and seed, and how many episodes violate."""

    returns: np.ndarray
    costs: np.ndarray
    rates: np.ndarray
    violations: int
    episodes: int

    def __str__(self) -> str:
        return f"{self.returns.mean():8.1f}, {self.costs.mean():5.1f}, {self.violations} of {self.episodes}"


def trained(algo: str, env: str, asked: dict[str, Any], last: int, out: pathlib.Path) -> tuple[Sample, list[pathlib.Path]]:
    """The last epochs of a training, and folders with the policies at their ends."""
    kept: list[pathlib.Path] = []

    def keep(epoch: int, metrics: object) -> None:
        # The policy file is written with every checkpoint, before the hook is called.
        kept.append(out / f"at-{epoch:04d}")
        kept[-1].mkdir()
        for name in ("config.json", "policy.safetensors"):
            shutil.copy(out / "run" / name, kept[-1])
        if len(kept) > last:
            shutil.rmtree(kept.pop(0))

    asked = {**asked, "cost": speeding, "budget": BUDGET, "out": out / "run", "hook": keep, "checkpoint_seconds": 0.0}
    run = saute.train(algo, env, advise=lambda text: None, **asked)
    told = [seed for epoch in run.metrics[-last:] for seed in epoch if seed["episodes"] > 0]
    counts = np.array([one["episodes"] for one in told])
    of = {name: np.array([one[name] for one in told]) for name in ("task_return", "cost", "violation_rate")}
    violations = round(float((of["violation_rate"] * counts).sum()))
    return Sample(*of.values(), violations, int(counts.sum())), kept


def tested(folders: list[pathlib.Path], env: str, episodes: int) -> Sample:
    """Fresh episodes of each policy, with actions drawn as in training; every policy has starts of its own."""
    elsewhere = Elsewhere(env, ("agreement:speeding",), trusted=True)
    outcomes = [
        outcome
        for i, folder in enumerate(folders)
        for outcome in outcomes_of(folder, episodes, VALIDATION.start + i * 10_000, elsewhere=elsewhere, sampled=True)[1]
    ]
    returns, costs = (np.array([np.mean(getattr(one, name)) for one in outcomes]) for name in ("task_return", "cost"))
    violated = np.array([np.mean(one.violated) for one in outcomes if one.violated is not None])
    return Sample(returns, costs, violated, round(float(violated.sum() * episodes)), len(outcomes) * episodes)


def chances(told: Sample, fresh: Sample) -> str:
    """How probable differences as large as these are if both samples are of one distribution: returns, costs, violations."""
    welch = [stats.ttest_ind(*pair, equal_var=False).pvalue for pair in zip(told[:2], fresh[:2], strict=True)]
    shares = stats.permutation_test(
        (told.rates, fresh.rates),
        lambda one, other: one.mean() - other.mean(),
        n_resamples=10_000,
        rng=np.random.default_rng(0),
    )
    return ", ".join(f"{chance:.2f}" for chance in (*welch, shares.pvalue))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("algo")
    parser.add_argument("envs", nargs="+")
    parser.add_argument("--last", type=int, default=20, help="epochs at the end of training")
    parser.add_argument("--episodes", type=int, default=5, help="fresh episodes of each policy")
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--unsafe-reward", default="auto")
    chosen = parser.parse_args()
    n = chosen.unsafe_reward if chosen.unsafe_reward == "auto" else float(chosen.unsafe_reward)
    asked = {"preset": chosen.preset, "epochs": chosen.epochs, "seeds": chosen.seeds, "unsafe_reward": n}
    print("| environment | training: return, cost, violations | the same policies, fresh | chances |\n|---|---|---|---|")
    for env in chosen.envs:
        with tempfile.TemporaryDirectory() as folder:
            told, policies = trained(chosen.algo, env, asked, chosen.last, pathlib.Path(folder))
            fresh = tested(policies, env, chosen.episodes)
        print(f"| {env} | {told} | {fresh} | {chances(told, fresh)} |", flush=True)


if __name__ == "__main__":
    main()
