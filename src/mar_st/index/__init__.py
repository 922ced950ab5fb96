"""Indexes over encoded documents, and the search that combines vectors, words and a reranker.

Nothing here imports torch (a reranker does, and an encoder that was not exported).
"""

from mar_st.index.base import Index
from mar_st.index.build import add, build_index, delete
from mar_st.index.filters import Filter, FilterError, parse_filter
from mar_st.index.searcher import Hit, Leg, Searcher
from mar_st.index.tune import tune

__all__ = [
    "Filter",
    "FilterError",
    "Hit",
    "Index",
    "Leg",
    "Searcher",
    "add",
    "build_index",
    "delete",
    "parse_filter",
    "tune",
]
