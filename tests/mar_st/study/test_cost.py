"""Online cost of a query: the encoder that counts, its size and operations, and its time."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding

from mar_st.model.encoders import load_encoder
from mar_st.modules.bigrams import Bigrams, BigramTransformer
from mar_st.planning.backbones import Shape
from mar_st.planning.costs import forward_flops
from mar_st.study import cost
from mar_st.study.cost import query_cost, query_encoder, query_time
from tests.mar_st.conftest import make_config, make_tokenizer

QUERIES = ["头疼吃什么药", "感冒", "高血压怎么办"]


def test_the_query_encoder_of_a_mar_gives_its_query_vectors(mar):
    encoder = query_encoder(mar)
    np.testing.assert_allclose(encoder.encode_query(QUERIES), mar.encode_queries(QUERIES), atol=1e-6)
    counted = sum(p.numel() for module in mar.route_modules("query") for p in module.parameters())
    assert query_cost(encoder, QUERIES)["parameters"] == counted < sum(p.numel() for p in mar.parameters())


def test_a_symmetric_model_is_its_own_query_encoder(encoder_folder):
    model = SentenceTransformer(str(encoder_folder), prompts={"query": "感冒"}, device="cpu")
    encoder = query_encoder(model)
    np.testing.assert_allclose(encoder.encode_query(QUERIES), model.encode_query(QUERIES), atol=1e-6)
    assert not np.allclose(encoder.encode_query(QUERIES), model.encode(QUERIES, prompt=""), atol=1e-5)


def test_operations_are_those_of_the_matrix_products_and_of_attention(mar):
    mar.prompts["query"] = "高血压"
    encoder = query_encoder(mar)
    shape = Shape("query", encoder[0].model.config.to_dict())
    alone = [query_cost(encoder, [query]) for query in QUERIES]
    for query, counted in zip(QUERIES, alone, strict=True):
        tokens = len(encoder.tokenizer(encoder.prompts["query"] + query)["input_ids"])
        assert counted["tokens_per_query"] == tokens
        assert counted["flops_per_query"] == forward_flops(shape, 1, tokens)
    together = query_cost(encoder, QUERIES)
    for field in ("tokens_per_query", "flops_per_query"):
        assert together[field] == pytest.approx(np.mean([one[field] for one in alone]), rel=1e-3)


def test_only_the_first_queries_are_counted(mar, monkeypatch):
    monkeypatch.setattr(cost, "COUNTED_QUERIES", 2)
    encoder = query_encoder(mar)
    assert query_cost(encoder, QUERIES) == query_cost(encoder, QUERIES[:2])


def test_vectors_of_token_pairs_count_as_embeddings():
    torch.manual_seed(0)
    encoder = load_encoder((make_config("bert"), make_tokenizer("query")), "query", pooling="mean")[0]
    config = encoder.model.config
    rest = [Pooling(config.hidden_size, "mean"), Normalize()]
    plain = query_cost(SentenceTransformer(modules=[encoder, *rest], device="cpu"), QUERIES)
    tables = config.vocab_size + config.max_position_embeddings + config.type_vocab_size
    embeddings = tables * config.hidden_size
    assert plain["parameters"] - plain["parameters_without_embeddings"] == embeddings
    pairs = torch.tensor([[5, 6], [6, 7], [7, 5]])
    vectors = [torch.zeros(3, config.hidden_size) for _ in range(2)]
    paired = BigramTransformer.of(encoder, Bigrams(pairs, *vectors))
    more = query_cost(SentenceTransformer(modules=[paired, *rest], device="cpu"), QUERIES)
    assert more["parameters"] == plain["parameters"] + 2 * 3 * config.hidden_size
    assert more["parameters_without_embeddings"] == plain["parameters_without_embeddings"]


def test_a_static_model_has_a_cost():
    tokenizer = make_tokenizer("query")
    static = StaticEmbedding(tokenizer, embedding_dim=8)
    counted = query_cost(SentenceTransformer(modules=[static], device="cpu"), QUERIES)
    lengths = [len(tokenizer(query, add_special_tokens=False)["input_ids"]) for query in QUERIES]
    assert counted["tokens_per_query"] == pytest.approx(np.mean(lengths), abs=0.01)
    assert counted["parameters"] == 8 * len(tokenizer)
    assert counted["parameters_without_embeddings"] == counted["flops_per_query"] == 0


def test_times_are_those_of_single_queries_after_the_warm_up(monkeypatch):
    durations = [9.0, 0.001, 0.002, 0.003, 0.004, 0.1]  # one to warm up, five that are timed
    asked, clock = [], SimpleNamespace(now=0.0)

    def encode(text, **_):
        clock.now += durations[len(asked)]
        asked.append(text)

    monkeypatch.setattr(cost, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    model = SimpleNamespace(encode_query=encode, device=torch.device("cpu"))
    measured = query_time(model, ["a", "b"])
    assert asked == ["a", "a", "b", "a", "b", "a"]
    assert measured["median_ms"] == 3.0
    assert measured["p95_ms"] == pytest.approx(80.8)
    assert measured["threads"] == torch.get_num_threads()
    assert measured["device"]
