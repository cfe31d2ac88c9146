"""Shields in JAX: what they decide, as in `serve.shield`, and learners whose actions they replace before a step is made."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from saute.core.masks import along
from saute.core.protocol import Episodes, Transition
from saute.learn.agent import Acted, Agent, Decider, Memory, Metrics, Noting, Settings, State, fills, luck_of, unchanged
from saute.learn.nets import Net
from saute.serve.description import Description
from saute.serve.shield import as_inputs

__all__ = ["Careful", "Guard", "Trained"]


class Trained(NamedTuple):
    """Parameters of a shield."""

    backup: PyTree
    needs: PyTree
    margin: Float[Any, ""]


@dataclasses.dataclass(frozen=True)
class Guard:
    """The nets of a shield."""

    backup: Net
    needs: Net
    about: Description
    """Of the backup."""

    def bounded(self, action: Array) -> Array:
        """The action that the environment would be given, discrete ones counted from 0."""
        about = self.about
        return action if about.low is None else jnp.clip(action, jnp.asarray(about.low), jnp.asarray(about.high))

    def __call__(
        self, shield: Trained, bare: Float[Array, "env obs"], z: Float[Array, "env constraint"], action: Array
    ) -> tuple[Array, Bool[Array, " env"]]:
        """What the backup would do, and where it has to: where not z ≥ b(s, a) + margin for every constraint."""
        seen = jnp.concatenate([bare, as_inputs(self.about, self.bounded(action), jnp)], axis=1)
        need, _ = self.needs.decide(shield.needs, (), seen)
        instead, _ = self.backup.decide(shield.backup, (), bare)
        return instead, ~(z >= jnp.maximum(need, 0.0) + shield.margin).all(1)


class Kept(NamedTuple):
    """What is kept with a step: where the shield stepped in, and what the learner notes."""

    foreign: Bool[Array, " env"]
    own: PyTree


@dataclasses.dataclass(frozen=True)
class Careful:
    """A learner under a shield: where it proposes an action that is not admitted, the backup acts.

    It sees what was done, not what it proposed. So replays and models get true steps; those who learn from their own actions
    only (PPO, TRPO, CPO) are told which ones were `foreign`, and leave these out of the policy's step, not out of the values'.
    """

    agent: Agent
    guard: Guard
    shield: Trained
    shares: tuple[float, ...]
    """The environment's reference budgets in those of the shield, by which its z are multiplied."""

    @property
    def settings(self) -> Settings:
        return self.agent.settings

    @property
    def policy(self) -> Decider:
        return self.agent.policy

    @property
    def prepare(self) -> Callable[..., tuple[State, Metrics]]:
        return self.agent.prepare

    @property
    def begin(self) -> Callable[..., tuple[State, Metrics]]:
        return self.agent.begin

    @property
    def observe(self) -> Callable[..., tuple[State, Metrics]]:
        return self._observed if fills(self.agent.observe) else unchanged

    @property
    def learn(self) -> Callable[..., tuple[State, Metrics]]:
        return self._learned if fills(self.agent.learn) else unchanged

    def init(self, key: PRNGKeyArray) -> State:
        return self.agent.init(key)

    def memory(self, count: int) -> Memory:
        return self.agent.memory(count)

    def act(self, state: State, memory: Memory, obs: Float[Array, "env obs"], key: PRNGKeyArray) -> Acted:
        acted, size = self.agent.act(state, memory, obs, key), self.guard.about.bare
        instead, stops = self.guard(self.shield, obs[:, :size], obs[:, size:] * jnp.asarray(self.shares), acted.action)
        own = acted.extras
        if isinstance(self.agent, Noting):
            own = jax.tree.map(lambda new, old: jnp.where(along(stops, old), new, old), self.agent.noted(instead), own)
        return Acted(jnp.where(along(stops, acted.action), instead, acted.action), acted.memory, Kept(stops, own))

    def luck(self, key: PRNGKeyArray, count: int) -> Any:
        return luck_of(self.agent)(key, count)

    def _observed(self, state: State, rows: Transition, luck: Any) -> tuple[State, Metrics]:
        state, metrics = self.agent.observe(state, _told(rows), luck)
        return state, {**metrics, "intervened": rows.extras.foreign.mean()}

    def _learned(self, state: State, rows: Transition, episodes: Episodes, key: PRNGKeyArray) -> tuple[State, Metrics]:
        state, metrics = self.agent.learn(state, _told(rows), episodes, key)
        return state, {**metrics, "intervened": rows.extras.foreign.mean()}

    def export(self, state: State) -> PyTree:
        return self.agent.export(state)

    def vital(self, state: State) -> PyTree:
        return self.agent.vital(state)

    def objection(self, metrics: dict[str, float]) -> str | None:
        return self.agent.objection(metrics)


def _told(rows: Transition) -> Transition:
    return rows._replace(extras=rows.extras.own, foreign=rows.extras.foreign)
