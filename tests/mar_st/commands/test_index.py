from __future__ import annotations

import json

import numpy as np
import pytest
import typer

from mar_st.commands.index import index_build, index_info, index_update, parse_bytes
from mar_st.encode import write_vectors
from mar_st.index import Index, IndexingError
from tests.mar_st.index.conftest import make_library


@pytest.fixture
def library(tmp_path):
    return make_library(tmp_path / "library", count=300)


def test_building_prints_what_was_built(library, tmp_path, capsys):
    index_build(
        library.folder, str(tmp_path / "index"), corpus=str(library.corpus), kind="hnsw", settings=["M=8"]
    )
    out, err = capsys.readouterr()
    assert "300 documents, 32 dimensions, hnsw" in out
    assert "recall@10" in out
    assert "kind hnsw" in err
    opened = Index.open(tmp_path / "index")
    assert opened.manifest["params"]["M"] == 8
    assert opened.search(library.vectors[:1], 1)[0] == [["d0"]]


def test_auto_prints_the_table(library, tmp_path, capsys):
    index_build(library.folder, str(tmp_path / "index"), memory="1GB", recall=0.9, no_bm25=True, as_json=True)
    out, err = capsys.readouterr()
    manifest = json.loads(out)
    assert manifest["choice"]["limit"] == 10**9
    assert "recall@10" in err
    assert "exact is fast enough" in err


def test_query_vectors_set_the_settings(library, tmp_path, capsys):
    np.save(tmp_path / "queries.npy", library.queries)
    index_build(
        library.folder, str(tmp_path / "index"), kind="binary", queries=tmp_path / "queries.npy", recall=1.0
    )
    assert "recall@10 1.0" in capsys.readouterr().out
    (tmp_path / "queries.npy").write_text("no vectors")
    with pytest.raises(IndexingError, match="neither a folder of vectors nor"):
        index_build(library.folder, str(tmp_path / "other"), queries=tmp_path / "queries.npy")


def test_documents_are_added_replaced_deleted_and_compacted(library, tmp_path, capsys):
    out = str(tmp_path / "index")
    index_build(library.folder, out, corpus=str(library.corpus), kind="exact")
    more = make_library(tmp_path / "more", count=20, start=300, seed=3)
    index_update(out, add=more.folder, corpus=str(more.corpus))
    assert len(Index.open(out)) == 320
    newer = make_library(tmp_path / "newer", count=10, start=300, seed=4)
    index_update(out, update=newer.folder, corpus=str(newer.corpus))
    assert Index.open(out).search(newer.vectors[:1], 1)[0] == [["d300"]]
    (tmp_path / "gone.txt").write_text("d1\n\nd2\n")
    index_update(out, delete=["d0"], delete_from=tmp_path / "gone.txt")
    assert len(Index.open(out)) == 317
    capsys.readouterr()
    index_update(out, compact=True, as_json=True)
    assert json.loads(capsys.readouterr().out)["count"] == 317
    assert len(Index.open(out).segments) == 1
    index_update(out, delete=[f"d{number}" for number in range(3, 200)])
    assert "--compact makes it as fast as new" in capsys.readouterr().err


def test_a_listed_id_is_taken_as_written(tmp_path):
    write_vectors(tmp_path / "vectors", ["a", " a", "a ", "\u3000b", "c"], np.eye(5, 8, dtype="float32"))
    out = str(tmp_path / "index")
    index_build(tmp_path / "vectors", out, kind="exact")
    (tmp_path / "gone.txt").write_bytes(" a\r\n \na \n\u3000b".encode())
    index_update(out, delete_from=tmp_path / "gone.txt")
    assert Index.open(out).search(np.ones((1, 8), dtype="float32"), 5)[0] == [["a", "c"]]


def test_nothing_to_change_is_refused(library, tmp_path):
    out = str(tmp_path / "index")
    index_build(library.folder, out, kind="exact")
    with pytest.raises(typer.BadParameter, match="give --add"):
        index_update(out)
    with pytest.raises(typer.BadParameter, match="--corpus belongs"):
        index_update(out, delete=["d1"], corpus="x")
    with pytest.raises(IndexingError, match="no file"):
        index_update(out, delete_from=tmp_path / "none.txt")
    (tmp_path / "gbk.txt").write_bytes("文档一\n".encode("gbk"))
    with pytest.raises(IndexingError, match=r"gbk\.txt:1: not UTF-8"):
        index_update(out, delete_from=tmp_path / "gbk.txt")
    with pytest.raises(typer.BadParameter, match="NAME=VALUE"):
        index_build(library.folder, str(tmp_path / "other"), settings=["M"])
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(IndexingError, match=r"empty\.txt lists no ids"):
        index_update(out, delete_from=tmp_path / "empty.txt")


def test_settings_without_a_kind_are_refused(library, tmp_path):
    with pytest.raises(IndexingError, match=r"The settings M belong to one kind .* Name the kind"):
        index_build(library.folder, str(tmp_path / "index"), settings=["M=16"])


@pytest.mark.parametrize("setting", ["M=abc", "M=-5", "M=1000000000", "M=²", "efConstruction=abc"])
def test_settings_of_a_graph_that_cannot_be_built_are_refused(library, tmp_path, setting):
    with pytest.raises(IndexingError, match="of hnsw must be a whole number from"):
        index_build(library.folder, str(tmp_path / "index"), kind="hnsw", settings=[setting])


def test_an_id_that_is_not_unicode_is_refused(library, tmp_path):
    out = str(tmp_path / "index")
    index_build(library.folder, out, kind="exact")
    with pytest.raises(IndexingError, match="An id is not valid Unicode"):
        index_update(out, delete=["\udcff"])


@pytest.mark.parametrize(
    ("written", "size"),
    [("2GB", 2 * 10**9), ("512MiB", 512 * 2**20), ("1.5g", 15 * 10**8), ("1000", 1000), (" 3 kb ", 3000)],
)
def test_sizes_are_read(written, size):
    assert parse_bytes(written) == size


@pytest.mark.parametrize("written", ["", "much", "2XB", "-1GB", "GB"])
def test_bad_sizes_are_refused(written):
    with pytest.raises(IndexingError, match="is not a size"):
        parse_bytes(written)


def test_info_shows_what_an_index_holds(library, tmp_path, capsys):
    out = str(tmp_path / "index")
    index_build(library.folder, out, corpus=str(library.corpus), kind="hnsw")
    index_update(out, delete=["d0"])
    capsys.readouterr()
    index_info(out, as_json=True)
    shown = json.loads(capsys.readouterr().out)
    opened = Index.open(out)
    assert (shown["documents"], shown["dim"], shown["kind"]) == (299, 32, "hnsw")
    assert (shown["texts"], shown["bm25"], shown["tuned"]) == (True, True, [])
    assert (shown["settings"], shown["fields"]) == (opened.settings, opened.fields)
    index_info(out)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(shown)
    with pytest.raises(IndexingError, match="is not an index"):
        index_info(str(tmp_path / "none"))
