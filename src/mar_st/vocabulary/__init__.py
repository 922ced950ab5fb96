"""Vocabularies cut to the pieces that texts use: smaller embeddings, the same vectors."""

from __future__ import annotations

from mar_st.vocabulary.errors import VocabularyError
from mar_st.vocabulary.folders import Trimmed, trim
from mar_st.vocabulary.texts import file_texts

__all__ = ["Trimmed", "VocabularyError", "file_texts", "trim"]
