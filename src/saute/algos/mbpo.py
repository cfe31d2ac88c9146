"""MBPO: soft actor-critic on short imagined rollouts that begin in real states (Janner et al. 2019)."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from saute.algos.sac import Luck, SacAgent, SacSettings, SacState, sac
from saute.core.masks import along
from saute.core.native import task_reward
from saute.core.protocol import Spec, Transition
from saute.learn.agent import Acted, Metrics, unchanged
from saute.learn.constraint import FREE, Free
from saute.learn.model import (
    MODEL,
    NOTHING,
    Ensemble,
    Known,
    ModelSettings,
    Parameters,
    imagination,
    imagined,
    refuse_unspent,
    unknown_ends,
)
from saute.learn.nets import SquashedGaussian, squashed_for
from saute.learn.replay import Batch, Replay, Rows, add, create, lots, observed, picked, relabel_half, sample, sauted

__all__ = ["Mbpo", "MbpoAgent", "MbpoSettings", "MbpoState", "mbpo"]

SAC = SacSettings(
    hidden=(64, 64), updates_per_step=10, random_steps=400, batch=256, replay=10_000, rate=1e-3, temperature_rate=1e-3,
    value_scale=50.0,
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class MbpoSettings:
    """The settings of soft actor-critic, whose replay holds the real steps, of the model, and of the imagined rollouts."""

    sac: SacSettings = SAC
    model: ModelSettings = MODEL
    rollouts: int = 100
    """Imagined rollouts per real step, the same number from each elite member of the ensemble."""
    length: int = 1
    """Steps of an imagined rollout."""
    imagined: int = 100_000
    """How many imagined steps are kept."""
    real: float = 0.05
    """Fraction of a batch that is real steps."""
    learned_budget: bool = False
    """Whether the model learns z as part of the state, as in the paper, or w' = (w − l)/γ is computed from the cost."""

    def __post_init__(self) -> None:
        if self.rollouts < 1 or self.rollouts % self.model.elites:
            raise ValueError(f"rollouts={self.rollouts} cannot be shared by elites={self.model.elites}; use a multiple of them")
        if self.length < 1 or self.imagined < self.rollouts * self.length:
            numbers = f"imagined={self.imagined}, rollouts={self.rollouts}, length={self.length}"
            raise ValueError(f"{numbers}: keep at least the rollouts of one step, of length 1 or more")
        if not 0.0 <= self.real <= 1.0:
            raise ValueError(f"real={self.real} is a fraction of the batch; choose it in [0, 1]")
        if self.sac.num_envs != 1:
            raise ValueError(f"num_envs={self.sac.num_envs}: mbpo counts its rollouts per step of one environment; use 1")
        if self.sac.random_steps < self.model.held_out:
            raise ValueError(f"random_steps={self.sac.random_steps} do not fill a held-out set; use {self.model.held_out}")
        if self.learned_budget and self.sac.relabel:
            raise ValueError("relabel=True computes remaining budgets that learned_budget=True would learn; use one of them")

    @property
    def steps_per_epoch(self) -> int:
        return self.sac.steps_per_epoch

    @property
    def num_envs(self) -> int:
        return self.sac.num_envs


class MbpoState(NamedTuple):
    """Everything that training changes; the real steps are in the replay of `sac`."""

    sac: SacState
    model: Parameters
    frequencies: Float[Array, "member row"]
    imagined: Replay
    fitted: Bool[Array, ""]
    """Whether this epoch has a fitted model."""


@dataclasses.dataclass(frozen=True)
class Mbpo:
    """The algorithm MBPO: its settings, and functions of the task that are known."""

    settings: MbpoSettings
    known: Known = NOTHING
    name: str = "mbpo"
    constraint: Free = FREE

    def agent(self, spec: Spec) -> MbpoAgent:
        """The learner for an environment's spaces, and its Sauté options if it is sautéed."""
        if spec.image is not None:
            raise ValueError(f"mbpo models every observation, which pictures {spec.image} are too many for; use ppo or sac")
        policy = squashed_for(spec.observation_space, spec.action_space, self.settings.sac.hidden)
        actor, options = sac(settings=self.settings.sac).agent(spec), spec.options
        learned = options is not None and self.settings.learned_budget
        if learned and options is not None and not options.augment:
            raise ValueError("learned_budget=True learns z from the observations, but augment=False hides it; use one of them")
        refuse_unspent(self.settings.model.pessimism, options, learned)
        ensemble = Ensemble(
            policy.observations if learned else actor.bare_observations,
            policy.actions,
            spec.cost_shape,
            self.known,
            learned,
            self.settings.model,
        )
        return MbpoAgent(self.settings, actor, ensemble, policy)


@dataclasses.dataclass(frozen=True)
class MbpoAgent:
    """A learner that fits its model at the beginning of an epoch, and imagines and updates after every real step."""

    settings: MbpoSettings
    actor: SacAgent
    ensemble: Ensemble
    policy: SquashedGaussian

    prepare = learn = staticmethod(unchanged)

    def init(self, key: PRNGKeyArray) -> MbpoState:
        actor_key, model_key, bootstrap_key = jax.random.split(key, 3)
        actor, settings = self.actor.init(actor_key), self.settings
        assert actor.replay is not None
        row = jax.tree.map(lambda column: column[0], actor.replay.rows)
        frequencies = self.ensemble.frequencies(bootstrap_key, settings.sac.replay)
        model, dreams = self.ensemble.init(model_key), create(row, settings.imagined)
        return MbpoState(actor, model, frequencies, dreams, jnp.zeros((), bool))

    def memory(self, count: int) -> tuple[()]:
        return ()

    def begin(self, state: MbpoState, key: PRNGKeyArray) -> tuple[MbpoState, Metrics]:
        """Fit the model to all real steps, if there are enough of them."""
        real, ready = state.sac.replay, state.sac.steps >= self.settings.sac.random_steps
        assert real is not None
        scaled = real._replace(rows=real.rows._replace(action=self.policy.scale(real.rows.action)))
        model, metrics = jax.lax.cond(
            ready,
            lambda: self.ensemble.fit(state.model, state.frequencies, scaled, key, self.actor.options),
            lambda: (state.model, self.ensemble.unfitted()),
        )
        return state._replace(model=model, fitted=ready), metrics

    def act(self, state: MbpoState, memory: tuple[()], obs: Float[Array, "env obs"], key: PRNGKeyArray) -> Acted:
        return self.actor.act(state.sac, memory, obs, key)

    def noted(self, action: Array) -> Array:
        return self.actor.noted(action)

    def luck(self, key: PRNGKeyArray, count: int) -> tuple[PRNGKeyArray, Luck]:
        """The key of what is imagined, and the luck of the updates."""
        dream_key, learn_key = jax.random.split(key)
        return dream_key, self.actor.lucks(learn_key, self.settings.sac.updates(count), self.lots)

    def observe(self, state: MbpoState, rows: Transition, luck: tuple[PRNGKeyArray, Luck]) -> tuple[MbpoState, Metrics]:
        """Keep a real step and, if this epoch has a fitted model, imagine and update."""
        if len(rows.terminated) != 1:
            raise ValueError(f"mbpo learns after every step of one environment, not of {len(rows.terminated)}; use num_envs=1")
        dream_key, lucks = luck
        actor = self.actor.remembered(state.sac, rows)
        state = state._replace(sac=actor)
        dreams = jax.lax.cond(state.fitted, lambda: add(state.imagined, self.imagine(state, dream_key)), lambda: state.imagined)
        real = actor.replay
        assert real is not None

        def batch(rows: PyTree, budget_key: PRNGKeyArray) -> Batch:
            return self.batch(real, dreams, rows, budget_key)

        # The replay is only read here. It is left out of the state, so that no branch and no loop copies it.
        apart, metrics = self.actor.updated(state.fitted, actor._replace(replay=None), batch, lucks)
        ends = unknown_ends(rows, self.ensemble, self.actor.options)
        return state._replace(sac=apart._replace(replay=real), imagined=dreams), metrics | {"unknown_ends": ends}

    def export(self, state: MbpoState) -> PyTree:
        return self.actor.export(state.sac)

    def vital(self, state: MbpoState) -> PyTree:
        return self.actor.vital(state.sac), state.model

    def objection(self, metrics: dict[str, float]) -> str | None:
        return self.ensemble.objection(metrics.pop("unknown_ends"), "mbpo")

    def imagine(self, state: MbpoState, key: PRNGKeyArray) -> Rows:
        """Imagined rollouts of the policy from real states, by the elite members; one that ends begins again at its start."""
        settings, options = self.settings, self.actor.options
        start_key, key = jax.random.split(key)
        assert state.sac.replay is not None
        starts = sample(state.sac.replay, start_key, settings.rollouts)
        elites, count = settings.model.elites, settings.rollouts // settings.model.elites
        shared = jax.tree.map(lambda column: column.reshape(elites, count, *column.shape[1:]), starts)

        def in_world_of(member: Array, starts: Rows, key: PRNGKeyArray) -> Rows:
            env = imagination(self.ensemble, state.model, member, settings.length, options)
            first = jax.vmap(lambda obs, remaining: imagined(env, obs, remaining))(starts.obs, starts.remaining)
            begun = (first, starts.obs, starts.remaining)

            def one(now: tuple[PyTree, Array, Array], key: PRNGKeyArray) -> tuple[tuple[PyTree, Array, Array], Rows]:
                states, obs, remaining = now
                act_key, step_key = jax.random.split(key)
                seen = self.actor.seen(state.sac, observed(obs, remaining, options))
                unit = self.actor.weighing.sample(state.sac.policy, seen, act_key)
                step = jax.vmap(env.step)(states, self.policy.scale(unit), jax.random.split(step_key, len(unit)))
                next_obs = step.obs[:, : obs.shape[1]]
                left = remaining if options is None else step.state.remaining
                rows = Rows(obs, remaining, unit, task_reward(step), step.cost, next_obs, left, step.terminated)
                going = jax.tree.map(
                    lambda new, old: jnp.where(along(step.terminated, old), new, old), begun, (step.state, next_obs, left)
                )
                return going, rows

            return jax.lax.scan(one, begun, jax.random.split(key, settings.length))[1]

        rows = jax.vmap(in_world_of)(state.model.elites, shared, jax.random.split(key, elites))
        total = settings.rollouts * settings.length
        return jax.tree.map(lambda column: column.reshape(total, *column.shape[3:]), rows)

    def lots(self, key: PRNGKeyArray) -> PyTree:
        """Which real and which imagined rows a batch has."""
        real_key, dream_key = jax.random.split(key)
        count = round(self.settings.real * self.settings.sac.batch)
        return lots(real_key, count), lots(dream_key, self.settings.sac.batch - count)

    def batch(self, real: Replay, dreams: Replay, drawn: PyTree, budget_key: PRNGKeyArray) -> Batch:
        """Real and imagined rows; half of them get new remaining budgets if the settings say so."""
        settings, options = self.settings, self.actor.options
        parts = map(picked, (real, dreams), drawn)
        rows = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), *parts)
        if options is not None and settings.sac.relabel:
            rows = relabel_half(rows, budget_key, options, settings.sac.overdraft)
        return sauted(rows, options)


def mbpo(settings: MbpoSettings | None = None, known: Known = NOTHING) -> Mbpo:
    """MBPO; on a sautéed environment its rollouts are sautéed too: each imagined step spends the predicted cost."""
    return Mbpo(settings or MbpoSettings(), known)
