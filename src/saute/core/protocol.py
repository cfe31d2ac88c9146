"""The types that environments, the driver and learners exchange; arrays are JAX's or NumPy's."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from saute.core.options import Options

__all__ = ["Env", "Episodes", "Spec", "Step", "Transition", "spec_of"]


class Step(NamedTuple):
    """One transition of an `Env`; a `terminated` episode has no future value, a `truncated` one only ran out of time."""

    state: PyTree
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
    def action_space(self) -> spaces.Space[Any]: ...
    @property
    def horizon(self) -> int: ...

    def reset(self, key: PRNGKeyArray) -> tuple[PyTree, Float[Array, " obs"]]: ...
    def step(self, state: PyTree, action: Array, key: PRNGKeyArray) -> Step: ...


class Spec(NamedTuple):
    """All that a learner is told about an environment."""

    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    horizon: int | None = None
    """Steps of the longest episode, if there is a limit."""
    options: Options | None = None
    """What the environment was sautéed with, if it was."""
    cost_shape: tuple[int, ...] = ()
    """The shape of one step's cost: () for one constraint, (m,) for several."""
    image: tuple[int, int, int] | None = None
    """Height, width and channels, if the observation begins with the pixels, 0 to 255, of a picture, row by row."""


def spec_of(env: Any) -> Spec:
    """What a learner is told about an `Env`, or about Gymnasium environments in `HostEnvs`."""
    options = getattr(env, "options", None)
    cost_shape = cost_shape_of(env) if options is None else options.budget_shape
    spaces = (env.observation_space, env.action_space)
    return Spec(*spaces, env.horizon, options, cost_shape, getattr(env, "image", None))


def cost_shape_of(env: Any) -> tuple[int, ...]:
    """Of the cost of one step: what the environment says, or what a step of a JAX-native one would give."""
    if not isinstance(env, Env) or hasattr(env, "cost_shape"):
        return getattr(env, "cost_shape", ())
    import jax

    def cost(key: PRNGKeyArray) -> Any:
        space = env.action_space
        action = jax.numpy.asarray(np.zeros(space.shape or (), space.dtype))
        return env.step(env.reset(key)[0], action, key).cost

    shape: tuple[int, ...] = jax.eval_shape(cost, jax.random.key(0)).shape
    return shape


class Transition(NamedTuple):
    """Steps of all environments, as a learner sees them; `next_obs` is of the same episode, never of the next one."""

    obs: Float[Any, "*time env obs"]
    action: Float[Any, "*time env ..."]
    reward: Float[Any, "*time env"]
    """The reward to learn from: that of the Sauté MDP, if the environment is sautéed."""
    task_reward: Float[Any, "*time env"]
    """The reward before shaping."""
    cost: Float[Any, "*time env ..."]
    next_obs: Float[Any, "*time env obs"]
    remaining: Float[Any, "*time env ..."]
    """The remaining budget before the step; `next_remaining` is after it. No columns, if the environment is not sautéed."""
    next_remaining: Float[Any, "*time env ..."]
    terminated: Bool[Any, "*time env"]
    truncated: Bool[Any, "*time env"]
    extras: PyTree
    """What the learner wanted to keep when it acted, such as the log-probability."""
    foreign: Bool[Any, "*time env"] | tuple[()] = ()
    """Where somebody else chose the action, such as a shield; nothing, if the learner chose all of them."""


class Episodes(NamedTuple):
    """Sums over each episode up to every step (time × environment); where `ended` is true, they are of the whole episode."""

    ended: Bool[Any, "*time env"]
    counted: Bool[Any, "*time env"]
    """Whether statistics may use the episode that ended here: every episode has the same chance, whatever its length."""
    task_return: Float[Any, "*time env"]
    cost: Float[Any, "*time env ..."]
    """Σ l_t."""
    spent: Float[Any, "*time env ..."]
    """Σ γᵗ l_t, the part of a discounted budget that is spent."""
    violated: Bool[Any, "*time env"]
    """Whether the episode has overspent its own budget: w < 0 for at least one constraint."""
    length: Int[Any, "*time env"]
    violated_each: Bool[Any, "*time env constraint"] | None = None
    """The same for each of several constraints; None if there is only one."""
