"""Constrained policy optimisation (Achiam et al. 2017)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from saute.algos.onpolicy import Data, OnPolicy, OnPolicySettings
from saute.algos.trpo import surrogates
from saute.learn.agent import Metrics
from saute.learn.constraint import Free, Limit
from saute.learn.nets import ActorNet
from saute.learn.trust_region import conjugate_gradient, fisher_product, line_search, shortened

__all__ = ["cpo", "dual", "most_violated"]


def dual(q: Array, r: Array, s: Array, c: Array, δ: Array | float) -> tuple[Array, Array, Array]:
    """λ, ν and the case of max gᵀx s.t. c + bᵀx ≤ 0, ½xᵀHx ≤ δ, with q = gᵀH⁻¹g, r = gᵀH⁻¹b, s = bᵀH⁻¹b.

    x = H⁻¹(g − νb)/λ in cases 1 to 4; 0: infeasible, and x = −√(2δ/s) H⁻¹b is the way back.
    1: infeasible here, but not in all of the trust region; 2: feasible here, not everywhere; 3: feasible everywhere;
    4: the cost does not depend on the policy. In 3 and 4 the constraint does not bind, ν = 0.
    """
    tiny = 1e-12
    flat = (s < 1e-8) & (c <= 0)
    A = jnp.maximum(q - r**2 / jnp.maximum(s, tiny), 0.0)
    B = 2 * δ - c**2 / jnp.maximum(s, tiny)
    case = jnp.where(flat, 4, jnp.where(c > 0, jnp.where(B > 0, 1, 0), jnp.where(B > 0, 2, 3)))

    # The dual is ½((q − 2νr + ν²s)/λ + 2δλ) − νc with ν = (λc + r)/s where that is positive, else 0: two pieces of one convex
    # function of λ, that meet at λ = −r/c.
    free = jnp.sqrt(q / (2 * δ))
    bound = jnp.sqrt(A / jnp.maximum(B, tiny))
    meet = jnp.maximum(0.0, -r / jnp.where(jnp.abs(c) < tiny, tiny, c))
    λ_bound = jnp.where(c < 0, jnp.minimum(bound, meet), jnp.maximum(bound, meet))
    λ_free = jnp.where(c < 0, jnp.maximum(free, meet), jnp.minimum(free, meet))

    def at_bound(λ: Array) -> Array:
        return 0.5 * (A / jnp.maximum(λ, tiny) + B * λ) - r * c / jnp.maximum(s, tiny)

    def at_free(λ: Array) -> Array:
        return 0.5 * (q / jnp.maximum(λ, tiny) + 2 * δ * λ)

    # λ → 0 where both gradients are parallel; the floor keeps (g − νb)/λ from becoming 0/0.
    λ = jnp.maximum(jnp.where(at_bound(λ_bound) <= at_free(λ_free), λ_bound, λ_free), 1e-5 * free)
    ν = jnp.maximum(0.0, (λ * c + r) / jnp.maximum(s, tiny))
    unbound = case >= 3
    return jnp.where(unbound, free, λ), jnp.where(unbound, 0.0, ν), case


def most_violated(excess: Float[Array, " constraint"], limit: Float[Array, " constraint"]) -> Int[Array, ""]:
    """Which constraint has the largest excess relative to its limit, argmax (J_i − d_i)/d_i."""
    return jnp.argmax(excess / jnp.maximum(limit, 1e-8))


def cpo(limit: Limit, settings: OnPolicySettings | None = None) -> OnPolicy:
    """CPO: the trust region step that also keeps the linearised mean cost of an episode below the limit.

    As long as no episode has ended, that cost is not known, and the policy stays as it is. The step is for one constraint: of
    several limits, `cpo([30.0, 5.0])`, each epoch takes the one that is most violated relative to its limit, or that comes
    nearest to it if none is; the metric `constraint` says which.
    """
    settings = settings or OnPolicySettings()
    constraint = Free(limit)

    def improve(policy: ActorNet, parameters: PyTree, state: PyTree, data: Data) -> tuple[PyTree, PyTree, Metrics]:
        θ, unravel, surrogate, divergence = surrogates(policy, parameters, data)
        δ = data.target_kl
        before, g = jax.value_and_grad(surrogate)(θ, data.advantage)
        cost_advantage, c, chosen = _chosen(data, constraint.limit)
        cost_before, b = jax.value_and_grad(surrogate)(θ, cost_advantage)
        product = fisher_product(lambda θ: divergence(θ, first_only=True), θ, settings.damping)
        Hg, Hb = (conjugate_gradient(product, v, settings.cg_iterations) for v in (g, b))
        q, r, s = Hg @ product(Hg), g @ Hb, Hb @ product(Hb)
        λ, ν, case = dual(q, r, s, c, δ)
        recover = -jnp.sqrt(2 * δ / jnp.maximum(s, 1e-12)) * Hb
        step = jnp.where(case == 0, recover, (Hg - ν * Hb) / jnp.maximum(λ, 1e-12))
        if settings.minibatches > 1:
            step = shortened(step, divergence(θ + step), δ)

        def acceptable(θ_new: Array) -> tuple[Array, Array]:
            better = (surrogate(θ_new, data.advantage) >= before) | (case <= 1)
            cheaper = surrogate(θ_new, cost_advantage) - cost_before <= jnp.maximum(-c, 0.0)
            diverged = divergence(θ_new)
            return (diverged <= δ) & better & cheaper & data.known, diverged

        θ_new, metrics = line_search(acceptable, θ, step, settings.shrink, settings.tries)
        metrics |= {name: jnp.where(data.known, number, jnp.nan) for name, number in {"case": case, **chosen}.items()}
        return unravel(θ_new), state, metrics

    return OnPolicy("cpo", settings, constraint, improve)


def _chosen(data: Data, limit: Limit | None) -> tuple[Array, Array, Metrics]:
    """Cost advantage and excess of the constraint that the step is for, and which it is if there are several."""
    if data.excess.ndim == 0:
        return data.cost_advantage, data.excess, {}
    worst = most_violated(data.excess, jnp.asarray(limit, float))
    return data.cost_advantage[..., worst], data.excess[worst], {"constraint": worst}
