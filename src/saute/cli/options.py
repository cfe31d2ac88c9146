"""What the options of several commands share: how the help shows them."""

from __future__ import annotations

from typing import Any

__all__ = ["positional", "shown_as"]


def shown_as(metavar: str, hint: str | None = None) -> Any:
    """How the help shows an option; tyro asks when it reads the annotations, so that commands load without it."""
    import tyro

    return tyro.conf.arg(metavar=metavar, help_behavior_hint=None if hint is None else f"({hint})")


def positional() -> Any:
    """An option without a name, though it need not be given."""
    import tyro

    return tyro.conf.Positional
