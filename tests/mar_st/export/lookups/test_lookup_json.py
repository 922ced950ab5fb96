"""Tests of the format `lookup-json`: documents and vectors for the page, and inputs that do not fit."""

from __future__ import annotations

import json
from importlib.resources import files
from types import SimpleNamespace

import numpy as np
import pytest

from mar_st.encode import write_vectors
from mar_st.export import ExportError
from mar_st.export.lookups.lookup_json import PAGE, TEXTS, VECTORS, PageFormat

COUNT, DIM, SPACE = 6, 8, "a" * 64


@pytest.fixture
def vectors():
    drawn = np.random.default_rng(0).standard_normal((COUNT, DIM)).astype(np.float32)
    return drawn * np.arange(1, COUNT + 1, dtype=np.float32)[:, None]


@pytest.fixture
def corpus(tmp_path):
    rows = [
        {"_id": f"d{row}", "title": f"标题{row}" if row % 2 else "", "text": f"</script> \u2028 头疼{row}"}
        for row in range(COUNT)
    ]
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def encoder(**changes):
    settings = {"dim": DIM, "space": SPACE, "model": SimpleNamespace(similarity_fn_name="cosine")}
    return SimpleNamespace(**settings | changes)


def written(folder):
    """The vectors as the page reads them: scales in float32, and then the table in int8."""
    content = (folder / VECTORS).read_bytes()
    scales = np.frombuffer(content[: 4 * COUNT], "<f4")
    table = np.frombuffer(content[4 * COUNT :], np.int8).reshape(COUNT, DIM)
    return table * scales[:, None]


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_documents_are_in_the_order_of_the_corpus(tmp_path, corpus, vectors, similarity):
    """The vectors are in another order, and there are more of them."""
    order = [3, 0, 5, 1, 4, 2]
    stored = np.concatenate([vectors[order], np.ones((1, DIM), np.float32)])
    write_vectors(tmp_path / "vectors", [*(f"d{row}" for row in order), "other"], stored, space=SPACE)
    out = tmp_path / "out"
    out.mkdir()
    model = SimpleNamespace(similarity_fn_name=similarity)
    names, count = PageFormat.write(encoder(model=model), out, tmp_path / "vectors", corpus)
    assert count == COUNT
    assert {path.name for path in out.iterdir()} == set(names)
    rows = json.loads((out / TEXTS).read_bytes().decode("ascii"))
    assert [row["id"] for row in rows] == [f"d{row}" for row in range(COUNT)]
    assert (rows[1]["title"], rows[1]["text"]) == ("标题1", "</script> \u2028 头疼1")
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    expected = vectors if similarity == "dot" else vectors / lengths
    np.testing.assert_allclose(written(out), expected, atol=0.004 * np.abs(expected).max())
    for name in PAGE:
        assert (out / name).read_bytes() == (files("mar_st.export") / "page" / name).read_bytes()


@pytest.mark.parametrize(
    ("ids", "dim", "space", "message"),
    [
        (range(COUNT), DIM - 1, SPACE, "have 7 dimensions, the encoder's 8"),
        (range(COUNT), DIM, "b" * 64, r"another document space \(bbbbbbbbbbbb\) than the encoder \(aaaaaaa"),
        ([0, 1, 2, 4], DIM, SPACE, r"2 of 6 documents of .* have no vector in .* \(the first is 'd3'\)"),
    ],
)
def test_vectors_that_do_not_fit_are_refused(tmp_path, corpus, vectors, ids, dim, space, message):
    rows = list(ids)
    write_vectors(tmp_path / "vectors", [f"d{row}" for row in rows], vectors[rows, :dim], space=space)
    with pytest.raises(ExportError, match=message):
        PageFormat.write(encoder(), tmp_path, tmp_path / "vectors", corpus)
    assert not (tmp_path / TEXTS).exists()


@pytest.mark.parametrize(("mine", "theirs"), [(None, SPACE), (SPACE, None), (None, None)])
def test_vectors_of_an_unknown_space_are_taken(tmp_path, corpus, vectors, mine, theirs):
    write_vectors(tmp_path / "vectors", [f"d{row}" for row in range(COUNT)], vectors, space=theirs)
    assert PageFormat.write(encoder(space=mine), tmp_path, tmp_path / "vectors", corpus)[1] == COUNT


@pytest.mark.parametrize(
    ("weights", "folder", "documents", "message"),
    [
        ("int8", None, None, "needs documents to search: give --documents CORPUS and --vectors FOLDER"),
        ("int8", "vectors", None, "needs documents"),
        ("int8", None, "corpus.jsonl", "needs documents"),
        ("fp32", "vectors", "corpus.jsonl", "The page reads int8; got weight format fp32"),
    ],
)
def test_a_page_needs_documents_their_vectors_and_a_table_in_int8(weights, folder, documents, message):
    PageFormat.check("int8", "vectors", "corpus.jsonl")
    with pytest.raises(ExportError, match=message):
        PageFormat.check(weights, folder, documents)
