"""The error that cutting a vocabulary raises."""

from __future__ import annotations

from mar_st.errors import MarError


class VocabularyError(MarError):
    """A vocabulary that cannot be cut as asked; the message says why and what to do."""
