"""The shell around the learners: seeds, epochs, what must stop a training, and what comes out of it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import pathlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast

import jax
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from saute.core.cost import CostSource
from saute.core.names import nearest
from saute.core.options import BudgetLike, Options
from saute.core.protocol import Env, spec_of
from saute.core.stopping import whole
from saute.core.text import say
from saute.envs.from_gym import HostEnvs
from saute.evidence.certificate import Certificate
from saute.learn.agent import Agent
from saute.learn.drive import Drive, drive
from saute.learn.simmer import simmered
from saute.runs.advice import Seen, advice, watched
from saute.runs.build import Algorithm, algorithm_of, described, environment_of, ledger_of, planned, selection_of
from saute.runs.config import SCHEDULES, Budget, BudgetSchedule, Config
from saute.runs.evaluate import TEST_SEED, Sampled, tested
from saute.runs.folder import Folder, Metrics, TrainingError, inherited, opened
from saute.runs.outcomes import HOST_BATCH, Evaluation, certified
from saute.runs.report import each_named, reporting
from saute.runs.shield import kept_shield, stored_shield
from saute.runs.shielding import careful, shielded
from saute.runs.source import IN_PYTHON, Source, Trainable, is_ready
from saute.runs.trained import policy_description, policy_of
from saute.runs.validation import Selection, validated
from saute.runs.way import EPISODES, Way, way_of
from saute.serve.policy import Policy

__all__ = ["Run", "TrainingError", "run", "train"]

Hook = Callable[[int, list[Metrics]], object]
Advise = Callable[[str], None]


def _warned(text: str) -> None:
    warnings.warn(text, stacklevel=4)  # the line that called `train`


def _printed(text: str) -> None:
    say(f"note: {text}")


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
    job: _Job

    def policy(self, seed: int = 0) -> Policy:
        """The policy of one seed: observation, and remaining budget if it sees one, in; action out."""
        description = policy_description(spec_of(self.job.env), cast(Any, self.agent.policy), len(self.metrics))
        return policy_of(self.policies[seed], description)

    def evaluate(
        self, episodes: int = 100, seed: int = TEST_SEED, budget: float | Sequence[float] | None = None, sampled: bool = False
    ) -> Evaluation:
        """Episodes of every seed's deterministic policy on starts that training never saw, at its own budget or another.

        `sampled` policies draw their actions, as in training.
        """
        _check_counts(episodes=episodes)
        if budget is not None:
            budget = tuple(budget) if isinstance(budget, Sequence) else float(budget)
        env, ledger = self.job.test_env(min(episodes, HOST_BATCH), budget), self.job.ledger
        if budget is not None and ledger is not None:
            ledger = dataclasses.replace(ledger, low=budget, high=budget)
        policy = Sampled(cast(Any, self.agent.policy)) if sampled else self.agent.policy
        outcomes = tested(policy, self.policies, env, episodes, seed, ledger)
        asked = self.config.experiment
        return Evaluation(outcomes, asked.budget if budget is None else budget, asked.discount)

    def certify(self, episodes: int = 10_000, seed: int = TEST_SEED, confidence: float = 0.95) -> Certificate:
        """What so many fresh episodes of every seed prove about the budget, with exact bounds."""
        done = self.evaluate(episodes, seed)
        if done.budget is None:
            raise ValueError("there is no budget to certify; train with budget=…, in the units of the cost")
        return certified(done.outcomes, done.budget, confidence)

    def __repr__(self) -> str:
        asked, last = self.config.experiment, self.metrics[-1]

        def over_seeds(name: str) -> str:
            each = each_named(name, last[0])
            shown = [" ".join("–" if math.isnan(seed[one]) else f"{seed[one]:.4g}" for seed in last) for one in each]
            return ", ".join(shown) or "–"

        return (
            f"Run({asked.algo}, {asked.method}, {asked.env}: {len(last)} seeds × {len(self.metrics)} epochs\n"
            f"    task return     {over_seeds('task_return')}\n"
            f"    cost            {over_seeds('cost')}\n"
            f"    violation rate  {over_seeds('violation_rate')})"
        )


def train(  # noqa: D417 (what belongs together is told together)
    algorithm: Algorithm | str,
    env: Trainable,
    *,
    budget: BudgetLike | None = None,
    cost: CostSource = "cost",
    discount: float = 1.0,
    unsafe_reward: float | Literal["auto"] | None = None,
    method: str | None = None,
    preset: str = "paper",
    settings: Mapping[str, Any] | None = None,
    seeds: int = 5,
    epochs: int | None = None,
    seed: int = 0,
    envs: int | None = None,
    workers: int = 0,
    selection: Selection | None = None,
    budget_schedule: BudgetSchedule | Literal["pi", "q"] | None = None,
    evaluate_every: int | None = None,
    shield: str | pathlib.Path | None = None,
    init: str | pathlib.Path | None = None,
    out: str | pathlib.Path | None = None,
    hook: Hook | None = None,
    advise: Advise = _warned,
    checkpoint_seconds: float = 10.0,
) -> Run:
    """Train several seeds at once, in a run folder if `out` is given; a folder with checkpoints is continued, bit for bit.

    Args:
        algorithm: a name ("ppo", "trpo", "cpo", "sac", "mbpo", "pets"), or a learner, `saute.trpo(saute.lagrangian(30.0))`.
        env: a task, a Gymnasium id, "module:Id-v0", an environment or a function that makes one, a vector, a JAX-native `Env`.
        budget: of an episode, a list for several costs; by default the environment's, then the constraint's, then the task's.
        cost, discount: a key of info, a list of keys, or a function (obs, action, next_obs, info) → cost; and its γ.
        unsafe_reward: reward once the budget is overspent; "auto" chooses one from random episodes.
        method: "saute" for a name, none for a learner, unless you ask: "vanilla", "lagrangian", "pid", "cvar", "saute+pid", ….
        preset, settings: "paper", "fast", "short" or "quick", and what differs, {"discount": 0.995, "hidden": (256, 256)}.
        epochs, seeds, seed: the preset's number, or 300; how many to train at once, and the first; the others count on.
        envs, workers: of those that are not JAX-native, how many side by side, and processes that step slow ones.
        budget_schedule: begins with small budgets and works up to the full one: "pi", "q", or `saute.pi_schedule(…)`.
        selection, evaluate_every: keeps the policies that are best in validation; tests them there every so many epochs.
        shield: a run folder, whose shield replaces actions after which the budget might not suffice.
        init, out: run folders: the one whose policies and values training begins with, and its own.
        hook: called after every epoch with its number and the numbers of every seed; training ends early if it gives True.
        advise: told once, if the unsafe reward does not fit the rewards of the task; by default a `UserWarning`.
        checkpoint_seconds: time from one checkpoint to the next.
    """
    asked = {"discount": discount, "unsafe_reward": unsafe_reward, "preset": preset, "envs": envs, "workers": workers}
    asked |= {"seeds": seeds, "epochs": epochs, "seed": seed, "evaluate_every": evaluate_every}
    job = _job(algorithm, env, budget, cost, method, settings, selection, budget_schedule, **asked)
    return _trained(job if shield is None else job.under(shield), out, init, hook, advise, checkpoint_seconds)


class _Job(NamedTuple):
    """All that a training is made of."""

    algorithm: Algorithm
    env: Env | HostEnvs
    ledger: Options | None
    config: Config
    selection: Selection | None = None
    source: Source | None = None
    shield: str | pathlib.Path | None = None
    """The run whose shield training is under; None if there is none, or if the folder has it already."""

    def under(self, shield: str | pathlib.Path) -> _Job:
        """The same under the shield of a run."""
        return self._replace(config=shielded(self.config, shield), shield=shield)

    def test_env(self, count: int, budget: Budget | None = None) -> Env | HostEnvs:
        """The environment of tests: made anew by its name or its function; where it cannot be, that of training."""
        named = not self.config.experiment.env.startswith(IN_PYTHON)
        if self.source is None and not named:
            return self.env
        return environment_of(self.config, "test", count, budget, self.source)

    def way(self, agent: Agent, body: Drive) -> Way | None:
        """How policies are tested on the way, if that is asked for."""
        every = self.config.experiment.evaluate_every
        if every is None:
            return None
        env = self.test_env(EPISODES)
        if env is self.env and isinstance(env, HostEnvs):
            raise ValueError("evaluate_every needs environments beside those of training; pass a name, or what makes one")
        return way_of(agent, body, env, self.ledger, every)


def _job(
    algorithm: Algorithm | str,
    env: Trainable,
    budget: BudgetLike | None,
    cost: CostSource,
    method: str | None,
    settings: Mapping[str, Any] | None,
    selection: Selection | None,
    schedule: BudgetSchedule | str | None,
    **asked: Any,
) -> _Job:
    """From what `train` is asked for; a learner and an environment that are ready are taken as they are."""
    _check_counts(**{name: 1 if asked[name] is None else asked[name] for name in ("seeds", "epochs", "evaluate_every")})
    kind, own = _kind_of(schedule)
    if isinstance(algorithm, str) or method is not None or not is_ready(env):
        changes = {f"settings.{name}": value for name, value in (settings or {}).items()}
        changes |= {} if own is None else {"schedule": own}
        config, source = planned(algorithm, env, cost, method, changes, budget=budget, budget_schedule=kind, **asked)
        algorithm, env = algorithm_of(config), environment_of(config, source=source)
        ledger = ledger_of(env, algorithm, config.experiment.budget, config.experiment.discount)
        return _Job(algorithm, env, ledger, config, selection or selection_of(config, source), source)
    ledger = ledger_of(env, algorithm, budget, asked["discount"])
    numbers = {name: asked[name] for name in ("seeds", "seed", "evaluate_every")} | {"epochs": asked["epochs"] or 300}
    config = described(algorithm, env, ledger, selection, own, budget_schedule=kind, **numbers)
    return _Job(algorithm, env, ledger, config, selection)


def _kind_of(schedule: BudgetSchedule | str | None) -> tuple[str | None, BudgetSchedule | None]:
    """The name of a schedule, and the schedule; by its name alone it has the usual settings."""
    if schedule is None:
        return None, None
    if isinstance(schedule, str):
        kind = nearest(schedule, SCHEDULES, "budget schedule")
        return kind, SCHEDULES[kind]()
    for kind, made in SCHEDULES.items():
        if isinstance(schedule, made):
            return kind, schedule
    known = '"pi", "q", saute.pi_schedule(…) or saute.q_schedule(…)'
    raise ValueError(f"budget_schedule={schedule!r} is no schedule; pass {known}")


def _trained(
    job: _Job,
    out: str | pathlib.Path | None,
    init: str | pathlib.Path | None,
    hook: Hook | None,
    advise: Advise,
    checkpoint_seconds: float = 10.0,
    begin: Callable[[int, Callable[[], float | None]], object] = lambda done, share: None,
    snapshots: int = 0,
) -> Run:
    env, config, schedule = job.env, job.config, job.config.schedule
    seeds, seed, epochs = config.experiment.seeds, config.experiment.seed, config.epochs
    agent = _agent(job, out)
    # What cannot be saved is said now, not after the training.
    description = {} if out is None else policy_description(spec_of(env), cast(Any, agent.policy), epochs)
    _check_giving(schedule, env)
    full = np.asarray(np.inf if job.ledger is None else job.ledger.high)
    body = drive(agent, env, job.ledger, None if schedule is None else schedule.init(full)[1])
    stored = None if init is None else inherited(pathlib.Path(init))
    body = body._replace(first=functools.partial(_begun, body, stored))
    if schedule is not None:
        body = simmered(body, schedule, full)
    if job.selection is not None:
        body = validated(body, job.selection, agent.policy)
    # The best policy so far is known without another validation.
    shown = body.export if job.selection is None else lambda seed: seed.policy
    way = job.way(agent, body)

    with opened(out, config, description, shown, snapshots) as folder:
        if folder is not None and job.shield is not None:
            folder.keep_shield(job.shield)
        begun = body.first([jax.random.fold_in(jax.random.key(seed + i), 0) for i in range(seeds)])
        session = Session(*((begun, []) if folder is None else folder.recover(begun, epochs)))
        advised = _advising(session.metrics, getattr(env, "options", None), env.horizon)
        begin(len(session.metrics), body.share)
        with _saved(folder, session):
            for done in range(len(session.metrics), epochs):
                keys = [jax.random.fold_in(jax.random.key(seed + i), done + 1) for i in range(seeds)]
                _epoch(session, body, agent, keys, env.horizon, way)
                for text in advised(session.metrics[-1]):
                    advise(text)
                if folder is not None:
                    with whole():
                        folder.keep(session.seeds, session.metrics, checkpoint_seconds)
                if hook is not None and hook(done, session.metrics[-1]) is True:
                    break
        policies = list(map(body.export, session.seeds))
        if folder is not None:
            folder.save_policies(policies, len(session.metrics))
    return Run(agent, [one.state for one in session.seeds], policies, session.metrics, config, job)


def _check_giving(schedule: BudgetSchedule | None, env: Env | HostEnvs) -> None:
    if schedule is not None and isinstance(env, HostEnvs) and not env.sauted_together:
        raise ValueError(
            "a budget schedule cannot give budgets to environments that were sautéed one by one; pass them bare, with budget=…"
        )


def _agent(job: _Job, out: str | pathlib.Path | None) -> Agent:
    """The learner, under a shield if the configuration says so."""
    agent: Agent = job.algorithm.agent(spec_of(job.env))
    if job.config.shield is None:
        return agent
    if job.shield is None:
        place = pathlib.Path(cast(Any, out))
        return careful(agent, job.env, kept_shield(place, job.config.shield), place)
    return careful(agent, job.env, stored_shield(job.shield), pathlib.Path(job.shield))


def _begun(body: Drive, stored: Callable[[Any, int], Any] | None, keys: Sequence[PRNGKeyArray]) -> list[Any]:
    """Every seed before its first epoch, with the policy and the values of another run if there is one."""
    seeds = body.first(keys)
    if stored is None:
        return seeds
    return [one._replace(state=stored(one.state, i)) for i, one in enumerate(seeds)]


def _check_counts(**numbers: int) -> None:
    for name, number in numbers.items():
        if not isinstance(number, int) or number < 1:
            raise ValueError(f"{name}={number!r} must be a whole number ≥ 1")


def run(
    config: Config,
    out: pathlib.Path,
    logs: tuple[str, ...] = (),
    init: pathlib.Path | None = None,
    advise: Advise = _printed,
    snapshots: int = 0,
    shield: pathlib.Path | None = None,
) -> Run:
    """Train a configuration in a folder, from where it stands, and tell how it goes; the shield is that of a run.

    The policies of so many epochs on the way are kept, each a like factor after the one before.
    """
    algorithm, env, asked = algorithm_of(config), environment_of(config), config.experiment
    ledger = ledger_of(env, algorithm, asked.budget, asked.discount)
    with reporting(config, out, logs) as report:
        job = _Job(algorithm, env, ledger, config, selection_of(config), shield=shield)
        return _trained(job, out, init, report.epoch, advise, begin=report.begin, snapshots=snapshots)


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


def _epoch(
    session: Session,
    body: Drive,
    agent: Agent,
    keys: list[PRNGKeyArray],
    horizon: int | None,
    way: Way | None = None,
) -> None:
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
    if way is not None:
        fresh = way.seen(done, seeds, fresh)
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
            with whole():
                folder.keep(session.seeds, session.metrics)
