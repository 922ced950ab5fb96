"""Tests of reading the documents of a folder of vectors from its corpus, and of corpora that do not fit."""

from __future__ import annotations

import json
import random
from itertools import islice

import numpy as np
import pyarrow as pa
import pytest

from mar_st.encode import VectorFolder, write_vectors
from mar_st.index import IndexingError
from mar_st.index.corpus import documents_of, encoded_corpus
from mar_st.index.documents import Stored

COUNT = 12
ROWS = [
    {"_id": f"d{row}", "title": "标题" * (row % 2), "text": f"第{row}个文档", "year": 2000 + row}
    for row in range(COUNT)
]
DOCUMENTS = [Stored(row["_id"], row["title"], row["text"], {"year": row["year"]}) for row in ROWS]


def written(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def texts(rows):
    return [f"{row['title']}\n{row['text']}" if row["title"] else row["text"] for row in rows]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Vectors of the documents in three shards."""
    vectors = np.eye(COUNT, dtype=np.float32)
    out = tmp_path_factory.mktemp("vectors") / "vectors"
    return write_vectors(out, [row["_id"] for row in ROWS], vectors, texts=texts(ROWS), shard=5)


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_documents_come_in_the_order_of_the_vectors(folder, tmp_path, seed):
    rows = list(ROWS)
    if seed is not None:
        random.Random(seed).shuffle(rows)
        assert rows != ROWS
    assert list(documents_of(folder, written(tmp_path / "corpus.jsonl", rows))) == DOCUMENTS


def test_a_corpus_in_the_order_of_the_vectors_is_not_read_ahead(folder, tmp_path):
    corpus = written(tmp_path / "corpus.jsonl", ROWS[:-1])
    with corpus.open("a") as stream:
        stream.write("{ half a line")
    documents = documents_of(folder, corpus)
    assert list(islice(documents, COUNT - 1)) == DOCUMENTS[:-1]
    with pytest.raises(ValueError, match=f"corpus.jsonl:{COUNT}: not a JSON object"):
        next(documents)


def test_without_a_corpus_documents_are_ids(folder):
    assert list(documents_of(folder, None)) == [Stored(row["_id"], "", "", {}) for row in ROWS]


CHANGED = {**ROWS[5], "text": "别的"}
MOVED = {**ROWS[5], "title": "", "text": f"标题\n{ROWS[5]['text']}x"}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (ROWS[:-1], "no document 'd11'.*Give the corpus that was encoded"),
        ([*ROWS, {**ROWS[0], "_id": "new"}], "more documents than"),
        ([*ROWS, ROWS[0]], "more documents than"),
        ([ROWS[0], *ROWS], "'d0' occurs twice"),
        ([ROWS[3], *ROWS], "'d3' occurs twice"),
        ([{**ROWS[0], "_id": "new"}, *ROWS], "'new' occurs twice, or has no vector"),
        ([*ROWS[:5], CHANGED, *ROWS[6:]], "text of document 'd5'.*is not the one that was encoded"),
        ([*ROWS[:5], MOVED, *ROWS[6:]], "text of document 'd5'.*is not the one that was encoded"),
        ([*ROWS[:5], {**ROWS[5], "_id": "D5"}, *ROWS[6:]], "'D5' occurs twice, or has no vector"),
    ],
)
def test_a_corpus_that_does_not_belong_to_the_vectors_is_refused(folder, tmp_path, rows, message):
    with pytest.raises(IndexingError, match=message):
        list(documents_of(folder, written(tmp_path / "corpus.jsonl", rows)))


def test_texts_are_not_compared_if_their_digests_are_unknown(tmp_path):
    folder = write_vectors(tmp_path / "v", ["7", "8"], np.eye(2, dtype=np.float32))
    corpus = written(tmp_path / "corpus.jsonl", [{"_id": 8, "text": "any"}, {"id": "7", "text": "text"}])
    assert [(one.id, one.text) for one in documents_of(folder, corpus)] == [("7", "text"), ("8", "any")]


@pytest.mark.parametrize("corpus", [None, "missing.jsonl"])
def test_repeated_ids_are_refused_before_anything_is_read(folder, corpus):
    class Repeated(VectorFolder):
        ids = pa.chunked_array([["d0", "d1"], ["d0", *(f"e{row}" for row in range(COUNT - 3))]])

    with pytest.raises(IndexingError, match="Ids repeat"):
        documents_of(Repeated(folder.path, folder.manifest), corpus)


@pytest.mark.parametrize(
    ("path", "found"), [("corpus.jsonl", True), ("moved.jsonl", False), ("x" * 5000, False), ("a\0b", False)]
)
def test_the_encoded_corpus_is_known_while_it_is_where_it_was(folder, tmp_path, path, found):
    written(tmp_path / "corpus.jsonl", ROWS)
    path = str(tmp_path / path)
    named = VectorFolder(folder.path, {**folder.manifest, "corpus": {"path": path, "digest": None}})
    assert encoded_corpus(named) == (path if found else None)
    assert encoded_corpus(folder) is None


@pytest.mark.parametrize(
    "corpus", ["corpus.jsonl", ["corpus.jsonl"], {"path": 5}, {"path": ["a"]}, {"path": True}]
)
def test_a_corpus_that_is_no_path_is_one_error(folder, corpus):
    with pytest.raises(IndexingError, match=r"should name the path of the corpus.*Give the corpus"):
        encoded_corpus(VectorFolder(folder.path, {**folder.manifest, "corpus": corpus}))
