"""Policies on a plant: NumPy only, budgets kept beside them, and files for other languages; no JAX."""
