"""The shell around the learners: seeds, epochs, what must stop a training, and what comes out of it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import pathlib
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jaxtyping import PRNGKeyArray, PyTree

from saute.core.options import BudgetLike, Options
from saute.core.protocol import Env, spec_of
from saute.envs.from_gym import HostEnvs
from saute.learn.agent import Agent
from saute.learn.drive import Drive, drive
from saute.runs.advice import Seen, advice, watched
from saute.runs.build import Algorithm, algorithm_of, described, environment_of, ledger_of, selection_of
from saute.runs.config import Config
from saute.runs.folder import Folder, Metrics, TrainingError, opened
from saute.runs.policy import policy_description, save_policies
from saute.runs.report import reporting
from saute.runs.validation import Selection, validated

__all__ = ["Run", "TrainingError", "run", "train"]

Report = Callable[[int, list[Metrics]], None]
Advise = Callable[[str], None]


def _warned(text: str) -> None:
    warnings.warn(text, stacklevel=3)  # the line that called `train`


def _printed(text: str) -> None:
    print("note:", text, file=sys.stderr)


@dataclasses.dataclass(frozen=True)
class Run:
    """What training gives: the learner's state of every seed, its policy, and the numbers of every epoch and seed."""

    agent: Agent
    states: list[PyTree]
    policies: list[PyTree]
    """Parameters of the policies that are kept: the last ones, or those that validation found best."""
    metrics: list[list[Metrics]]
    """Epochs → seeds → numbers by name; NaN where there was nothing to measure."""
    config: Config

    def __repr__(self) -> str:
        asked, last = self.config.experiment, self.metrics[-1]

        def over_seeds(name: str) -> str:
            each = [one for one in last[0] if one == name or one.removeprefix(f"{name}_").isdigit()]
            shown = [" ".join("–" if math.isnan(seed[one]) else f"{seed[one]:.4g}" for seed in last) for one in each]
            return ", ".join(shown) or "–"

        return (
            f"Run({asked.algo}, {asked.method}, {asked.env}: {len(last)} seeds × {len(self.metrics)} epochs\n"
            f"    task return     {over_seeds('task_return')}\n"
            f"    cost            {over_seeds('cost')}\n"
            f"    violation rate  {over_seeds('violation_rate')})"
        )


def train(
    algorithm: Algorithm,
    env: Env | HostEnvs,
    *,
    seeds: int = 5,
    epochs: int = 300,
    seed: int = 0,
    budget: BudgetLike | None = None,
    discount: float = 1.0,
    selection: Selection | None = None,
    out: str | pathlib.Path | None = None,
    report: Report | None = None,
    advise: Advise = _warned,
    checkpoint_seconds: float = 10.0,
    config: Config | None = None,
) -> Run:
    """Train several seeds at once, in a run folder if `out` is given; a folder with checkpoints is continued, bit for bit.

    Violations are counted against the budget that a sautéed environment carries; for one that is not, against `budget`, or the
    limit of the algorithm's constraint, or the task's own budget. If there is none, there is no violation rate. Several costs
    have one budget each, `budget=[30.0, 5.0]`.

    The last policies are kept or, with a `selection`, those on the way that are best in validation. `config` is written into
    the folder; by default it is found from the algorithm and the environment.

    Episodes longer than an epoch go on from epoch to epoch; a resumed run takes up those of JAX-native environments, and begins
    new ones in Gymnasium's, which cannot be put back into the middle of one.

    An unsafe reward that does not fit the rewards of the task is told of by `advise`, each kind of it once; by default, by a
    `UserWarning`.
    """
    _check_counts(seeds=seeds, epochs=epochs)
    agent = algorithm.agent(spec_of(env))
    ledger = ledger_of(env, algorithm, budget, discount)
    config = config or described(algorithm, env, ledger, selection, seeds=seeds, epochs=epochs, seed=seed)
    # What cannot be saved is said now, not after the training.
    description = None if out is None else policy_description(spec_of(env), agent.policy, epochs)
    body = drive(agent, env, ledger)
    if selection is not None:
        body = validated(body, selection, agent.policy)
    with opened(out, config) as folder:
        first = body.first([jax.random.fold_in(jax.random.key(seed + i), 0) for i in range(seeds)])
        session = Session(*((first, []) if folder is None else folder.recover(first, epochs)))
        advised = _advising(session.metrics, getattr(env, "options", None), env.horizon)
        with _saved(folder, session):
            for done in range(len(session.metrics), epochs):
                keys = [jax.random.fold_in(jax.random.key(seed + i), done + 1) for i in range(seeds)]
                _epoch(session, body, agent, keys, env.horizon)
                for text in advised(session.metrics[-1]):
                    advise(text)
                if report is not None:
                    report(done, session.metrics[-1])
                if folder is not None:
                    folder.keep(session.seeds, session.metrics, checkpoint_seconds)
        policies = list(map(body.export, session.seeds))
        if folder is not None and description is not None:
            save_policies(folder.path / "policy.safetensors", policies, description)
    return Run(agent, [one.state for one in session.seeds], policies, session.metrics, config)


def _check_counts(**numbers: int) -> None:
    for name, number in numbers.items():
        if not isinstance(number, int) or number < 1:
            raise ValueError(f"{name}={number!r} must be a whole number ≥ 1")


def run(config: Config, out: pathlib.Path, logs: tuple[str, ...] = ()) -> Run:
    """Train a configuration in a folder, from where it stands, and tell how it goes."""
    algorithm, env, asked = algorithm_of(config), environment_of(config), config.experiment
    with reporting(config, out, logs) as report:
        return train(
            algorithm,
            env,
            seeds=asked.seeds,
            epochs=config.epochs,
            seed=asked.seed,
            budget=asked.budget,
            discount=asked.discount,
            selection=selection_of(config),
            out=out,
            config=config,
            report=report,
            advise=_printed,
        )


@dataclasses.dataclass
class Session:
    """Seeds and the numbers of their epochs, which always belong together."""

    seeds: list[Any]
    metrics: list[list[Metrics]]


def _advising(
    before: list[list[Metrics]], options: Options | None, horizon: int | None
) -> Callable[[list[Metrics]], list[str]]:
    """A function of the numbers of each epoch that gives what is to be told of the unsafe reward, each kind of it once."""
    seen, told = functools.reduce(watched, before, Seen()), set[str]()

    def fresh(metrics: list[Metrics]) -> list[str]:
        nonlocal seen
        seen = watched(seen, metrics)
        new = {kind: text for kind, text in advice(seen, options, horizon).items() if kind not in told}
        told.update(new)
        return list(new.values())

    return fresh


def _epoch(session: Session, body: Drive, agent: Agent, keys: list[PRNGKeyArray], horizon: int | None) -> None:
    """One more epoch of every seed; where something is wrong, the session stays as it was."""
    done = len(session.metrics)
    seeds, values = zip(*body.epoch(session.seeds, keys), strict=True)
    fresh = [{name: float(value) for name, value in of_seed.items()} for of_seed in values]
    for seed, metrics in enumerate(fresh):
        problem = agent.objection(metrics)
        if problem is not None:
            raise ValueError(problem)
        if not metrics.pop("finite"):
            raise TrainingError(f"epoch {done}, seed {seed}: rewards, costs or parameters are not finite")
        _add_cost_rates([epoch[seed] for epoch in session.metrics], metrics, horizon or 1)
    session.seeds, session.metrics = list(seeds), [*session.metrics, fresh]


def _add_cost_rates(earlier: list[Metrics], metrics: Metrics, horizon: int) -> None:
    """Cost rate = cost of all training so far / its steps × T (Ray et al. 2019); without a time limit, per step."""
    for name in [name for name in metrics if name.startswith("cost_per_step")]:
        paid = sum(epoch[name] for epoch in earlier) + metrics[name]
        metrics[name.replace("cost_per_step", "cost_rate")] = horizon * paid / (len(earlier) + 1)


@contextlib.contextmanager
def _saved(folder: Folder | None, session: Session) -> Iterator[None]:
    """Whatever happens inside, also Ctrl-C at whatever line, the last whole epoch is kept."""
    try:
        yield
    except TrainingError as problem:
        kept = "" if folder is None else f"; the state before it is kept in {folder.path / 'checkpoints'}"
        raise TrainingError(f"{problem}{kept}") from None
    finally:
        if folder is not None and session.metrics:
            folder.keep(session.seeds, session.metrics)
