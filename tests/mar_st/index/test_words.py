"""BM25 on disk gives the scores of bm25s."""

from __future__ import annotations

import bm25s
import numpy as np
import pytest

from mar_st.data.corpus import Entry
from mar_st.index import words
from mar_st.index.documents import write_documents
from mar_st.index.flat import Mask
from mar_st.index.words import SegmentWords, build_words, search_words
from mar_st.text.words import K1, B
from mar_st.text.words import words as words_of
from tests.mar_st.index.conftest import entry

TEXTS = ["高血压怎么办", "儿科看感冒", "编号17 编号17", "没有的词xyz", ""]
DOCUMENTS = [Entry(f"d{n}", entry(n)["title"], entry(n)["text"], {}) for n in range(600)]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    write_documents(folder, DOCUMENTS)
    build_words(folder, progress=False)
    return folder


def test_scores_are_those_of_bm25s(built):
    plain = bm25s.BM25(method="lucene", k1=K1, b=B)
    plain.index([words_of(one.document) for one in DOCUMENTS], show_progress=False)
    for text in TEXTS:
        (score,), (row,) = search_words([SegmentWords(built, 600)], text, 600, [None])
        known = plain.get_tokens_ids(words_of(text))
        expected = plain.get_scores_from_ids(known) if known else np.zeros(600)
        order = np.lexsort((np.arange(600), -expected))
        order = order[expected[order] > 0]
        np.testing.assert_allclose(score[: len(order)], expected[order], rtol=2e-5)
        assert set(row[row >= 0]) == set(order)
        best = search_words([SegmentWords(built, 600)], text, 7, [None])
        np.testing.assert_array_equal(best[0][0], score[:7])
        np.testing.assert_array_equal(best[1][0], row[:7])


def test_a_mask_leaves_scores_and_drops_rows(built):
    segment, mask = SegmentWords(built, 600), Mask(np.arange(600) % 3 == 0)
    for text in TEXTS:
        (scores,), (rows,) = search_words([segment], text, 600, [None])
        (masked_scores,), (masked_rows,) = search_words([segment], text, 600, [mask])
        wanted = (rows >= 0) & (rows % 3 == 0)
        np.testing.assert_array_equal(masked_rows[masked_rows >= 0], rows[wanted])
        np.testing.assert_array_equal(masked_scores[masked_rows >= 0], scores[wanted])


def test_words_are_weighted_over_all_segments(built, tmp_path):
    segments = []
    for name, part in (("a", DOCUMENTS[:500]), ("b", DOCUMENTS[500:])):
        write_documents(tmp_path / name, part)
        build_words(tmp_path / name, progress=False)
        segments.append(SegmentWords(tmp_path / name, len(part)))
    for text in TEXTS:
        expected = search_words([SegmentWords(built, 600)], text, 600, [None])
        found = search_words(segments, text, 600, [None, None])
        np.testing.assert_allclose(found[0], expected[0], rtol=0.02)  # lengths have another mean
        assert set(found[1][0]) == set(expected[1][0])


def test_only_the_first_words_of_a_long_query_are_searched(built, monkeypatch):
    segments = [SegmentWords(built, 600)]
    text = "高血压怎么办 儿科看感冒 编号17 "
    known = list(dict.fromkeys(words_of(text)))
    monkeypatch.setattr(words, "MAX_QUERY_WORDS", len(known))
    expected = search_words(segments, text, 50, [None])
    found = search_words(segments, text + "湿疹哮喘失眠胃炎", 50, [None])
    np.testing.assert_array_equal(found[1], expected[1])
