"""A learned model is an environment: `model_env` makes an ensemble an `Env`, so imagination is sautéed like reality."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from gymnasium import spaces
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from saute import budget as B
from saute.core.native import Sauted, SauteEnv, begun
from saute.core.options import Options
from saute.core.protocol import Env, Step, Transition
from saute.learn.ensemble import Ensemble, Parameters

__all__ = ["Imagined", "LearnedBudget", "ModelEnv", "imagination", "imagined", "model_env", "unknown_ends"]


class Imagined(NamedTuple):
    """The state of a `ModelEnv`; each episode uses one member (trajectory sampling TS∞ of Chua et al. 2018)."""

    obs: Float[Array, " obs"]
    time: Int[Array, ""]
    member: Int[Array, ""]


@dataclasses.dataclass(frozen=True)
class ModelEnv:
    """An `Env` with the dynamics of an ensemble: s' = s + Δ, with (Δ, r, l) ~ N(μ, σ²) of the member drawn at the reset.

    Starts, spaces and budget are those of the real environment `env`; `step` alone does not need it.
    """

    ensemble: Ensemble
    parameters: Parameters
    horizon: int
    env: Any = None

    @property
    def observation_space(self) -> spaces.Box:
        return self.env.observation_space

    @property
    def action_space(self) -> spaces.Box:
        return self.env.action_space

    @property
    def budget(self) -> float | None:
        return getattr(self.env, "budget", None)

    @property
    def unsafe_reward(self) -> float:
        return getattr(self.env, "unsafe_reward", 0.0)

    def reset(self, key: PRNGKeyArray) -> tuple[Imagined, Array]:
        """A start of the real environment; from there one of the elite members goes on."""
        start_key, member_key = jax.random.split(key)
        obs = self.env.reset(start_key)[1]
        return Imagined(obs, jnp.zeros((), jnp.int32), jax.random.choice(member_key, self.parameters.elites)), obs

    def step(self, state: Imagined, action: Array, key: PRNGKeyArray) -> Step:
        ensemble, known, size = self.ensemble, self.ensemble.known, self.ensemble.observations
        # An ensemble of one member is not indexed, so that vmap over states does not copy its weights.
        member = 0 if len(self.parameters.least) == 1 else state.member
        mean, deviation = ensemble.predict(self.parameters, member, state.obs, action)
        drawn = mean + deviation * jax.random.normal(key, mean.shape, mean.dtype)
        obs, time = state.obs + drawn[:size], state.time + 1
        moved = (state.obs, action, obs)
        reward = drawn[size] if known.reward is None else known.reward(*moved)
        cost = drawn[ensemble.outputs - math.prod(ensemble.cost_shape) :].reshape(ensemble.cost_shape)
        cost = jnp.maximum(cost, 0.0) if known.cost is None else known.cost(*moved)
        ended = jnp.zeros((), bool) if known.terminated is None else known.terminated(*moved)
        return Step(Imagined(obs, time, state.member), obs, reward, cost, ended, (time >= self.horizon) & ~ended)


@dataclasses.dataclass(frozen=True)
class LearnedBudget:
    """The paper's variant: the model learns z as part of the state, and r̃ = r if the predicted z' ≥ 0 else n."""

    env: ModelEnv
    options: Options

    def step(self, state: Sauted, action: Array, key: PRNGKeyArray) -> Step:
        step = self.env.step(state.state, action, key)
        z = step.obs[-self.options.constraints :].reshape(self.options.budget_shape)
        is_safe = jnp.all(B.safe(z))
        reward = B.shape(step.reward, is_safe, self.options.unsafe_reward) if self.options.shape else step.reward
        sauted = Sauted(step.state, z * self.options.reference, jnp.zeros_like(z), step.reward, ~is_safe)
        return step._replace(state=sauted, reward=reward)


def model_env(ensemble: Ensemble, parameters: Parameters, env: Env) -> ModelEnv:
    """The learned model of a bare environment as an `Env`; `saute.saute(model_env(…), budget=30.0)` sautés imagination."""
    if (size := env.observation_space.shape[0]) != ensemble.observations:
        raise ValueError(f"the ensemble predicts {ensemble.observations} observations, but the environment has {size}")
    return ModelEnv(ensemble, parameters, env.horizon, env)


def imagination(
    ensemble: Ensemble, parameters: Parameters, horizon: int, options: Options | None
) -> ModelEnv | SauteEnv | LearnedBudget:
    """The model, sautéed if there are options: w' = (w − l)/γ exactly for the predicted cost, unless the model learns z."""
    model = ModelEnv(ensemble, parameters, horizon)
    if options is None:
        return model
    return LearnedBudget(model, options) if ensemble.learned_budget else SauteEnv(model, options)


def unknown_ends(rows: Transition, ensemble: Ensemble, options: Options | None) -> Float[Array, ""]:
    """How many episodes terminated that the model, which was never told when episodes end, imagines to go on.

    The end at a violation, with `terminate=True`, is known, unless the model learns the budget.
    """
    ended = rows.terminated
    if options is not None and options.terminate and not ensemble.learned_budget:
        ended = ended & B.safe(rows.next_remaining).reshape(len(ended), -1).all(1)
    return jnp.sum(ended).astype(jnp.float32) if ensemble.known.terminated is None else jnp.zeros(())


def imagined(env: ModelEnv | SauteEnv | LearnedBudget, obs: Array, remaining: Array | None) -> PyTree:
    """The first state of imagination, from an observation of the bare environment, and a remaining budget if sautéed."""
    clock, member = jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32)
    if isinstance(env, ModelEnv):
        return Imagined(obs, clock, member)
    if isinstance(env, LearnedBudget):
        obs = jnp.concatenate([obs, jnp.atleast_1d(B.observe(remaining, env.options.reference)).astype(obs.dtype)])
    return begun(Imagined(obs, clock, member), remaining, obs.dtype)
