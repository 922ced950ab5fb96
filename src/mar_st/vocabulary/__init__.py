"""Vocabularies cut to the pieces that texts use: smaller embeddings, the same vectors."""

from mar_st.vocabulary.texts import cut_backbones, file_texts
from mar_st.vocabulary.trim import Trimmed, trim

__all__ = ["Trimmed", "cut_backbones", "file_texts", "trim"]
