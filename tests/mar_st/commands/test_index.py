"""`mar index` as typed: what it prints, and what it refuses."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from mar_st.cli import app
from mar_st.encode import write_vectors
from mar_st.errors import MarError
from mar_st.index import Index
from tests.mar_st.index.conftest import make_library


@pytest.fixture
def library(tmp_path):
    return make_library(tmp_path / "library", count=300)


def run(*words: Any) -> Any:
    result = CliRunner().invoke(app, ["index", *map(str, words)])
    if isinstance(result.exception, MarError):
        raise result.exception
    return result


def test_building_prints_what_was_built(library, tmp_path):
    out = tmp_path / "index"
    result = run("build", library.folder, out, "--corpus", library.corpus, "--kind", "hnsw", "--set", "M=8")
    assert "300 documents, 32 dimensions, hnsw, recall@10" in result.stdout
    opened = Index.open(out)
    assert opened.about["params"]["M"] == 8
    assert opened.search(library.vectors[:1], 1)[0] == [["d0"]]
    shown = json.loads(CliRunner().invoke(app, ["info", str(out)]).stdout)
    assert (shown["documents"], shown["kind"], shown["texts"], shown["bm25"]) == (300, "hnsw", True, True)
    assert (shown["settings"], shown["fields"]) == (opened.settings, opened.fields)


def test_documents_are_added_replaced_deleted_and_compacted(library, tmp_path):
    out = tmp_path / "index"
    run("build", library.folder, out, "--corpus", library.corpus, "--no-bm25")
    more = make_library(tmp_path / "more", count=20, start=300, seed=3)
    assert "320 documents" in run("update", out, "--add", more.folder, "--corpus", more.corpus).stdout
    newer = make_library(tmp_path / "newer", count=10, start=300, seed=4)
    run("update", out, "--add", newer.folder, "--corpus", newer.corpus)
    assert Index.open(out).search(newer.vectors[:1], 1)[0] == [["d300"]]
    (tmp_path / "gone.txt").write_text("d1\n\nd2\n")
    run("update", out, "--delete", "d0", "--delete-from", tmp_path / "gone.txt")
    assert json.loads(run("update", out, "--compact", "--json").stdout)["count"] == 317
    assert len(Index.open(out).segments) == 1
    many = [word for number in range(3, 200) for word in ("--delete", f"d{number}")]
    assert "--compact makes it as fast as new" in run("update", out, *many).stderr


def test_a_listed_id_is_taken_as_written(tmp_path):
    write_vectors(tmp_path / "vectors", ["a", " a", "a ", "\u3000b", "c"], np.eye(5, 8, dtype="float32"))
    out = tmp_path / "index"
    run("build", tmp_path / "vectors", out)
    (tmp_path / "gone.txt").write_bytes(" a\r\n \na \n\u3000b".encode())
    run("update", out, "--delete-from", tmp_path / "gone.txt")
    assert Index.open(out).search(np.ones((1, 8), dtype="float32"), 5)[0] == [["a", "c"]]


def test_an_encoder_is_tuned_with_its_queries(tmp_path):
    texts = [f"头疼第{number}条怎么办" for number in range(60)]
    (tmp_path / "corpus.jsonl").write_text(
        "".join(json.dumps({"_id": f"d{n}", "text": text}) + "\n" for n, text in enumerate(texts))
    )
    CliRunner().invoke(app, ["encode", "mar-mini", str(tmp_path / "corpus.jsonl"), str(tmp_path / "v")])
    run("build", tmp_path / "v", tmp_path / "index", "--kind", "hnsw", "--set", "M=4", "--recall", "0.5")
    result = run("tune", tmp_path / "index", "--queries", tmp_path / "corpus.jsonl", "--recall", "0.99")
    assert "of the exact results of 60 queries" in result.stdout
    assert json.loads(CliRunner().invoke(app, ["info", str(tmp_path / "index")]).stdout)["tuned"]


def test_what_cannot_be_done_is_refused(library, tmp_path):
    out = tmp_path / "index"
    run("build", library.folder, out, "--kind", "exact")
    for words in (
        ("build", library.folder, tmp_path / "a", "--kind", "tree"),
        ("build", library.folder, tmp_path / "a", "--recall", "1.5"),
        ("update", out),
        ("update", out, "--delete", "d1", "--corpus", "x"),
    ):
        assert run(*words).exit_code == 2
    (tmp_path / "gbk.txt").write_bytes("文档一\n".encode("gbk"))
    for words, message in (
        (("build", library.folder, tmp_path / "a", "--set", "M=16"), "one kind"),
        (("build", library.folder, tmp_path / "a", "--set", "M"), "NAME=VALUE"),
        (("build", library.folder, tmp_path / "a", "--kind", "hnsw", "--set", "M=²"), "whole number"),
        (("update", out, "--delete-from", tmp_path / "none.txt"), "cannot be read"),
        (("update", out, "--delete-from", tmp_path / "gbk.txt"), "cannot be read"),
    ):
        with pytest.raises(MarError, match=message):
            run(*words)
