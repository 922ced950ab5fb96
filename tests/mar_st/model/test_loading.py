"""Tests of the files that a MAR is loaded from: refused folders, and routes that are loaded alone."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from tools.pack import pack

from mar_st import MAR
from mar_st.errors import MarError
from mar_st.model.encoders import load_encoder
from mar_st.model.mar import open_model
from mar_st.model.reranker import load_cross_encoder
from tests.mar_st.conftest import make_config, make_tokenizer

TEXTS = ["头疼怎么办", "感冒怎么办", "高血压怎么办"]
WEIGHTS = "model.safetensors"


@pytest.fixture
def folder(mar, tmp_path):
    mar.save_pretrained(str(tmp_path / "mar"), create_model_card=False)
    return tmp_path / "mar"


def rewrite(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **changes}))


def rewrite_weights(path, change):
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    save_file({name: t for name, t in tensors.items() if not change(name)}, path, metadata={"format": "pt"})


def test_one_route_is_loaded_without_the_files_of_the_others(folder, mar):
    for part in folder.glob("document_*"):
        shutil.rmtree(part)
    query = MAR.from_pretrained(folder, routes="query", device="cpu")
    assert query.routes == ("query",)
    np.testing.assert_array_equal(query.encode_queries(TEXTS), mar.encode_queries(TEXTS))
    with pytest.raises(MarError, match="document route is not loaded"):
        query.encode_corpus(TEXTS)
    with pytest.raises(MarError, match=r"lacks document_\w+"):
        MAR.from_pretrained(folder, device="cpu")


def test_what_is_not_there_is_named(folder, tmp_path):
    with pytest.raises(MarError, match="no query encoder 'query-small'; it has query"):
        MAR.from_pretrained(folder, query="query-small", device="cpu")
    with pytest.raises(MarError, match="routes is 'both', 'query' or 'document'"):
        MAR.from_pretrained(folder, routes="queries")
    with pytest.raises(MarError, match="loads none"):
        MAR.from_pretrained(folder, routes="document", query="query")
    (tmp_path / "empty").mkdir()
    with pytest.raises(MarError, match="holds no model"):
        MAR.from_pretrained(tmp_path / "empty")
    with pytest.raises(MarError, match="There is no folder"):
        MAR.from_pretrained(tmp_path / "nothing")
    with pytest.raises(MarError, match="without routes"):
        plain = SentenceTransformer(modules=MAR.from_pretrained(folder).route_modules("query"), device="cpu")
        plain.save(str(tmp_path / "plain"))
        open_model(tmp_path / "plain", query="query-small")


def test_modules_of_other_packages_need_consent(folder, monkeypatch):
    router = json.loads((folder / "router_config.json").read_text())
    router["types"][router["structure"]["query"][0]] = "os.path.Evil"
    (folder / "router_config.json").write_text(json.dumps(router))
    with pytest.raises(MarError, match="trust_remote_code"):
        MAR.from_pretrained(folder, device="cpu")


@pytest.mark.parametrize("load", [MAR, lambda path: MAR.from_pretrained(path, routes="query"), open_model])
@pytest.mark.parametrize("damage", ["cut", "text", "unknown class"])
def test_a_folder_that_cannot_be_loaded_is_one_error_that_names_it(folder, load, damage):
    weights = folder / "query_0_Transformer" / WEIGHTS
    if damage == "cut":
        weights.write_bytes(weights.read_bytes()[:-100])
    elif damage == "text":
        weights.write_text("version https://git-lfs.github.com/spec/v1")
    else:
        router = json.loads((folder / "router_config.json").read_text())
        router["types"][router["structure"]["query"][0]] = "sentence_transformers.models.Nix"
        (folder / "router_config.json").write_text(json.dumps(router))
    with pytest.raises(MarError, match=str(folder)):
        load(folder)


def test_missing_weights_are_refused_and_a_pooler_may_be_missing(folder, mar, tmp_path):
    weights = folder / "query_0_Transformer" / WEIGHTS
    kept = weights.read_bytes()
    rewrite(folder / "query_0_Transformer" / "config.json", num_hidden_layers=4)
    with pytest.raises(MarError, match=r"no weights of .*layers\.2.*num_hidden_layers 4"):
        MAR.from_pretrained(folder, routes="query", device="cpu")
    rewrite(folder / "query_0_Transformer" / "config.json", num_hidden_layers=1)  # the first layers alone
    assert MAR.from_pretrained(folder, routes="query", device="cpu").encode_queries(TEXTS).shape == (3, 32)
    rewrite(folder / "query_0_Transformer" / "config.json", num_hidden_layers=2)
    rewrite_weights(weights, lambda name: "word_embeddings" in name)
    with pytest.raises(MarError, match="word_embeddings"):
        MAR.from_pretrained(folder, routes="query", device="cpu")
    weights.write_bytes(kept)
    torch.manual_seed(0)
    bert = load_encoder((make_config("bert"), make_tokenizer("query")), "query")
    SentenceTransformer(modules=bert, device="cpu").save(str(tmp_path / "bert"))
    rewrite_weights(tmp_path / "bert" / WEIGHTS, lambda name: "pooler" in name)
    assert open_model(tmp_path / "bert", device="cpu").encode(TEXTS).shape == (3, 32)
    with pytest.raises(MarError, match="trained cross-encoder"):
        load_cross_encoder(tmp_path / "bert")


def test_an_adapter_or_packed_weights_say_how_to_load_them(folder, tmp_path):
    pack(folder, tmp_path / "packed")
    with pytest.raises(MarError, match="packed weights are loaded by"):
        MAR.from_pretrained(tmp_path / "packed", device="cpu")
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "/gone/base"}))
    with pytest.raises(MarError, match="base model of an adapter"):
        load_encoder(adapter, "document")
