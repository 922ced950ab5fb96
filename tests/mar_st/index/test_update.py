"""A changed index answers as one built from scratch; a killed change leaves it as it was."""

from __future__ import annotations

import numpy as np
import pytest
from filelock import FileLock

from mar_st.encode.folder import write_vectors
from mar_st.errors import MarError
from mar_st.index import build as building
from mar_st.index.base import Index
from mar_st.index.build import add, build_index, delete
from mar_st.index.searcher import Searcher
from mar_st.index.tune import tune
from tests.mar_st.index.conftest import Library, clustered, entry, make_library

TEXTS = [f"问题{number}" for number in range(60)]


def indexed(library, out, **options):
    options = {"kind": "exact", "corpus": library.corpus, "progress": False, **options}
    build_index(library.open, out, **options)
    return out


def joined(*libraries, without=()):
    """Merge several libraries into one for brute-force search."""
    by_id = {}
    for each in libraries:
        by_id |= {one["_id"]: (one, row) for one, row in zip(each.entries, each.vectors, strict=True)}
    for name in without:
        del by_id[name]
    entries, vectors = zip(*by_id.values(), strict=True)
    first = libraries[0]
    return Library(first.folder, first.corpus, list(entries), np.stack(vectors), first.queries)


def same(index, library, where=None, passes=None):
    ids, scores = index.search(library.queries, 10, where=where)
    expected, best = library.best(10, passes)
    assert [set(row) for row in ids] == [set(row) for row in expected]
    np.testing.assert_allclose(scores, best, atol=1e-6)


def test_a_changed_index_equals_one_built_from_scratch(library, tmp_path):
    out = indexed(library, tmp_path / "index")
    before = Index.open(out)
    more_documents = make_library(tmp_path / "more", range(1200, 1300), seed=1)
    add(out, more_documents.folder, corpus=more_documents.corpus, progress=False)
    same(Index.open(out), joined(library, more_documents))
    newer = make_library(tmp_path / "newer", [3, 701, 1250], seed=9, change="新")
    add(out, newer.folder, corpus=newer.corpus, progress=False)
    deleted = [f"d{number}" for number in (*range(0, 1300, 14), 3)]
    manifest = delete(out, deleted)
    now = Index.open(out)
    expected = joined(library, more_documents, newer, without=deleted)
    assert len(now) == manifest["count"] == len(expected.entries)
    same(now, expected)

    def passes(one):
        return one["department"] == "儿科" and one["year"] >= 2010

    same(now, expected, "department=儿科,year>=2010", passes)
    assert now.document("d701").text == entry(701)["text"] + "新"
    assert now.document("d1201") is not None
    assert [now.document(name) for name in ("d3", "d1500", "")] == [None] * 3
    same(before, library)  # an open reader keeps what it opened

    assert len(now.segments) > 1
    words = set(now.ids(now.find_words(["高血压怎么办"], 2000, None).keys[0]))
    more = [f"d{number}" for number in range(1, 1300, 14)]  # too much for segments: it is built again
    delete(out, more)
    again = Index.open(out)
    same(again, joined(library, more_documents, newer, without=[*deleted, *more]))
    same(now, expected)
    assert len(again.segments) == 1
    found = again.find_words(["高血压怎么办"], 2000, None).keys[0]
    assert set(again.ids(found)) == words - set(more)


@pytest.mark.parametrize("kind", ["hnsw", "ivf-pq"])
def test_every_kind_takes_changes(library, tmp_path, kind):
    out = indexed(library, tmp_path / "index", kind=kind, bm25=False)
    more = make_library(tmp_path / "more", range(1200, 1300), seed=1)
    add(out, more.folder, corpus=more.corpus, progress=False)
    gone: set[str] = set()
    for deleted, segments in ((range(0, 1300, 13), 2), (range(1, 1300, 3), 1)):
        names = sorted({f"d{number}" for number in deleted} - gone)
        delete(out, names)
        gone.update(names)
        expected = joined(library, more, without=gone).best(10)[0]
        opened = Index.open(out)
        ids, _ = opened.search(library.queries, 10)
        assert not {name for row in ids for name in row} & set(names)
        assert np.mean([len(set(a) & set(b)) / 10 for a, b in zip(ids, expected, strict=True)]) >= 0.93
        assert (opened.kind, len(opened.segments)) == (kind, segments)


def test_small_segments_are_merged_and_their_files_deleted(library, tmp_path):
    out = indexed(library, tmp_path / "index", bm25=False)
    for number in range(6):
        more = make_library(
            tmp_path / f"more{number}", range(2000 + 5 * number, 2005 + 5 * number), seed=20 + number
        )
        manifest = add(out, more.folder, corpus=more.corpus, progress=False)
        assert len(manifest["segments"]) <= 4
    assert len(Index.open(out)) == 1230
    used = {segment["name"] for segment in manifest["segments"]}
    kept = {path.name for path in out.iterdir() if path.is_dir()}
    assert used <= kept
    assert len(kept) <= len(used) + 2  # those of the manifest before


def test_a_killed_change_leaves_the_index_as_it_was(library, tmp_path, monkeypatch):
    out = indexed(library, tmp_path / "index")
    more = make_library(tmp_path / "more", range(1200, 1220), seed=1)

    def stop(*args, **options):
        raise KeyboardInterrupt

    for name in ("write_documents", "build_vectors", "build_words", "publish"):
        with monkeypatch.context() as patch:
            patch.setattr(building, name, stop)
            with pytest.raises(KeyboardInterrupt):
                add(out, more.folder, corpus=more.corpus, progress=False)
        same(Index.open(out), library)
    add(out, more.folder, corpus=more.corpus, progress=False)
    same(Index.open(out), joined(library, more))


def test_changes_that_do_not_fit_are_refused(library, tmp_path):
    out = indexed(library, tmp_path / "index", bm25=False)
    more = make_library(tmp_path / "more", range(1200, 1210), seed=1)
    foreign = write_vectors(tmp_path / "foreign", ["x"], clustered(1, 32), space="b" * 64)
    narrow = write_vectors(tmp_path / "narrow", ["x"], clustered(1, 8))
    bare = write_vectors(tmp_path / "bare", ["x"], clustered(1, 32), space="a" * 64)
    for change, message in (
        (lambda: add(out, foreign, corpus=more.corpus), "another model"),
        (lambda: add(out, narrow, corpus=more.corpus), "8 dimensions"),
        (lambda: add(out, bare), "keeps texts"),
        (lambda: delete(out, ["d1", "nowhere"]), "1 of 2 named"),
        (lambda: delete(out, []), "Nothing was deleted"),
        (lambda: delete(out, [f"d{number}" for number in range(1200)]), "Nothing was deleted"),
        (lambda: delete(out, ["\ud800"]), "Unicode"),
        (lambda: delete(tmp_path / "none", ["d1"]), "not an index"),
    ):
        with pytest.raises(MarError, match=message):
            change()
    with FileLock(out / ".lock"), pytest.raises(MarError, match="Another process"):
        delete(out, ["d1"])
    same(Index.open(out), library)


class Encoder:
    """Vectors like those of the documents, or (`far`) in any direction."""

    dim, space, normalised, max_length = 32, "a" * 64, True, 64

    def __init__(self, name: str, *, far: bool = False) -> None:
        self.query, self.identity = f"query-{name}", f"digest-{name}"
        drawn = np.random.default_rng(5).standard_normal((len(TEXTS), 32)).astype(np.float32)
        self.rows = dict(zip(TEXTS, drawn if far else clustered(len(TEXTS), 32, seed=8), strict=True))

    def encode(self, texts, prompt_name=None):
        return np.stack([self.rows[text] for text in texts])


def test_an_encoder_is_tuned_to_find_its_own_neighbours(library, tmp_path, monkeypatch):
    sparse = {"M": 6, "efConstruction": 24}
    monkeypatch.setattr(building, "build_settings", lambda kind, *_: sparse if kind == "hnsw" else {})
    out = indexed(library, tmp_path / "index", kind="hnsw", bm25=False)
    near, far = Encoder("4"), Encoder("lookup", far=True)
    built = dict(Index.open(out).settings)
    queries = {text: text for text in TEXTS}
    effort = tune(out, queries, encoder=far, target=0.98)
    assert (effort["query"], effort["queries"]) == ("query-lookup", 60)
    assert effort["recall@10"] >= 0.98
    assert effort["search"]["ef"] > built["ef"]
    vectors = far.encode(TEXTS)
    wanted = np.argsort(-(vectors @ library.vectors.T), axis=1)[:, :10]
    exported = Encoder("lookup", far=True)
    exported.identity, exported.origin = "digest-int8", "digest-lookup"
    for encoder in (far, exported):
        found = Searcher(Index.open(out), encoder).search(TEXTS, 10)
        share = np.mean(
            [len({int(hit.id[1:]) for hit in a} & set(b)) / 10 for a, b in zip(found, wanted, strict=True)]
        )
        assert share == pytest.approx(effort["recall@10"], abs=1e-4)
    assert Searcher(Index.open(out), near).effort == built
    more = make_library(tmp_path / "more", range(1200, 1230), seed=3)
    add(out, more.folder, corpus=more.corpus, progress=False)
    assert Searcher(Index.open(out), far).effort == effort["search"]
    with pytest.raises(MarError, match="no queries"):
        tune(out, {}, encoder=far)
    with pytest.raises(MarError, match="nothing to tune"):
        tune(indexed(library, tmp_path / "exact", bm25=False), queries, encoder=far)


@pytest.mark.parametrize("far", [False, True])
def test_the_weight_of_bm25_is_measured_with_queries_and_their_documents(library, tmp_path, far):
    """Vectors in any direction leave the search to the words; perfect ones leave nothing to them."""
    out = indexed(library, tmp_path / "index")
    texts = [f"编号{number}。" for number in range(100, 100 + len(TEXTS))]
    encoder = Encoder("4")
    drawn = np.random.default_rng(5).standard_normal((len(TEXTS), 32)).astype(np.float32)
    rows = drawn if far else library.vectors[100 : 100 + len(TEXTS)]
    encoder.rows = dict(zip(texts, rows, strict=True))
    queries = {f"q{place}": text for place, text in enumerate(texts)}
    qrels = {f"q{place}": {f"d{100 + place}": 1} for place in range(len(texts))}
    tuned = tune(out, queries, qrels=qrels, encoder=encoder)
    scores = tuned["fusion"]
    assert scores["queries"] == 30
    assert scores["tuned"] >= max(scores["dense"], scores["equal"]) - 0.05
    assert (tuned["words"] > 0) == far
    searcher = Searcher(Index.open(out), encoder)
    assert (searcher.words_weight, searcher.effort) == (tuned["words"], {})
    hits = searcher.search(texts[:5], 1, hybrid=True)
    if not far:
        assert [[hit.id] for [hit] in hits] == [[f"d{100 + place}"] for place in range(5)]
    with pytest.raises(MarError, match="relevant document"):
        tune(out, queries, qrels={"q1": {"d1": 0}}, encoder=encoder)
