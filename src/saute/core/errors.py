"""Errors that a user can put right."""

from __future__ import annotations

__all__ = ["UserError"]


class UserError(Exception):
    """Something that the user can put right; the message names the value and the fix."""
