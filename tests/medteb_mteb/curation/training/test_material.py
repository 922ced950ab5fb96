"""Material of triples: queries by their texts, and the documents that are judged for each."""

from __future__ import annotations

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.training.material import PoolTexts, read_pool_texts
from medteb_mteb.curation.training.plan import QueryCandidates
from medteb_mteb.folders.problems import FolderError

DOCUMENTS = {"d1": "一", "d2": "二", "d3": "三", "d4": "四", "copy": "一"}


@pytest.fixture
def read(tmp_path, write):
    """Reads queries, a text by id, and pools, documents by the query's id."""

    def call(queries, pools, *, depth=10, documents=DOCUMENTS, already_anonymous=True):
        files = [tmp_path / f"{name}.jsonl" for name in ("queries", "documents", "pools")]
        for file, texts in zip(files, (queries, documents), strict=False):
            write(file, [{"_id": key, "text": text} for key, text in texts.items()])
        write(files[2], [{"query-id": query, "corpus-ids": names} for query, names in pools.items()])
        return read_pool_texts(*files, depth=depth, already_anonymous=already_anonymous)

    return call


def test_only_the_best_ranked_documents_are_judged(read):
    material = read({"a": "问", "b": "答"}, {"b": ["d3", "d1", "d2"], "a": ["d2"]}, depth=2)
    assert material.queries == (
        QueryCandidates("b", "答", ("d3", "d1")),
        QueryCandidates("a", "问", ("d2",)),
    )
    assert material.texts == {"d3": "三", "d1": "一", "d2": "二"}
    assert material.repeated == {}


def test_queries_of_one_text_are_one_with_the_documents_of_all(read):
    material = read(
        {"a": "问", "b": "别", "c": "问", "d": "问"},
        {"a": ["d1", "d2"], "b": ["d4"], "c": ["d3", "d1"], "d": []},
    )
    assert material.queries == (
        QueryCandidates("a", "问", ("d1", "d2", "d3")),
        QueryCandidates("b", "别", ("d4",)),
    )
    assert material.repeated == {"a": (("c", "问"), ("d", "问"))}


def test_of_documents_with_one_text_the_best_ranked_is_judged(read):
    material = read({"a": "问", "b": "别"}, {"a": ["d2", "copy", "d1"], "b": ["d1", "copy"]})
    assert [query.documents for query in material.queries] == [("d2", "copy"), ("d1",)]


def test_a_query_without_documents_is_kept_for_the_report(read):
    material = read({"a": "问", "b": "别"}, {"a": [], "b": ["d1"]})
    assert material.queries[0] == QueryCandidates("a", "问", ())


def test_titles_belong_to_the_texts(tmp_path, write):
    texts = [{"_id": "x", "title": "题", "text": "文"}, {"_id": "y", "text": "题\n文"}]
    files = [write(tmp_path / f"{name}.jsonl", texts) for name in ("queries", "documents")]
    rows = [{"query-id": "x", "corpus-ids": ["x", "y"]}, {"query-id": "y", "corpus-ids": ["y"]}]
    material = read_pool_texts(*files, write(tmp_path / "pools.jsonl", rows), depth=5, already_anonymous=True)
    assert material.queries == (QueryCandidates("x", "题\n文", ("x",)),)
    assert material.repeated == {"x": (("y", "题\n文"),)}


def test_ids_that_are_numbers_meet_those_that_are_strings(tmp_path, write):
    queries = write(tmp_path / "queries.jsonl", [{"_id": 1, "text": "问"}])
    documents = write(tmp_path / "documents.jsonl", [{"_id": "7", "text": "文"}])
    pools = write(tmp_path / "pools.jsonl", [{"query-id": "1", "corpus-ids": [7]}])
    material = read_pool_texts(queries, documents, pools, depth=5, already_anonymous=True)
    assert material.queries == (QueryCandidates("1", "问", ("7",)),)


@pytest.mark.parametrize(
    ("pools", "message"),
    [
        ({"a": ["d1", "d9"]}, "there is no document 'd9'"),
        ({"z": ["d1"]}, "there is no query 'z'"),
        ({"a": "d1"}, "a list 'corpus-ids'"),
    ],
)
def test_pools_that_do_not_fit_the_texts_are_refused(read, pools, message):
    with pytest.raises(FolderError, match=message):
        read({"a": "问"}, pools)


def test_texts_that_nobody_anonymised_are_refused(read):
    with pytest.raises(BuildError, match="anonymi"):
        read({"a": "问"}, {"a": ["d1"]}, already_anonymous=False)


def test_shards_hold_all_queries_in_order():
    queries = tuple(QueryCandidates(f"q{i}", f"问{i}", ("d1",)) for i in range(7))
    shards = list(PoolTexts(queries, {}, {}).shards(3))
    assert [(number, len(part)) for number, part in shards] == [(0, 3), (1, 3), (2, 1)]
    assert sum((part for _, part in shards), ()) == queries
    assert list(PoolTexts((), {}, {}).shards(3)) == []
