from __future__ import annotations

import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from mar_st.encode.folder import write_vectors
from mar_st.errors import MarError
from mar_st.index.build import build_index
from mar_st.index.filters import FilterError
from mar_st.index.searcher import RRF, Searcher


class FakeEncoder:
    """Encodes a query as the vector of the document whose number is in it."""

    identity, normalised, max_length, prompts = "fake", True, 64, {}

    def __init__(self, library, dim=32, space="a" * 64):
        self.library, self.dim, self.space = library, dim, space
        self.calls = 0

    def encode(self, texts, prompt_name=None):
        self.calls += 1
        rows = [int("".join(filter(str.isdigit, text)) or 0) for text in texts]
        vectors = self.library.vectors[rows]
        wide = np.zeros((len(rows), self.dim), np.float32)
        wide[:, : vectors.shape[1]] = vectors[:, : self.dim]
        return wide

    def count_tokens(self, texts, prompt_name=None):
        return [len(text) for text in texts]


class FakeReranker:
    """A cross-encoder that likes documents with high numbers."""

    def __init__(self):
        self.pairs = []

    def predict(self, pairs, batch_size, show_progress_bar):
        self.pairs += pairs
        return np.array([float("".join(filter(str.isdigit, text.split("\n")[0]))) for _, text in pairs])


@pytest.fixture(scope="module")
def folder(library, tmp_path_factory):
    out = tmp_path_factory.mktemp("searcher") / "index"
    build_index(library.open, out, corpus=library.corpus, kind="exact", progress=False)
    return out


@pytest.fixture
def searcher(folder, library):
    return Searcher.open(folder, FakeEncoder(library))


def test_hits_say_what_was_found_and_why(searcher, library):
    hits = searcher.search(["编号17"], 3)[0]
    assert [hit.rank for hit in hits] == [1, 2, 3]
    first, one = hits[0], library.entries[17]
    assert (first.id, first.title, first.text) == ("d17", one["title"], one["text"])
    assert first.metadata == {"department": "儿科", "year": 2017, "score": 17 / 8, "checked": False}
    assert first.score == pytest.approx(1, abs=1e-6)
    assert set(first.legs) == {"dense"}
    assert (first.legs["dense"].rank, first.legs["dense"].score) == (1, first.score)
    assert "编号17" in first.snippet


def test_a_batch_gives_the_hits_of_its_single_queries(searcher):
    texts = [f"编号{number}" for number in range(0, 60, 4)]
    for options in ({}, {"hybrid": True}, {"where": "department=儿科"}):
        together = searcher.search(texts, 5, **options)
        apart = [searcher.search([text], 5, **options)[0] for text in texts]
        assert [[hit.id for hit in hits] for hits in together] == [[hit.id for hit in hits] for hits in apart]
    assert searcher.search([], 5) == []


def test_vectors_get_the_same_hits_as_their_texts(searcher, library):
    texts = ["编号5", "编号90"]
    vectors = FakeEncoder(library).encode(texts)
    expected = searcher.search(texts, 4, hybrid=True)
    assert searcher.search_vectors(vectors, texts, 4, hybrid=True) == expected
    assert [hit.id for hit in searcher.search(vectors, 4)[0]] == [
        hit.id for hit in searcher.search(texts, 4)[0]
    ]


def test_hybrid_fuses_the_two_rankings(searcher):
    text = "湿疹 编号17"
    (keys,), (scores,) = searcher.index.find_words([text], 100, None)
    words = dict(zip(searcher.index.ids(keys), zip(range(1, 101), scores, strict=False), strict=False))
    dense = {hit.id: (hit.rank, hit.score) for hit in searcher.search([text], 100)[0]}
    hits = searcher.search([text], 10, hybrid=True)[0]
    expected = {}
    for leg in (dense, words):
        for name, (rank, _) in leg.items():
            expected[name] = expected.get(name, 0) + 1 / (RRF + rank)
    assert [hit.score for hit in hits] == pytest.approx(sorted(expected.values(), reverse=True)[:10])
    for hit in hits:
        assert hit.score == pytest.approx(expected[hit.id])
        legs = {name: leg[hit.id] for name, leg in (("dense", dense), ("bm25", words)) if hit.id in leg}
        assert hit.legs == legs
    assert {"dense", "bm25"} == {name for hit in hits for name in hit.legs}


@pytest.mark.parametrize("options", [{}, {"hybrid": True}])
def test_filters_hold_in_every_leg(searcher, options):
    hits = searcher.search(
        ["湿疹 编号17"], 30, where={"department": "外科", "year": {"lt": 2010}}, **options
    )[0]
    assert len(hits) == 30
    assert all(hit.metadata["department"] == "外科" and hit.metadata["year"] < 2010 for hit in hits)
    assert searcher.search(["x"], 5, where="year=1900", **options) == [[]]


def test_the_reranker_orders_the_best(folder, library):
    model = FakeReranker()
    searcher = Searcher.open(folder, FakeEncoder(library), reranker=model)
    before = Searcher.open(folder, FakeEncoder(library)).search(["编号17"], 20)[0]
    hits = searcher.search(["编号17"], 5, rerank=20)[0]
    numbers = [int(hit.id[1:]) for hit in hits]
    assert numbers == sorted((int(hit.id[1:]) for hit in before), reverse=True)[:5]
    assert model.pairs[0][0] == "编号17"
    for hit in hits:
        assert hit.legs["rerank"].rank == hit.rank
        assert hit.legs["rerank"].score == hit.score
        assert hit.legs["dense"].rank == next(one.rank for one in before if one.id == hit.id)
    assert [hit.id for hit in searcher.search(["编号17"], 20, rerank=0)[0]] == [hit.id for hit in before]
    assert len(searcher.search(["编号17", "编号3"], 30, rerank=5)[1]) == 30


def test_a_reranker_is_refused_if_the_index_keeps_no_texts(tmp_path, library):
    ids = [f"d{place}" for place in range(20)]
    write_vectors(tmp_path / "vectors", ids, np.eye(20, 32, dtype=np.float32))
    build_index(tmp_path / "vectors", tmp_path / "index", kind="exact", progress=False)
    with pytest.raises(MarError, match="keeps no texts that a reranker could score"):
        Searcher.open(tmp_path / "index", reranker=FakeReranker())


def test_only_the_given_number_of_documents_is_reranked(folder, library):
    model = FakeReranker()
    searcher = Searcher.open(folder, FakeEncoder(library), reranker=model)
    before = [hit.id for hit in searcher.search(["编号17"], 30, rerank=0)[0]]
    hits = searcher.search(["编号17"], 30, rerank=10)[0]
    assert len(model.pairs) == 10
    assert {hit.id for hit in hits[:10]} == set(before[:10])
    assert [hit.id for hit in hits[10:]] == before[10:]
    assert ["rerank" in hit.legs for hit in hits] == [True] * 10 + [False] * 20
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores[9:])) == 21


def test_a_query_that_is_not_unicode_is_refused(searcher):
    with pytest.raises(MarError, match="query is not valid Unicode"):
        searcher.search(["头\udcff"])


def test_a_reranker_with_several_scores_is_refused(folder, library):
    class Classes(FakeReranker):
        def predict(self, pairs, batch_size, show_progress_bar):
            return np.zeros((len(pairs), 3))

    with pytest.raises(MarError, match="one is needed"):
        Searcher.open(folder, FakeEncoder(library), reranker=Classes()).search(["编号1"], 3)
    with pytest.raises(ValueError, match="reranker"):
        Searcher.open(folder, FakeEncoder(library), reranker="./nowhere").search(["编号1"], 3)


def test_encoders_of_another_space_are_refused(folder, library):
    with pytest.raises(MarError, match="another document space"):
        Searcher.open(folder, FakeEncoder(library, space="b" * 64))
    with pytest.warns(UserWarning, match="does not say which document space"):
        Searcher.open(folder, FakeEncoder(library, space=None))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Searcher.open(folder, FakeEncoder(library))
    with pytest.raises(MarError, match="16 dimensions"):
        Searcher.open(folder, FakeEncoder(library, dim=16))


def test_wider_vectors_of_the_same_space_are_cut(folder, library):
    narrow = Searcher.open(folder, FakeEncoder(library)).search(["编号17"], 5)
    assert Searcher.open(folder, FakeEncoder(library, dim=48)).search(["编号17"], 5) == narrow
    with pytest.warns(UserWarning, match="space"), pytest.raises(MarError, match="48 dimensions"):
        Searcher.open(folder, FakeEncoder(library, dim=48, space=None))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "k is the number"),
        ({"rerank": 5}, "no reranker"),
        ({"rerank": -1}, "from 0"),
        ({"rerank": True}, "from 0"),
        ({"where": {"nowhere": 1}}, "no metadata field"),
    ],
)
def test_bad_options_are_refused(searcher, options, message):
    with pytest.raises((MarError, FilterError), match=message):
        searcher.search(["x"], **options)


def test_searches_without_an_encoder_or_texts_are_refused(folder, library):
    searcher = Searcher.open(folder)
    with pytest.raises(MarError, match="no encoder"):
        searcher.search(["x"])
    with pytest.raises(MarError, match="need the texts"):
        searcher.search(library.queries, hybrid=True)
    with pytest.raises(MarError, match="came with 1 texts"):
        searcher.search_vectors(library.queries, ["x"])


def test_many_threads_get_the_same_hits_as_one(searcher):
    wheres = [None, "department=儿科", "year>=2010", {"checked": True}]
    jobs = [(f"编号{number}", wheres[number % 4], number % 2 == 0) for number in range(80)]

    def ask(job):
        text, where, hybrid = job
        return searcher.search([text], 5, where=where, hybrid=hybrid)

    expected = [ask(job) for job in jobs]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, jobs * 3)) == expected * 3


@pytest.mark.thorough
def test_an_open_index_imports_no_torch(folder):
    code = (
        "import sys, numpy as np\n"
        "from mar_st import Index, Searcher, build_index\n"
        "searcher = Searcher.open(sys.argv[1])\n"
        "vectors = np.ones((1, 32), np.float32)\n"
        "hits = searcher.search_vectors(vectors, ['湿疹'], hybrid=True, where='year>2000')\n"
        "assert len(hits[0]) == 10\n"
        "heavy = {'torch', 'transformers', 'sentence_transformers', 'mteb', 'datasets'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
