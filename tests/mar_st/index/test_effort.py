"""The effort of a query encoder is measured against its own exact results, kept, and used when it answers."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mar_st.index import Index, IndexingError, Searcher, add, build_index, compact, delete, tune_effort
from mar_st.index.registry import kind_of
from tests.mar_st.index.conftest import clustered, make_library

TEXTS = [f"问题{number}" for number in range(60)]


class Encoder:
    """Vectors like those of the documents, or (`far`) in any direction."""

    dim, space, normalised, max_length = 32, "a" * 64, True, 64

    def __init__(self, name: str, *, far: bool = False) -> None:
        self.query, self.identity = f"query-{name}", f"digest-{name}"
        drawn = np.random.default_rng(5).standard_normal((len(TEXTS), 32)).astype(np.float32)
        self.rows = dict(zip(TEXTS, drawn if far else clustered(len(TEXTS), 32, seed=8), strict=True))

    def encode(self, texts, prompt_name=None):
        return np.stack([self.rows[text] for text in texts])


NEAR, FAR = Encoder("4"), Encoder("lookup", far=True)


@pytest.fixture
def index(library, tmp_path):
    """A graph with few links, so that the effort matters."""
    folder = tmp_path / "index"
    build_index(
        library.folder, folder, corpus=library.corpus, kind="hnsw", params={"M": 6, "efConstruction": 24},
        recall=0.9, queries=library.queries, bm25=False, progress=False,
    )  # fmt: skip
    return folder


def exact(library, encoder, k=10, deleted=()):
    vectors = encoder.encode(TEXTS)
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = [row for row in range(len(library.vectors)) if f"d{row}" not in deleted]
    order = np.argsort(-(vectors @ library.vectors[rows].T), axis=1)[:, :k]
    return [{f"d{rows[place]}" for place in row} for row in order]


def retrieved(index, encoder, settings=None):
    searcher = Searcher(index, encoder)
    if settings is None:
        return [set(run) for run in searcher.run(TEXTS, 10)]
    return [set(ids) for ids in index.search(searcher.vectors(TEXTS), 10, settings=settings)[0]]


def share(results, wanted):
    return np.mean([len(one & other) / 10 for one, other in zip(results, wanted, strict=True)])


def test_the_effort_is_the_cheapest_that_finds_the_encoders_own_neighbours(index, library):
    opened = Index.open(index)
    built = dict(opened.settings)
    effort = tune_effort(index, TEXTS, encoder=FAR, target=0.98)
    assert effort["reached"]
    assert effort["query"] == "query-lookup"
    assert effort["queries"] == len(TEXTS)
    assert effort["search"]["ef"] > built["ef"]
    wanted = exact(library, FAR)
    ladder = kind_of("hnsw").LADDER
    place = ladder.index(effort["search"])
    assert share(retrieved(opened, FAR, ladder[place]), wanted) == pytest.approx(
        effort["recall@10"], abs=1e-4
    )
    assert share(retrieved(opened, FAR, ladder[place - 1]), wanted) < 0.98
    before = effort["before"]
    assert before["search"] == built
    assert share(retrieved(opened, FAR), wanted) == pytest.approx(before["recall@10"], abs=1e-4)
    # An index that was open keeps what it opened; one that is opened now uses the effort.
    assert opened.changed()
    now = Index.open(index)
    assert share(retrieved(now, FAR), wanted) == pytest.approx(effort["recall@10"], abs=1e-4)


def test_other_encoders_keep_the_settings_of_the_index(index):
    built = dict(Index.open(index).settings)
    effort = tune_effort(index, TEXTS, encoder=FAR, target=0.99)["search"]
    opened = Index.open(index)
    assert opened.settings == built
    assert Searcher(opened, FAR).effort == effort != built
    assert Searcher(opened, NEAR).effort == built
    assert Searcher(opened).effort == built
    second = tune_effort(index, TEXTS, encoder=NEAR)
    assert second["target"] == 0.9  # of the build
    opened = Index.open(index)
    assert Searcher(opened, FAR).effort == effort
    assert Searcher(opened, NEAR).effort == second["search"]


def test_exported_forms_of_an_encoder_share_its_effort(index):
    effort = tune_effort(index, TEXTS, encoder=FAR, target=0.99)["search"]
    exported = Encoder("lookup", far=True)
    exported.identity, exported.origin = "digest-int8", "digest-lookup"
    assert Searcher(Index.open(index), exported).effort == effort


def test_an_index_without_efforts_opens_and_never_asks_for_a_digest(index):
    class Costly(Encoder):
        @property
        def identity(self):
            raise AssertionError("the digest of every weight is not needed here")

        @identity.setter
        def identity(self, value):
            pass

    manifest = json.loads((index / "manifest.json").read_text())
    assert "efforts" not in manifest
    opened = Index.open(index)
    assert Searcher(opened, Costly("2")).effort == opened.settings == manifest["search"]


def test_efforts_survive_changes_and_ignore_deleted_documents(index, library, tmp_path):
    deleted = [f"d{number}" for number in range(0, 600, 2)]
    delete(index, deleted)
    more = make_library(tmp_path / "more", count=30, start=1200, seed=3)
    effort = tune_effort(index, TEXTS, encoder=FAR, target=0.97)
    opened = Index.open(index)
    wanted = exact(library, FAR, deleted=set(deleted))
    assert share(retrieved(opened, FAR), wanted) == pytest.approx(effort["recall@10"], abs=1e-4)
    add(index, more.folder, corpus=more.corpus, progress=False)
    assert Searcher(Index.open(index), FAR).effort == effort["search"]
    again = tune_effort(index, TEXTS, encoder=FAR, target=0.97)  # over two segments
    assert again["reached"]
    compact(index, progress=False)
    assert Searcher(Index.open(index), FAR).effort == again["search"]


def test_cells_are_probed_with_the_effort_too(library, tmp_path):
    folder = tmp_path / "cells"
    build_index(
        library.folder, folder, corpus=library.corpus, kind="ivf-pq", recall=0.5, queries=library.queries,
        bm25=False, progress=False,
    )  # fmt: skip
    effort = tune_effort(folder, TEXTS, encoder=FAR, target=0.95)
    assert effort["search"]["nprobe"] > Index.open(folder).settings["nprobe"]
    assert share(retrieved(Index.open(folder), FAR), exact(library, FAR)) == pytest.approx(
        effort["recall@10"],
        abs=0.01,  # exact search compares the float16 that are kept
    )


def test_invalid_inputs_are_refused(index, library, tmp_path):
    with pytest.raises(IndexingError, match="no queries"):
        tune_effort(index, [], encoder=FAR)
    with pytest.raises(IndexingError, match=r"above 0 and at most 1; got 1\.5"):
        tune_effort(index, TEXTS, encoder=FAR, target=1.5)
    with pytest.raises(IndexingError, match="open already"):
        tune_effort(index, TEXTS, encoder=FAR, query="query-lookup")
    with pytest.raises(IndexingError, match="which model it was made with"):
        tune_effort(index, TEXTS, query="query-lookup")
    build_index(library.folder, tmp_path / "exact", kind="exact", bm25=False, progress=False)
    with pytest.raises(IndexingError, match="nothing to tune"):
        tune_effort(tmp_path / "exact", TEXTS, encoder=FAR)
    foreign = Encoder("2")
    foreign.space = "b" * 64
    with pytest.raises(IndexingError, match="another document space"):
        tune_effort(index, TEXTS, encoder=foreign)
