"""The error that users can mend."""

from __future__ import annotations


class MarError(ValueError):
    """Something the caller gave does not fit.

    The message says what was expected, what came, and what to do next.
    """
