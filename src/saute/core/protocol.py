"""The types that flow between environments, collectors and learners, and nothing else; arrays are JAX's or NumPy's."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

from gymnasium import spaces
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

__all__ = ["Env", "Episodes", "Step", "Transition"]


class Step(NamedTuple):
    """One transition of an `Env`; `terminated` has no future value, `truncated` only ran out of time."""

    state: Any
    obs: Float[Any, "*batch obs"]
    reward: Float[Any, "*batch"]
    cost: Float[Any, "*batch_constraint"]
    terminated: Bool[Any, "*batch"]
    truncated: Bool[Any, "*batch"]


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

    obs: Float[Any, "time env obs"]
    action: Float[Any, "time env action"]
    reward: Float[Any, "time env"]
    cost: Float[Any, "time env *constraint"]
    next_obs: Float[Any, "time env obs"]
    terminated: Bool[Any, "time env"]
    truncated: Bool[Any, "time env"]
    extras: Any


class Episodes(NamedTuple):
    """Sums over each episode up to every step, time × environment; those where `ended` holds are whole episodes."""

    ended: Bool[Any, "time env"]
    task_return: Float[Any, "time env"]
    cost: Float[Any, "time env *constraint"]
    length: Int[Any, "time env"]
