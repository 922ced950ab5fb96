"""Hard negatives for training pairs, from one or several retrievers, and the consistency filter.

`sentence_transformers.util.mine_hard_negatives` mines with one dense model. This package adds: several
retrievers at once, BM25 among them; exclusion of texts nearly equal to a positive; a count of what every
filter dropped; choices that depend only on the seed and the query; and vectors that are kept in the teacher
store, from which a killed run resumes. Names are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mar_st.mining.miner import Mined, Miner, mine, mine_to
    from mar_st.mining.retrievers import BM25, CrossScorer, Dense, Retrieved, Retriever, Scorer
    from mar_st.mining.rules import MinedQuery, MineSettings, Picker, Rules

__all__ = [
    "BM25",
    "CrossScorer",
    "Dense",
    "MineSettings",
    "Mined",
    "MinedQuery",
    "Miner",
    "Picker",
    "Retrieved",
    "Retriever",
    "Rules",
    "Scorer",
    "mine",
    "mine_to",
]

_HOMES = {
    "miner": ("Mined", "Miner", "mine", "mine_to"),
    "retrievers": ("BM25", "CrossScorer", "Dense", "Retrieved", "Retriever", "Scorer"),
    "rules": ("MineSettings", "MinedQuery", "Picker", "Rules"),
}


def __getattr__(name: str) -> Any:
    home = next((home for home, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module 'mar_st.mining' has no attribute {name!r}")
    return getattr(import_module(f"mar_st.mining.{home}"), name)
