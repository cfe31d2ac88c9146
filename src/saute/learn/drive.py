"""The only loop of training: learners act, environments step, whole episodes are counted; one body compiled, one on the host.

Both bodies use the same keys and give the same rows, so a learner is written once and runs on every task.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PRNGKeyArray, PyTree

from saute.core.machine import cores
from saute.core.masks import along
from saute.core.options import Options
from saute.core.protocol import Env, Episodes, Transition
from saute.core.seeds import EPISODES
from saute.envs.from_gym import HostEnvs
from saute.learn.agent import Acted, Actor, Agent, Foresighted, Memory, Metrics, Settings, State, fills, luck_of, named
from saute.learn.stream import Stream, advance, advance_on_host, begin, begin_on_host

__all__ = ["Drive", "Training", "Window", "drive", "host_steps", "rollout", "summary", "window_of"]

T = TypeVar("T")
LOOK = 1000
"""A learner that looks around before training makes at most so many steps in each environment; on the host, a tenth of that."""
AHEAD = 250
"""Random numbers are drawn for at most so many steps at once, because they take memory."""


class Window(NamedTuple):
    """What an epoch sees of its environments.

    If it is long enough for every episode, each epoch begins anew, and the first episode of every environment counts. If not,
    episodes go on from epoch to epoch, and each counts when it ends. Either way its length does not change the chance of an
    episode to be counted; counting all that end in a window that begins anew would prefer the short ones.
    """

    num_envs: int
    """Environments of one seed."""
    steps: int
    """Steps of each."""
    fresh: bool
    """Whether every epoch begins anew."""


def window_of(settings: Settings, env: Env | HostEnvs) -> Window:
    """How many environments make how many steps; JAX-native ones by default as many as whole episodes fit into an epoch."""
    if isinstance(env, HostEnvs):
        count = env.num_envs // env.seeds
    else:
        count = settings.num_envs or max(1, settings.steps_per_epoch // env.horizon)
    steps = max(1, settings.steps_per_epoch // count)
    return Window(count, steps, env.horizon is not None and steps >= env.horizon)


class Training(NamedTuple):
    """One seed between two epochs: its learner and, if episodes go on from epoch to epoch, where its environments are."""

    state: State
    stream: Stream | tuple[()] = ()
    budget: Float[Any, "*constraint"] | None = None
    """What its episodes begin with, if that is not for the environment to say."""


class Drive(NamedTuple):
    """A training that can be called: `first` makes the seeds, `epoch` trains each of them once."""

    first: Callable[[Sequence[PRNGKeyArray]], list[Any]]
    epoch: Callable[[Sequence[Any], Sequence[PRNGKeyArray]], list[tuple[Any, dict[str, Any]]]]
    export: Callable[[Any], PyTree]
    """Parameters of the policy of a seed."""
    each: Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]
    """`map` over the seeds, on several cores where that is faster."""
    share: Callable[[], float | None] = lambda: None
    """Which share of the running epoch is done; None where that is not known."""


def drive(agent: Agent, env: Env | HostEnvs, ledger: Options | None = None, budget: Any = None) -> Drive:
    """Training of an agent in an environment; its episodes begin with a budget, if one is given, until a seed gets another.

    The ledger has the budget and the discount by which violations are counted where the environment is not sautéed; one that is
    carries its own. Without a ledger there is no budget, so the violation rate is NaN, not 0.
    """
    budget = None if budget is None else np.asarray(budget, np.float32)
    if isinstance(env, HostEnvs):
        body = _OnHost(agent, env, ledger, budget)
        each: Any = lambda function, seeds: list(map(function, seeds))  # noqa: E731
        return Drive(body.first, body.epoch, lambda training: agent.export(training.state), each, body.share)
    return _compiled(agent, env, ledger, budget)


def rollout(
    agent: Actor, env: Env, window: Window, ledger: Options | None = None, rows: bool = True, budget: Any = None
) -> Callable[..., Any]:
    """One scan: (state, stream, keys) → (state, stream, (rows, episodes, numbers)); of each of the last three, one per step."""
    blank = agent.memory(window.num_envs)

    def drawn(key: PRNGKeyArray) -> Any:
        *own, observe_key = jax.random.split(key, 4)
        return *own, luck_of(agent)(observe_key, window.num_envs)

    def one(carry: tuple[State, Stream], given: Any) -> Any:
        state, stream = carry
        act_key, step_key, reset_key, luck = given
        acted = agent.act(state, stream.memory, stream.obs, act_key)
        stream, moved, episodes = advance(env, stream, acted, blank, step_key, reset_key, ledger, window.fresh, budget)
        state, metrics = agent.observe(state, moved, luck)
        return (state, stream), (moved if rows else None, episodes, _seen(moved, metrics))

    def run(state: State, stream: Stream, keys: Key[Array, " step"]) -> Any:
        steps = len(keys)
        ahead = _most_ahead(steps) if isinstance(agent, Foresighted) else steps
        (state, stream), seen = jax.lax.scan(
            lambda carry, block: jax.lax.scan(one, carry, jax.vmap(drawn)(block)), (state, stream), keys.reshape(-1, ahead)
        )
        return state, stream, jax.tree.map(lambda leaf: leaf.reshape(steps, *leaf.shape[2:]), seen)

    return run


def _most_ahead(steps: int) -> int:
    """The largest number of steps that can be drawn at once and divides them all."""
    return max(one for one in range(1, min(AHEAD, steps) + 1) if steps % one == 0)


def _compiled(agent: Agent, env: Env, ledger: Options | None, budget: Any) -> Drive:
    window, learns = window_of(agent.settings, env), fills(agent.learn)
    pool, blank = ThreadPoolExecutor(cores()), agent.memory(window.num_envs)

    def started(key: PRNGKeyArray, budget: Any) -> Stream:
        return begin(env, key, window.num_envs, blank, ledger, budget)

    def first(key: PRNGKeyArray) -> Training:
        state = agent.init(key)
        if fills(agent.prepare):
            looking = Window(50, min(env.horizon, LOOK), True)
            start_key, steps_key = jax.random.split(jax.random.fold_in(key, 1))
            stream = begin(env, start_key, looking.num_envs, agent.memory(looking.num_envs))
            moved = rollout(agent, env, looking)(state, stream, jax.random.split(steps_key, looking.steps))[2][0]
            state, _ = agent.prepare(state, moved.obs)
        return Training(state, () if window.fresh else started(jax.random.fold_in(key, 2), budget), budget)

    def epoch(training: Training, key: PRNGKeyArray) -> tuple[Training, Metrics]:
        start_key, key, begin_key, learn_key = jax.random.split(key, 4)
        state, begun = agent.begin(training.state, begin_key)
        stream = started(start_key, training.budget) if window.fresh else training.stream
        run = rollout(agent, env, window, ledger, learns, training.budget)
        state, stream, seen = run(state, stream, jax.random.split(key, window.steps))
        state, numbers = _learned(agent, state, seen, learn_key, ledger)
        return training._replace(state=state, stream=() if window.fresh else stream), begun | numbers

    seed = jax.random.key(0)
    # Compiled before the threads start, or each of them would compile it.
    made = jax.jit(first).lower(seed).compile()
    trained = jax.jit(epoch).lower(jax.eval_shape(first, seed), seed).compile()

    def each(function: Callable[[Any], T], seeds: Sequence[Any]) -> list[T]:
        return list(pool.map(function, seeds))

    def epochs(seeds: Sequence[Training], keys: Sequence[PRNGKeyArray]) -> list[tuple[Training, Metrics]]:
        return each(lambda one: jax.block_until_ready(trained(*one)), list(zip(seeds, keys, strict=True)))

    return Drive(lambda keys: [made(key) for key in keys], epochs, lambda training: agent.export(training.state), each)


def host_steps(
    envs: HostEnvs,
    act: Callable[[Memory, np.ndarray, int], Acted],
    stream: Stream,
    blank: Memory = (),
    ledger: Options | None = None,
    fresh: bool = True,
    budgets: np.ndarray | None = None,
) -> Iterator[tuple[Stream, Transition, Episodes]]:
    """Steps of all environments, without end; `act(memory, observations, time)` chooses the actions."""
    for time in itertools.count():
        acted = act(stream.memory, stream.obs, time)
        stream, rows, episodes = advance_on_host(envs, stream, acted, blank, ledger, fresh, budgets)
        yield stream, rows, episodes


class HostKeys(NamedTuple):
    """Random keys of an epoch of several seeds, as the compiled body draws them; those of steps are numbers, steps first."""

    start: PRNGKeyArray
    begin: PRNGKeyArray
    learn: PRNGKeyArray
    act: Any
    observe: Any


@functools.partial(jax.jit, static_argnames="steps")
def _host_keys(keys: Key[Array, " seed"], steps: int) -> HostKeys:
    def of_seed(key: PRNGKeyArray) -> HostKeys:
        start, key, begin_key, learn_key = jax.random.split(key, 4)
        each = jax.vmap(lambda step_key: jax.random.split(step_key, 4))(jax.random.split(key, steps))
        return HostKeys(start, begin_key, learn_key, *(jax.random.key_data(each[:, i]) for i in (0, 3)))

    return jax.vmap(of_seed, out_axes=HostKeys(0, 0, 0, 1, 1))(keys)  # type: ignore[arg-type]


class _OnHost:
    """The body for Gymnasium's environments: they step on the host, all else is compiled.

    Seeds take turns with the environments or, if these are for several, stand side by side; the numbers are the same, since
    each seed's environments and actions have random streams of their own.
    """

    def __init__(self, agent: Agent, envs: HostEnvs, ledger: Options | None, budget: Any):
        self.agent, self.envs, self.ledger, self.window = agent, envs, ledger, window_of(agent.settings, envs)
        self.blank, self.streams = agent.memory(envs.num_envs), dict[int, Stream]()
        size = self.window.num_envs
        self.parts = [slice(i * size, (i + 1) * size) for i in range(envs.seeds)]
        self.act = jax.jit(self._act)
        # What is donated is written in place, the replay above all.
        self.begin, self.observe = (jax.jit(one, donate_argnums=0) for one in (agent.begin, self._observe))
        self.learned = jax.jit(self._learned)
        self.budget, self.made, self.most = budget, 0, self.window.steps

    def share(self) -> float:
        """Which share of the running epoch's steps is done."""
        return self.made / self.most

    def first(self, keys: Sequence[PRNGKeyArray]) -> list[Training]:
        if len(keys) != self.envs.seeds and (self.envs.seeds > 1 or not self.window.fresh):
            raise ValueError(_needs_its_own(self.envs, len(keys), self.window))
        states = list(map(jax.jit(self.agent.init), keys))
        if fills(self.agent.prepare):
            states = [state for group in self._groups(keys) for state in self._prepared(states[group], keys[group])]
        return [Training(state, (), self.budget) for state in states]

    def epoch(self, seeds: Sequence[Training], keys: Sequence[PRNGKeyArray]) -> list[tuple[Training, dict[str, Any]]]:
        groups, self.made = enumerate(self._groups(seeds)), 0
        self.most = self.window.steps * len(self._groups(seeds))
        return [one for i, group in groups for one in self._together(i, seeds[group], keys[group])]

    def _together(
        self, group: int, seeds: Sequence[Training], keys: Sequence[PRNGKeyArray]
    ) -> list[tuple[Training, dict[str, Any]]]:
        """An epoch of the seeds that stand side by side."""
        states, budgets = [seed.state for seed in seeds], self._budgets(seeds)
        drawn, begun = _host_keys(jnp.stack(keys), self.window.steps), [dict[str, Any]() for _ in states]
        if fills(self.agent.begin) or fills(self.agent.observe):
            # Only copies are donated: if the epoch is interrupted, the states from before it are saved.
            states = [jax.tree.map(jnp.array, state) for state in states]
        if fills(self.agent.begin):
            states, begun = map(list, zip(*map(self.begin, states, drawn.begin), strict=True))
        if self.window.fresh or group not in self.streams:
            self.streams[group] = self._begun(drawn.start, budgets)
        history = []
        for stream, rows, *seen in self._steps(states, self.streams[group], drawn, self.window.steps, budgets):
            self.streams[group] = stream
            self.made += 1
            # A learner that learns from every step has used the rest already.
            kept = rows if fills(self.agent.learn) else rows._replace(obs=None, action=None, next_obs=None, extras=None)
            history.append((kept, *seen))
        rows, episodes, told = jax.tree.map(lambda *column: np.stack(column), *history)
        trained = []
        for side, part in enumerate(self.parts):
            own = jax.tree.map(lambda leaf, part=part: leaf[:, part], (rows, episodes))
            state, learned = self.learned(states[side], *own, told[side], drawn.learn[side])
            trained.append((seeds[side]._replace(state=state), begun[side] | learned))
        return trained

    def _steps(
        self, states: list[State], stream: Stream, keys: HostKeys, count: int, budgets: np.ndarray | None = None
    ) -> Iterator[tuple[Stream, Transition, Episodes, list[Metrics]]]:
        """Steps of all seeds, and the numbers of what each seed learned from them; `states` is changed in place."""
        act_keys, observe_keys = np.asarray(keys.act), np.asarray(keys.observe)

        def act(memory: Memory, obs: np.ndarray, time: int) -> Acted:
            return self.act(tuple(states), memory, obs, act_keys[time])

        stepping = host_steps(self.envs, act, stream, self.blank, self.ledger, self.window.fresh, budgets)
        for time, (stream, rows, episodes) in zip(range(count), stepping, strict=False):
            told: list[Metrics] = [{} for _ in self.parts]
            if fills(self.agent.observe):
                for side, part in enumerate(self.parts):
                    states[side], told[side] = self.observe(states[side], _part(rows, part), observe_keys[time, side])
            yield stream, rows, episodes, told

    def _learned(
        self, state: State, rows: Transition, episodes: Episodes, told: PyTree, key: PRNGKeyArray
    ) -> tuple[State, Metrics]:
        return _learned(self.agent, state, (rows, episodes, jax.vmap(_seen)(rows, told)), key, self.ledger)

    def _act(self, states: tuple[State, ...], memory: Memory, obs: Array, keys: Array) -> Acted:
        own = zip(states, self.parts, keys, strict=True)
        acted = [
            self.agent.act(state, _part(memory, part), obs[part], jax.random.wrap_key_data(key)) for state, part, key in own
        ]
        return jax.tree.map(lambda *rows: jnp.concatenate(rows), *acted)

    def _observe(self, state: State, rows: Transition, key: Array) -> tuple[State, Metrics]:
        luck = luck_of(self.agent)(jax.random.wrap_key_data(key), self.window.num_envs)
        return self.agent.observe(state, rows, luck)

    def _prepared(self, states: list[State], keys: Sequence[PRNGKeyArray]) -> list[State]:
        drawn = _host_keys(jnp.stack([jax.random.fold_in(key, 1) for key in keys]), LOOK // 10)
        stream = self._begun(drawn.start)
        looking = self._steps(jax.tree.map(jnp.array, states), stream, drawn, LOOK // 10)
        met = np.stack([rows.obs for _, rows, *_ in looking])
        own = zip(states, self.parts, strict=True)
        return [self.agent.prepare(state, jnp.asarray(met[:, part]))[0] for state, part in own]

    def _budgets(self, seeds: Sequence[Training]) -> np.ndarray | None:
        """What the episodes of each environment begin with, if that is not for the environments to say."""
        if seeds[0].budget is None:
            return None
        return np.repeat(np.stack([np.asarray(seed.budget) for seed in seeds]), self.window.num_envs, axis=0)

    def _begun(self, keys: Key[Array, " seed"], budgets: np.ndarray | None = None) -> Stream:
        """Fresh episodes; each seed counts the seeds of its environments from a number of its own."""
        firsts = [int(jax.random.randint(key, (), EPISODES.start, EPISODES.stop)) for key in keys]
        seeds = [first + i for first in firsts for i in range(self.window.num_envs)]
        return begin_on_host(self.envs, firsts[0] if len(firsts) == 1 else seeds, self.blank, self.ledger, budgets)

    def _groups(self, seeds: Sequence[Any]) -> list[slice]:
        return [slice(i, i + self.envs.seeds) for i in range(0, len(seeds), self.envs.seeds)]


def _needs_its_own(envs: HostEnvs, seeds: int, window: Window) -> str:
    if envs.seeds > 1:
        return f"the environments are for {envs.seeds} seeds side by side, not for {seeds}; make them with HostEnvs(…, seeds=1)"
    longest = "without a known end" if envs.horizon is None else f"of up to {envs.horizon} steps"
    return (
        f"episodes {longest} go on after the {window.steps} steps that an epoch has in each environment, so each of {seeds} "
        f"seeds needs environments of its own: make {seeds * envs.num_envs} of them with HostEnvs(…, seeds={seeds})"
        + ("" if envs.horizon is None else f", or set steps_per_epoch to at least {envs.horizon * envs.num_envs}")
    )


def _part(tree: PyTree, part: slice) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[part], tree)


def _seen(rows: Transition, metrics: Metrics) -> Metrics:
    """Numbers of one step of all environments."""
    finite = jnp.isfinite(rows.reward).all() & jnp.isfinite(rows.cost).all()
    return {**metrics, **named("cost_per_step", rows.cost.mean(0)), "lowest_reward": _lowest_safe(rows), "finite": finite}


def _lowest_safe(rows: Transition) -> Float[Array, ""]:
    """The lowest reward of the task in a step within the budget; NaN if there is none, as where nothing is sautéed."""
    if rows.next_remaining.shape[-1] == 0:
        return jnp.full((), jnp.nan)
    safe = (rows.next_remaining >= 0).reshape(len(rows.reward), -1).all(1)
    return jnp.where(safe.any(), jnp.where(safe, rows.task_reward, jnp.inf).min(), jnp.nan)


def _learned(
    agent: Agent, state: State, seen: tuple[Any, ...], key: PRNGKeyArray, ledger: Options | None
) -> tuple[State, Metrics]:
    """The end of an epoch: the learner learns from all its steps, and its numbers are made."""
    rows, episodes, numbers = seen
    state, learned = agent.learn(state, rows, episodes, key)
    finite = numbers["finite"].all() & _finite(agent.vital(state))
    return state, {
        **jax.tree.map(_mean_of_known, numbers),
        "lowest_reward": jnp.nanmin(numbers["lowest_reward"]),
        **learned,
        **summary(episodes, ledger is not None),
        "finite": finite,
    }


def summary(episodes: Episodes, budgeted: bool) -> Metrics:
    """What the paper's training curves show: returns of the original reward, mean and worst cost, and violations."""
    counted = episodes.counted

    def mean(values: Array) -> Array:
        mask = along(counted, values)
        total = jnp.sum(jnp.where(mask, values, 0.0), axis=(0, 1))
        return jnp.where(counted.any(), total / jnp.maximum(1, counted.sum()), jnp.nan)

    each = episodes.violated_each if budgeted else None
    worst = jnp.max(jnp.where(along(counted, episodes.cost), episodes.cost, -jnp.inf), axis=(0, 1))
    returns = jnp.where(counted, episodes.task_return, jnp.nan)
    return {
        "episodes": counted.sum(),
        "task_return": mean(episodes.task_return),
        "worst_return": jnp.nanmin(returns),
        "best_return": jnp.nanmax(returns),
        **named("cost", mean(episodes.cost)),
        **named("worst_cost", jnp.where(counted.any(), worst, jnp.nan)),
        "violation_rate": mean(episodes.violated.astype(jnp.float32)) if budgeted else jnp.full((), jnp.nan),
        **({} if each is None else named("violation_rate", mean(each.astype(jnp.float32)))),
        "length": mean(episodes.length.astype(jnp.float32)),
    }


def _mean_of_known(values: Array) -> Array:
    """Mean over the steps at which there was a number; NaN if there was none."""
    known = ~jnp.isnan(values)
    return jnp.where(known.any(), jnp.sum(jnp.where(known, values, 0.0)) / jnp.maximum(1, known.sum()), jnp.nan)


def _finite(tree: PyTree) -> Bool[Array, ""]:
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)]).all()
