"""A policy on whole episodes that training never saw: the true reward, the true cost, and what became of the budget."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree
from numpy.typing import ArrayLike

from saute.core.masks import along
from saute.core.options import Options
from saute.core.protocol import Env, Episodes
from saute.core.seeds import TESTS
from saute.core.text import say
from saute.envs.from_gym import HostEnvs
from saute.learn.agent import Acted, Decider, Memory, unchanged
from saute.learn.drive import Window, host_steps, rollout
from saute.learn.nets import Net
from saute.learn.shielded import Guard, Trained
from saute.learn.stream import Stream, begin, begin_on_host, select

__all__ = [
    "TEST_SEED",
    "Guarded",
    "Outcome",
    "Sampled",
    "Shielded",
    "Steps",
    "at_budgets",
    "evaluate",
    "evaluator",
    "pooled",
    "tested",
]

TEST_SEED = TESTS.start
"""Test episodes have seeds from here on, unless others are asked for."""
BATCH = 10_000
"""Episodes that are evaluated side by side where the physics are JAX's; more would only take more memory."""
LONGEST = 100_000
"""Steps after which an episode of a host environment counts as endless."""
DRAWN = 0x52A3_0000
"""Folded into a key whose other children are counted from 0, of which there are fewer."""


class Outcome(NamedTuple):
    """One entry per evaluated episode; the return is the task's own, never the shaped one."""

    task_return: Float[np.ndarray, " episode"]
    cost: Float[np.ndarray, "episode ..."]
    """Σ l_t."""
    length: Int[np.ndarray, " episode"]
    spent: Float[np.ndarray, "episode ..."]
    """Σ γᵗ l_t, which the budget was spent on."""
    violated: Bool[np.ndarray, " episode"] | None = None
    """Whether the budget that the episode carried was overspent, or any of several; None if there was no budget."""
    violated_each: Bool[np.ndarray, "episode constraint"] | None = None
    """Which of several budgets were overspent; None if there were not several."""
    intervened: Int[np.ndarray, " episode"] | None = None
    """Steps in which a shield stepped in; None without one."""


class Steps(NamedTuple):
    """A few episodes side by side, steps first; what follows the end of one of them is another episode."""

    state: PyTree
    """Of the bare environment before each step; None where it is not JAX's."""
    remaining: Float[np.ndarray, "step episode ..."]
    """After the step."""
    task_reward: Float[np.ndarray, "step episode"]
    ended: Bool[np.ndarray, "step episode"]


def pooled(outcomes: Sequence[Outcome], most: int | None = None) -> Outcome:
    """The episodes of several outcomes, one after the other, the first ones if there are more than asked for."""
    columns = zip(*outcomes, strict=True)
    return Outcome(*(None if column[0] is None else np.concatenate(column)[:most] for column in columns))  # type: ignore[arg-type]


def evaluate(
    policy: Decider,
    parameters: PyTree,
    env: Env | HostEnvs,
    episodes: int,
    seed: int = TEST_SEED,
    ledger: Options | None = None,
) -> Outcome:
    """Episodes of the deterministic policy, all at once; of host environments, one each."""
    return evaluator(policy, env, episodes, ledger)(parameters, seed)


def evaluator(
    policy: Decider, env: Env | HostEnvs, episodes: int, ledger: Options | None = None
) -> Callable[[PyTree, int], Outcome]:
    """(parameters, seed) → Outcome, compiled once for many policies.

    The ledger has the budget of an environment that is not sautéed; one that is carries its own.
    """
    carried: Options | None = getattr(env, "options", None)
    ledger = ledger if carried is None else carried
    if isinstance(env, HostEnvs):
        act = jax.jit(Tested(policy).act)
        return lambda parameters, seed: _on_host(act, policy, parameters, env, seed, ledger)[0]
    play = jax.jit(lambda parameters, key: _first_episodes(policy, parameters, env, episodes, key, ledger)[0])
    return lambda parameters, seed: _outcome(play(parameters, jax.random.key(seed)), ledger)


def at_budgets(
    policy: Decider, env: Env | HostEnvs, episodes: int, shown: int
) -> Callable[[PyTree, int, ArrayLike], tuple[Outcome, Steps]]:
    """(parameters, seed, budget) → the outcome at this budget and the first few episodes step by step.

    It is compiled once for all budgets. The environment is sautéed, and observations go on being relative to its reference.
    """
    ledger: Options = env.options  # type: ignore[union-attr, assignment]
    if isinstance(env, HostEnvs):
        act = jax.jit(Tested(policy).act)
        return lambda parameters, seed, budget: _on_host(act, policy, parameters, env, seed, ledger, budget, shown)

    def played(parameters: PyTree, key: PRNGKeyArray, budget: Array) -> tuple[tuple[Episodes, PyTree], Steps]:
        return _first_episodes(policy, parameters, env, episodes, key, ledger, budget, shown)

    play = jax.jit(played)

    def test(parameters: PyTree, seed: int, budget: ArrayLike) -> tuple[Outcome, Steps]:
        kept, steps = play(parameters, jax.random.key(seed), jnp.asarray(budget, jnp.float32))
        return _outcome(kept, ledger), jax.tree.map(np.asarray, steps)

    return test


def tested(
    policy: Decider,
    parameters: Sequence[PyTree],
    env: Env | HostEnvs,
    episodes: int,
    seed: int = TEST_SEED,
    ledger: Options | None = None,
    watch: Callable[[list[list[Outcome]]], object] = lambda batches: None,
) -> list[Outcome]:
    """So many episodes of every seed's policy, each with starts of its own, so that all together are independent.

    Whoever watches is told after each batch what there is so far, of every seed the outcomes of its batches.
    """
    size = env.num_envs if isinstance(env, HostEnvs) else min(episodes, BATCH)
    test = evaluator(policy, env, size, ledger)
    batches: list[list[Outcome]] = []
    for i, one in enumerate(parameters):
        batches.append([])
        for start in range(seed + i * episodes, seed + (i + 1) * episodes, size):
            batches[-1].append(test(one, start))
            watch(batches)
    return [pooled(own, episodes) for own in batches]


@dataclasses.dataclass(frozen=True)
class Sampled:
    """A policy net that draws its actions, as in training; every episode carries random numbers of its own."""

    net: Net

    @property
    def observations(self) -> int:
        return self.net.observations

    def init(self, key: PRNGKeyArray) -> PyTree:
        return self.net.init(key)

    def memory(self, count: int) -> Array:
        return self.begun(jax.random.key(0), count)

    def begun(self, key: PRNGKeyArray, count: int) -> Array:
        """The random numbers that so many episodes begin with."""
        return jax.random.key_data(jax.random.split(key, count))

    def decide(self, parameters: PyTree, memory: Array, obs: Float[Array, "env obs"]) -> tuple[Array, Array]:
        """An action drawn for every observation, and the random numbers that are left."""
        keys = jax.vmap(jax.random.split)(jax.random.wrap_key_data(memory))
        drawn = jax.vmap(lambda row, key: self.net.sample(self.net.distribution(parameters, row[None]), key)[0])
        return drawn(obs, keys[:, 0]), jax.random.key_data(keys[:, 1])


class Guarded(NamedTuple):
    """Parameters of a shielded policy."""

    policy: PyTree
    shield: Trained


@dataclasses.dataclass(frozen=True)
class Shielded:
    """A policy under its shield, for observations that end with z; it counts how often that steps in."""

    policy: Decider
    guard: Guard

    @property
    def observations(self) -> int:
        return self.guard.about.bare + self.guard.needs.actions  # type: ignore[union-attr]

    def init(self, key: PRNGKeyArray) -> Guarded:
        keys = jax.random.split(key, 3)
        nets = (self.policy, self.guard.backup, self.guard.needs)
        policy, backup, needs = (net.init(one) for net, one in zip(nets, keys, strict=True))
        return Guarded(policy, Trained(backup, needs, jnp.zeros(())))

    def memory(self, count: int) -> tuple[Int[Array, " env"], Memory]:
        """How often it stepped in, and what the policy remembers."""
        return jnp.zeros(count, jnp.int32), self.policy.memory(count)

    def decide(self, parameters: Guarded, memory: Any, obs: Float[Array, "env obs"]) -> tuple[Array, Any]:
        """The policy's action where z ≥ b(s, a) + margin for every constraint, else the backup's."""
        size = self.guard.about.bare
        action, own = self.policy.decide(parameters.policy, memory[1], obs[:, : self.policy.observations])
        action = self.guard.bounded(action)
        instead, stops = self.guard(parameters.shield, obs[:, :size], obs[:, size:], action)
        return jnp.where(along(stops, action), instead, action), (memory[0] + stops, own)


@dataclasses.dataclass(frozen=True)
class Tested:
    """A policy that acts and learns nothing; its state is its parameters."""

    policy: Decider

    observe = staticmethod(unchanged)

    def memory(self, count: int) -> Memory:
        return self.policy.memory(count)

    def act(self, state: PyTree, memory: Memory, obs: Float[Array, "env obs"], key: PRNGKeyArray | None = None) -> Acted:
        action, memory = self.policy.decide(state, memory, obs)
        return Acted(action, memory, memory[0] if isinstance(self.policy, Shielded) else ())


def _begun(policy: Decider, key: PRNGKeyArray, count: int) -> Memory:
    """What the policy remembers when episodes begin; if it draws its actions, other random numbers for every key."""
    return policy.begun(key, count) if isinstance(policy, Sampled) else policy.memory(count)


def _first_episodes(
    policy: Decider,
    parameters: PyTree,
    env: Env,
    episodes: int,
    key: PRNGKeyArray,
    ledger: Options | None,
    budget: Array | None = None,
    shown: int = 0,
) -> tuple[tuple[Episodes, PyTree], Any]:
    """The first episode of every environment and what was noted with its last step, and the steps of those to be shown."""
    start_key, key = jax.random.split(key)
    stream = begin(env, start_key, episodes, _begun(policy, jax.random.fold_in(key, DRAWN), episodes), ledger, budget)
    play = rollout(Tested(policy), env, Window(episodes, env.horizon, True), ledger)

    def one(carry: tuple[Stream, PyTree], key: PRNGKeyArray) -> tuple[tuple[Stream, PyTree], Steps | None]:
        """One step; only episodes that count are kept, since those of every step would take horizon times the memory."""
        before, kept = carry
        _, stream, (rows, seen, _) = play(parameters, before, key[None])
        now = jax.tree.map(lambda leaf: leaf[0], (seen, rows.extras))
        step = Steps(before.state.state, rows.next_remaining[0], rows.task_reward[0], seen.ended[0]) if shown else None
        return (stream, select(now[0].counted, now, kept)), jax.tree.map(lambda leaf: leaf[:shown], step)

    keys = jax.random.split(key, env.horizon)
    rows, seen, _ = jax.eval_shape(lambda: play(parameters, stream, keys[:1])[2])
    shapes = seen, rows.extras
    none = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape[1:], leaf.dtype), shapes)
    (_, kept), steps = jax.lax.scan(one, (stream, none), keys)
    return kept, steps


def _on_host(
    act: Callable[..., Acted],
    policy: Decider,
    parameters: PyTree,
    envs: HostEnvs,
    seed: int,
    ledger: Options | None,
    budget: ArrayLike | None = None,
    shown: int = 0,
) -> tuple[Outcome, Any]:
    """One episode of each environment, at a budget if given; those that end early start another, which does not count."""
    count, blank = envs.num_envs, policy.memory(envs.num_envs)
    budgets = None if budget is None else np.broadcast_to(np.asarray(budget, np.float64), (count, *envs.cost_shape))
    if envs.horizon is None:
        say(f"no time limit is known; episodes are given up after {LONGEST:,} steps")
    stream = begin_on_host(envs, seed, _begun(policy, jax.random.key(seed), count), ledger, budgets)
    done, kept, told = np.zeros(count, bool), None, list[Steps]()
    steps = host_steps(envs, lambda memory, obs, _: act(parameters, memory, obs), stream, blank, ledger)
    for _, (_, rows, seen) in zip(range(LONGEST), steps, strict=False):
        now = jax.tree.map(np.asarray, (seen, rows.extras))
        kept = now if kept is None else select(seen.counted, now, kept)
        done |= seen.counted
        if shown:
            told.append(Steps(None, rows.next_remaining[:shown], rows.task_reward[:shown], seen.ended[:shown]))
        if done.all():
            return _outcome(kept, ledger), jax.tree.map(lambda *steps: np.stack(steps), *told) if shown else None
    raise ValueError(
        f"{(~done).sum()} of {count} episodes have not ended after {LONGEST:,} steps; give the environment a time limit, "
        "with gymnasium.wrappers.TimeLimit or max_episode_steps in its registration"
    )


def _outcome(kept: tuple[Episodes, PyTree], ledger: Options | None) -> Outcome:
    it, noted = jax.tree.map(np.asarray, kept)
    violated, each = (None, None) if ledger is None else (it.violated, it.violated_each)
    intervened = noted if jax.tree.leaves(noted) else None
    return Outcome(it.task_return, it.cost, it.length, it.spent, violated, each, intervened)
