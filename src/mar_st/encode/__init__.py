"""Offline encoding: a corpus becomes a folder of vectors that an index is built of.

Names are imported on first use; reading corpora and vector folders imports neither torch nor transformers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mar_st.encode.corpus import Entry, read_corpus
    from mar_st.encode.encoding import encode_corpus
    from mar_st.encode.engine import Engine
    from mar_st.encode.folder import VectorFolder, write_vectors
    from mar_st.encode.settings import EncodeSettings

__all__ = [
    "EncodeSettings",
    "Engine",
    "Entry",
    "VectorFolder",
    "encode_corpus",
    "read_corpus",
    "write_vectors",
]

_HOMES = {
    "EncodeSettings": "settings",
    "Engine": "engine",
    "Entry": "corpus",
    "VectorFolder": "folder",
    "encode_corpus": "encoding",
    "read_corpus": "corpus",
    "write_vectors": "folder",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mar_st.encode' has no attribute {name!r}")
    return getattr(import_module(f"mar_st.encode.{_HOMES[name]}"), name)
