"""How the help shows the options of all commands."""

from __future__ import annotations

from typing import Any

__all__ = ["positional", "shown_as"]


def shown_as(metavar: str, hint: str | None = None) -> Any:
    """How the help shows an option; it is evaluated when tyro reads the annotations, so commands load without tyro."""
    import tyro

    return tyro.conf.arg(metavar=metavar, help_behavior_hint=None if hint is None else f"({hint})")


def positional() -> Any:
    """An argument without an option name that may be left out."""
    import tyro

    return tyro.conf.Positional
