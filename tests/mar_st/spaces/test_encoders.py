"""Tests of the rungs of a ladder: their names, the layers that they take, and copies of the teacher."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from mar_st.errors import MarError
from mar_st.model.encoders import load_encoder
from mar_st.modules.arrangement import truncation
from mar_st.spaces.encoders import copied, default_rung, parse_ladder, source_side, trainable
from tests.mar_st.conftest import make_config, make_tokenizer

TEXTS = ["头疼", "感冒发热怎么办呢"]


def encoder(layers=4):
    """A small BERT and its pooling."""
    torch.manual_seed(0)
    config = make_config("bert")
    config.num_hidden_layers = layers
    return load_encoder((config, make_tokenizer("query")), "query")


def model_of(modules):
    return SentenceTransformer(modules=modules, device="cpu").eval()


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_rungs_are_ordered_by_size_whatever_the_order_given():
    rungs = parse_ladder("full, 04,lookup,1")
    assert [rung.name for rung in rungs] == ["lookup", "1", "4", "full"]
    assert [rung.layers for rung in rungs if rung.trained] == [1, 4]


@pytest.mark.parametrize(
    ("ladder", "name", "chosen"),
    [
        ("lookup,1,2,full", None, "2"),
        ("lookup,1,4", None, "4"),
        ("lookup,1,full", None, "full"),
        ("1,2", "1", "1"),
        ("lookup,1,2", "query-lookup", "lookup"),
    ],
)
def test_the_default_is_the_named_rung_or_that_of_two_layers_or_the_largest(ladder, name, chosen):
    assert default_rung(parse_ladder(ladder), name).name == chosen


def test_the_document_side_is_taken_if_the_query_side_has_too_few_layers(mar):
    mar.route_modules("document")[0].model.config.num_hidden_layers = 3
    assert source_side(mar, 2) == "query"
    assert source_side(mar, 3) == "document"
    with pytest.raises(MarError, match=r"asks for 4 layers, but the teacher has 3\. .*'full' is a copy"):
        source_side(mar, 4)


@pytest.mark.parametrize("dim", [32, 8])
def test_a_copy_gives_the_directions_of_the_teachers_first_dimensions(dim):
    teacher = model_of([*encoder(2), Normalize()])
    modules = copied(list(teacher), dim)
    assert not any(isinstance(module, Normalize) for module in modules)
    expected = unit(teacher.encode(TEXTS)[:, :dim])
    np.testing.assert_allclose(unit(model_of(modules).encode(TEXTS)), expected, atol=1e-6)
    modules[0].model.embeddings.word_embeddings.weight.data.zero_()  # the teacher keeps its own
    np.testing.assert_allclose(unit(teacher.encode(TEXTS)[:, :dim]), expected, atol=1e-6)


def test_all_weights_of_a_student_but_those_of_a_cut_are_trained():
    modules = [*encoder(2), truncation(32, 16)]
    modules[0].half()
    trainable(modules, max_length=20)
    assert modules[0].max_seq_length == 20
    assert {parameter.dtype for module in modules for parameter in module.parameters()} == {torch.float32}
    assert all(parameter.requires_grad for parameter in modules[0].parameters())
    assert not any(parameter.requires_grad for parameter in modules[-1].parameters())
    parts = [part for part in modules[0].modules() if isinstance(part, torch.nn.Dropout)]
    assert {part.p for part in parts} == {0.0}
    trainable(modules, max_length=100)
    assert modules[0].max_seq_length == 20  # a student's own limit stays
