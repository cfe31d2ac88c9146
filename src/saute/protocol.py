"""The types that flow between environments, collectors and learners, and nothing else."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

from gymnasium import spaces
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

__all__ = ["Env", "Episodes", "Step", "Transition"]


class Step(NamedTuple):
    """One transition of an `Env`; `terminated` has no future value, `truncated` only ran out of time."""

    state: Any
    obs: Float[Array, "*batch obs"]
    reward: Float[Array, "*batch"]
    cost: Float[Array, "*batch_constraint"]
    terminated: Bool[Array, "*batch"]
    truncated: Bool[Array, "*batch"]


@runtime_checkable
class Env(Protocol):
    """A pure, unbatched environment that never resets itself, so that `vmap`, `scan` and `jit` apply."""

    @property
    def observation_space(self) -> spaces.Box: ...
    @property
    def action_space(self) -> spaces.Box: ...
    @property
    def horizon(self) -> int: ...

    def reset(self, key: PRNGKeyArray) -> tuple[Any, Float[Array, " obs"]]: ...
    def step(self, state: Any, action: Float[Array, " action"], key: PRNGKeyArray) -> Step: ...


class Transition(NamedTuple):
    """What a learner sees, time × environment: `next_obs` is the episode's own, never that of the next reset."""

    obs: Float[Array, "time env obs"]
    action: Float[Array, "time env action"]
    reward: Float[Array, "time env"]
    cost: Float[Array, "time env *constraint"]
    next_obs: Float[Array, "time env obs"]
    terminated: Bool[Array, "time env"]
    truncated: Bool[Array, "time env"]
    extras: Any


class Episodes(NamedTuple):
    """Sums over each episode up to every step, time × environment; those where `ended` holds are whole episodes."""

    ended: Bool[Array, "time env"]
    task_return: Float[Array, "time env"]
    cost: Float[Array, "time env *constraint"]
    length: Int[Array, "time env"]
