"""Indexes over encoded documents, and the search that combines vectors, words and a reranker.

Names are imported on first use; none of them imports torch (a reranker does, and an encoder that was not
exported).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mar_st.index.base import Index
    from mar_st.index.build import build_index
    from mar_st.index.effort import tune_effort
    from mar_st.index.errors import FilterError, IndexingError
    from mar_st.index.filters import Filter, parse_filter
    from mar_st.index.match import calibrate_match
    from mar_st.index.results import Hit, Hits, Leg
    from mar_st.index.searcher import Searcher
    from mar_st.index.update import add, compact, delete

__all__ = [
    "Filter",
    "FilterError",
    "Hit",
    "Hits",
    "Index",
    "IndexingError",
    "Leg",
    "Searcher",
    "add",
    "build_index",
    "calibrate_match",
    "compact",
    "delete",
    "parse_filter",
    "tune_effort",
]

_HOMES = {
    "Filter": "filters",
    "FilterError": "errors",
    "Hit": "results",
    "Hits": "results",
    "Index": "base",
    "IndexingError": "errors",
    "Leg": "results",
    "Searcher": "searcher",
    "add": "update",
    "build_index": "build",
    "calibrate_match": "match",
    "compact": "update",
    "delete": "update",
    "parse_filter": "filters",
    "tune_effort": "effort",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mar_st.index' has no attribute {name!r}")
    return getattr(import_module(f"mar_st.index.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
