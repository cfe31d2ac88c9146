"""Natural gradients on quadratics, and CPO's dual in all its cases against a numerical solver."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from saute.algos.cpo import dual
from saute.learn.trust_region import conjugate_gradient, fisher_product, line_search, shortened


def positive_definite(n: int, rng: np.random.Generator) -> np.ndarray:
    root = rng.normal(size=(n, n))
    return root @ root.T + n * np.eye(n)


def test_fisher_product_is_the_hessian_plus_damping() -> None:
    rng = np.random.default_rng(0)
    H = positive_definite(6, rng)
    with jax.enable_x64(True):
        at, v = jnp.asarray(rng.normal(size=6)), jnp.asarray(rng.normal(size=6))
        product = fisher_product(lambda θ: 0.5 * (θ - at) @ H @ (θ - at), at, 0.1)
        np.testing.assert_allclose(product(v), H @ v + 0.1 * v, rtol=1e-10)


def test_conjugate_gradient_solves_exactly_in_n_iterations() -> None:
    rng = np.random.default_rng(1)
    H, b = positive_definite(8, rng), rng.normal(size=8)
    with jax.enable_x64(True):
        x = conjugate_gradient(lambda v: jnp.asarray(H) @ v, jnp.asarray(b), 8)
    np.testing.assert_allclose(x, np.linalg.solve(H, b), rtol=1e-8)


def test_line_search_takes_the_first_acceptable_fraction_or_none() -> None:
    at, step = jnp.zeros(1), jnp.ones(1)
    for limit, fraction in ((2.0, 1.0), (0.7, 0.64), (0.0, 0.0)):
        θ, taken = line_search(lambda θ: (θ[0] <= limit, 3 * θ[0]), at, step, 0.8, 10)  # noqa: B023
        assert θ[0] == pytest.approx(fraction) and taken["step_fraction"] == pytest.approx(fraction)
        assert taken["divergence"] == pytest.approx(3 * fraction), "of the step that was taken"


def solve(g: np.ndarray, b: np.ndarray, c: float, δ: float) -> float:
    """max gᵀx s.t. c + bᵀx ≤ 0, ½|x|² ≤ δ by sequential programming from several starts."""
    best = -np.inf
    constraints = [
        {"type": "ineq", "fun": lambda x: -(c + b @ x), "jac": lambda x: -b},
        {"type": "ineq", "fun": lambda x: δ - 0.5 * x @ x, "jac": lambda x: -x},
    ]
    for start in (np.zeros_like(g), -b / np.linalg.norm(b) * np.sqrt(δ), g / np.linalg.norm(g) * np.sqrt(δ)):
        found = minimize(
            lambda x: -g @ x,
            start,
            jac=lambda x: -g,
            constraints=constraints,
            method="SLSQP",
            options=dict(ftol=1e-15, maxiter=500),
        )
        if c + b @ found.x < 1e-9 and 0.5 * found.x @ found.x - δ < 1e-9:
            best = max(best, g @ found.x)
    return best


@pytest.mark.parametrize("case", [1, 2, 3])
def test_dual_equals_the_numerical_solution_to_1e_6(case: int) -> None:
    rng = np.random.default_rng(case)
    δ, seen = 0.01, 0
    reach = np.sqrt(2 * δ)
    for _ in range(400):
        g, b = rng.normal(size=(2, 5))
        share = rng.uniform(0.05, 0.95) if case in (1, 2) else rng.uniform(1.05, 3.0)
        c = float((1 if case == 1 else -1) * share * reach * np.linalg.norm(b))
        with jax.enable_x64(True):
            λ, ν, found = map(float, dual(*map(jnp.asarray, (g @ g, g @ b, b @ b, c)), δ))
        assert found == case
        x = (g - ν * b) / λ
        assert c + b @ x < 1e-9 and 0.5 * x @ x <= δ * (1 + 1e-9)
        expected = solve(g, b, c, δ)
        if np.isfinite(expected):
            seen += 1
            assert g @ x == pytest.approx(expected, abs=1e-6)
    assert seen > 300


def test_dual_names_the_hopeless_and_the_irrelevant_case() -> None:
    with jax.enable_x64(True):
        one = jnp.asarray(1.0)
        assert dual(one, one, one, jnp.asarray(10.0), 0.01)[2] == 0
        λ, ν, case = dual(one, jnp.asarray(0.0), jnp.asarray(0.0), jnp.asarray(-1.0), 0.01)
        assert case == 4 and ν == 0 and λ == pytest.approx(np.sqrt(50.0))


def test_a_cost_gradient_parallel_to_the_reward_gradient() -> None:
    with jax.enable_x64(True):
        # Reward and cost rise together: the step may only go as far as the cost allows.
        λ, ν, case = map(float, dual(*map(jnp.asarray, (1.0, 1.0, 1.0, -0.05)), 0.01))
    x = (1 - ν) / λ
    assert case == 2 and x == pytest.approx(0.05, abs=1e-6)


def test_a_step_that_diverges_too_far_is_shortened_to_the_limit_and_others_are_kept() -> None:
    step = jnp.array([3.0, 4.0])
    # KL = |x|²/2 = 12.5 for the whole step: at the limit 2 it is 2/5 as long.
    np.testing.assert_allclose(shortened(step, 0.5 * step @ step, 2.0), 0.4 * step, rtol=1e-6)
    np.testing.assert_array_equal(shortened(step, jnp.asarray(1.9), 2.0), step)
    np.testing.assert_array_equal(shortened(step, jnp.asarray(jnp.inf), 2.0), 0 * step)
