"""`mar index-tune`, and `mar search` with the encoder that it tuned for."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from mar_st.cli import app
from mar_st.encode import write_vectors
from mar_st.errors import MarError
from mar_st.index import Searcher, build_index
from mar_st.index.manifest import read_manifest
from mar_st.model.space import space_of
from tests.mar_st.lookup.conftest import family, fitted, make_texts, teach, texts, vectors  # noqa: F401


def call(*arguments):
    found = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.stdout


@pytest.fixture
def index(family, tmp_path):  # noqa: F811
    drawn = make_texts(300, seed=4)
    ids = [f"d{row}" for row in range(len(drawn))]
    space = space_of(family / "mar")
    write_vectors(tmp_path / "v", ids, teach(drawn), texts=drawn, space=space, model=str(family / "mar"))
    build_index(tmp_path / "v", tmp_path / "index", kind="hnsw", params={"M": 4}, progress=False)
    rows = [{"_id": f"q{row}", "text": text} for row, text in enumerate(make_texts(40, seed=9))]
    (tmp_path / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "index"


def test_every_encoder_gets_its_effort(index, family, tmp_path):  # noqa: F811
    built = read_manifest(index)["search"]
    queries = tmp_path / "queries.jsonl"
    lines = call(
        "index-tune",
        index,
        "--queries",
        queries,
        "--query",
        "query-lookup",
        "--query",
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
        call("index-tune", index, "--queries", queries, "--encoder", family / "mar", "--json")
    )
    assert report["query"] == "query"
    assert report["target"] == read_manifest(index)["measured"]["target"]


def test_search_takes_the_name_of_an_encoder(index, family):  # noqa: F811
    found = {}
    for name in ("query", "query-lookup"):
        printed = json.loads(call("search", index, "头疼吃什么药", "-k", 4, "--query", name, "--json"))
        found[name] = [hit["id"] for hit in printed["hits"]]
        assert printed["match"] is None  # nothing was calibrated
        wanted = Searcher.open(index, family / "mar", query=name).search(["头疼吃什么药"], 4)[0]
        assert found[name] == [hit.id for hit in wanted]
    assert found["query"] != found["query-lookup"]
    default = json.loads(call("search", index, "头疼吃什么药", "-k", 4, "--json"))
    assert default["hits"][0]["id"] == found["query"][0]
    with pytest.raises(MarError, match="no query encoder 'query-9'; it has query, query-lookup"):
        call("search", index, "头疼", "--query", "query-9")
