from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from filelock import FileLock

from mar_st.encode import write_vectors
from mar_st.index import Index, IndexingError, Searcher, add, build_index, compact, delete
from mar_st.index import update as updating
from tests.mar_st.index.conftest import Library, clustered, entry, make_library
from tests.mar_st.index.parts import part

KINDS = ("exact", "hnsw", "ivf-pq", "int8", "binary")


def indexed(library, out, **options):
    build_index(library.open, out, corpus=library.corpus, progress=False, **{"kind": "exact", **options})
    return out


def joined(*libraries, without=()):
    """Merge several libraries into one for brute-force search."""
    rows = [
        (one, vector) for each in libraries for one, vector in zip(each.entries, each.vectors, strict=True)
    ]
    by_id = {one["_id"]: (one, vector) for one, vector in rows}
    for name in without:
        del by_id[name]
    entries, vectors = zip(*by_id.values(), strict=True)
    return Library(
        libraries[0].folder, libraries[0].corpus, list(entries), np.stack(vectors), libraries[0].queries
    )


def same(index, library, where=None, passes=None):
    ids, scores = index.search(library.queries, 10, where=where)
    expected, best = library.best(10, passes)
    assert [set(row) for row in ids] == [set(row) for row in expected]
    np.testing.assert_allclose(scores, best, atol=1e-6)


def test_an_updated_index_equals_one_built_from_scratch(library, tmp_path):
    out = indexed(library, tmp_path / "index")
    before = Index.open(out)
    more = part(tmp_path / "more", range(1200, 1500))
    add(out, more.folder, corpus=more.corpus, progress=False)
    same(Index.open(out), joined(library, more))
    newer = part(tmp_path / "newer", [3, 701, 1300], seed=9, change="新")
    add(out, newer.folder, corpus=newer.corpus, replace=True, progress=False)
    deleted = [f"d{number}" for number in (*range(0, 1500, 7), 3)]
    manifest = delete(out, deleted)
    now = Index.open(out)
    expected = joined(library, more, newer, without=deleted)
    assert len(now) == manifest["count"] == len(expected.entries)
    same(now, expected)
    same(
        now,
        expected,
        "department=儿科,year>=2010",
        lambda one: one["department"] == "儿科" and one["year"] >= 2010,
    )
    document = now.documents([key for keys in now.find(newer.vectors[1:2], 1, None).keys for key in keys])[0]
    assert (document.id, document.text) == ("d701", entry(701)["text"] + "新")
    assert now.document("d701") == document
    assert now.document("d1301") is not None  # of the second segment
    assert [now.document(name) for name in ("d3", "d1500", "")] == [None] * 3
    # An open reader keeps the generation that it opened.
    same(before, library)
    assert before.changed()
    assert not now.changed()
    now.verify()

    compact(out, progress=False)
    same(Index.open(out), expected)
    same(now, expected)
    assert len(Index.open(out).segments) == 1
    assert {path.name for path in (out / "segments").iterdir()} >= {Index.open(out).segments[0].folder.name}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_takes_changes(tmp_path, kind):
    library = make_library(tmp_path / "library", count=3000)
    out = indexed(library, tmp_path / "index", kind=kind, recall=0.99, bm25=False)
    more = part(tmp_path / "more", range(3000, 3400))
    add(out, more.folder, corpus=more.corpus, progress=False)
    deleted = [f"d{number}" for number in range(0, 3400, 3)]
    delete(out, deleted)
    expected = joined(library, more, without=deleted)

    def recall():
        index = Index.open(out)
        ids, _ = index.search(library.queries, 10)
        assert not {name for row in ids for name in row} & set(deleted)
        return np.mean([len(set(a) & set(b)) / 10 for a, b in zip(ids, expected.best(10)[0], strict=True)])

    assert recall() >= 0.93
    assert Index.open(out).search(more.vectors[[1, 4, 7]], 1)[0] == [["d3001"], ["d3004"], ["d3007"]]
    compact(out, progress=False)
    assert recall() >= 0.93
    assert Index.open(out).kind == kind


def test_codes_of_an_addition_are_those_of_the_index(tmp_path):
    """Added to a quantized index, documents are coded as if they had been there."""
    library = make_library(tmp_path / "library", count=2500)
    out = indexed(library, tmp_path / "index", kind="int8", bm25=False)
    twins = [f"x{number}" for number in range(50)]
    folder = write_vectors(tmp_path / "twins", twins, library.vectors[:50], space="a" * 64)
    (tmp_path / "twins.jsonl").write_text("".join(f'{{"_id": "{name}", "text": "x"}}\n' for name in twins))
    add(out, folder, corpus=tmp_path / "twins.jsonl", progress=False)
    first, second = Index.open(out).segments
    stored, added = (segment.searchable._index for segment in (first, second))
    assert (stored.reconstruct_n(0, 50) == added.reconstruct_n(0, 50)).all()


@pytest.mark.thorough
def test_small_segments_are_merged(library, tmp_path):
    out = indexed(library, tmp_path / "index")
    sizes = []
    for number in range(12):
        more = part(tmp_path / f"more{number}", range(2000 + 5 * number, 2005 + 5 * number), seed=20 + number)
        sizes.append(len(add(out, more.folder, corpus=more.corpus, progress=False)["segments"]))
    assert len(Index.open(out)) == 1260
    assert max(sizes) <= 6
    names = [f"d{number}" for number in range(2000, 2060)]
    assert sum(len(rows) for rows in Index.open(out).locate(names)) == 60


@pytest.mark.thorough
def test_words_are_weighted_over_all_segments(library, tmp_path):
    """BM25 after an addition is BM25 of an index built whole, up to the mean length."""
    out = indexed(library, tmp_path / "index")
    more = part(tmp_path / "more", range(1200, 1210))
    add(out, more.folder, corpus=more.corpus, progress=False)
    texts = ["高血压怎么办", "编号1203", "皮肤科看湿疹"]

    def scores(folder):
        results = Searcher.open(folder).search_words(texts, 2000)
        return [{hit.id: hit.score for hit in hits} for hits in results]

    apart = scores(out)
    compact(out, progress=False)
    whole = scores(out)
    for one, other in zip(apart, whole, strict=True):
        assert one.keys() == other.keys()
        np.testing.assert_allclose([one[name] for name in other], list(other.values()), rtol=2e-3)
    assert Searcher.open(out).search_words(["编号1203"], 1)[0][0].id == "d1203"


@pytest.mark.parametrize(
    ("numbers", "options", "message"),
    [
        ([5, 1200], {}, r"index has 1 document \('d5'\) already; update"),
        ([5, 1200], {"replace": True}, r"index lacks 1 document \('d1200'\); add"),
    ],
)
def test_added_ids_must_be_new_and_replaced_ones_known(library, tmp_path, numbers, options, message):
    out = indexed(library, tmp_path / "index", bm25=False)
    more = part(tmp_path / "more", numbers)
    with pytest.raises(IndexingError, match=message):
        add(out, more.folder, corpus=more.corpus, progress=False, **options)
    assert Index.open(out).generation == 1


@pytest.mark.parametrize("place", ["nowhere", "milvus:index.db"])
def test_folders_without_an_index_are_refused_and_unchanged(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    for change in (lambda: delete(place, ["d1"]), lambda: compact(place)):
        with pytest.raises(IndexingError, match="is not an index folder"):
            change()
    assert not list(tmp_path.iterdir())


def test_mismatched_inputs_are_refused(library, tmp_path):
    out = indexed(library, tmp_path / "index", bm25=False)
    with pytest.raises(IndexingError, match="16 dimensions"):
        add(out, part(tmp_path / "narrow", [2000], dim=16).folder, progress=False)
    other = write_vectors(tmp_path / "other", ["n"], clustered(1, 32), space="b" * 64)
    with pytest.raises(IndexingError, match="another model"):
        add(out, other, corpus=library.corpus, progress=False)
    more = part(tmp_path / "more", [2000])
    with pytest.raises(IndexingError, match="give the corpus"):
        add(out, more.folder, progress=False)
    more.corpus.write_text('{"_id": "d2000", "text": "x", "year": "soon"}\n')
    with pytest.raises(IndexingError, match="'year' is of type integer"):
        add(out, more.folder, corpus=more.corpus, progress=False)
    with pytest.raises(IndexingError, match="at least one id"):
        delete(out, [])
    with pytest.raises(IndexingError, match=r"index lacks 2 documents \('no', 'none'\), so nothing was"):
        delete(out, ["d1", "no", "none"])
    with pytest.raises(IndexingError, match=r"lacks 1 document \('x{60}…'\)"):
        delete(out, ["x" * 10_000])
    with pytest.raises(IndexingError, match="would be left"):
        delete(out, [one["_id"] for one in library.entries])
    with FileLock(out / ".lock"), pytest.raises(IndexingError, match="Another process"):
        delete(out, ["d1"])
    same(Index.open(out), library)
    assert Index.open(out).generation == 1


def test_an_interrupted_update_leaves_the_index_unchanged(library, tmp_path, monkeypatch):
    out = indexed(library, tmp_path / "index")
    more = part(tmp_path / "more", range(1200, 1250))

    class StoppedError(Exception):
        pass

    def stop(*args, **options):
        raise StoppedError

    for step in ("write_documents", "kind_of", "segment_entry", "publish"):
        with monkeypatch.context() as patched:
            patched.setattr(updating, step, stop)
            with pytest.raises(StoppedError):
                add(out, more.folder, corpus=more.corpus, progress=False)
        same(Index.open(out), library)
        Index.open(out).verify()
    add(out, more.folder, corpus=more.corpus, progress=False)
    same(Index.open(out), joined(library, more))
    Index.open(out).verify()


def test_readers_never_see_a_partial_update(library, tmp_path):
    """While documents are added and deleted, every search sees one complete state."""
    out = indexed(library, tmp_path / "index", bm25=False)
    more = part(tmp_path / "more", range(1200, 1260))
    names = [one["_id"] for one in more.entries]
    done = threading.Event()
    wrong, seen = [], set()

    def read():
        while not done.is_set():
            try:
                index = Index.open(out)
                rows = [len(rows) for rows in index.locate(names)]
                seen.add(sum(rows))
                if sum(rows) not in (0, 60) or len(index) != 1200 + sum(rows):
                    wrong.append((rows, len(index)))
            except Exception as error:  # whatever it is, a reader must not meet it
                wrong.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(8):
        add(out, more.folder, corpus=more.corpus, progress=False)
        delete(out, names)
    compact(out, progress=False)
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert seen == {0, 60}


def test_indexes_with_many_deletions_are_reported_as_worn(library, tmp_path):
    out = indexed(library, tmp_path / "index", bm25=False)
    assert not updating.worn(delete(out, ["d1"]))
    assert updating.worn(delete(out, [f"d{number}" for number in range(100, 600)]))
    assert not updating.worn(compact(out, progress=False))


@pytest.mark.slow
def test_sigkill_during_an_update_leaves_the_index_unchanged(library, tmp_path):
    out = indexed(library, tmp_path / "index")
    more = part(tmp_path / "more", range(1200, 3200))
    code = (
        "import sys\nfrom mar_st.index import add\n"
        "print('ready', flush=True)\n"
        "add(sys.argv[1], sys.argv[2], corpus=sys.argv[3], progress=False)\n"
    )
    arguments = [sys.executable, "-c", code, str(out), str(more.folder), str(more.corpus)]
    for attempt in range(8):
        process = subprocess.Popen(
            arguments, stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
        process.stdout.readline()
        time.sleep(0.15 * attempt)
        process.send_signal(signal.SIGKILL)
        process.wait()
        index = Index.open(out)
        index.verify()
        assert len(index) in (1200, 3200)
        if len(index) == 3200:
            delete(out, [one["_id"] for one in more.entries])
    add(out, more.folder, corpus=more.corpus, progress=False)
    same(Index.open(out), joined(library, more))
