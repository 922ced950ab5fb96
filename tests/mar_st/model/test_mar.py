from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from mar_st import MAR
from mar_st.errors import MarError
from mar_st.modules.arrangement import is_truncation
from tests.mar_st.conftest import make_config, make_tokenizer


def test_saved_folder_loads_in_plain_sentence_transformers(mar, queries, documents, tmp_path):
    mar.save_pretrained(str(tmp_path))
    plain = SentenceTransformer(str(tmp_path), device="cpu")
    assert type(plain) is SentenceTransformer
    texts = ["头疼\n头疼吃药好", "感冒发热咳嗽医生你好", "高血压吃什么"]
    np.testing.assert_allclose(plain.encode_query(queries), mar.encode_queries(queries), atol=1e-5)
    np.testing.assert_allclose(plain.encode_document(texts), mar.encode_corpus(documents), atol=1e-5)
    scores = plain.similarity(plain.encode_query(queries), plain.encode_document(texts))
    torch.testing.assert_close(
        scores, mar.similarity(mar.encode_queries(queries), mar.encode_corpus(documents))
    )
    assert plain.get_embedding_dimension() == 32


def test_encode_document_takes_titles_as_encode_corpus_does(mar, documents):
    assert any(isinstance(document, dict) for document in documents)
    np.testing.assert_allclose(mar.encode_document(documents), mar.encode_corpus(documents), atol=1e-6)
    titled = {"title": "头疼", "text": "头疼吃药好"}
    np.testing.assert_allclose(mar.encode_document(titled), mar.encode_corpus(titled), atol=1e-6)
    np.testing.assert_allclose(
        mar.encode_document("头疼", convert_to_tensor=True), mar.encode_corpus("头疼"), atol=1e-6
    )


def test_saved_module_types_do_not_need_mar_st(mar, tmp_path):
    mar.save_pretrained(str(tmp_path))
    types = [entry["type"] for entry in json.loads((tmp_path / "modules.json").read_text())]
    types += json.loads((tmp_path / "router_config.json").read_text())["types"].values()
    assert types
    assert all(kind.startswith("sentence_transformers.") for kind in types)
    assert (
        json.loads((tmp_path / "config_sentence_transformers.json").read_text())["model_type"]
        == "SentenceTransformer"
    )


def test_truncation_comes_before_normalisation(mar, documents):
    full = mar.encoder("document").encode(["感冒发热咳嗽医生你好"])
    assert full.shape == (1, 64)
    cut = full[:, :32] / np.linalg.norm(full[:, :32], axis=1, keepdims=True)
    np.testing.assert_allclose(mar.encode_corpus([documents[1]]), cut, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(mar.encode_corpus(documents), axis=1), 1.0, atol=1e-5)


def test_published_form_cuts_after_normalisation(query_source, document_source, documents):
    mar = MAR.from_encoders(query=query_source, document=document_source, renormalise=False, device="cpu")
    full = mar.encoder("document").encode(["感冒发热咳嗽医生你好"])
    vector = mar.encode_corpus(documents[1])
    np.testing.assert_allclose(vector, full[0, :32], atol=1e-6)
    assert np.linalg.norm(vector) < 0.999
    assert mar.similarity_fn_name == "dot"


@pytest.mark.parametrize("model_type", ["gte", "bert", "xlm-roberta", "modernbert"])
def test_query_backbones_pool_the_first_token(model_type, document_source):
    source = (make_config(model_type), make_tokenizer("query"))
    mar = MAR.from_encoders(query=source, document=document_source, device="cpu")
    transformer = mar.route_modules("query")[0]
    batch = transformer.tokenizer(["头疼"], return_tensors="pt")
    with torch.no_grad():
        hidden = transformer.model(**batch).last_hidden_state[0, 0]
    expected = (hidden / hidden.norm()).numpy()
    np.testing.assert_allclose(mar.encode_queries(["头疼"], prompt="")[0], expected, atol=1e-5)


@pytest.mark.parametrize("padding_side", ["left", "right"])
@pytest.mark.parametrize("model_type", ["qwen3", "qwen2", "llama"])
def test_document_backbones_pool_eos_on_either_padding_side(model_type, padding_side, query_source):
    torch.manual_seed(3)
    source = (make_config(model_type, 64), make_tokenizer("document", padding_side))
    mar = MAR.from_encoders(query=query_source, document=source, device="cpu")
    transformer = mar.route_modules("document")[0]
    assert transformer.tokenizer("头疼")["input_ids"][-1] == transformer.tokenizer.eos_token_id
    texts = ["头疼", "感冒发热咳嗽怎么办呢医生你好"]
    together = mar.encode_corpus(texts)
    alone = np.stack([mar.encode_corpus(text) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    with torch.no_grad():
        hidden = transformer.model(
            **transformer.tokenizer([texts[0]], return_tensors="pt")
        ).last_hidden_state[0, -1, :32]
    np.testing.assert_allclose(alone[0], (hidden / hidden.norm()).numpy(), atol=1e-5)


def test_eos_survives_truncation_and_saving(mar, tmp_path):
    mar.save_pretrained(str(tmp_path))
    tokenizer = MAR.from_pretrained(tmp_path, routes="document").route_modules("document")[0].tokenizer
    ids = tokenizer("头疼" * 100, truncation=True, max_length=16)["input_ids"]
    assert len(ids) == 16
    assert ids[-1] == tokenizer.eos_token_id


def test_prompts_reach_the_query_side_only(mar, queries, documents):
    mar.prompts.update({"query": "医生", "Reranking-query": "", "STS": "药"})
    plain = mar.encode_queries(queries, prompt="")
    assert np.abs(mar.encode_queries(queries) - plain).max() > 1e-3
    np.testing.assert_allclose(mar.encode_queries(queries, task="rerank"), plain, atol=1e-6)
    np.testing.assert_allclose(
        mar.encode_queries(queries, task="sts"),
        mar.encode_queries([f"药{q}" for q in queries], prompt=""),
        atol=1e-6,
    )
    before = mar.encode_corpus(documents)
    mar.prompts["query"] = ""
    np.testing.assert_array_equal(before, mar.encode_corpus(documents))


def test_single_inputs_give_single_vectors(mar, queries, documents):
    np.testing.assert_allclose(mar.encode_queries(queries[0]), mar.encode_queries(queries)[0], atol=1e-5)
    np.testing.assert_allclose(mar.encode_corpus(documents[0]), mar.encode_corpus(documents)[0], atol=1e-5)


def test_incompatible_widths_are_refused_with_their_sizes(query_source, document_source):
    with pytest.raises(MarError, match="query encoder has 32, the document encoder 64"):
        MAR.from_encoders(query=query_source, document=document_source, dim=48)
    small = (make_config("qwen3", 16), make_tokenizer("document"))
    with pytest.raises(MarError, match="query encoder has 32, the document encoder 16"):
        MAR.from_encoders(query=query_source, document=small)


def test_a_tokenizer_larger_than_the_embedding_is_refused(document_source):
    config = make_config("gte")
    config.vocab_size = 20
    with pytest.raises(MarError, match=r"has \d+ tokens but its embedding has 20 rows"):
        MAR.from_encoders(query=(config, make_tokenizer("query")), document=document_source)


def test_query_tokenizer_without_cls_is_refused(document_source):
    with pytest.raises(MarError, match="does not start a text with a CLS"):
        MAR.from_encoders(query=(make_config("gte"), make_tokenizer("document")), document=document_source)


def test_bad_documents_are_refused(mar):
    with pytest.raises(KeyError, match="needs a 'text' key"):
        mar.encode_corpus([{"body": "头疼"}])
    with pytest.raises(TypeError, match="string or a dict"):
        mar.encode_corpus([3])


def test_encoder_folders_and_sentence_transformers_folders_are_sources(mar, queries, tmp_path):
    mar.encoder("query").save_pretrained(str(tmp_path / "query"))
    mar.encoder("document").save_pretrained(str(tmp_path / "document"))
    again = MAR.from_encoders(query=tmp_path / "query", document=tmp_path / "document", device="cpu")
    np.testing.assert_allclose(again.encode_queries(queries), mar.encode_queries(queries), atol=1e-5)
    np.testing.assert_allclose(again.encode_corpus(queries), mar.encode_corpus(queries), atol=1e-5)


def test_truncation_stays_frozen_after_loading(mar, tmp_path):
    mar.save_pretrained(str(tmp_path))
    loaded = MAR.from_pretrained(tmp_path)
    cuts = [module for module in loaded.route_modules("document") if is_truncation(module)]
    assert len(cuts) == 1
    assert not any(parameter.requires_grad for parameter in cuts[0].parameters())


@pytest.mark.parametrize("given", [{"prompt": None}, {"prompt_name": None}])
def test_no_prompt_given_means_the_stored_one(mar, queries, documents, given):
    mar.prompts |= {"query": "吃什么", "document": "高血压"}
    np.testing.assert_array_equal(mar.encode_queries(queries, **given), mar.encode_queries(queries))
    np.testing.assert_array_equal(mar.encode_corpus(documents, **given), mar.encode_corpus(documents))
    plain = mar.encode_queries(queries, prompt="")
    np.testing.assert_array_equal(plain, mar.encode(queries, task="query", prompt=""))
    assert np.abs(plain - mar.encode_queries(queries)).max() > 1e-3


def test_one_route_is_loaded_with_the_options_of_both(mar, queries, tmp_path):
    mar.prompts["query"] = "吃什么"
    mar.default_prompt_name = "query"
    mar.save_pretrained(str(tmp_path))
    loaded = [
        MAR.from_pretrained(tmp_path, routes=routes, device="cpu", processor_kwargs={"model_max_length": 7})
        for routes in ("both", "query")
    ]
    assert [model.default_prompt_name for model in loaded] == ["query", "query"]
    assert [model.route_modules("query")[0].tokenizer.model_max_length for model in loaded] == [7, 7]
    np.testing.assert_array_equal(*(model.encode(queries, task="query") for model in loaded))
