"""PETS: planning through a learned ensemble, without a policy net (Chua et al. 2018)."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from saute.core.options import Options
from saute.core.protocol import Env, Episodes, Step
from saute.learn.drive import Stream, advance, begin, task_reward
from saute.learn.ensemble import MODEL, NOTHING, Known, ModelSettings, Parameters
from saute.learn.planner import CEM, CemSettings, Plan, Planner, planner_for
from saute.learn.replay import Replay, Rows, add, create
from saute.learn.squashed import squashed_for

__all__ = ["Pets", "PetsLearner", "PetsSettings", "Planning", "pets"]


@dataclasses.dataclass(frozen=True)
class PetsSettings:
    """Sizes that two cores plan with in real time on the pendulum; Chua et al. use far larger ones."""

    planner: CemSettings = CEM
    model: ModelSettings = MODEL
    steps_per_epoch: int = 200
    """Environment steps of an epoch, which begins with a fresh episode."""
    fit_every: int = 50
    random_steps: int = 200
    """Steps with uniform actions, before the first fit."""
    replay: int = 5000
    learned_budget: bool = False
    """Whether the model learns z as a state dimension, as in the paper, instead of w' = (w − l)/γ being computed."""

    def __post_init__(self) -> None:
        if self.steps_per_epoch % self.fit_every:
            raise ValueError(f"fit_every={self.fit_every} does not divide steps_per_epoch={self.steps_per_epoch}; make it")
        if self.planner.particles % self.model.elites:
            numbers = f"particles={self.planner.particles} cannot be shared by elites={self.model.elites}"
            raise ValueError(f"{numbers} of the model; use a multiple of them")
        if self.random_steps < self.model.held_out:
            raise ValueError(f"random_steps={self.random_steps} do not fill a first held-out set; use {self.model.held_out}")


class PetsLearner(NamedTuple):
    """Everything that training changes."""

    model: Parameters
    frequencies: Float[Array, "member row"]
    replay: Replay
    steps: Int[Array, ""]


@dataclasses.dataclass(frozen=True)
class Pets:
    """PETS with its settings, not yet bound to an environment's spaces."""

    settings: PetsSettings
    known: Known = NOTHING
    limit: float | None = None
    name: str = "pets"

    def bind(self, observation_space: Any, action_space: Any, options: Options | None = None) -> Planning:
        """For an environment's spaces, and its Sauté options if it is sautéed."""
        if options is not None and not options.augment:
            raise ValueError("augment=False hides the remaining budget, which pets needs to plan; use augment=True")
        net = squashed_for(observation_space, action_space)
        chosen, bounds = self.settings, (net.low, net.high)
        models = (chosen.model, chosen.planner, self.known, chosen.learned_budget)
        return Planning(self, planner_for(net.observations, bounds, options, *models))


@dataclasses.dataclass(frozen=True)
class Planning:
    """`init` and `epoch` for an environment's spaces; what is exported is the ensemble, with which the planner acts."""

    algorithm: Pets
    policy: Planner

    def init(self, key: PRNGKeyArray) -> PetsLearner:
        model_key, bootstrap_key = jax.random.split(key)
        ensemble, capacity, options = self.policy.ensemble, self.algorithm.settings.replay, self.policy.options
        bare = self.policy.observations - (0 if options is None else options.constraints)
        obs, scalar, cost = jnp.zeros(bare), jnp.zeros(()), jnp.zeros(ensemble.cost_shape)
        remaining = jnp.zeros(0) if options is None else cost
        row = Rows(obs, remaining, jnp.zeros(ensemble.actions), scalar, cost, obs, remaining, jnp.zeros((), bool))
        frequencies = ensemble.frequencies(bootstrap_key, capacity)
        return PetsLearner(ensemble.init(model_key), frequencies, create(row, capacity), jnp.zeros((), jnp.int32))

    def epoch(self, env: Env, learner: PetsLearner, key: PRNGKeyArray) -> tuple[PetsLearner, dict[str, Array], Episodes]:
        """One fresh episode after another, planned step by step; the model is fitted again every few of them."""
        settings = self.algorithm.settings
        self.refuse_other_options(env)

        def step(carry: tuple[PetsLearner, Stream, Plan], key: PRNGKeyArray) -> tuple[Any, Episodes]:
            learner, stream, plan = carry
            act_key, step_key, reset_key = jax.random.split(key, 3)
            action, plan = self.decide(learner, stream.obs, plan, act_key)
            following, moved, episodes = advance(env, stream, action, step_key, reset_key)
            learner, plan = self.remember(learner, plan, self.rows(stream, action, moved), episodes.ended)
            return (learner, following, plan), episodes

        def block(carry: tuple[PetsLearner, Stream, Plan], key: PRNGKeyArray) -> tuple[Any, tuple[Any, Episodes]]:
            (learner, stream, plan), (fit_key, key) = carry, jax.random.split(key)
            learner, metrics = self.fitted(learner, fit_key)
            carry, episodes = jax.lax.scan(step, (learner, stream, plan), jax.random.split(key, settings.fit_every))
            return carry, (metrics, episodes)

        start_key, key = jax.random.split(key)
        blocks = jax.random.split(key, settings.steps_per_epoch // settings.fit_every)
        carry = (learner, begin(env, start_key, 1), self.no_plan())
        (learner, _, _), (metrics, episodes) = jax.lax.scan(block, carry, blocks)
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), episodes)
        return learner, jax.tree.map(jnp.mean, metrics), flat

    def refuse_other_options(self, env: Any) -> None:
        """The planner has to know the budgets of the environment that it acts in."""
        if getattr(env, "options", None) is not self.policy.options:
            raise ValueError("the environment's Sauté options are not those that bind was given; pass env.options to bind")

    def no_plan(self) -> Plan:
        """What an episode begins with."""
        return jax.tree.map(lambda leaf: leaf[None], self.policy.blank())

    def fitted(self, learner: PetsLearner, key: PRNGKeyArray) -> tuple[PetsLearner, dict[str, Array]]:
        """With the model fitted to all steps, once there are enough of them."""
        ensemble, options = self.policy.ensemble, self.policy.options
        model, metrics = jax.lax.cond(
            learner.steps >= self.algorithm.settings.random_steps,
            lambda: ensemble.fit(learner.model, learner.frequencies, learner.replay, key, options),
            lambda: (learner.model, {name: jnp.zeros(()) for name in ("model_error", "model_looks")}),
        )
        return learner._replace(model=model), metrics

    def decide(self, learner: PetsLearner, obs: Array, plan: Plan, key: PRNGKeyArray) -> tuple[Array, Plan]:
        """The first action of the plan, gone on with from here, and what is left of it; before there is a model, any action."""

        def planned() -> tuple[Array, Plan]:
            plan_now = self.policy.plan(learner.model, obs, plan, key)
            return self.policy.mode(plan_now), plan_now.shifted()

        def uniform() -> tuple[Array, Plan]:
            unit = jax.random.uniform(key, (1, self.policy.ensemble.actions), minval=-1.0, maxval=1.0)
            return self.policy.scale(unit), plan

        return jax.lax.cond(learner.steps < self.algorithm.settings.random_steps, uniform, planned)

    def remember(self, learner: PetsLearner, plan: Plan, rows: Rows, ended: Array) -> tuple[PetsLearner, Plan]:
        """Keep a step; a plan ends with its episode."""
        plan = jax.tree.map(lambda new, old: jnp.where(ended[0], new, old), self.no_plan(), plan)
        return learner._replace(replay=add(learner.replay, rows), steps=learner.steps + 1), plan

    def exported(self, learner: PetsLearner) -> Parameters:
        """Parameters of the planner."""
        return learner.model

    def vital(self, learner: PetsLearner) -> Any:
        """What must be finite."""
        return learner.model

    def rows(self, stream: Stream, action: Array, step: Step) -> Rows:
        """A step as the replay keeps it: without z in the observations, and with the reward before shaping."""
        if self.policy.options is None:
            none = jnp.zeros((len(action), 0))
            return Rows(stream.obs, none, action, step.reward, step.cost, step.obs, none, step.terminated)
        size, before, after = -self.policy.options.constraints, stream.state.remaining, step.state.remaining
        obs, next_obs = stream.obs[:, :size], step.obs[:, :size]
        return Rows(obs, before, action, task_reward(step), step.cost, next_obs, after, step.terminated)


def pets(settings: PetsSettings | None = None, known: Known = NOTHING, limit: float | None = None) -> Pets:
    """PETS with iCEM; on a sautéed environment it imagines sautéed futures, so that overspending ones are worth nothing."""
    return Pets(settings or PetsSettings(), known, limit)
