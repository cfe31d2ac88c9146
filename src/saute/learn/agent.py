"""What every learner is: a bundle of pure functions that never sees an environment; `drive` calls them in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from jaxtyping import Array, Float, PRNGKeyArray, PyTree, Shaped

from saute.core.protocol import Episodes, Transition

__all__ = [
    "Acted",
    "Actor",
    "Agent",
    "Decider",
    "Foresighted",
    "Metrics",
    "Noting",
    "Settings",
    "fills",
    "luck_of",
    "named",
    "unchanged",
]

State: TypeAlias = PyTree
"""Everything that training changes."""
Memory: TypeAlias = PyTree
"""What a learner carries from step to step of an episode, one row per environment; most carry nothing."""
Metrics = dict[str, Shaped[Any, ""]]
"""Numbers of an epoch, by name; NaN where nothing was measured."""


class Acted(NamedTuple):
    """Actions for all environments, the memory for their next step, and what the learner wants noted with the step."""

    action: Any
    memory: Memory = ()
    extras: PyTree = ()


def unchanged(state: State, *given: object) -> tuple[State, Metrics]:
    """Nothing to do: what a learner has in place of the functions that it leaves empty."""
    return state, {}


def named(name: str, values: Shaped[Any, "*constraint"]) -> Metrics:
    """One number by its name, or several of them, one per constraint, as name_0, name_1 and so on."""
    return {name: values} if values.ndim == 0 else {f"{name}_{i}": values[i] for i in range(len(values))}


def fills(function: Callable[..., object]) -> bool:
    """Whether a learner has something to do there."""
    return function is not unchanged


def luck_of(agent: Actor) -> Callable[[PRNGKeyArray, int], Any]:
    """(key, number of environments) ↦ what the learner's `observe` is given: what it draws ahead, or just the key."""
    return agent.luck if isinstance(agent, Foresighted) else lambda key, count: key


@runtime_checkable
class Decider(Protocol):
    """How parameters become actions: a policy net, or a planner."""

    @property
    def observations(self) -> int: ...

    def init(self, key: PRNGKeyArray) -> PyTree:
        """Untrained parameters."""

    def memory(self, count: int) -> Memory:
        """What so many episodes begin with."""

    def decide(self, parameters: PyTree, memory: Memory, obs: Float[Array, "env obs"]) -> tuple[Array, Memory]:
        """The deterministic action for every observation, and the memory for the next step."""


@runtime_checkable
class Noting(Protocol):
    """A learner that notes its actions in its own way, and can do so with those that somebody else chose."""

    def noted(self, action: Shaped[Any, "env ..."]) -> PyTree:
        """What it would have noted with these actions."""


@runtime_checkable
class Foresighted(Protocol):
    """A learner whose random numbers do not depend on what it learned, so that those of many steps are drawn at once.

    A draw takes about as long for one step as for many, and a small update has less to compute than to draw.
    """

    def luck(self, key: PRNGKeyArray, count: int) -> PyTree:
        """What `observe` is given instead of the key, after a step of so many environments."""


@runtime_checkable
class Settings(Protocol):
    """What the driver has to know of a learner's settings."""

    @property
    def steps_per_epoch(self) -> int: ...
    @property
    def num_envs(self) -> int | None: ...


@runtime_checkable
class Actor(Protocol):
    """What acts in environments, and sees what came of it."""

    def memory(self, count: int) -> Memory:
        """What so many episodes begin with."""

    def act(self, state: State, memory: Memory, obs: Float[Array, "env obs"], key: PRNGKeyArray) -> Acted: ...

    def observe(self, state: State, rows: Transition, luck: Any) -> tuple[State, Metrics]:
        """After every step of all environments; the luck is a key, or what the learner makes of one (`Foresighted`)."""


@runtime_checkable
class Agent(Actor, Protocol):
    """A learner for one kind of environment.

    An epoch is `begin`, then for every step of all environments `act` and `observe`, and at its end `learn`. Learners that
    learn from every step fill `observe`, those that learn from whole batches fill `learn`; what they leave is `unchanged`.
    """

    @property
    def settings(self) -> Settings: ...
    @property
    def policy(self) -> Decider:
        """What acts with the exported parameters when training is over."""

    def init(self, key: PRNGKeyArray) -> State: ...

    def prepare(self, state: State, obs: Float[Array, "*batch obs"]) -> tuple[State, Metrics]:
        """Once, before training: see what the untrained policy meets."""

    def begin(self, state: State, key: PRNGKeyArray) -> tuple[State, Metrics]:
        """Once when an epoch begins."""

    def learn(self, state: State, rows: Transition, episodes: Episodes, key: PRNGKeyArray) -> tuple[State, Metrics]:
        """Once when an epoch ends, from all its steps."""

    def export(self, state: State) -> PyTree:
        """Parameters of the policy."""

    def vital(self, state: State) -> PyTree:
        """What must be finite."""

    def objection(self, metrics: dict[str, float]) -> str | None:
        """Why training cannot go on after an epoch with these numbers, if it cannot."""
