"""The errors that end a command with one line and exit code 2."""

from __future__ import annotations

__all__ = ["UserError"]


class UserError(Exception):
    """Something the user gave cannot be used; the message says what and what to do."""
