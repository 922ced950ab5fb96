from __future__ import annotations

import json

import bm25s
import numpy as np
import pytest

from mar_st.index import IndexingError, Searcher, build_index, lexical
from mar_st.index.counted import CountedBM25
from mar_st.index.documents import Documents, DocumentWriter, Stored
from mar_st.index.lexical import Lexical, LexicalSegment
from mar_st.index.mask import Mask
from mar_st.text.bm25 import K1, B
from mar_st.text.words import TOKENIZERS
from tests.mar_st.index.conftest import entry, make_library

TEXTS = ["高血压怎么办", "儿科看感冒", "编号17 编号17", "没有的词xyz", ""]


@pytest.fixture(scope="module", params=["jieba", "char-bigram"])
def built(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    writer = DocumentWriter(folder)
    for number in range(600):
        one = entry(number)
        writer.add(Stored(one["_id"], one["title"], one["text"], {}))
    writer.close()
    documents = Documents(folder)
    lexical.build(folder, documents, request.param, progress=False)
    return folder, documents, request.param


def test_scores_are_those_of_bm25s(built):
    folder, documents, tokens = built
    cut = TOKENIZERS[tokens]
    plain = bm25s.BM25(method="lucene", k1=K1, b=B)
    plain.index([cut(text) for text in documents.texts(0, 600)], show_progress=False)
    scores, rows = Lexical([LexicalSegment(folder, 600)], tokens).search(TEXTS, 600, [None])
    for text, score, row in zip(TEXTS, scores, rows, strict=True):
        known = plain.get_tokens_ids(cut(text))
        expected = plain.get_scores_from_ids(known) if known else np.zeros(600)
        order = np.lexsort((np.arange(600), -expected))
        order = order[expected[order] > 0]
        np.testing.assert_allclose(score[: len(order)], expected[order], rtol=2e-5)
        assert set(row[row >= 0]) == set(order)
        assert (row[len(order) :] == -1).all()


def test_bm25s_loads_the_index_with_the_same_scores(built):
    folder, _, tokens = built
    loaded = bm25s.BM25.load(folder / lexical.BM25_FOLDER, show_progress=False)
    index = Lexical([LexicalSegment(folder, 600)], tokens)
    for text in TEXTS:
        known = loaded.get_tokens_ids(TOKENIZERS[tokens](text))
        expected = loaded.get_scores_from_ids(known) if known else np.zeros(600, dtype=np.float32)
        (scores,), (rows,) = index.search([text], 600, [None])
        assert (rows >= 0).sum() == (expected > 0).sum()
        np.testing.assert_allclose(scores[rows >= 0], expected[rows[rows >= 0]], rtol=2e-6)


def test_the_best_k_are_the_top_of_the_full_ranking(built):
    folder, _, tokens = built
    index = Lexical([LexicalSegment(folder, 600)], tokens)
    for k in (1, 7, 100):
        some, all_of_them = index.search(TEXTS, k, [None]), index.search(TEXTS, 600, [None])
        np.testing.assert_array_equal(some[0], all_of_them[0][:, :k])
        np.testing.assert_array_equal(some[1], all_of_them[1][:, :k])


def test_a_mask_leaves_scores_and_drops_rows(built):
    folder, _, tokens = built
    passed = np.arange(600) % 3 == 0
    scores, rows = Lexical([LexicalSegment(folder, 600)], tokens).search(TEXTS, 600, [None])
    masked_scores, masked_rows = Lexical([LexicalSegment(folder, 600)], tokens).search(
        TEXTS, 600, [Mask(passed)]
    )
    for score, row, masked_score, masked_row in zip(scores, rows, masked_scores, masked_rows, strict=True):
        wanted = (row >= 0) & (row % 3 == 0)
        np.testing.assert_array_equal(masked_row[masked_row >= 0], row[wanted])
        np.testing.assert_array_equal(masked_score[masked_row >= 0], score[wanted])


def test_several_processes_and_a_kill_give_the_same_bytes(library, tmp_path, monkeypatch):
    def content(folder):
        return {path.name: path.read_bytes() for path in (folder / lexical.BM25_FOLDER).iterdir()}

    folders = [tmp_path / name for name in ("one", "several")]
    for folder in folders:
        folder.mkdir()
        writer = DocumentWriter(folder)
        for one in library.entries:
            writer.add(Stored(one["_id"], one["title"], one["text"], {}))
        writer.close()
    monkeypatch.setattr(lexical, "DOCUMENTS_PER_CHUNK", 500)
    lexical.build(folders[0], Documents(folders[0]), "char-bigram", progress=False)
    lexical._cut_chunk(folders[1], 500, 1000, "char-bigram")
    stored_words = folders[1] / "words-000000000500.npz"
    before = stored_words.stat().st_mtime_ns
    monkeypatch.setattr(CountedBM25, "build_index_from_ids", _stop)
    with pytest.raises(KeyboardInterrupt):
        lexical.build(folders[1], Documents(folders[1]), "char-bigram", progress=False)
    assert stored_words.stat().st_mtime_ns == before
    monkeypatch.undo()
    monkeypatch.setattr(lexical, "DOCUMENTS_PER_CHUNK", 500)
    lexical.build(folders[1], Documents(folders[1]), "char-bigram", progress=False)
    assert content(folders[0]) == content(folders[1])


def test_only_the_first_words_of_a_long_query_are_searched(built, monkeypatch):
    folder, _, tokens = built
    index = Lexical([LexicalSegment(folder, 600)], tokens)
    text = "高血压怎么办 儿科看感冒 编号17 "
    known = list(dict.fromkeys(TOKENIZERS[tokens](text)))
    monkeypatch.setattr(lexical, "MAX_QUERY_WORDS", len(known))
    expected = index.search([text], 50, [None])
    result = index.search([text + "湿疹哮喘失眠胃炎"], 50, [None])
    np.testing.assert_array_equal(result[1], expected[1])
    np.testing.assert_array_equal(result[0], expected[0])
    monkeypatch.setattr(lexical, "MAX_QUERY_CHARACTERS", 5)
    np.testing.assert_array_equal(
        index.search([text], 50, [None])[1], index.search([text[:5]], 50, [None])[1]
    )


def test_a_repeated_query_word_counts_each_time(built):
    folder, _, tokens = built
    index = Lexical([LexicalSegment(folder, 600)], tokens)
    once, often = (index.search([text], 600, [None])[0] for text in ("湿疹", "湿疹，湿疹，湿疹"))
    if tokens == "jieba":  # without pairs of characters across the commas
        np.testing.assert_allclose(often, 3 * once, rtol=1e-6)


def _stop(*args, **options):
    raise KeyboardInterrupt


@pytest.mark.slow
def test_many_documents_are_cut_by_several_processes(library, tmp_path, monkeypatch):
    one = build_index(
        library.open,
        tmp_path / "one",
        corpus=library.corpus,
        kind="exact",
        progress=False,
        tokens="char-bigram",
    )
    monkeypatch.setattr(lexical, "MIN_PARALLEL_DOCUMENTS", 100)
    monkeypatch.setattr(lexical, "DOCUMENTS_PER_CHUNK", 512)
    several = build_index(
        library.open,
        tmp_path / "two",
        corpus=library.corpus,
        kind="exact",
        progress=False,
        tokens="char-bigram",
    )
    assert one["bm25"] == several["bm25"]
    texts = ["高血压怎么办", "编号17"]
    results = [Searcher.open(tmp_path / name).search_words(texts, 20) for name in ("one", "two")]
    assert [[hit.id for hit in hits] for hits in results[0]] == [
        [hit.id for hit in hits] for hits in results[1]
    ]


@pytest.mark.parametrize("how", ["row", "kind", "place", "deep", "archive"])
def test_scores_that_belong_to_no_document_are_one_error(tmp_path, how):
    """The digests match the damage, as in a folder that an attacker wrote."""
    library = make_library(tmp_path / "library", count=30, dim=8)
    build_index(
        library.open, tmp_path / "index", corpus=library.corpus, kind="exact", tokens="char-bigram",
        progress=False,
    )  # fmt: skip
    folder = tmp_path / "index" / "segments" / "000001"
    bm25 = folder / "bm25"
    if how == "row":
        path = bm25 / "indices.csc.index.npy"
        np.save(path, np.full_like(np.load(path), 10**6))
    elif how == "archive":
        (bm25 / "data.csc.index.npy").write_bytes(b"PK\x03\x04" + bytes(200))
    elif how == "kind":
        path = bm25 / "indices.csc.index.npy"
        np.save(path, np.load(path).astype(np.float32))
    else:
        path = bm25 / "vocab.index.json"
        names = json.loads(path.read_text(encoding="utf-8"))
        text = json.dumps(dict.fromkeys(names, -1)) if how == "place" else "[" * 100_000
        path.write_text(text, encoding="utf-8")
    with pytest.raises(IndexingError, match=r"damaged|do not belong"):
        LexicalSegment(folder, 30).scores([(word, 1.0) for word in ("高血", "血压", "患者")])


def test_a_word_whose_scores_end_before_they_start_is_one_error(tmp_path):
    """One damaged byte between the sampled blocks of a large file is not seen when the index is opened."""
    segments = []
    for name in ("damaged", "whole"):
        folder = tmp_path / name
        folder.mkdir()
        writer = DocumentWriter(folder)
        for number in range(30):
            writer.add(Stored(f"d{number}", "", entry(number)["text"], {}))
        writer.close()
        lexical.build(folder, Documents(folder), "char-bigram", progress=False)
        segments.append(folder)
    path = segments[0] / lexical.BM25_FOLDER / "indptr.csc.index.npy"
    starts = np.load(path)
    place = len(starts) // 2
    starts[place] = starts[place - 1] - 2
    np.save(path, starts)
    words = json.loads((segments[0] / lexical.BM25_FOLDER / "vocab.index.json").read_text(encoding="utf-8"))
    with pytest.raises(IndexingError, match="do not belong"):
        Lexical([LexicalSegment(folder, 30) for folder in segments], "char-bigram").search(
            list(words), 3, [None, None]
        )
