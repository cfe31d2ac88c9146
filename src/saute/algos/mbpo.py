"""MBPO: soft actor-critic on short imagined rollouts that branch off from real states (Janner et al. 2019)."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from saute.algos.sac import SacLearner, SacSettings, SoftActorCritic, sac
from saute.core.options import Options
from saute.core.protocol import Env, Episodes, Step
from saute.learn.drive import Stream, advance, begin, task_reward
from saute.learn.dynamics import imagination, imagined
from saute.learn.ensemble import MODEL, NOTHING, Ensemble, Known, ModelSettings, Parameters
from saute.learn.replay import Batch, Replay, Rows, add, create, relabel, sample, sauted
from saute.learn.squashed import SquashedGaussian

__all__ = ["Mbpo", "MbpoLearner", "MbpoSettings", "ModelBased", "mbpo"]

SAC = SacSettings(
    hidden=(64, 64), updates_per_step=10, random_steps=400, batch=256, replay=10_000, rate=1e-3, temperature_rate=1e-3,
    value_scale=50.0,
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class MbpoSettings:
    """Soft actor-critic's settings, whose replay holds the real steps, and those of the imagination that feeds it."""

    sac: SacSettings = SAC
    model: ModelSettings = MODEL
    rollouts: int = 100
    """Imagined rollouts per real step, shared evenly among the elite members of the ensemble."""
    length: int = 1
    """Steps of an imagined rollout."""
    imagined: int = 100_000
    """Imagined steps that are kept."""
    real: float = 0.05
    """Fraction of real steps in a batch."""
    learned_budget: bool = False
    """Whether the model learns z as a state dimension, as in the paper, instead of w' = (w − l)/γ being computed."""

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


class MbpoLearner(NamedTuple):
    """Everything that training changes; the real steps are in the replay of soft actor-critic."""

    sac: SacLearner
    model: Parameters
    frequencies: Float[Array, "member row"]
    imagined: Replay


@dataclasses.dataclass(frozen=True)
class Mbpo:
    """MBPO with its settings, not yet bound to an environment's spaces."""

    settings: MbpoSettings
    known: Known = NOTHING
    limit: float | None = None
    name: str = "mbpo"

    def bind(self, observation_space: Any, action_space: Any, options: Options | None = None) -> ModelBased:
        """For an environment's spaces, and its Sauté options if it is sautéed."""
        agent = sac(settings=self.settings.sac, limit=self.limit).bind(observation_space, action_space, options)
        learned = options is not None and self.settings.learned_budget
        if learned and options is not None and not options.augment:
            raise ValueError("learned_budget=True learns z from the observations, but augment=False hides it; use one of them")
        seen = 0 if options is None or learned or not options.augment else options.constraints
        ensemble = Ensemble(
            agent.policy.observations - seen,
            agent.policy.actions,
            () if options is None else options.budget_shape,
            self.known,
            learned,
            self.settings.model,
        )
        return ModelBased(self, agent, ensemble)


@dataclasses.dataclass(frozen=True)
class ModelBased:
    """`init` and `epoch` for an environment's spaces."""

    algorithm: Mbpo
    agent: SoftActorCritic
    ensemble: Ensemble

    @property
    def policy(self) -> SquashedGaussian:
        return self.agent.policy

    def init(self, key: PRNGKeyArray) -> MbpoLearner:
        agent_key, model_key, bootstrap_key = jax.random.split(key, 3)
        agent, settings = self.agent.init(agent_key), self.algorithm.settings
        row = jax.tree.map(lambda column: column[0], agent.replay.rows)
        frequencies = self.ensemble.frequencies(bootstrap_key, settings.sac.replay)
        return MbpoLearner(agent, self.ensemble.init(model_key), frequencies, create(row, settings.imagined))

    def epoch(self, env: Env, learner: MbpoLearner, key: PRNGKeyArray) -> tuple[MbpoLearner, dict[str, Array], Episodes]:
        """Fit the model, then fresh episodes, each step of them followed by imagination and by updates."""
        settings, agent = self.algorithm.settings, self.agent
        start_key, fit_key, key = jax.random.split(key, 3)
        unit = agent.unit_cost(env)
        began = learner.sac.steps >= settings.sac.random_steps
        learner, model_metrics = self.fitted(learner, fit_key)

        def one(carry: tuple[MbpoLearner, Stream], key: PRNGKeyArray) -> tuple[tuple[MbpoLearner, Stream], tuple[Any, Any]]:
            learner, stream = carry
            act_key, step_key, reset_key, dream_key, learn_key = jax.random.split(key, 5)
            action = agent.explore(learner.sac, stream.obs, act_key)
            following, step, episodes = advance(env, stream, agent.policy.scale(action), step_key, reset_key)
            learner, metrics = self.learn(learner, agent.rows(stream, action, step), began, dream_key, learn_key, unit)
            return (learner, following), (metrics, episodes)

        carry = (learner, begin(env, start_key, 1))
        (learner, _), (metrics, episodes) = jax.lax.scan(one, carry, jax.random.split(key, settings.steps_per_epoch))
        return learner, {**jax.tree.map(jnp.mean, metrics), **model_metrics}, episodes

    def fitted(self, learner: MbpoLearner, key: PRNGKeyArray) -> tuple[MbpoLearner, dict[str, Array]]:
        """With the model fitted to all real steps, once there are enough of them."""
        model, metrics = jax.lax.cond(
            learner.sac.steps >= self.algorithm.settings.sac.random_steps,
            lambda: self._fit(learner, key),
            lambda: (learner.model, {"model_error": jnp.zeros(()), "model_looks": jnp.zeros(())}),
        )
        return learner._replace(model=model), metrics

    def learn(
        self, learner: MbpoLearner, rows: Rows, began: Any, dream_key: PRNGKeyArray, learn_key: PRNGKeyArray, unit_cost: float
    ) -> tuple[MbpoLearner, dict[str, Array]]:
        """Keep a real step and, if the epoch began with a model, imagine and update."""
        agent = learner.sac._replace(replay=add(learner.sac.replay, rows), steps=learner.sac.steps + 1)
        learner = learner._replace(sac=agent)

        def learned() -> tuple[MbpoLearner, dict[str, Array]]:
            dreamt = learner._replace(imagined=add(learner.imagined, self.imagine(learner, dream_key)))
            return self._updates(dreamt, learn_key, unit_cost)

        def unchanged() -> tuple[MbpoLearner, dict[str, Array]]:
            return learner, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), jax.eval_shape(learned)[1])

        return jax.lax.cond(began, learned, unchanged)

    def exported(self, learner: MbpoLearner) -> Any:
        """Parameters of the policy."""
        return self.agent.exported(learner.sac)

    def vital(self, learner: MbpoLearner) -> Any:
        """What must be finite."""
        return self.agent.vital(learner.sac), learner.model

    def imagine(self, learner: MbpoLearner, key: PRNGKeyArray) -> Rows:
        """Rollouts of the policy from real states, in the worlds of the elite members; one that ends begins anew."""
        settings, options, policy = self.algorithm.settings, self.agent.options, self.agent.policy
        start_key, key = jax.random.split(key)
        starts = sample(learner.sac.replay, start_key, settings.rollouts)
        elites, count = settings.model.elites, settings.rollouts // settings.model.elites
        shared = jax.tree.map(lambda column: column.reshape(elites, count, *column.shape[1:]), starts)

        def in_world_of(member: Array, starts: Rows, key: PRNGKeyArray) -> Rows:
            env = imagination(self.ensemble, learner.model.of(member), settings.length, options)
            first = jax.vmap(lambda obs, remaining: imagined(env, obs, remaining))(starts.obs, starts.remaining)

            def one(now: tuple[Any, Array, Array], key: PRNGKeyArray) -> tuple[tuple[Any, Array, Array], Rows]:
                states, obs, remaining = now
                act_key, step_key = jax.random.split(key)
                unit = self._unit_action(learner, obs, remaining, act_key)
                step: Step = jax.vmap(env.step)(states, policy.scale(unit), jax.random.split(step_key, len(unit)))
                next_obs = step.obs[:, : obs.shape[1]]
                left = remaining if options is None else step.state.remaining
                rows = Rows(obs, remaining, unit, task_reward(step), step.cost, next_obs, left, step.terminated)
                ended, begun = step.terminated, (first, starts.obs, starts.remaining)
                return jax.tree.map(
                    lambda new, old: jnp.where(ended.reshape(-1, *(1,) * (new.ndim - 1)), new, old),
                    begun,
                    (step.state, next_obs, left),
                ), rows

            keys = jax.random.split(key, settings.length)
            return jax.lax.scan(one, (first, starts.obs, starts.remaining), keys)[1]

        rows = jax.vmap(in_world_of)(learner.model.elites, shared, jax.random.split(key, elites))
        total = settings.rollouts * settings.length
        return jax.tree.map(lambda column: column.reshape(total, *column.shape[3:]), rows)

    def _unit_action(self, learner: MbpoLearner, obs: Array, remaining: Array, key: PRNGKeyArray) -> Array:
        """An action of the policy, in (−1, 1)."""
        blank = jnp.zeros(len(obs))
        row = Rows(obs, remaining, blank, blank, jnp.zeros_like(remaining), obs, remaining, blank > 0)
        seen = sauted(row, self.agent.options).obs
        dist = self.agent.policy.distribution(learner.sac.policy, seen)
        return jnp.tanh(self.agent.policy.unsquashed(dist, key))

    def _fit(self, learner: MbpoLearner, key: PRNGKeyArray) -> tuple[Parameters, dict[str, Array]]:
        rows = learner.sac.replay.rows
        real = learner.sac.replay._replace(rows=rows._replace(action=self.agent.policy.scale(rows.action)))
        return self.ensemble.fit(learner.model, learner.frequencies, real, key, self.agent.options)

    def _updates(self, learner: MbpoLearner, key: PRNGKeyArray, unit_cost: float) -> tuple[MbpoLearner, dict[str, Array]]:
        settings, real, dreamt = self.algorithm.settings, learner.sac.replay, learner.imagined

        def one(agent: SacLearner, key: PRNGKeyArray) -> tuple[SacLearner, dict[str, Array]]:
            batch_key, key = jax.random.split(key)
            return self.agent.update(agent, self._batch(real, dreamt, batch_key), key, unit_cost)

        # The replay is only read here, so no loop needs to hand it on.
        apart = learner.sac._replace(replay=None)  # type: ignore[arg-type]
        apart, metrics = jax.lax.scan(one, apart, jax.random.split(key, settings.sac.updates(1)))
        return learner._replace(sac=apart._replace(replay=real)), jax.tree.map(jnp.mean, metrics)

    def _batch(self, real: Replay, dreamt: Replay, key: PRNGKeyArray) -> Batch:
        """Real and imagined rows, half of them with fresh remaining budgets if the settings say so."""
        settings, options = self.algorithm.settings, self.agent.options
        real_key, dream_key, budget_key = jax.random.split(key, 3)
        count = round(settings.real * settings.sac.batch)
        parts = sample(real, real_key, count), sample(dreamt, dream_key, settings.sac.batch - count)
        rows = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), *parts)
        if options is not None and settings.sac.relabel:
            fresh = relabel(rows, budget_key, options, -settings.sac.overdraft * options.high, options.high)
            rows = jax.tree.map(lambda own, other: jnp.concatenate([own[::2], other[1::2]]), rows, fresh)
        return sauted(rows, options)


def mbpo(settings: MbpoSettings | None = None, known: Known = NOTHING, limit: float | None = None) -> Mbpo:
    """MBPO; on a sautéed environment it imagines sautéed rollouts, in which each step spends the cost that it predicts."""
    return Mbpo(settings or MbpoSettings(), known, limit)
