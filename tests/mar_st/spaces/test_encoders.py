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
from mar_st.spaces.encoders import (
    copied,
    default_rung,
    given_encoder,
    kept_layers,
    parse_ladder,
    source_side,
    trainable,
)
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


@pytest.mark.parametrize("text", ["", "1,", "two", "0", "-1", "1.5", "²", "٣", "1 2", "Full"])
def test_what_is_no_rung_is_refused(text):
    with pytest.raises(MarError, match="list of 'lookup', numbers of layers from 1, and 'full'"):
        parse_ladder(text)


@pytest.mark.parametrize("text", ["2,1,02", "full,1,full", "lookup,lookup"])
def test_a_repeated_rung_is_refused(text):
    with pytest.raises(MarError, match=r"names the rung .* more than once"):
        parse_ladder(text)


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


def test_a_default_that_the_ladder_lacks_is_refused():
    with pytest.raises(MarError, match="--default-rung is '3', but the rungs of the ladder are lookup, 1"):
        default_rung(parse_ladder("1,lookup"), "3")


def test_the_last_layers_are_kept():
    modules = encoder(5)
    assert kept_layers(modules, 3) == [2, 3, 4]
    with pytest.raises(MarError, match="asks for 6 layers, but the student has only 5"):
        kept_layers(modules, 6)


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


def test_a_cut_between_two_normalisations_is_copied_without_its_scale():
    """Alone, vectors of that scale would be too short for the losses."""
    chain = [*encoder(2), Normalize(), truncation(32, 16), Normalize()]
    expected = model_of(encoder(2)).encode(TEXTS)[:, :16]
    np.testing.assert_allclose(model_of(copied(chain, 16)).encode(TEXTS), expected, atol=1e-6)


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


def test_a_given_student_has_no_dropout(tmp_path):
    model_of(encoder()).save_pretrained(str(tmp_path / "small"))
    model = given_encoder(str(tmp_path / "small"), max_length=32)[0].model
    assert model.config.hidden_dropout_prob == 0
    assert {part.p for part in model.modules() if isinstance(part, torch.nn.Dropout)} == {0.0}
