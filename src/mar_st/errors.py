"""The error that users can fix."""

from __future__ import annotations


class MarError(ValueError):
    """An input of the caller is invalid.

    The message says what was expected, what was given, and what to do next.
    """
