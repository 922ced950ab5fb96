from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize

from mar_st import MAR
from mar_st.errors import MarError
from mar_st.model.encoders import check_source, load_encoder
from mar_st.model.layers import keep_layers
from tests.mar_st.conftest import make_config, make_tokenizer


def _vectors(modules, texts):
    return SentenceTransformer(modules=[*modules], device="cpu").encode(texts)


@pytest.fixture
def texts():
    return ["头疼吃什么药", "感冒"]


def test_mean_pooling_is_the_mean_of_the_tokens(document_source, texts):
    modules = load_encoder(document_source, "document", pooling="mean")
    model = SentenceTransformer(modules=modules, device="cpu")
    tokens = model.encode(texts, output_value="token_embeddings")
    expected = np.stack([np.asarray(token.cpu()).mean(axis=0) for token in tokens])
    np.testing.assert_allclose(model.encode(texts), expected, atol=1e-5)


@pytest.mark.parametrize("mode", ["cls", "mean"])
@pytest.mark.parametrize("role", ["query", "document"])
def test_a_published_model_keeps_its_pooling(mode, role, query_source, texts, tmp_path):
    """Also as sentence-transformers wrote it before version 6: with a key for each mode."""
    folder = tmp_path / "model"
    SentenceTransformer(modules=load_encoder(query_source, "query", pooling=mode)).save(str(folder))
    keys = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens"}
    content = {"word_embedding_dimension": 64, **{key: name == mode for name, key in keys.items()}}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(content))
    expected = SentenceTransformer(str(folder), device="cpu").encode(texts)
    np.testing.assert_allclose(_vectors(load_encoder(folder, role), texts), expected, atol=1e-6)
    (folder / "1_Pooling" / "config.json").unlink()
    with pytest.raises(MarError, match="damaged"):
        load_encoder(folder, role)


def test_the_tokenizer_must_have_the_pooled_token(query_source, document_source):
    with pytest.raises(MarError, match="query encoder is pooled at its EOS token"):
        load_encoder((query_source[0], make_tokenizer("query")), "query", pooling="lasttoken")
    with pytest.raises(MarError, match="document encoder is pooled at its first token"):
        load_encoder(document_source, "document", pooling="cls")


def test_a_projection_is_affine_and_survives_saving(query_source, document_source, texts, tmp_path):
    torch.manual_seed(5)
    query = load_encoder(query_source, "query", projection=48)
    dense = query[-1]
    assert isinstance(dense, Dense)
    assert isinstance(dense.activation_function, torch.nn.Identity)
    assert dense.bias
    plain = _vectors(query[:-1], texts)
    weight, bias = (t.detach().numpy() for t in (dense.linear.weight, dense.linear.bias))
    np.testing.assert_allclose(_vectors(query, texts), plain @ weight.T + bias, atol=1e-5)
    # A MAR whose width is that of the projection, and a plain sentence-transformers folder of it.
    mar = MAR.from_modules(query, load_encoder(document_source, "document"), dim=48, device="cpu")
    mar.save_pretrained(str(tmp_path / "mar"), create_model_card=False)
    loaded = SentenceTransformer(str(tmp_path / "mar"), device="cpu")
    assert loaded.get_embedding_dimension() == 48
    np.testing.assert_allclose(loaded.encode_query(texts), mar.encode_queries(texts), atol=1e-5)
    online = MAR.from_pretrained(tmp_path / "mar", routes="query", device="cpu")
    np.testing.assert_allclose(online.encode_queries(texts), mar.encode_queries(texts), atol=1e-5)
    # A saved symmetric encoder brings its projection along, and says so where none was asked for.
    folder = str(tmp_path / "encoder")
    SentenceTransformer(modules=[*query, Normalize()], device="cpu").save_pretrained(folder)
    again = load_encoder(folder, "query", projection=48)
    assert torch.equal(again[-1].linear.weight, dense.linear.weight)
    with pytest.raises(
        MarError, match="ends in a linear layer of width 48, but the projection asked for is none"
    ):
        load_encoder(folder, "query")


@pytest.mark.parametrize("kind", ["qwen3", "gte", "bert", "modernbert"])
def test_keeping_the_first_layers_gives_their_hidden_states(kind):
    role = "document" if kind == "qwen3" else "query"
    config = make_config(kind)
    config.num_hidden_layers = 4
    if getattr(config, "layer_types", None):
        config.layer_types = (config.layer_types * 4)[:4]
    torch.manual_seed(0)
    modules = load_encoder((config, make_tokenizer(role)), role)
    model = modules[0].model.eval()
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        states = model(input_ids=ids, output_hidden_states=True).hidden_states[2]
        norm = getattr(model, "norm", getattr(model, "final_norm", torch.nn.Identity()))
        expected = norm(states)
        before = model(input_ids=ids).last_hidden_state
        keep_layers(modules, [0, 1])
        after = model(input_ids=ids).last_hidden_state
    torch.testing.assert_close(after, expected)
    assert not torch.allclose(after, before)
    assert model.config.num_hidden_layers == 2


def test_models_that_do_not_exist_are_refused(tmp_path):
    for name in ("./gone", str(tmp_path / "gone"), "a/b/c"):
        with pytest.raises(MarError, match=r"teacher: .* no folder"):
            check_source(name, what="teacher")
    (tmp_path / "empty").mkdir()
    with pytest.raises(MarError, match="holds no model"):
        check_source(str(tmp_path / "empty"), what="teacher")
    with pytest.raises(MarError, match="org/gone is neither a folder"):
        check_source("org/gone", "v1", what="teacher")
