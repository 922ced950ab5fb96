"""An index folder answers as brute force does; a killed build resumes; what does not fit is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mar_st.encode.folder import write_vectors
from mar_st.errors import MarError
from mar_st.index import build as building
from mar_st.index.base import MAX_RESULTS, Index
from mar_st.index.build import build_index
from mar_st.index.filters import FilterError
from tests.mar_st.index.conftest import clustered, make_library


def built(library, out, **options):
    options = {"kind": "exact", "corpus": library.corpus, "progress": False, **options}
    return build_index(library.open, out, **options)


@pytest.fixture(scope="module")
def index(library, tmp_path_factory):
    out = tmp_path_factory.mktemp("index") / "index"
    built(library, out)
    return Index.open(out)


@pytest.mark.parametrize(
    ("where", "passes"),
    [
        (None, None),
        ({"department": ["儿科", "外科"]}, lambda one: one["department"] in ("儿科", "外科")),
        ("year>=2005,year<2015", lambda one: 2005 <= one["year"] < 2015),
        ({"score": {"lte": 10.5}}, lambda one: one["metadata"]["score"] <= 10.5),
        ({"checked": True, "date": {"gte": "2024-03"}}, None),
        ({"year": 1900}, lambda one: False),
    ],
)
def test_search_is_brute_force_over_the_documents_that_pass(index, library, where, passes):
    if isinstance(where, dict) and "date" in where:
        passes = lambda one: one["metadata"]["checked"] and one.get("date", "") >= "2024-03"  # noqa: E731
    ids, scores = index.search(library.queries, 10, where=where)
    expected, best = library.best(10, passes)
    assert ids == expected
    np.testing.assert_allclose(scores, best, atol=1e-6)


def test_the_manifest_describes_the_index(index):
    assert (len(index), index.dim, index.similarity, index.space) == (1200, 32, "cosine", "a" * 64)
    assert (index.kind, index.model, index.has_texts, index.has_words) == ("exact", None, True, True)
    assert index.fields == {
        "checked": "boolean", "date": "string", "department": "string", "score": "number", "year": "number"
    }  # fmt: skip


def test_vectors_k_and_settings_that_do_not_fit_are_refused(index, library):
    bad = library.queries.copy()
    bad[1, 2] = np.nan
    for vectors, options, message in (
        (library.queries[:, :8], {}, "shape"),
        (library.queries[0], {}, "shape"),
        ([[1.0], [1.0, 2.0]], {}, "shape"),
        (bad, {}, "NaN"),
        (library.queries * 1e20, {}, "beyond"),
        (library.queries, {"k": 0}, "k is the number"),
        (library.queries, {"k": MAX_RESULTS + 1}, "k is the number"),
        (library.queries, {"k": True}, "k is the number"),
    ):
        with pytest.raises(MarError, match=message):
            index.search(vectors, **options)
    with pytest.raises(FilterError, match="no metadata field"):
        index.search(library.queries, where={"colour": 1})


@pytest.mark.parametrize("kind", ["hnsw", "ivf-pq"])
def test_every_kind_is_tuned_to_the_recall(library, tmp_path, kind):
    manifest = built(library, tmp_path / "index", kind=kind, bm25=False)
    opened = Index.open(tmp_path / "index")
    ids, scores = opened.search(library.queries, 10)
    expected, _ = library.best(10)
    found = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(ids, expected, strict=True)])
    assert manifest["measured"]["recall@10"] >= 0.95
    assert found >= 0.9
    assert (np.diff(scores) <= 0).all()
    assert opened.settings == manifest["search"]


def test_dot_products_are_not_normalised(tmp_path):
    vectors = clustered(50, 8) * np.linspace(0.5, 3, 50, dtype=np.float32)[:, None]
    write_vectors(tmp_path / "v", [f"d{row}" for row in range(50)], vectors, similarity="dot")
    build_index(tmp_path / "v", tmp_path / "index", kind="exact", progress=False)
    queries = 2 * clustered(5, 8, seed=3)
    ids, scores = Index.open(tmp_path / "index").search(queries, 3)
    expected = np.argsort(-(queries @ vectors.T), axis=1)[:, :3]
    assert ids == [[f"d{row}" for row in rows] for rows in expected]
    np.testing.assert_allclose(scores, np.take_along_axis(queries @ vectors.T, expected, 1), rtol=1e-5)


def test_a_killed_build_leaves_nothing_and_is_repeated(library, tmp_path, monkeypatch):
    def stop(*args, **options):
        raise KeyboardInterrupt

    for name in ("write_documents", "build_vectors", "build_words", "calibrated"):
        with monkeypatch.context() as patch:
            patch.setattr(building, name, stop)
            with pytest.raises(KeyboardInterrupt):
                built(library, tmp_path / "index", kind="hnsw")
        assert list(tmp_path.iterdir()) == []
    built(library, tmp_path / "index", kind="hnsw")
    with pytest.raises(MarError, match="holds files already"):
        built(library, tmp_path / "index")


def test_corpus_and_vectors_that_do_not_belong_together_are_refused(library, tmp_path):
    rows = [json.dumps({**one, "text": one["text"]}, ensure_ascii=False) for one in library.entries]
    changed = json.dumps({**library.entries[3], "text": "other"})
    extra = json.dumps({"_id": "more", "text": "x"})
    for number, (lines, message) in enumerate(
        [
            (rows[:-1], "'d1199' is missing"),
            ([*rows, extra], "more documents than"),
            (rows[::-1], "'d1199' is there"),
            ([*rows[:3], changed, *rows[4:]], "document 'd3' is missing, elsewhere or changed"),
        ]
    ):
        corpus = tmp_path / f"{number}.jsonl"
        corpus.write_text("\n".join(lines), encoding="utf-8")
        with pytest.raises(MarError, match=message):
            built(library, tmp_path / f"index{number}", corpus=corpus)


def test_a_damaged_or_foreign_folder_is_one_error(tmp_path):
    small = make_library(tmp_path / "small", range(40), dim=8)
    built(small, tmp_path / "index")
    manifest = tmp_path / "index" / "manifest.json"
    content = json.loads(manifest.read_text())
    escaping = {**content, "segments": [{**content["segments"][0], "name": "../../small"}]}
    for damaged in ("", "[]", "{}", json.dumps({**content, "fields": 3}), json.dumps(escaping)):
        manifest.write_text(damaged)
        with pytest.raises(MarError, match=r"damaged|expected"):
            Index.open(tmp_path / "index")
    manifest.write_text(json.dumps(content))
    path = tmp_path / "index" / "000001" / "vectors.npy"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(MarError, match="files that were written"):
        Index.open(tmp_path / "index")


def test_without_a_corpus_only_ids_are_kept(library, tmp_path):
    write_vectors(tmp_path / "v", ["a", "b"], np.eye(2, 32, dtype=np.float32))
    build_index(tmp_path / "v", tmp_path / "index", kind="exact", progress=False)
    opened = Index.open(tmp_path / "index")
    assert (opened.has_texts, opened.has_words, opened.fields) == (False, False, {})
    assert opened.search(np.eye(2, 32), 1)[0] == [["a"], ["b"]]
    with pytest.raises(MarError, match="no BM25"):
        opened.find_words(["x"], 1, None)


def test_auto_takes_exact_for_few_vectors_and_a_graph_for_many(library, tmp_path, monkeypatch):
    assert built(library, tmp_path / "few", kind="auto", bm25=False)["kind"] == "exact"
    monkeypatch.setattr(building, "_FEW_VALUES", 1000)
    assert built(library, tmp_path / "many", kind="auto", bm25=False)["kind"] == "hnsw"
