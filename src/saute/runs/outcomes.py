"""What the policies of a run folder do in fresh episodes, and where that is kept."""

from __future__ import annotations

import contextlib
import hashlib
import io
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from saute.core.errors import UserError
from saute.core.files import CheckpointError, folder_in, sweep, write_atomically
from saute.core.options import options
from saute.core.progress import Meter, progress
from saute.core.protocol import Env
from saute.core.tables import columns
from saute.core.text import say
from saute.envs import task_named
from saute.envs.from_gym import HostEnvs
from saute.evidence.certificate import Certificate, certify
from saute.evidence.stats import iqm, upper_bound
from saute.evidence.trials import seeds_told
from saute.runs.build import environment_of
from saute.runs.config import Budget, Config
from saute.runs.evaluate import Outcome, Sampled, pooled, tested
from saute.runs.folder import read_config, source_of
from saute.runs.presets import changed
from saute.runs.report import outcome_told
from saute.runs.shielding import guarded, with_budget_shown
from saute.runs.source import refuse_modules
from saute.runs.trained import nets_of

__all__ = [
    "Budget",
    "Elsewhere",
    "Evaluation",
    "certified",
    "flags_of",
    "heads",
    "in_words",
    "keep_outcomes",
    "numbers_of",
    "outcomes_of",
    "over_seeds",
    "ready",
    "rows_of",
    "stepped_in",
]

HOST_BATCH = 500
HEADS = ("run", "budget", "seed", "task return", "cost", "worst", "violations")
"""Of the table that `rows_of` fills; costs are those that the budget is spent on, discounted if it is."""


def heads(discount: float) -> list[str]:
    """The heads, which say so if costs are discounted."""
    return [f"discounted {head}" if head == "cost" and discount != 1.0 else head for head in HEADS]


class Elsewhere(NamedTuple):
    """Another environment to test in than the one that the configuration names, or could not name."""

    env: str = ""
    cost: tuple[str, ...] = ()
    trusted: bool = False
    """Whether modules that only the configuration names may be imported."""

    def of(self, run: pathlib.Path) -> Config:
        """The configuration of a run with it, if there is one."""
        config = read_config(run)
        asked = config.experiment
        if not self.trusted:
            refuse_modules(run, *(() if self.env else (asked.env,)), *(() if self.cost else asked.costs))
        if self.env:
            config = changed(config, "experiment.env", task_named(self.env) or self.env)
        return changed(config, "experiment.cost", self.cost[0] if len(self.cost) == 1 else self.cost) if self.cost else config


OWN = Elsewhere()
"""The run's own environment."""


def outcomes_of(
    run: pathlib.Path,
    episodes: int,
    seed: int,
    budget: Budget | None = None,
    elsewhere: Elsewhere = OWN,
    sampled: bool = False,
    shield: bool = False,
) -> tuple[Config, list[Outcome]]:
    """Episodes of the deterministic policy of every seed, on starts that training never saw, at another budget if one is given.

    Each seed of the run has episodes of its own, so that all of them together are independent. A sautéed policy that is given
    another budget goes on seeing it relative to the one it was trained with: z₀ = d_test / d_ref. Under its shield, a policy
    that is not sautéed has a budget too.
    """
    config, env, net, parameters = ready(run, episodes, budget, elsewhere, shield)
    against = config.experiment.budget if budget is None else budget
    ledger = None if against is None else options(against, discount=config.experiment.discount)
    policy = Sampled(cast(Any, net)) if sampled else net
    try:
        with _watching(len(parameters) * episodes, against if config.experiment.discount == 1.0 else None) as watch:
            outcomes = tested(policy, parameters, env, episodes, seed, ledger, watch)
    except ValueError as problem:
        raise UserError(f"{run}: {problem}") from problem
    return (config if budget is None else changed(config, "experiment.budget", budget)), outcomes


def ready(
    run: pathlib.Path, episodes: int, budget: Budget | None = None, elsewhere: Elsewhere = OWN, shield: bool = False
) -> tuple[Config, Env | HostEnvs, Any, list[Any]]:
    """The configuration of a run, environments for so many test episodes, and its policies: a net, and parameters by seed."""
    if episodes < 1:
        raise UserError(f"--episodes {episodes} must be at least 1")
    if budget is not None and not all(0.0 < one < float("inf") for one in np.atleast_1d(budget)):
        raise UserError(
            f"--budget {' '.join(map(str, np.atleast_1d(budget)))} must be positive and finite, in the units of the cost"
        )
    config = elsewhere.of(run)
    tried = with_budget_shown(config) if shield else config
    try:
        env = environment_of(tried, "test", min(episodes, HOST_BATCH), budget)
    except ValueError as problem:
        raise UserError(f"the environment of {run} cannot be made: {problem}") from problem
    net, parameters = _nets(run, config)
    if shield:
        net, parameters = _guarded(run, net, parameters)
    if env.observation_space.shape != (net.observations,):
        raise UserError(f"{run}: the policy takes {net.observations} observations, its environment has {env.observation_space}")
    if budget is not None:
        _warn_of_unseen(run, config, budget)
    return config, env, net, parameters


@contextlib.contextmanager
def _watching(total: int, budget: Budget | None) -> Iterator[Callable[[list[list[Outcome]]], None]]:
    """A bar for so many episodes, with what they came to so far."""
    with progress(Meter("episodes", total, "testing")) as meter:

        def watch(batches: list[list[Outcome]]) -> None:
            means = [float(np.mean([batch.task_return.mean() for batch in own])) for own in batches]
            so_far = pooled([batch for own in batches for batch in own])
            done, costs = len(so_far.task_return), so_far.spent.reshape(len(so_far.task_return), -1)
            if meter.doing:
                meter.begin(done, step=len(batches[-1][-1].task_return))
            violated = None if so_far.violated is None else int(so_far.violated.sum())
            told = outcome_told(means, costs.mean(0).tolist(), costs.max(0).tolist(), violated, done, budget)
            meter.tell(min(done, total), *told)

        yield watch


class Evaluation(NamedTuple):
    """Fresh episodes of every seed of a run; shown as a table."""

    outcomes: list[Outcome]
    budget: Budget | None
    discount: float = 1.0

    def __repr__(self) -> str:
        named = [*((str(i), one) for i, one in enumerate(self.outcomes)), ("all", pooled(self.outcomes))]
        rows = [row[1:] for seed, one in named for row in rows_of("", seed, one, self.budget)]
        shown = columns([heads(self.discount)[1:], *rows], right=range(5))
        return "\n".join([shown, *over_seeds(self.outcomes)])


def certified(outcomes: Sequence[Outcome], budget: Budget, confidence: float) -> Certificate:
    """What the episodes of every seed prove about the budget, each held against the budget that it carried itself."""
    spent, returns = [one.spent for one in outcomes], [one.task_return for one in outcomes]
    return certify(spent, budget, violated=flags_of(outcomes), returns=returns, confidence=confidence)


def flags_of(outcomes: Sequence[Outcome]) -> list[np.ndarray] | None:
    """Which episodes of every seed violated, of several budgets which each; None if they had no budget."""
    each = [one.violated if one.violated_each is None else one.violated_each for one in outcomes]
    known = [flags for flags in each if flags is not None]
    return known if len(known) == len(outcomes) else None


def keep_outcomes(folder: pathlib.Path, outcomes: list[Outcome]) -> dict[str, str]:
    """Write the numbers of every episode, as episodes/seed-0.npz and so on, and give the SHA-256 of each file."""
    place = folder_in(folder, "episodes")
    sweep(place)
    digests = {}
    for i, outcome in enumerate(outcomes):
        content = io.BytesIO()
        np.savez(content, **{name: column for name, column in outcome._asdict().items() if column is not None})
        write_atomically(place / f"seed-{i}.npz", content.getvalue())
        digests[f"seed-{i}.npz"] = hashlib.sha256(content.getvalue()).hexdigest()
    return digests


def _nets(run: pathlib.Path, config: Config) -> tuple[Any, list[Any]]:
    """The net of a finished run, and its parameters for all seeds."""
    try:
        net, seeds = nets_of(source_of(run))
        return net, [seeds[seed] for seed in range(config.experiment.seeds)]
    except CheckpointError as problem:
        raise UserError(f"{problem} (is the run finished? continue it with saute resume {run})") from None
    except KeyError as missing:
        raise UserError(f"{run} has no policy of seed {missing}, but its config.json asks for one") from None


def _guarded(run: pathlib.Path, net: Any, parameters: list[Any]) -> tuple[Any, list[Any]]:
    try:
        return guarded(run, net, parameters)
    except ValueError as problem:
        raise UserError(str(problem)) from None


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
        say(f"warning: no episode of {run}'s training {began}")


def rows_of(run: str, seed: str, outcome: Outcome, budget: Budget | None) -> list[list[str]]:
    """What the episodes of a seed come to; of several constraints a row for all of them together, and one for each."""
    returns, costs, violated = outcome.task_return, outcome.spent, outcome.violated
    name = run if len(run) <= 30 else "…" + run[-29:]
    value = f"{returns.mean():.2f} ± {returns.std():.2f}"
    if costs.ndim == 1:
        known = violated if budget is not None else None
        return [[name, "–" if known is None else in_words(budget or 0.0), seed, value, *_paid(costs), _bound(known)]]
    each = outcome.violated_each
    limits = ["–"] * costs.shape[1] if each is None or budget is None else [f"{one:g}" for one in np.atleast_1d(budget)]
    rows = [[name, "any", seed, value, "", "", _bound(violated)]]
    for i, limit in enumerate(limits):
        rows.append([name, limit, seed, "", *_paid(costs[:, i]), _bound(None if each is None else each[:, i])])
    return rows


def over_seeds(outcomes: Sequence[Outcome]) -> list[str]:
    """What several seeds say of the method: the middle of their returns, and how many of them are clean."""
    if len(outcomes) < 2:
        return []
    returns, flags = pooled(outcomes).task_return, [one.violated for one in outcomes]
    middle = f"median return {np.median(returns):.2f}, interquartile mean {iqm(returns):.2f}"
    known = [bool(one.any()) for one in flags if one is not None]
    return [f"{middle}; {seeds_told(sum(known), len(known))}" if len(known) == len(outcomes) else middle]


def stepped_in(outcome: Outcome) -> str | None:
    """How often a shield did, if there was one."""
    if outcome.intervened is None:
        return None
    k, n = int((outcome.intervened > 0).sum()), len(outcome.length)
    share = outcome.intervened.sum() / outcome.length.sum()
    return f"the shield stepped in in {100 * share:.3f} % of all steps, in {k:,} of {n:,} episodes"


def numbers_of(outcome: Outcome) -> dict[str, Any]:
    """The same for machines; of several constraints, lists."""
    returns, costs, violated = outcome.task_return, outcome.spent, outcome.violated
    return {
        "episodes": len(returns),
        "task_return": {"mean": returns.mean(), "std": returns.std(), "median": np.median(returns), "iqm": iqm(returns)},
        "cost": {"mean": costs.mean(0), "worst": costs.max(0)},
        "violations": None if violated is None else violated.sum(),
        "bound": None if violated is None else upper_bound(int(violated.sum()), len(violated)),
        **({} if outcome.violated_each is None else {"violations_each": outcome.violated_each.sum(0)}),
        **({} if outcome.intervened is None else {"intervened": outcome.intervened.sum() / outcome.length.sum()}),
    }


def _paid(costs: np.ndarray) -> tuple[str, str]:
    return f"{costs.mean():.2f}", f"{costs.max():.2f}"


def _bound(violated: np.ndarray | None) -> str:
    if violated is None:
        return "no budget"
    k, n = int(violated.sum()), len(violated)
    return f"{k} of {n}, so ≤ {100 * upper_bound(k, n):.3f} % at 95 %"
