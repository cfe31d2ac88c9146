"""The Sauté transformation for JAX-native environments, with the same functions of `budget` as the wrappers."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree, Shaped

from saute import budget as B
from saute.core.observation import augmented_space
from saute.core.options import BudgetLike, Options, as_budget, options
from saute.core.protocol import Env, Step

BUDGET = 0x5A07E

__all__ = ["SauteEnv", "Sauted", "begun", "saute", "spent", "task_reward"]


Owed = Float[Any, "*constraint"]
"""A number for each constraint, in JAX or NumPy."""


class Sauted(NamedTuple):
    """The state of a sautéed `Env`: that of the bare one, the remaining budget, and the last step's reward before shaping."""

    state: Any
    remaining: Float[Any, "*constraint"]
    lost: Float[Any, "*constraint"]
    """The part of earlier costs that rounding lost, still to be paid: so a million small costs are spent exactly too."""
    task_reward: Float[Any, ""]
    violated: Bool[Any, ""]


def begun(state: PyTree, remaining: Owed, dtype: np.dtype[Any]) -> Sauted:
    """The state of a sautéed `Env` before its first step."""
    return Sauted(state, remaining, jnp.zeros_like(remaining), jnp.zeros((), dtype), jnp.zeros((), bool))


def spent(remaining: Owed, lost: Owed, cost: Owed, discount: float) -> tuple[Owed, Owed]:
    """w' = (w − l)/γ, and the part of l that rounding lost, which is paid with the next cost (Kahan 1965).

    In double precision nothing is carried over, so that the result is bit for bit that of the wrappers.
    """
    if remaining.dtype != np.float32:
        return B.spend(remaining, cost, discount), lost
    due = cost + lost
    return B.spend(remaining, due, discount), (due - (remaining - (remaining - due))) / discount


@dataclasses.dataclass(frozen=True)
class SauteEnv:
    """An `Env` that carries its remaining budget: w' = (w − l)/γ, r̃ = r if w' ≥ 0 else n, z = w/d_ref observed."""

    env: Any
    options: Options

    @property
    def horizon(self) -> int:
        return self.env.horizon

    @property
    def image(self) -> tuple[int, int, int] | None:
        """The picture that observations begin with, if they do."""
        return getattr(self.env, "image", None)

    @property
    def observation_space(self) -> spaces.Box:
        space = self.env.observation_space
        return augmented_space(space, self.options.constraints) if self.options.augment else space  # type: ignore[return-value]

    @property
    def action_space(self) -> spaces.Space[Any]:
        return self.env.action_space

    def reset(self, key: PRNGKeyArray, budget: npt.ArrayLike | Array | None = None) -> tuple[Sauted, Float[Array, " obs"]]:
        """Begin an episode with a full budget: the given one, else one drawn from the range of the options."""
        state, obs = self.env.reset(key)
        if budget is None:
            # The environment gets the key itself, so that its starts are those of the bare environment. It may split the key,
            # and split(key)[i] is fold_in(key, i), so the budget's number is larger than anyone counts.
            budget = self.options.draw(
                jax.random.uniform(jax.random.fold_in(key, BUDGET), self.options.budget_shape, obs.dtype)
            )
        elif not isinstance(budget, jax.core.Tracer):
            budget = as_budget(np.asarray(budget), self.options.budget_shape, "budget")
        remaining = jnp.broadcast_to(jnp.asarray(budget, obs.dtype), self.options.budget_shape)
        return begun(state, remaining, obs.dtype), self._observe(obs, remaining)

    def step(self, state: Sauted, action: Shaped[Array, "*action"], key: PRNGKeyArray) -> Step:
        step = self.env.step(state.state, action, key)
        if jnp.shape(step.cost) != self.options.budget_shape:
            expected = self.options.budget_shape
            raise ValueError(f"cost has shape {jnp.shape(step.cost)}, expected {expected}; return one cost per budget")
        remaining, lost = spent(state.remaining, state.lost, step.cost, self.options.discount)
        is_safe = jnp.all(B.safe(remaining))
        reward = B.shape(step.reward, is_safe, self.options.unsafe_reward) if self.options.shape else step.reward
        return Step(
            state=Sauted(step.state, remaining, lost, step.reward, ~is_safe),
            obs=self._observe(step.obs, remaining),
            reward=reward,
            cost=step.cost,
            terminated=step.terminated | ~is_safe if self.options.terminate else step.terminated,
            truncated=step.truncated & is_safe if self.options.terminate else step.truncated,
        )

    def _observe(self, obs: Float[Array, " obs"], remaining: Float[Array, "*constraint"]) -> Float[Array, " sauted"]:
        if not self.options.augment:
            return obs
        z = B.observe(remaining, self.options.reference)
        return jnp.concatenate([obs, jnp.atleast_1d(z).astype(obs.dtype)])


def task_reward(step: Step) -> Float[Any, "*batch"]:
    """The reward of a step before shaping."""
    return step.state.task_reward if isinstance(step.state, Sauted) else step.reward


def saute(
    env: Env,
    budget: BudgetLike | None = None,
    *,
    discount: float = 1.0,
    unsafe_reward: float | None = None,
    reference_budget: npt.ArrayLike | None = None,
    augment: bool = True,
    shape: bool = True,
    terminate: bool = False,
) -> SauteEnv:
    """Sauté a JAX-native `Env`; the options are those of `SauteWrapper`, but budget and unsafe reward default to the task's."""
    if isinstance(env, SauteEnv):
        raise ValueError("the environment is sautéed already; sauté it once, with budget=[d1, d2] for several constraints")
    chosen = options(
        getattr(env, "budget", None) if budget is None else budget,
        discount=discount,
        unsafe_reward=getattr(env, "unsafe_reward", 0.0) if unsafe_reward is None else unsafe_reward,
        reference_budget=reference_budget,
        augment=augment,
        shape=shape,
        terminate=terminate,
    )
    return SauteEnv(env, chosen)
