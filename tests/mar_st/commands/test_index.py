"""`mar index` as typed: what it prints, and what it refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from mar_st.cli import app
from mar_st.errors import MarError
from mar_st.index.base import Index
from tests.conftest import write_jsonl, write_judged
from tests.mar_st.index.conftest import make_library


@pytest.fixture
def library(tmp_path):
    return make_library(tmp_path / "library", range(300))


def run(*words: Any) -> Any:
    result = CliRunner().invoke(app, ["index", *map(str, words)])
    if isinstance(result.exception, MarError):
        raise result.exception
    return result


def test_building_prints_what_was_built(library, tmp_path):
    out = tmp_path / "index"
    result = run("build", library.folder, out, "--corpus", library.corpus, "--kind", "hnsw")
    assert all(part in result.stdout for part in ("count: 300", "dim: 32", "kind: hnsw", "recall@10: "))
    opened = Index.open(out)
    assert opened.search(library.vectors[:1], 1)[0] == [["d0"]]
    shown = json.loads(CliRunner().invoke(app, ["info", str(out), "--json"]).stdout)
    assert (shown["documents"], shown["kind"], shown["texts"], shown["bm25"]) == (300, "hnsw", True, True)
    assert (shown["settings"], shown["fields"]) == (opened.settings, opened.fields)


def test_documents_are_added_and_deleted(library, tmp_path):
    out = tmp_path / "index"
    run("build", library.folder, out, "--corpus", library.corpus, "--no-bm25")
    more = make_library(tmp_path / "more", range(300, 320), seed=3)
    change = ("update", out, "--add", more.folder, "--delete", "d0", "--delete", "d1", "--corpus")
    with pytest.raises(MarError, match="no file"):
        run(*change, tmp_path / "other.jsonl")
    assert "count: 318" in run(*change, more.corpus).stdout


def test_an_encoder_is_tuned_with_its_queries(tmp_path):
    rows = [{"_id": f"d{number}", "text": f"头疼第{number}条怎么办"} for number in range(60)]
    write_jsonl(tmp_path / "corpus.jsonl", rows)
    CliRunner().invoke(app, ["encode", "mar-mini", str(tmp_path / "corpus.jsonl"), str(tmp_path / "v")])
    run("build", tmp_path / "v", tmp_path / "index", "--kind", "hnsw")
    write_judged(tmp_path, [(f"d{number}", f"d{number}", 1) for number in range(60)], "qrels.tsv")
    words = ("tune", tmp_path / "index", "--queries", tmp_path / "corpus.jsonl", "--recall", "0.99")
    assert "recall@10" in run(*words).stdout
    assert "words: " in run(*words, "--qrels", tmp_path / "qrels.tsv").stdout
    assert json.loads(CliRunner().invoke(app, ["info", str(tmp_path / "index"), "--json"]).stdout)["tuned"]


def test_what_cannot_be_done_is_refused(library, tmp_path):
    out = tmp_path / "index"
    run("build", library.folder, out, "--kind", "exact")
    for words in (
        ("build", library.folder, tmp_path / "a", "--kind", "tree"),
        ("update", out),
        ("update", out, "--delete", "d1", "--corpus", "x"),
    ):
        assert run(*words).exit_code == 2
