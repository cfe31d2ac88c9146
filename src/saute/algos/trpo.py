"""Trust region policy optimisation (Schulman et al. 2015)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from saute.algos.onpolicy import Algorithm, Data, Policy, Settings
from saute.learn import constraint as constraints
from saute.learn.trust_region import conjugate_gradient, fisher_product, line_search, shortened

__all__ = ["surrogates", "trpo"]


def trpo(
    constraint: constraints.Constraint | None = None,
    settings: Settings | None = None,
    cg_iterations: int = 10,
    damping: float = 0.1,
    shrink: float = 0.8,
    tries: int = 10,
) -> Algorithm:
    """TRPO: θ' = θ + βʲ √(2δ/gᵀH⁻¹g) H⁻¹g, the first j at which KL ≤ δ and the surrogate is not worse."""
    settings = settings or Settings()

    def improve(policy: Policy, parameters: Any, state: Any, data: Data) -> tuple[Any, Any, dict[str, Array]]:
        θ, unravel, surrogate, divergence = surrogates(policy, parameters, data)
        δ = data.target_kl
        before, g = jax.value_and_grad(surrogate)(θ, data.objective)
        product = fisher_product(lambda θ: divergence(θ, first_only=True), θ, damping)
        direction = conjugate_gradient(product, g, cg_iterations)
        step = jnp.sqrt(2 * δ / jnp.maximum(direction @ product(direction), 1e-12)) * direction
        if settings.minibatches > 1:
            step = shortened(step, divergence(θ + step), δ)

        def acceptable(θ_new: Array) -> tuple[Array, Array]:
            diverged = divergence(θ_new)
            return (diverged <= δ) & (surrogate(θ_new, data.objective) >= before), diverged

        θ_new, metrics = line_search(acceptable, θ, step, shrink, tries)
        return unravel(θ_new), state, metrics

    return Algorithm("trpo", settings, constraint or constraints.none(), improve, lambda parameters: ())


def surrogates(policy: Policy, parameters: Any, data: Data) -> tuple[Array, Callable, Callable, Callable]:
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
