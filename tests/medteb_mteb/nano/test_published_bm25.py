"""BM25 over the published queries and documents, against the published scores of its lists.

The tolerance is wider than the difference between the cards of one and the same split (cmedqa .16669,
NanoCmedqa .16691): bm25s does not say which of several documents with one score it gives.
"""

from __future__ import annotations

import pytest

from medteb_mteb.curation.nano.lexical import bm25_lists
from medteb_mteb.nano.layout import load_hub
from medteb_mteb.nano.measures import score_rankings
from medteb_mteb.nano.table import BM25, published_sets

TOLERANCE = 0.002
CHINESE = [
    split
    for nano in published_sets().values()
    for split in nano.splits.values()
    if split.language == "cmn-Hans"
]


def test_the_tolerance_covers_the_differences_between_cards():
    sets = published_sets()
    one = sets["NanoCMTEB"].splits["cmedqa"]
    other = sets["NanoMedical"].splits["NanoCmedqa"]
    assert (one.examples, one.positives, one.document_mean_chars) == (
        other.examples,
        other.positives,
        other.document_mean_chars,
    )
    difference = abs(one.lists[BM25].ndcg_at_10 - other.lists[BM25].ndcg_at_10)
    assert 0.0002 < difference < TOLERANCE


@pytest.mark.network
@pytest.mark.parametrize("split", CHINESE, ids=lambda split: f"{split.set}-{split.name}")
def test_bm25_gives_the_published_scores(split, online):
    data = load_hub(published_sets()[split.set].hub, split.name, "main")
    scores = score_rankings(bm25_lists(data.corpus, data.queries, "jieba", 500), data.qrels)
    published = split.lists[BM25]
    assert scores.ndcg_at_10 == pytest.approx(published.ndcg_at_10, abs=TOLERANCE)
    assert scores.hit_at_10 == pytest.approx(published.hit_at_10, abs=0.0101)  # two queries
    assert scores.recall_micro_at_100 == pytest.approx(published.recall_micro_at_100, abs=0.01)
