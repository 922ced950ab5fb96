"""The errors that end a command with one line and exit code 2."""

from __future__ import annotations

__all__ = ["UserError"]


class UserError(Exception):
    """Unusable user input; the message names the problem and the remedy."""
