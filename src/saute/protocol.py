"""The types that flow between environments, transforms and learners, and nothing else."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

from gymnasium import spaces
from jaxtyping import Array, Bool, Float, PRNGKeyArray

__all__ = ["Env", "Step"]


class Step(NamedTuple):
    """One transition of an `Env`; `terminated` has no future value, `truncated` only ran out of time."""

    state: Any
    obs: Float[Array, " obs"]
    reward: Float[Array, ""]
    cost: Float[Array, "*constraint"]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]


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
