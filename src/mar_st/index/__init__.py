"""Indexes over encoded documents, and the search that combines vectors, words and a reranker.

Names are imported on first use; none of them imports torch (a reranker does, and an encoder that was not
exported).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mar_st.index.base import Index
    from mar_st.index.build import add, build_index, compact, delete
    from mar_st.index.filters import Filter, FilterError, parse_filter
    from mar_st.index.results import Hit, Leg
    from mar_st.index.searcher import Searcher
    from mar_st.index.tune import tune_effort

__all__ = [
    "Filter",
    "FilterError",
    "Hit",
    "Index",
    "Leg",
    "Searcher",
    "add",
    "build_index",
    "compact",
    "delete",
    "parse_filter",
    "tune_effort",
]

_HOMES = {
    "Filter": "filters",
    "FilterError": "filters",
    "Hit": "results",
    "Index": "base",
    "Leg": "results",
    "Searcher": "searcher",
    "add": "build",
    "build_index": "build",
    "compact": "build",
    "delete": "build",
    "parse_filter": "filters",
    "tune_effort": "tune",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mar_st.index' has no attribute {name!r}")
    return getattr(import_module(f"mar_st.index.{_HOMES[name]}"), name)
