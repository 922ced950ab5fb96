"""The error that users can mend."""

from __future__ import annotations


class MarError(ValueError):
    """Something the caller gave does not fit; the message says what was expected, what came, what to do
    next.
    """
