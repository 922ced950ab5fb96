"""A search is doubtful if its nearest document is further away than those of queries that have an answer."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from mar_st.index import (
    Index,
    IndexingError,
    Searcher,
    add,
    build_index,
    calibrate_match,
    compact,
    delete,
)
from mar_st.index.match import choose_threshold
from tests.mar_st.index.conftest import clustered, make_library

ASKED = [f"问题{number}" for number in range(400)]
WORDS = ["别的事"[:1] + str(number) for number in range(60)]


class Encoder:
    """Vectors near those of the documents for queries about them, in random directions for other queries."""

    dim, space, normalised, max_length = 32, "a" * 64, True, 64

    def __init__(self, name="query"):
        self.query, self.identity = name, f"digest-{name}"
        self.near = dict(zip(ASKED, clustered(len(ASKED), 32, seed=8), strict=True))

    def encode(self, texts, prompt_name=None):
        return np.stack([self.near[text] if text in self.near else far(text) for text in texts])


def far(text):
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
    return np.random.default_rng(seed).standard_normal(32).astype(np.float32)


@pytest.fixture
def index(library, tmp_path):
    folder = tmp_path / "index"
    build_index(library.folder, folder, corpus=library.corpus, kind="exact", progress=False)
    return folder


def best(index, texts, encoder=None):
    """Scores of the nearest documents, by comparing with all."""
    results = Searcher(Index.open(index), encoder or Encoder()).search(texts, 1)
    return np.array([hits[0].score for hits in results])


@pytest.mark.parametrize(("count", "share"), [(19, 0.05), (20, 0.05), (99, 0.05), (9, 0.1), (200, 0.013)])
def test_at_most_the_given_share_of_new_queries_is_rejected(count, share):
    rng = np.random.default_rng(0)
    rejected = []
    for _ in range(4000):
        drawn = rng.standard_normal(count + 1)
        rejected.append(drawn[-1] < choose_threshold(drawn[:-1], share))
    # Exactly floor(share * (n + 1)) / (n + 1), which is at most the share and nearly all of it.
    expected = np.floor(share * (count + 1) + 1e-9) / (count + 1)
    assert expected <= share
    assert np.mean(rejected) == pytest.approx(expected, abs=4 * (expected / 4000) ** 0.5)


@pytest.mark.thorough
def test_the_threshold_is_chosen_on_one_half_and_measured_on_the_other(index):
    match = calibrate_match(index, ASKED, encoder=Encoder(), others=WORDS)
    scores = best(index, ASKED)
    rejected = match["rejected"]
    assert (match["chosen_on"], rejected["queries"], match["source"]) == (200, 200, "queries")
    # Both halves together: what was chosen on has exactly nine below, the rest was only measured.
    assert (scores < match["threshold"]).sum() == 9 + round(200 * rejected["share"])
    low, high = rejected["interval"]
    assert low < rejected["share"] < high < 0.15
    detected = match["detected"]
    assert set(detected) == {"shuffled", "drawn", "characters", "letters", "others"}
    assert detected["others"]["share"] == pytest.approx(
        (best(index, WORDS) < match["threshold"]).mean(), abs=1e-4
    )
    assert detected["letters"]["share"] > 0.95
    assert match["scores"]["others"]["50%"] == pytest.approx(np.median(best(index, WORDS)), abs=1e-4)
    # Texts given for measuring do not affect the choice; a smaller share gives a lower threshold.
    again = calibrate_match(index, ASKED, encoder=Encoder())
    assert again["threshold"] == match["threshold"]
    assert {"everyday-zh", "everyday-en"} <= set(again["detected"])
    assert calibrate_match(index, [*reversed(ASKED), *ASKED], encoder=Encoder())["chosen_on"] == 200
    assert (
        calibrate_match(index, ASKED, encoder=Encoder(), false_reject=0.01)["threshold"] < match["threshold"]
    )


def test_searches_are_good_or_doubtful_for_the_encoder_that_was_calibrated(index, library):
    before = Searcher(Index.open(index), Encoder())
    threshold = calibrate_match(index, ASKED, encoder=Encoder())["threshold"]
    now = Searcher(Index.open(index), Encoder())
    texts = [*ASKED[:100], *WORDS]
    for hybrid in (False, True):
        for k in (1, 10):
            results = now.search(texts, k, hybrid=hybrid)
            # By the nearest vector, whatever ranks the hits.
            assert [hits.nearest for hits in results] == pytest.approx(best(index, texts).tolist(), abs=1e-6)
            for hits in results:
                assert now.match(hits) == ("good" if hits.nearest >= threshold else "doubtful")
                assert before.match(hits) is None
    assert {now.match(hits) for hits in now.search(texts)} == {"good", "doubtful"}
    assert now.match(now.search(ASKED[:1], where={"year": -1})[0]) == "doubtful"
    words = now.search_words([library.entries[0]["text"]])[0]
    assert words
    assert now.match(words) is None
    other, exported = Encoder("query-other"), Encoder("query-int8")
    exported.origin = "digest-query"  # another form of the one that was calibrated
    hits = now.search(ASKED[:1])[0]
    assert Searcher(Index.open(index), other).match(hits) is None
    assert Searcher(Index.open(index), exported).match(hits) == now.match(hits)
    assert Searcher(Index.open(index)).match(hits) is None


def test_documents_serve_as_queries_and_do_not_find_themselves(tmp_path):
    library = make_library(tmp_path / "library", count=300)
    folder = tmp_path / "index"
    build_index(library.folder, folder, corpus=library.corpus, kind="exact", progress=False)

    class Own(Encoder):
        """Beginnings of documents are where the documents are."""

        def __init__(self):
            super().__init__()
            self.near = {}
            for row, vector in zip(library.entries, library.vectors, strict=True):
                self.near.setdefault((row.get("title") or row["text"].split("。")[0])[:60].strip(), vector)

    delete(folder, ["d0", "d7"])
    match = calibrate_match(folder, encoder=Own())
    assert match["source"] == "documents"
    assert match["documents"] == 298
    vectors = np.stack([vector for row, vector in zip(library.entries, library.vectors, strict=True)
                     if row["_id"] not in ("d0", "d7")])  # fmt: skip
    scores = vectors @ vectors.T
    np.fill_diagonal(scores, -1)
    second = scores.max(axis=1)
    # Each is asked for among the others: no score is that of a document with itself.
    assert match["scores"]["answered"]["100%"] <= round(float(second.max()), 4) + 1e-4
    assert second.min() - 1e-4 <= match["threshold"] < np.quantile(second, 0.2)


@pytest.mark.thorough
def test_a_threshold_survives_changes_of_the_index(index, tmp_path):
    match = calibrate_match(index, ASKED, encoder=Encoder())
    more = make_library(tmp_path / "more", count=30, start=1200, seed=3)
    add(index, more.folder, corpus=more.corpus, progress=False)
    delete(index, ["d3"])
    compact(index, progress=False)
    assert Searcher(Index.open(index), Encoder()).calibrated == match
    second = calibrate_match(index, ASKED, encoder=Encoder("query-2"), false_reject=0.1)
    opened = Index.open(index)
    assert opened.match_of(Encoder()) == match
    assert opened.match_of(Encoder("query-2")) == second


@pytest.mark.thorough
@pytest.mark.usefixtures("closed_channels")
def test_milvus_and_a_folder_get_the_same_threshold(index, library, address):
    target = address()
    build_index(library.open, target, corpus=library.corpus, kind="exact", progress=False)
    for queries in (ASKED, None):
        of_folder = calibrate_match(index, queries, encoder=Encoder(), others=WORDS)
        of_milvus = calibrate_match(target, queries, encoder=Encoder(), others=WORDS)
        if queries:  # of documents, the two draw different ones
            assert of_milvus["threshold"] == pytest.approx(of_folder["threshold"], abs=1e-5)
            assert of_milvus["detected"] == of_folder["detected"]
        assert of_milvus["source"] == of_folder["source"]
        opened = Index.open(target)
        assert opened.match_of(Encoder()) == of_milvus
    Index.open(target).delete(["d3"])
    second = calibrate_match(target, ASKED, encoder=Encoder("query-2"))
    opened = Index.open(target)
    assert (opened.match_of(Encoder()), opened.match_of(Encoder("query-2"))) == (of_milvus, second)
    hits = Searcher(opened, Encoder()).search([ASKED[0]])[0]
    assert Searcher(opened, Encoder()).match(hits) in ("good", "doubtful")
    opened.keep("matches", "digest-query", {"threshold": "high"})
    with pytest.raises(IndexingError, match=r"thresholds of matches .* are damaged"):
        Index.open(target)


def test_too_few_queries_and_invalid_shares_are_refused(index):
    with pytest.raises(IndexingError, match=r"37 different queries are too few .* give 38 or more"):
        calibrate_match(index, [*ASKED[:37], *ASKED[:37], " "], encoder=Encoder())
    assert calibrate_match(index, ASKED[:38], encoder=Encoder())["chosen_on"] == 19
    with pytest.raises(IndexingError, match="0 different queries"):
        calibrate_match(index, [], encoder=Encoder())
    with pytest.raises(IndexingError, match="between 0 and 1; got 1"):
        calibrate_match(index, ASKED, encoder=Encoder(), false_reject=1)
