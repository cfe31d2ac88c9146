"""Learners, interchangeable: each sees batches, never an environment."""
