"""Tests of `mar index match`, and of the match that `mar search` then reports."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from mar_st.cli import app
from mar_st.errors import MarError
from mar_st.index.manifest import read_manifest
from tests.mar_st.lookup.conftest import make_texts


def call(*arguments):
    result = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_encoder_gets_its_threshold_and_searches_are_judged_by_it(index, family, tmp_path):
    queries = tmp_path / "queries.jsonl"  # 40 of them
    others = tmp_path / "others.jsonl"
    others.write_text("".join(json.dumps({"_id": str(n), "text": f"bicycle {n}"}) + "\n" for n in range(20)))
    names = ("--query-encoder", "query-lookup", "--query-encoder", "query")
    out = call("index", "match", index, "--queries", queries, "--others", others, *names)
    kept = {entry["query"]: entry for entry in read_manifest(index)["matches"].values()}
    assert list(kept) == ["query-lookup", "query"]
    for name, entry in kept.items():
        assert f"{name}: doubtful below {entry['threshold']:.4f}, chosen on 20 queries for 5 % false" in out
        assert entry["detected"]["others"]["queries"] == 20
    assert len(re.findall(r"% of 20 doubtful \(", out)) == 12  # held out, four of nonsense, others; twice
    for text in (make_texts(40, seed=9)[0], "bicycle 3", "qqq"):
        answer = json.loads(call("search", index, text, "-k", 3, "--json"))
        threshold = kept["query"]["threshold"]
        doubtful = answer["hits"][0]["score"] < threshold
        assert answer["match"] == ("doubtful" if doubtful else "good")
        shown = call("search", index, text, "-k", 3)
        assert shown.startswith("no good match: the nearest document scores ") == doubtful
    more = ("--queries", queries, "--false-reject", "0.2", "--json")
    (report,) = json.loads(call("index", "match", index, *more))
    assert (report["source"], report["query"], report["false_reject"]) == ("queries", "query", 0.2)
    assert "everyday-zh" in report["detected"]
    with pytest.raises(MarError, match=r"keeps no texts .*\. Give --queries"):
        call("index", "match", index)


def test_the_address_of_a_server_is_passed_on_unchanged(monkeypatch):
    asked = []

    def calibrate(index, *arguments, **options):
        asked.append(index)
        raise MarError("no server here")

    monkeypatch.setattr("mar_st.index.calibrate_match", calibrate, raising=False)
    with pytest.raises(MarError, match="no server here"):
        call("index", "match", "milvus:http://localhost:19530/passages")
    assert asked == ["milvus:http://localhost:19530/passages"]
