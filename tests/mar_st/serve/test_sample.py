"""Tests of the sample that is served if no index is given."""

from __future__ import annotations

import shutil
import sys

import pytest

from mar_st import MAR
from mar_st.encode import encode_corpus
from mar_st.errors import MarError
from mar_st.index import Searcher
from mar_st.lookup import fit_lookup
from mar_st.model.family import add_query_encoder
from mar_st.model.names import model_folder, packaged_folder
from mar_st.model.packed import pack, unpacked_folder
from mar_st.online.lookup import NumpyLookupEncoder
from mar_st.serve import ServeSettings, create_app
from mar_st.serve.sample import sample_index

ANSWERS = ["高血压患者应低盐饮食，多吃蔬菜", "骨折后应制动，尽快就医", "感冒发热要多喝水，注意休息"]


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package called as that of mar-zh is, with mar-mini in it."""
    monkeypatch.setenv("MAR_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MAR_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    package = tmp_path / "site" / "mar_zh"
    (package / "sample").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    pack(packaged_folder(), package / "model")
    rows = [f'{{"_id": "d{place}", "text": "{text}"}}\n' for place, text in enumerate(ANSWERS)]
    (package / "sample" / "corpus.jsonl").write_text("".join(rows), encoding="utf-8")
    model = unpacked_folder(package / "model", "mar-zh")
    encode_corpus(
        model, package / "sample" / "corpus.jsonl", package / "sample" / "vectors", show_progress=False
    )
    # An installed mar_zh, which this environment may have, is not the one.
    monkeypatch.delitem(sys.modules, "mar_zh", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return package


def test_the_sample_is_searched_by_its_model(installed):
    said: list[str] = []
    index, model = sample_index(said.append)
    assert "building the index" in said[0]
    (hits,) = Searcher.open(index, model).search(["血压高不能吃啥"], k=3)
    assert {hit.id for hit in hits} == {"d0", "d1", "d2"}
    assert {hit.text for hit in hits} == set(ANSWERS)
    assert sample_index(said.append) == (index, model)
    assert len(said) == 1  # built once


def test_a_rung_of_the_model_answers_for_the_sample(installed, tmp_path):
    texts = [*ANSWERS, "血压高不能吃啥", "骨折了怎么办", "感冒了要喝水吗"]
    folder = tmp_path / "family"
    shutil.copytree(packaged_folder(), folder)
    vectors = MAR(folder, device="cpu").encode_queries(texts)
    lookup = fit_lookup(texts, vectors, ridge=0.1, show_progress=False)
    add_query_encoder(folder, [lookup], "query-lookup")
    shutil.rmtree(installed / "model")
    pack(folder, installed / "model")
    index, model = sample_index(lambda _: None)
    app = create_app(index, ServeSettings(query="query-lookup"), encoder=model)
    engine = app.state.generations.current
    try:
        assert isinstance(engine.encoding.encoder, NumpyLookupEncoder)
        ((hit,),) = engine.searcher.search(["骨折了怎么办"], k=1)
        assert (engine.query, hit.id) == ("query-lookup", "d1")
    finally:
        engine.close()
    with pytest.raises(MarError, match="no query encoder 'query-2'; it has query, query-lookup"):
        create_app(index, ServeSettings(query="query-2"), encoder=model)


def test_model_names_resolve_to_the_installed_model(installed):
    for name in ("mar-zh", "medteb/mar-zh"):
        assert model_folder(name) == unpacked_folder(installed / "model", "mar-zh")
    expected = MAR("mar-mini", device="cpu").encode_queries(["头疼吃什么药"])
    assert MAR("mar-zh", device="cpu").encode_queries(["头疼吃什么药"]) @ expected.T > 0.99


def test_without_the_model_it_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setattr("mar_st.model.names.find_spec", lambda name: None)
    monkeypatch.delenv("MAR_HOME", raising=False)
    with pytest.raises(MarError, match=r"pip install \./models/mar-zh`, or give an index"):
        sample_index(print)
    with pytest.raises(MarError, match=r"pip install \./models/mar-zh`, or train it"):
        model_folder("mar-zh")
