"""mar-zh: a retriever for Chinese medical questions, as a model folder of sentence-transformers.

Example:
    ::

        import mar_zh
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(mar_zh.path())
        scores = model.similarity(model.encode_query(questions), model.encode_document(answers))
"""

from __future__ import annotations

from pathlib import Path

from mar_st.model.packed import unpacked_folder

__all__ = ["path"]

_PACKED = Path(__file__).parent / "model"


def path() -> str:
    """Return the model's folder; it is written into the cache of this user on first use."""
    return str(unpacked_folder(_PACKED, "mar-zh"))
