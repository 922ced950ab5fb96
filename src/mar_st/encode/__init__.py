"""Offline encoding: a corpus becomes a folder of vectors that an index is built of.

Names are imported on first use; reading corpora and vector folders imports neither torch nor transformers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mar_st.encode.corpus import CorpusError, Entry, read_corpus
    from mar_st.encode.encoding import encode_corpus
    from mar_st.encode.engine import Engine
    from mar_st.encode.folder import VectorFolder, VectorsError
    from mar_st.encode.settings import EncodeSettings
    from mar_st.encode.write import write_vectors

__all__ = [
    "CorpusError",
    "EncodeSettings",
    "Engine",
    "Entry",
    "VectorFolder",
    "VectorsError",
    "encode_corpus",
    "read_corpus",
    "write_vectors",
]

_HOMES = {
    "CorpusError": "corpus",
    "Engine": "engine",
    "Entry": "corpus",
    "EncodeSettings": "settings",
    "VectorFolder": "folder",
    "VectorsError": "folder",
    "encode_corpus": "encoding",
    "read_corpus": "corpus",
    "write_vectors": "write",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mar_st.encode' has no attribute {name!r}")
    return getattr(import_module(f"mar_st.encode.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
