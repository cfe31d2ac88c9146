"""PETS: planning with a learned ensemble, without a policy net (Chua et al. 2018)."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from saute.core.protocol import Spec, Transition
from saute.learn.agent import Acted, Metrics, unchanged
from saute.learn.constraint import FREE, Free
from saute.learn.model import MODEL, NOTHING, Known, ModelSettings, Parameters, refuse_unspent, unknown_ends
from saute.learn.nets import squashed_for
from saute.learn.planner import CEM, CemSettings, Plan, Planner, planner_for
from saute.learn.replay import Replay, add, create, row_like, stored

__all__ = ["Pets", "PetsAgent", "PetsSettings", "PetsState", "pets"]


@dataclasses.dataclass(frozen=True)
class PetsSettings:
    """The settings; with these sizes two cores plan in real time on the pendulum, Chua et al. use far larger ones."""

    planner: CemSettings = CEM
    model: ModelSettings = MODEL
    steps_per_epoch: int = 200
    fit_every: int = 50
    """Steps between two fits of the model."""
    random_steps: int = 200
    """Steps with uniformly random actions, before the first fit."""
    replay: int = 5000
    learned_budget: bool = False
    """Whether the model learns z as part of the state, as in the paper, or w' = (w − l)/γ is computed from the cost."""

    def __post_init__(self) -> None:
        if self.fit_every < 1:
            raise ValueError(f"fit_every={self.fit_every} must be at least 1")
        if self.planner.particles % self.model.elites:
            numbers = f"particles={self.planner.particles} cannot be shared by elites={self.model.elites}"
            raise ValueError(f"{numbers} of the model; use a multiple of them")
        if self.random_steps < self.model.held_out:
            raise ValueError(f"random_steps={self.random_steps} do not fill a first held-out set; use {self.model.held_out}")

    @property
    def num_envs(self) -> int:
        """PETS plans for one environment at a time."""
        return 1


class PetsState(NamedTuple):
    """Everything that training changes."""

    model: Parameters
    frequencies: Float[Array, "member row"]
    replay: Replay
    steps: Int[Array, ""]


@dataclasses.dataclass(frozen=True)
class Pets:
    """The algorithm PETS: its settings, and functions of the task that are known."""

    settings: PetsSettings
    known: Known = NOTHING
    name: str = "pets"
    constraint: Free = FREE

    def agent(self, spec: Spec) -> PetsAgent:
        """The learner for an environment's spaces, and its Sauté options if it is sautéed."""
        if spec.options is not None and not spec.options.augment:
            raise ValueError("augment=False hides the remaining budget, which pets needs to plan; use augment=True")
        if spec.image is not None:
            raise ValueError(f"pets models every observation, which pictures {spec.image} are too many for; use ppo or sac")
        refuse_unspent(self.settings.model.pessimism, spec.options, self.settings.learned_budget)
        net = squashed_for(spec.observation_space, spec.action_space)
        chosen, bounds = self.settings, (net.low, net.high)
        models = (chosen.model, chosen.planner, self.known, chosen.learned_budget, spec.cost_shape)
        return PetsAgent(chosen, planner_for(net.observations, bounds, spec.options, *models))


@dataclasses.dataclass(frozen=True)
class PetsAgent:
    """A learner that keeps every step, fits its model again after every few steps, and plans to act."""

    settings: PetsSettings
    policy: Planner

    prepare = begin = learn = staticmethod(unchanged)

    def init(self, key: PRNGKeyArray) -> PetsState:
        model_key, bootstrap_key = jax.random.split(key)
        ensemble, capacity, options = self.policy.ensemble, self.settings.replay, self.policy.options
        bare = self.policy.observations - (0 if options is None else options.constraints)
        replay = create(row_like(bare, jnp.zeros(ensemble.actions), options, ensemble.cost_shape), capacity)
        return PetsState(
            ensemble.init(model_key), ensemble.frequencies(bootstrap_key, capacity), replay, jnp.zeros((), jnp.int32)
        )

    def memory(self, count: int) -> Plan:
        """The memory before the first plan."""
        return self.policy.memory(count)

    def act(self, state: PetsState, memory: Plan, obs: Float[Array, "env obs"], key: PRNGKeyArray) -> Acted:
        """Continue the plan, return its first action and what is left of it; before the first fit, a random action."""

        def planned() -> tuple[Array, Plan]:
            plan = self.policy.plan(state.model, obs, memory, key)
            return self.policy.mode(plan), plan.shifted()

        def uniform() -> tuple[Array, Plan]:
            unit = jax.random.uniform(key, (len(obs), self.policy.ensemble.actions), minval=-1.0, maxval=1.0)
            return self.policy.scale(unit), memory

        return Acted(*jax.lax.cond(state.steps < self.settings.random_steps, uniform, planned))

    def observe(self, state: PetsState, rows: Transition, key: PRNGKeyArray) -> tuple[PetsState, Metrics]:
        """Keep a step and, every few steps, fit the model to all of them."""
        if len(rows.terminated) != 1:
            raise ValueError(f"pets learns after every step of one environment, not of {len(rows.terminated)}; use num_envs=1")
        settings, ensemble, options = self.settings, self.policy.ensemble, self.policy.options
        replay, steps = add(state.replay, stored(rows, rows.action, options)), state.steps + 1
        model, metrics = jax.lax.cond(
            (steps % settings.fit_every == 0) & (steps >= settings.random_steps),
            lambda: ensemble.fit(state.model, state.frequencies, replay, key, options),
            lambda: (state.model, ensemble.unfitted()),
        )
        metrics["unknown_ends"] = unknown_ends(rows, ensemble, options)
        return PetsState(model, state.frequencies, replay, steps), metrics

    def export(self, state: PetsState) -> Parameters:
        """The ensemble, from which the planner can act."""
        return state.model

    def vital(self, state: PetsState) -> PyTree:
        return state.model

    def objection(self, metrics: dict[str, float]) -> str | None:
        return self.policy.ensemble.objection(metrics.pop("unknown_ends"), "pets")


def pets(settings: PetsSettings | None = None, known: Known = NOTHING) -> Pets:
    """PETS with iCEM; on a sautéed environment it imagines sautéed futures, so that overspending is worthless."""
    return Pets(settings or PetsSettings(), known)
