"""Which environment of a vector was at work when it failed."""

from __future__ import annotations

from typing import Any

from gymnasium.vector import VectorEnv

__all__ = ["culprit", "name_culprit"]


def culprit(problem: BaseException, vector: VectorEnv[Any, Any, Any]) -> int | None:
    """The number of the environment one of whose methods the error passed through; None if they are not stepped here."""
    environments, trace = getattr(vector.unwrapped, "envs", ()), problem.__traceback__
    while trace is not None:
        at_work = trace.tb_frame.f_locals.get("self")
        for number, environment in enumerate(environments):
            if environment is at_work:
                return number
        trace = trace.tb_next
    return None


def name_culprit(problem: BaseException, vector: VectorEnv[Any, Any, Any]) -> None:
    """Add to an error which environment of a vector it comes from, if that is not said yet."""
    number = culprit(problem, vector)
    if number is not None and not getattr(problem, "__notes__", ()):
        problem.add_note(f"it was environment {number} of the vector that failed")
