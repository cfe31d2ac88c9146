"""How long an episode of a Gymnasium environment can be."""

from __future__ import annotations

import gymnasium as gym

__all__ = ["limit_of"]

LIMITS = ("_max_episode_steps", "horizon")
"""Where Gymnasium's TimeLimit, and environments with a limit of their own, keep it."""


def limit_of(env: gym.Env) -> int | None:
    """The shortest time limit of an environment: its own, its task's, or that of its registration; None if none is known."""
    limits = [env.get_wrapper_attr(name) for name in LIMITS if env.has_wrapper_attr(name)]
    limits += [getattr(getattr(env.unwrapped, "env", None), "horizon", None)]
    limits += [None if env.spec is None else env.spec.max_episode_steps]
    return min((int(limit) for limit in limits if limit), default=None)
