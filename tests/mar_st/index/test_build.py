from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from mar_st.encode import write_vectors
from mar_st.index import Index, IndexingError, build_index
from mar_st.index import build as building
from tests.mar_st.index.conftest import clustered, make_library


def made(library, out, **options):
    return build_index(library.open, out, corpus=library.corpus, progress=False, **options)


def content(folder):
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def exact(library, tmp_path_factory):
    out = tmp_path_factory.mktemp("build") / "exact"
    made(library, out, kind="exact")
    return out


def test_exact_search_is_brute_force(library, exact):
    index = Index.open(exact)
    assert (len(index), index.dim, index.kind, index.space) == (1200, 32, "exact", "a" * 64)
    ids, scores = index.search(library.queries, 15)
    expected, best = library.best(15)
    assert ids == expected
    np.testing.assert_allclose(scores, best, atol=1e-6)


@pytest.mark.parametrize(
    ("where", "passes"),
    [
        ({"department": "儿科"}, lambda one: one["department"] == "儿科"),
        (
            "department=儿科|外科,year>=2010",
            lambda one: one["department"][0] in "儿外" and one["year"] >= 2010,
        ),
        ({"score": {"lt": 30.5}}, lambda one: one["metadata"]["score"] < 30.5),
        (
            "checked=true,date>=2024-03",
            lambda one: one["metadata"]["checked"] and one.get("date", "") > "2024-03",
        ),
        ({"score": {"lt": 0.5}}, lambda one: one["metadata"]["score"] < 0.5),
        ({"year": 1900}, lambda one: False),
    ],
)
def test_filtered_search_is_brute_force_over_what_passes(library, exact, where, passes):
    index = Index.open(exact)
    for _ in range(2):  # the second time the rows are remembered
        ids, scores = index.search(library.queries, 15, where=where)
        expected, best = library.best(15, passes)
        assert ids == expected
        np.testing.assert_allclose(scores, best, atol=1e-6)


def test_the_manifest_says_what_the_index_is(library, exact):
    manifest = json.loads((exact / "manifest.json").read_text())
    assert manifest["fields"] == {
        "checked": "boolean", "date": "string", "department": "string", "score": "number", "year": "integer"
    }  # fmt: skip
    assert (manifest["count"], manifest["dim"], manifest["similarity"]) == (1200, 32, "cosine")
    names = {path.name for path in exact.iterdir()}
    assert names - {".lock"} == {"manifest.json", "segments"}
    Index.open(exact).verify()


def test_auto_records_the_reason_for_its_choice(library, tmp_path):
    lines = []
    manifest = made(library, tmp_path / "auto", say=lines.append, bm25=False)
    assert manifest["choice"]["why"] in lines
    assert manifest["choice"]["measured"][0]["recall"] == 1
    assert manifest["kind"] == manifest["choice"]["kind"] == "exact"


def test_settings_are_tuned_to_the_requested_recall(library, tmp_path):
    rough = made(library, tmp_path / "rough", kind="binary", recall=0.5, bm25=False)
    fine = made(library, tmp_path / "fine", kind="binary", recall=1.0, bm25=False, queries=library.queries)
    assert fine["measured"]["recall@10"] == 1
    assert rough["search"]["rescore"] < fine["search"]["rescore"]
    ids, _ = Index.open(tmp_path / "fine").search(library.queries, 10)
    assert [set(row) for row in ids] == [set(row) for row in library.best(10)[0]]


def test_vectors_that_are_not_of_length_one_are_compared_by_cosine(tmp_path):
    vectors = clustered(50, 16) * np.arange(1, 51)[:, None].astype(np.float32)
    names = [f"d{row}" for row in range(50)]
    for similarity in ("cosine", "dot"):
        folder = write_vectors(tmp_path / similarity, names, vectors, similarity=similarity)
        build_index(folder, tmp_path / f"{similarity}-index", kind="exact", progress=False)
        ids, scores = Index.open(tmp_path / f"{similarity}-index").search(3 * vectors[7:8], 5)
        products = vectors @ (3 * vectors[7])
        if similarity == "cosine":
            products = products / np.linalg.norm(vectors, axis=1) / np.linalg.norm(3 * vectors[7])
        order = np.argsort(-products)[:5]
        assert ids == [[f"d{row}" for row in order]]
        np.testing.assert_allclose(scores[0], products[order], rtol=1e-5)


def test_a_corpus_in_another_order_is_joined_by_id(library, tmp_path):
    lines = library.corpus.read_text().splitlines(keepends=True)
    shuffled = tmp_path / "shuffled.jsonl"
    shuffled.write_text("".join(reversed(lines)))
    build_index(library.open, tmp_path / "index", corpus=shuffled, kind="exact", progress=False, bm25=False)
    index = Index.open(tmp_path / "index")
    assert index.search(library.queries, 5)[0] == library.best(5)[0]
    assert index.documents([3])[0].title == library.entries[3]["title"]


def test_an_index_without_a_corpus_returns_only_ids(library, tmp_path):
    lines = []
    build_index(library.open, tmp_path / "index", kind="exact", progress=False, say=lines.append)
    index = Index.open(tmp_path / "index")
    assert index.search(library.queries, 5)[0] == library.best(5)[0]
    assert (index.has_texts, index.has_words) == (False, False)
    assert any("no corpus" in line for line in lines)
    with pytest.raises(IndexingError, match="have no metadata"):
        index.search(library.queries, 5, where={"year": 2020})
    with pytest.raises(IndexingError, match="Build it with the corpus and without --no-bm25"):
        index.find_words(["x"], 1, None)


def test_an_index_of_a_corpus_that_does_not_fit_is_not_finished(library, tmp_path):
    corpus = tmp_path / "short.jsonl"
    corpus.write_text("".join(library.corpus.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(IndexingError, match="no document 'd1199'"):
        build_index(library.open, tmp_path / "index", corpus=corpus, kind="exact", progress=False)
    with pytest.raises(IndexingError, match="not finished"):
        Index.open(tmp_path / "index")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "best"}, "exact, int8, binary, hnsw, ivf-pq"),
        ({"recall": 0.0}, "above 0"),
        ({"tokens": "letters"}, "char-bigram or jieba"),
        ({"queries": np.zeros((3, 5), np.float32)}, "shape"),
        ({"kind": "hnsw", "params": {"m": 3}}, "no setting 'm'"),
    ],
)
def test_bad_options_are_refused(library, tmp_path, options, message):
    with pytest.raises(IndexingError, match=message):
        made(library, tmp_path / "index", **options)


def test_folders_that_hold_something_else_are_left_alone(library, exact, tmp_path):
    with pytest.raises(IndexingError, match="holds an index already"):
        made(library, exact, kind="exact")
    (tmp_path / "letters.txt").write_text("dear")
    with pytest.raises(IndexingError, match="holds other files"):
        made(library, tmp_path, kind="exact")
    assert (tmp_path / "letters.txt").read_text() == "dear"


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("manifest.json", lambda path: path.write_text("{"), "damaged"),
        ("manifest.json", lambda path: path.unlink(), "not finished"),
        ("manifest.json", lambda path: path.write_text('{"format": "x", "version": 2}'), "'x' version 2"),
        ("segments/000001/vectors.npy", lambda path: path.unlink(), "lacks"),
        ("segments/000001/vectors.npy", lambda path: path.write_bytes(b"short"), "5 bytes"),
    ],
)
def test_damaged_indexes_are_refused(library, tmp_path, name, change, message):
    made(library, tmp_path / "index", kind="exact", bm25=False)
    change(tmp_path / "index" / name)
    with pytest.raises(IndexingError, match=message):
        Index.open(tmp_path / "index")


def test_a_changed_file_is_found_by_its_digest(library, tmp_path):
    made(library, tmp_path / "index", kind="exact", bm25=False)
    path = tmp_path / "index" / "segments" / "000001" / "vectors.npy"
    bytes_ = bytearray(path.read_bytes())
    bytes_[-1] ^= 1
    path.write_bytes(bytes_)
    with pytest.raises(IndexingError, match="holds other bytes than were written"):
        Index.open(tmp_path / "index").verify()


def test_a_build_that_stopped_anywhere_gives_the_same_bytes(library, tmp_path, monkeypatch):
    options = {"kind": "hnsw", "params": {"M": 8, "storage": "int8"}}
    made(library, tmp_path / "whole", **options)
    expected = content(tmp_path / "whole")

    class StoppedError(Exception):
        pass

    def stop(*args, **options):
        raise StoppedError

    for step in ("write_documents", "kind_of", "calibrate", "exact_results", "segment_entry"):
        with monkeypatch.context() as patched:
            patched.setattr(building, step, stop)
            with pytest.raises(StoppedError):
                made(library, tmp_path / "stopped", **options)
            with pytest.raises(IndexingError, match="not finished"):
                Index.open(tmp_path / "stopped")
    with monkeypatch.context() as patched:
        patched.setattr(building.lexical, "build", stop)
        with pytest.raises(StoppedError):
            made(library, tmp_path / "stopped", **options)
    made(library, tmp_path / "stopped", **options)
    assert content(tmp_path / "stopped") == expected


def test_a_build_with_other_settings_starts_over(library, tmp_path, monkeypatch):
    def stop(*args, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(building, "calibrate", stop)
        with pytest.raises(KeyboardInterrupt):
            made(library, tmp_path / "index", kind="binary", bm25=False)
    made(library, tmp_path / "index", kind="exact", bm25=False)
    made(library, tmp_path / "fresh", kind="exact", bm25=False)
    assert content(tmp_path / "index") == content(tmp_path / "fresh")


@pytest.mark.slow
def test_a_build_killed_at_any_moment_ends_with_the_same_bytes(tmp_path):
    library = make_library(tmp_path / "library", count=6000)
    code = (
        "import sys, faiss; faiss.omp_set_num_threads(1)\n"
        "from mar_st.index import build_index\n"
        "build_index(sys.argv[1], sys.argv[2], corpus=sys.argv[3], kind='hnsw', progress=False)\n"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def start(out):
        arguments = [sys.executable, "-c", code, library.folder, out, library.corpus]
        return subprocess.Popen([str(part) for part in arguments], env=environment)

    started = time.monotonic()
    assert start(tmp_path / "whole").wait() == 0
    elapsed = time.monotonic() - started
    for attempt in range(6):
        process = start(tmp_path / "killed")
        time.sleep(elapsed * (0.35 + 0.12 * attempt))
        process.send_signal(signal.SIGKILL)
        process.wait()
    if (
        not (tmp_path / "killed" / "manifest.json").is_file()
        or (tmp_path / "killed" / "build.json").is_file()
    ):
        (tmp_path / "killed" / "manifest.json").unlink(missing_ok=True)
        assert start(tmp_path / "killed").wait() == 0
    assert content(tmp_path / "killed") == content(tmp_path / "whole")
