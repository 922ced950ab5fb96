"""Tests of `mar index tune`, and of `mar search` with the tuned encoder."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from mar_st.cli import app
from mar_st.errors import MarError
from mar_st.index import Searcher
from mar_st.index.manifest import read_manifest


def call(*arguments):
    result = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_encoder_gets_its_effort(index, family, tmp_path):
    built = read_manifest(index)["search"]
    queries = tmp_path / "queries.jsonl"
    lines = call(
        "index",
        "tune",
        index,
        "--queries",
        queries,
        "--query-encoder",
        "query-lookup",
        "--query-encoder",
        "query",
        "--recall",
        "1.0",
    ).splitlines()
    efforts = {entry["query"]: entry for entry in read_manifest(index)["efforts"].values()}
    assert list(efforts) == ["query-lookup", "query"]
    for line, (name, entry) in zip(lines, efforts.items(), strict=True):
        assert line.startswith(f"{name}: ef={entry['search']['ef']} ")
        assert f"the index's own ef={built['ef']} " in line
        assert Searcher.open(index, query=name).effort == entry["search"]
    (report,) = json.loads(
        call("index", "tune", index, "--queries", queries, "--encoder", family / "mar", "--json")
    )
    assert report["query"] == "query"
    assert report["target"] == read_manifest(index)["measured"]["target"]


@pytest.mark.thorough
def test_search_takes_the_name_of_an_encoder(index, family):
    hits = {}
    for name in ("query", "query-lookup"):
        printed = json.loads(
            call("search", index, "头疼吃什么药", "-k", 4, "--query-encoder", name, "--json")
        )
        hits[name] = [hit["id"] for hit in printed["hits"]]
        assert printed["match"] is None  # nothing was calibrated
        wanted = Searcher.open(index, family / "mar", query=name).search(["头疼吃什么药"], 4)[0]
        assert hits[name] == [hit.id for hit in wanted]
    assert hits["query"] != hits["query-lookup"]
    default = json.loads(call("search", index, "头疼吃什么药", "-k", 4, "--json"))
    assert default["hits"][0]["id"] == hits["query"][0]
    with pytest.raises(MarError, match="no query encoder 'query-9'; it has query, query-lookup"):
        call("search", index, "头疼", "--query-encoder", "query-9")
