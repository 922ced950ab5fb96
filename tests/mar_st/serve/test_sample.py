"""The sample that is served without an index, and servers of named query encoders."""

from __future__ import annotations

import sys

import pytest
from tools.pack import pack

from mar_st.encode.encoding import encode_corpus
from mar_st.errors import MarError
from mar_st.index.searcher import Searcher
from mar_st.model.names import packaged_folder
from mar_st.model.packed import unpacked_folder
from mar_st.online.lookup import NumpyLookupEncoder
from mar_st.serve import ServeSettings, create_app
from mar_st.serve.launch import sample_index
from tests.mar_st.lookup.conftest import family, fitted, texts, vectors  # noqa: F401 -- fixtures
from tests.mar_st.serve.conftest import Client

ANSWERS = ["高血压患者应低盐饮食，多吃蔬菜", "骨折后应制动，尽快就医", "感冒发热要多喝水，注意休息"]


def test_the_sample_is_searched_by_its_model(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MAR_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MAR_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    package = tmp_path / "site" / "mar_zh"  # a package called as that of mar-zh is, with mar-mini in it
    (package / "sample").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    pack(packaged_folder(), package / "model")
    rows = [f'{{"_id": "d{place}", "text": "{text}"}}\n' for place, text in enumerate(ANSWERS)]
    (package / "sample" / "corpus.jsonl").write_text("".join(rows), encoding="utf-8")
    model = unpacked_folder(package / "model", "mar-zh")
    encode_corpus(
        model, package / "sample" / "corpus.jsonl", package / "sample" / "vectors", show_progress=False
    )
    monkeypatch.delitem(sys.modules, "mar_zh", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    index = sample_index()
    assert "building the index" in capsys.readouterr().out
    (hits,) = Searcher.open(index, "mar-zh").search(["血压高不能吃啥"], k=3)
    assert {hit.text for hit in hits} == set(ANSWERS)
    assert sample_index() == index
    assert capsys.readouterr().out == ""  # built once


def test_without_the_model_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr("mar_st.model.names.find_spec", lambda name: None)
    monkeypatch.delenv("MAR_HOME", raising=False)
    with pytest.raises(MarError, match=r"pip install \./models/mar-zh"):
        sample_index()


def test_the_query_encoder_that_is_named_answers(family, tmp_path):  # noqa: F811
    from mar_st.index.build import build_index

    (tmp_path / "corpus.jsonl").write_text(
        "".join(f'{{"_id": "d{place}", "text": "{text}"}}\n' for place, text in enumerate(ANSWERS))
    )
    encode_corpus(family / "mar", tmp_path / "corpus.jsonl", tmp_path / "vectors", show_progress=False)
    build_index(tmp_path / "vectors", tmp_path / "index", kind="exact", progress=False)
    index = str(tmp_path / "index")
    # Without an encoder: of the model that encoded the documents.
    app = create_app(index, ServeSettings(query_encoder="query-lookup"))
    assert isinstance(app.state.generations.engine.encoder, NumpyLookupEncoder)
    info = Client(app).get("/info").json()
    assert (info["model"], info["query_encoder"]) == ("mar", "query-lookup")
    expected = Searcher.open(index, family / "mar", query="query-lookup").search(["骨折"], 3)[0]
    hits = Client(app).post("/search", {"query": "骨折"}).json()["hits"]
    assert [hit["id"] for hit in hits] == [hit.id for hit in expected]
    with pytest.raises(MarError, match="query-9"):
        create_app(index, ServeSettings(query_encoder="query-9"))
