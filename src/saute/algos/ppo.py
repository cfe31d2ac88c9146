"""Proximal policy optimisation (Schulman et al. 2017), stopped early by the divergence."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, PyTree

from saute.algos.onpolicy import Data, OnPolicy, OnPolicySettings
from saute.learn.agent import Metrics
from saute.learn.constraint import Constraint, Free
from saute.learn.nets import ActorNet

__all__ = ["ppo"]


def ppo(constraint: Constraint | None = None, settings: OnPolicySettings | None = None) -> OnPolicy:
    """PPO: maximise E min(ρA, clip(ρ, 1 ± ε)A) by Adam, until KL > margin · target."""
    settings = settings or OnPolicySettings()
    adam, clip, iterations = optax.adam(settings.policy_rate), settings.clip, settings.policy_iterations

    def improve(policy: ActorNet, parameters: PyTree, state: PyTree, data: Data) -> tuple[PyTree, PyTree, Metrics]:
        old_log_prob = policy.log_prob(data.old, data.action)

        rows = (data.obs, data.action, data.old, data.objective, old_log_prob)
        shrink = jnp.sqrt(data.target_kl / settings.target_kl)  # the divergence grows with the square of the step

        def loss(parameters: PyTree, turn: Array) -> tuple[Array, Array]:
            obs, action, old, objective, log_prob = jax.tree.map(lambda leaf: leaf[turn], rows)
            dist = policy.distribution(parameters, obs)
            ρ = jnp.exp(policy.log_prob(dist, action) - log_prob)
            surrogate = jnp.minimum(ρ * objective, jnp.clip(ρ, 1 - clip, 1 + clip) * objective).mean()
            return -surrogate, policy.divergence(old, dist).mean()

        def body(carry: tuple[Any, ...]) -> tuple[Any, ...]:
            i, parameters, state, _ = carry
            (_, divergence), gradient = jax.value_and_grad(loss, has_aux=True)(parameters, i % len(data.obs))
            updates, fresh = adam.update(gradient, state)
            updates = jax.tree.map(lambda step: shrink * step, updates)
            # The divergence is that of the parameters before this step: once it is too large, the step is not made.
            within = divergence <= settings.kl_margin * data.target_kl
            stepped = (optax.apply_updates(parameters, updates), fresh)
            parameters, state = jax.tree.map(lambda new, kept: jnp.where(within, new, kept), stepped, (parameters, state))
            return jnp.where(within, i + 1, iterations), parameters, state, i

        start = (jnp.zeros((), jnp.int32), parameters, state, jnp.zeros((), jnp.int32))
        _, parameters, state, last = jax.lax.while_loop(lambda carry: carry[0] < iterations, body, start)
        divergence = policy.divergence(data.old, policy.distribution(parameters, data.obs)).mean()
        return parameters, state, {"divergence": divergence, "policy_iterations": last + 1}

    return OnPolicy("ppo", settings, constraint or Free(), improve, adam.init)
