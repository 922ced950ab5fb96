"""Existing document spaces, and small query encoders for them.

The vectors of the documents do not change, so an existing index can be used unchanged. A query encoder is
trained to reproduce the teacher's own vectors (LEAF; Stage I of MAR with any teacher), and then, if there are
labelled triples, contrastively against the stored documents (HARNESS-LM, phase three).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mar_st.spaces.alignment import MANIFEST, align
    from mar_st.spaces.settings import AlignSettings
    from mar_st.spaces.space import Space, open_teacher

__all__ = ["MANIFEST", "AlignSettings", "Space", "align", "open_teacher"]

_HOMES = {
    "AlignSettings": "settings",
    "MANIFEST": "alignment",
    "align": "alignment",
    "Space": "space",
    "open_teacher": "space",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'mar_st.spaces' has no attribute {name!r}")
    return getattr(import_module(f"mar_st.spaces.{_HOMES[name]}"), name)
