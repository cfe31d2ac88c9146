"""Run folders: what was trained, how training went, and what the trained policies do."""

from __future__ import annotations

import dataclasses
import io
import json
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from saute.cli.main import UserError
from saute.envs.from_gym import HostEnvs
from saute.runs.checkpoint import CheckpointError, load, restore, write_atomically
from saute.runs.config import Experiment, algorithm_of, environment_of
from saute.runs.evaluate import Outcome, evaluator
from saute.runs.pretrained import located, place_of

__all__ = ["keep_outcomes", "names_of", "outcomes_of", "read_experiment", "read_metrics", "source_of"]

BATCH = 10_000
"""Episodes that are evaluated side by side where the physics are JAX's; more would only take more memory."""
HOST_BATCH = 500


def source_of(run: pathlib.Path) -> pathlib.Path:
    """The run folder itself, or that of pretrained:NAME."""
    try:
        return located(run)
    except ValueError as problem:
        raise UserError(str(problem)) from problem


def names_of(runs: Sequence[pathlib.Path]) -> dict[pathlib.Path, str]:
    """What each run is called: the name of its folder, with as many folders above it as tell it from the others."""
    if not runs:
        raise UserError("no run folder is given; name at least one, for example runs/pendulum-saute-trpo")
    paths = [place_of(run).resolve() for run in runs]
    for depth in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["-".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(runs):
            return dict(zip(runs, names, strict=True))
    twice = next(run for run, path in zip(runs, paths, strict=True) if paths.count(path) > 1)
    raise UserError(f"{twice} is given twice; name every run folder once")


def read_experiment(run: pathlib.Path) -> Experiment:
    """The settings of a run folder."""
    folder = source_of(run)
    try:
        return Experiment.from_json(json.loads((folder / "config.json").read_text()))
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{run} is not a run folder (it has no config.json); train one with saute train") from None
    except (OSError, AttributeError, KeyError, TypeError, ValueError) as problem:
        raise UserError(f"{folder / 'config.json'} cannot be read ({problem})") from None


def read_metrics(run: pathlib.Path) -> list[list[dict[str, float]]]:
    """Epochs → seeds → numbers by name; a last line that a killed process left half written does not count."""
    read_experiment(run)
    if source_of(run) != run:
        raise UserError(f"{run} comes without the curves of its training; train it anew with saute train")
    file = run / "metrics.jsonl"
    try:
        whole = file.read_text().splitlines(keepends=True)
        epochs = [json.loads(line)["seeds"] for line in whole if line.endswith("\n")]
    except FileNotFoundError:
        epochs = []
    except (OSError, KeyError, TypeError, ValueError) as problem:
        raise UserError(f"{file} cannot be read ({problem}); restore a copy, or train again") from None
    if not epochs:
        raise UserError(f"{run} has no finished epoch in metrics.jsonl; continue it with saute resume {run}")
    return epochs


def outcomes_of(run: pathlib.Path, episodes: int, seed: int, budget: float | None = None) -> tuple[Experiment, list[Outcome]]:
    """Episodes of the deterministic policy of every seed, on starts that training never saw, at another budget if one is given.

    Each seed of the run has episodes of its own, so that all of them together are independent. A sautéed policy that is given
    another budget goes on seeing it relative to the one it was trained with: z₀ = d_test / d_ref.
    """
    if episodes < 1:
        raise UserError(f"--episodes {episodes} must be at least 1")
    if budget is not None and not 0.0 < budget < float("inf"):
        raise UserError(f"--budget {budget} must be positive and finite, in the units of the cost")
    experiment = read_experiment(run)
    try:
        env = environment_of(experiment, "test", num_envs=min(episodes, HOST_BATCH))
        bound = algorithm_of(experiment).bind(env.observation_space, env.action_space, getattr(env, "options", None))
    except ValueError as problem:
        raise UserError(f"the environment of {run} cannot be made: {problem}") from problem
    policies = _policies(run, bound.policy, experiment.seeds)
    if budget is not None:
        _warn_of_unseen(run, experiment, budget)
        env, experiment = _at_budget(env, budget), dataclasses.replace(experiment, budget=budget)
    size = env.num_envs if isinstance(env, HostEnvs) else min(episodes, BATCH)
    test = evaluator(bound.policy, env, size)
    outcomes = []
    for i, policy in enumerate(policies):
        starts = range(seed + i * episodes, seed + (i + 1) * episodes, size)
        parts = [test(policy, start) for start in starts]
        outcomes.append(Outcome(*(np.concatenate(column)[:episodes] for column in zip(*parts, strict=True))))
    return experiment, outcomes


def keep_outcomes(folder: pathlib.Path, outcomes: list[Outcome]) -> None:
    """The numbers of every episode, as episodes/seed-0.npz and so on."""
    place = folder / "episodes"
    place.mkdir(parents=True, exist_ok=True)
    for i, outcome in enumerate(outcomes):
        content = io.BytesIO()
        np.savez(content, **outcome._asdict())
        write_atomically(place / f"seed-{i}.npz", content.getvalue())


def _policies(run: pathlib.Path, policy: Any, seeds: int) -> list[Any]:
    import jax

    shapes = jax.eval_shape(policy.init, jax.random.key(0))
    empty = {str(i): jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes) for i in range(seeds)}
    file = source_of(run) / "policy.safetensors"
    try:
        restored = restore(empty, load(file)[0], file)
    except CheckpointError as problem:
        raise UserError(f"{problem} (is the run finished? continue it with saute resume {run})") from None
    return [restored[str(i)] for i in range(seeds)]


def _warn_of_unseen(run: pathlib.Path, experiment: Experiment, budget: float) -> None:
    """A policy that sees its budget knows those of its training; what it does with others has to be tested."""
    highest = experiment.budget
    if highest is None or "saute" not in experiment.parts or not experiment.augment:
        return
    lowest = highest if experiment.lowest_budget is None else experiment.lowest_budget
    if not lowest <= budget <= highest:
        known = f"{highest:g}" if lowest == highest else f"{lowest:g} to {highest:g}"
        print(f"warning: no episode of {run}'s training began with a budget of {budget:g}, only with {known}", file=sys.stderr)


def _at_budget(env: Any, budget: float) -> Any:
    """The same environment with another budget; what it is observed relative to stays."""
    if getattr(env, "options", None) is None:
        return env
    chosen = dataclasses.replace(env.options, low=budget, high=budget)
    if isinstance(env, HostEnvs):
        env.options = env.envs.options = chosen  # type: ignore[union-attr]
        return env
    return dataclasses.replace(env, options=chosen)
