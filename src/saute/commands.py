"""`saute train`, `saute resume` and `saute evaluate`: run folders from names, and what their policies do."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Annotated, Any

import numpy as np

from saute.checkpoint import CheckpointError, load, restore, write_atomically
from saute.cli import UserError
from saute.evaluate import evaluate, upper_bound
from saute.experiment import Experiment, algorithm_of, environment_of
from saute.progress import progress
from saute.training import TrainingError
from saute.training import train as run_training

__all__ = ["Evaluate", "Resume", "Train", "evaluate_runs", "resume", "train"]


@dataclasses.dataclass(frozen=True)
class Train(Experiment):
    """Train several seeds of a method and keep everything in a run folder."""

    out: pathlib.Path | None = None
    """Run folder; by default runs/ENV-METHOD-ALGO."""


@dataclasses.dataclass(frozen=True)
class Resume:
    """Continue a run folder where its newest whole checkpoint stands, bit for bit."""

    run: pathlib.Path
    """Run folder."""
    epochs: int | None = None
    """Train up to this epoch instead of the one that was planned."""


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """Evaluate the deterministic policies of run folders on starts that training never saw."""

    runs: Annotated[tuple[pathlib.Path, ...], "RUN"]
    """Run folders."""
    episodes: int = 100
    """Episodes per seed."""
    seed: int = 1_000_000
    """Seed of the evaluation."""


def train(options: Train) -> None:
    fields = {name: value for name, value in dataclasses.asdict(options).items() if name != "out"}
    experiment = _checked(Experiment(**fields))
    name = f"{experiment.env.split(':')[-1]}-{experiment.method}-{experiment.algo}".replace("/", "-")
    out = options.out or pathlib.Path("runs", name)
    config = out / "config.json"
    if config.exists() and json.loads(config.read_text()) != dataclasses.asdict(experiment):
        raise UserError(f"{out} holds a run with other settings; choose another --out, or continue it with saute resume {out}")
    _run(experiment, out)


def resume(options: Resume) -> None:
    experiment = _experiment(options.run)
    _run(dataclasses.replace(experiment, epochs=options.epochs or experiment.epochs), options.run)


def evaluate_runs(options: Evaluate) -> None:
    if options.episodes < 1:
        raise UserError(f"--episodes {options.episodes} must be at least 1")
    print(f"{'run':<36} {'seed':>4} {'task return':>14} {'cost':>7} {'worst':>7}  violations")
    for run in options.runs:
        experiment = _experiment(run)
        for seed, outcome in enumerate(_outcomes(experiment, run, options.episodes, options.seed)):
            _print_row(str(run), str(seed), outcome, experiment.budget)


def _outcomes(experiment: Experiment, run: pathlib.Path, episodes: int, seed: int) -> list[Any]:
    env = environment_of(experiment, "test", num_envs=episodes)
    bound = algorithm_of(experiment).bind(env.observation_space, env.action_space)
    file = run / "policy.safetensors"
    try:
        arrays, _ = load(file)
        empty = _shaped_like(bound.policy, experiment.seeds)
        policies = restore(empty, arrays, file)
    except CheckpointError as problem:
        raise UserError(f"{problem} (is the run finished? continue it with saute resume {run})") from None
    (run / "episodes").mkdir(exist_ok=True)
    outcomes = []
    for i in range(experiment.seeds):
        outcome = evaluate(bound.policy, policies[str(i)], env, episodes, seed + i)
        np.savez(run / "episodes" / f"seed-{i}.npz", **outcome._asdict())
        outcomes.append(outcome)
    return outcomes


def _shaped_like(policy: Any, seeds: int) -> dict[str, Any]:
    import jax

    shapes = jax.eval_shape(policy.init, jax.random.key(0))
    return {str(i): jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes) for i in range(seeds)}


def _print_row(run: str, seed: str, outcome: Any, budget: float | None) -> None:
    returns, costs = outcome.task_return, outcome.cost
    text = "no budget"
    if budget is not None:
        k, n = int((costs > budget).sum()), len(costs)
        text = f"{k} of {n}, so ≤ {100 * upper_bound(k, n):.3f} % at 95 %"
    print(f"{run:<36} {seed:>4} {returns.mean():8.2f} ± {returns.std():4.2f} {costs.mean():7.2f} {costs.max():7.2f}  {text}")


def _run(experiment: Experiment, out: pathlib.Path) -> None:
    algorithm = algorithm_of(experiment)
    try:
        env = environment_of(experiment)
        out.mkdir(parents=True, exist_ok=True)
        write_atomically(out / "config.json", (json.dumps(dataclasses.asdict(experiment), indent=2) + "\n").encode())
        epochs = experiment.epochs or 1
        with progress(epochs, algorithm.settings.steps_per_epoch) as report:
            run_training(
                algorithm,
                env,
                seeds=experiment.seeds,
                epochs=epochs,
                seed=experiment.seed,
                budget=experiment.budget,
                out=out,
                report=report,
            )
    except (TrainingError, CheckpointError, ValueError) as problem:
        raise UserError(str(problem)) from problem
    except OSError as problem:
        raise UserError(f"cannot write to {out} ({problem.strerror}); nothing already written is lost") from problem
    except KeyboardInterrupt:
        print(f"stopped; continue with saute resume {out}")
        raise
    print(f"wrote {out}; evaluate it with saute evaluate {out}")


def _experiment(run: pathlib.Path) -> Experiment:
    try:
        return Experiment(**json.loads((run / "config.json").read_text()))
    except FileNotFoundError:
        raise UserError(f"{run} is not a run folder (it has no config.json); train one with saute train") from None
    except (TypeError, ValueError) as problem:
        raise UserError(f"{run / 'config.json'} cannot be read ({problem})") from None


def _checked(experiment: Experiment) -> Experiment:
    try:
        for name in ("seeds", "epochs"):
            number = getattr(experiment, name)
            if number is not None and number < 1:
                raise ValueError(f"--{name} {number} must be at least 1")
        return experiment.checked()
    except ValueError as problem:
        raise UserError(str(problem)) from problem
