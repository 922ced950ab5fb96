"""Hard negatives for training pairs, from one or several retrievers, and the consistency filter.

`sentence_transformers.util.mine_hard_negatives` mines with one dense model. This package adds: several
retrievers at once, BM25 among them; exclusion of texts nearly equal to a positive; a count of what every
filter dropped; choices that depend only on the seed and the query; vectors that are stored by the digest of
the weights (there by the name of the base model, so that two trained models of one base share a cache); and
resuming of killed runs.
"""

from __future__ import annotations

from mar_st.mining.folder import mine_to
from mar_st.mining.mine import Mined, mine
from mar_st.mining.retrievers import BM25, CrossScorer, Dense, Retrieved, Retriever, Scorer
from mar_st.mining.rules import MiningError, Rules

__all__ = [
    "BM25",
    "CrossScorer",
    "Dense",
    "Mined",
    "MiningError",
    "Retrieved",
    "Retriever",
    "Rules",
    "Scorer",
    "mine",
    "mine_to",
]
