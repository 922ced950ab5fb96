from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from mar_st import MAR
from mar_st.errors import MarError
from mar_st.model.encoders import load_encoder
from mar_st.model.family import add_query_encoder, query_encoders
from tests.mar_st.conftest import make_config, make_tokenizer


@pytest.fixture
def small():
    torch.manual_seed(7)
    return load_encoder((make_config("gte", 16), make_tokenizer("query")), "query", projection=32)


@pytest.fixture
def family(mar, small, tmp_path):
    mar.save_pretrained(str(tmp_path / "family"))
    add_query_encoder(tmp_path / "family", small, "query-small")
    return tmp_path / "family"


def _vectors(modules, queries, prompt):
    model = SentenceTransformer(modules=[*modules, Normalize()], device="cpu")
    return model.encode(queries, prompt=prompt)


def test_each_query_encoder_is_chosen_when_loaded(family, mar, small, queries):
    assert query_encoders(family) == ["query", "query-small"]
    loaded = MAR.from_pretrained(family, query="query-small", routes="query", device="cpu")
    assert loaded.routes == ("query",)
    expected = _vectors(small, queries, mar.prompts["query"])
    np.testing.assert_allclose(loaded.encode_queries(queries), expected, atol=1e-6)
    default = MAR.from_pretrained(family, routes="query", device="cpu")
    np.testing.assert_allclose(default.encode_queries(queries), mar.encode_queries(queries), atol=1e-6)
    assert np.abs(expected - mar.encode_queries(queries)).max() > 0.01


def test_documents_stay_as_they_are_to_the_byte(mar, small, documents, tmp_path):
    folder = tmp_path / "mar"
    mar.save_pretrained(str(folder))
    before = MAR.from_pretrained(folder, device="cpu").encode_corpus(documents)
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    add_query_encoder(folder, small, "query-small")
    changed = [path.name for path, content in files.items() if path.read_bytes() != content]
    assert set(changed) == {"router_config.json"}
    for query in (None, "query-small"):
        loaded = MAR.from_pretrained(folder, query=query, device="cpu")
        assert loaded.encode_corpus(documents).tobytes() == before.tobytes()


def test_plain_sentence_transformers_answers_with_the_default(family, mar, queries):
    plain = SentenceTransformer(str(family), device="cpu")
    np.testing.assert_allclose(plain.encode_query(queries), mar.encode_queries(queries), atol=1e-6)
    small = plain.encode(queries, task="query-small", prompt_name="query")
    chosen = MAR.from_pretrained(family, query="query-small", device="cpu")
    assert chosen.routes == ("query", "document")
    np.testing.assert_allclose(small, chosen.encode_queries(queries), atol=1e-6)


@pytest.mark.thorough
def test_saving_a_loaded_family_keeps_its_query_encoders(family, queries, tmp_path):
    whole = MAR.from_pretrained(family, device="cpu")
    assert set(whole.routes) == {"query", "document", "query-small"}
    whole.save_pretrained(str(tmp_path / "copy"))
    assert query_encoders(tmp_path / "copy") == ["query", "query-small"]
    first, second = (
        MAR.from_pretrained(path, query="query-small", routes="query", device="cpu").encode_queries(queries)
        for path in (family, tmp_path / "copy")
    )
    np.testing.assert_allclose(first, second, atol=1e-6)


@pytest.mark.thorough
def test_an_encoder_can_come_from_a_folder(mar, small, queries, tmp_path):
    mar.save_pretrained(str(tmp_path / "mar"))
    model = SentenceTransformer(modules=[*small, Normalize()], prompts=dict(mar.prompts), device="cpu")
    model.save_pretrained(str(tmp_path / "one"))
    MAR.from_modules(
        small, mar.route_modules("document")[:-1], prompts=mar.prompts, device="cpu"
    ).save_pretrained(str(tmp_path / "routes"))
    expected = _vectors(small, queries, mar.prompts["query"])
    for source in ("one", "routes"):
        add_query_encoder(tmp_path / "mar", tmp_path / source, f"query-{source}")
        loaded = MAR.from_pretrained(tmp_path / "mar", query=f"query-{source}", routes="query", device="cpu")
        np.testing.assert_allclose(loaded.encode_queries(queries), expected, atol=1e-6)
    types = json.loads((tmp_path / "mar" / "router_config.json").read_text())["types"]
    assert not any("Normalize" in name for name in types)  # the folder normalises behind its routes


def test_a_space_without_renormalisation_gets_its_own(
    query_source, document_source, small, queries, tmp_path
):
    mar = MAR.from_encoders(query=query_source, document=document_source, renormalise=False, device="cpu")
    mar.save_pretrained(str(tmp_path))
    add_query_encoder(tmp_path, small, "query-small")
    loaded = MAR.from_pretrained(tmp_path, query="query-small", routes="query", device="cpu")
    expected = _vectors(small, queries, mar.prompts["query"])
    np.testing.assert_allclose(loaded.encode_queries(queries), expected, atol=1e-6)


def test_mismatched_inputs_are_refused(family, mar, small, tmp_path):
    with pytest.raises(MarError, match="already has a query encoder 'query-small'"):
        add_query_encoder(family, small, "query-small")
    with pytest.raises(MarError, match=r"called query-NAME.*'small\.1'"):
        add_query_encoder(family, small, "small.1")
    with pytest.raises(MarError, match=r"gives 16 dimensions.*has 32"):
        add_query_encoder(family, small[:2], "query-tiny")
    SentenceTransformer(modules=small, prompts={"query": "问："}, device="cpu").save_pretrained(
        str(tmp_path / "other")
    )
    with pytest.raises(MarError, match="trained with the query prompt '问：'"):
        add_query_encoder(family, tmp_path / "other", "query-other")
    with pytest.raises(MarError, match=r"holds no model"):
        add_query_encoder(family, tmp_path, "query-other")
    with pytest.raises(MarError, match="not a saved MAR"):
        query_encoders(tmp_path / "other")
    with pytest.raises(MarError, match=r"has no query encoder 'query-huge'; it has query, query-small\."):
        MAR.from_pretrained(family, query="query-huge", routes="query")
    assert query_encoders(family) == ["query", "query-small"]
