"""Errors that a user can fix."""

from __future__ import annotations

__all__ = ["UserError"]


class UserError(Exception):
    """A mistake that the user can fix; the message names the value and the fix."""
