"""What the policies of a run folder do in fresh episodes, and where that is kept."""

from __future__ import annotations

import io
import pathlib
import sys

import numpy as np

from saute.core.errors import UserError
from saute.core.options import options
from saute.envs.from_gym import HostEnvs
from saute.runs.build import environment_of
from saute.runs.checkpoint import CheckpointError, write_atomically
from saute.runs.config import Config
from saute.runs.evaluate import Outcome, evaluator, pooled
from saute.runs.folder import read_config, source_of
from saute.runs.policy import Policy, load_policies
from saute.runs.presets import changed

__all__ = ["Budget", "in_words", "keep_outcomes", "outcomes_of"]

BATCH = 10_000
"""Episodes that are evaluated side by side where the physics are JAX's; more would only take more memory."""
HOST_BATCH = 500


Budget = float | tuple[float, ...]
"""One number, or one per constraint."""


def outcomes_of(run: pathlib.Path, episodes: int, seed: int, budget: Budget | None = None) -> tuple[Config, list[Outcome]]:
    """Episodes of the deterministic policy of every seed, on starts that training never saw, at another budget if one is given.

    Each seed of the run has episodes of its own, so that all of them together are independent. A sautéed policy that is given
    another budget goes on seeing it relative to the one it was trained with: z₀ = d_test / d_ref.
    """
    if episodes < 1:
        raise UserError(f"--episodes {episodes} must be at least 1")
    if budget is not None and not all(0.0 < one < float("inf") for one in np.atleast_1d(budget)):
        raise UserError(
            f"--budget {' '.join(map(str, np.atleast_1d(budget)))} must be positive and finite, in the units of the cost"
        )
    config = read_config(run)
    try:
        env = environment_of(config, "test", min(episodes, HOST_BATCH), budget)  # type: ignore[arg-type]
    except ValueError as problem:
        raise UserError(f"the environment of {run} cannot be made: {problem}") from problem
    policies = _policies(run, config)
    net = policies[0].net
    if env.observation_space.shape != (net.observations,):
        raise UserError(f"{run}: the policy takes {net.observations} observations, its environment has {env.observation_space}")
    if budget is not None:
        _warn_of_unseen(run, config, budget)
    against = config.experiment.budget if budget is None else budget
    ledger = None if against is None else options(against, discount=config.experiment.discount)
    size = env.num_envs if isinstance(env, HostEnvs) else min(episodes, BATCH)
    test = evaluator(net, env, size, ledger)
    outcomes = []
    for i, policy in enumerate(policies):
        starts = range(seed + i * episodes, seed + (i + 1) * episodes, size)
        try:
            outcomes.append(pooled([test(policy.parameters, start) for start in starts], episodes))
        except ValueError as problem:
            raise UserError(f"{run}: {problem}") from problem
    return (config if budget is None else changed(config, "experiment.budget", budget)), outcomes


def keep_outcomes(folder: pathlib.Path, outcomes: list[Outcome]) -> None:
    """The numbers of every episode, as episodes/seed-0.npz and so on."""
    place = folder / "episodes"
    place.mkdir(parents=True, exist_ok=True)
    for i, outcome in enumerate(outcomes):
        content = io.BytesIO()
        np.savez(content, **{name: column for name, column in outcome._asdict().items() if column is not None})
        write_atomically(place / f"seed-{i}.npz", content.getvalue())


def _policies(run: pathlib.Path, config: Config) -> list[Policy]:
    """Those of all seeds of a finished run."""
    try:
        policies = load_policies(source_of(run))
        return [policies[seed] for seed in range(config.experiment.seeds)]
    except CheckpointError as problem:
        raise UserError(f"{problem} (is the run finished? continue it with saute resume {run})") from None
    except KeyError as missing:
        raise UserError(f"{run} has no policy of seed {missing}, but its config.json asks for one") from None


def in_words(budget: Budget) -> str:
    """As on the command line: 30, or 30 5 for two constraints."""
    return " ".join(f"{one:g}" for one in np.atleast_1d(budget))


def _warn_of_unseen(run: pathlib.Path, config: Config, budget: Budget) -> None:
    """A policy that sees its budget knows those of its training; what it does with others has to be tested."""
    asked = config.experiment
    if asked.budget is None or not asked.sauted or not asked.augment:
        return
    lowest = asked.budget if asked.lowest_budget is None else asked.lowest_budget
    if not np.all((np.asarray(lowest) <= budget) & (np.asarray(budget) <= asked.budget)):
        highest = in_words(asked.budget)
        known = highest if np.array_equal(lowest, asked.budget) else f"{in_words(lowest)} to {highest}"
        began = f"began with a budget of {in_words(budget)}, only with {known}"
        print(f"warning: no episode of {run}'s training {began}", file=sys.stderr)
