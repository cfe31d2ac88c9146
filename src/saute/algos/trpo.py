"""Trust region policy optimisation (Schulman et al. 2015)."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from saute.algos.onpolicy import Data, OnPolicy, OnPolicySettings
from saute.learn.agent import Metrics
from saute.learn.constraint import Constraint, Free
from saute.learn.nets import ActorNet
from saute.learn.trust_region import conjugate_gradient, fisher_product, line_search, shortened

__all__ = ["surrogates", "trpo"]


def trpo(constraint: Constraint | None = None, settings: OnPolicySettings | None = None) -> OnPolicy:
    """TRPO: θ' = θ + βʲ √(2δ/gᵀH⁻¹g) H⁻¹g, the first j at which KL ≤ δ and the surrogate is not worse."""
    settings = settings or OnPolicySettings()

    def improve(policy: ActorNet, parameters: PyTree, state: PyTree, data: Data) -> tuple[PyTree, PyTree, Metrics]:
        θ, unravel, surrogate, divergence = surrogates(policy, parameters, data)
        δ = data.target_kl
        before, g = jax.value_and_grad(surrogate)(θ, data.objective)
        product = fisher_product(lambda θ: divergence(θ, first_only=True), θ, settings.damping)
        direction = conjugate_gradient(product, g, settings.cg_iterations)
        step = jnp.sqrt(2 * δ / jnp.maximum(direction @ product(direction), 1e-12)) * direction
        if settings.minibatches > 1:
            step = shortened(step, divergence(θ + step), δ)

        def acceptable(θ_new: Array) -> tuple[Array, Array]:
            diverged = divergence(θ_new)
            return (diverged <= δ) & (surrogate(θ_new, data.objective) >= before), diverged

        θ_new, metrics = line_search(acceptable, θ, step, settings.shrink, settings.tries)
        return unravel(θ_new), state, metrics

    return OnPolicy("trpo", settings, constraint or Free(), improve)


def surrogates(
    policy: ActorNet, parameters: PyTree, data: Data
) -> tuple[Array, Callable[..., PyTree], Callable[..., Array], Callable[..., Array]]:
    """Flat parameters θ, their inverse map, E ρA of any advantage A, and the mean divergence from the old policy."""
    θ, unravel = ravel_pytree(parameters)
    old_log_prob = policy.log_prob(data.old, data.action)

    def surrogate(θ: Array, advantage: Array) -> Array:
        dist = policy.distribution(unravel(θ), data.obs)
        return jnp.mean(jnp.exp(policy.log_prob(dist, data.action) - old_log_prob) * advantage)

    def divergence(θ: Array, first_only: bool = False) -> Array:
        old, obs = jax.tree.map(lambda rows: rows[:1], (data.old, data.obs)) if first_only else (data.old, data.obs)
        return policy.divergence(old, policy.distribution(unravel(θ), obs)).mean()

    return θ, unravel, surrogate, divergence
