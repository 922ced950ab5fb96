"""Dimensions of a recipe against the widths of its encoders, before anything is trained."""

from __future__ import annotations

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense
from torch import nn
from transformers import AutoModel

from mar_st.errors import MarError
from mar_st.runs.sides import Sides, check_models
from mar_st.runs.train import train
from mar_st.runs.widths import saved_projection
from tests.mar_st.conftest import make_config, make_tokenizer
from tests.mar_st.runs.sides_recipe import DOCUMENT_INIT, JOINT, QUERY_INIT, SHAPE, TOKENIZER, silent


@pytest.fixture(scope="module")
def projected(encoder_folder, tmp_path_factory):
    """A folder whose encoder of width 32 ends in a linear layer of width 24."""
    torch.manual_seed(0)
    transformer, pooling, _ = SentenceTransformer(str(encoder_folder), device="cpu")
    dense = Dense(32, 24, activation_function=nn.Identity())
    folder = tmp_path_factory.mktemp("projected")
    SentenceTransformer(modules=[transformer, pooling, dense], device="cpu").save(str(folder))
    return folder


@pytest.mark.parametrize(
    ("side", "dim", "message"),
    [
        (
            "query",
            16,
            r"dim is 16, but vectors of the query encoder have 32 dimensions\. Set dim: 32",
        ),
        ("query", 300, r"dim is 300, but vectors of the query encoder have 32 dimensions\."),
        (
            "document",
            48,
            r"dim is 48, but vectors of the document encoder have only 32 dim.* Set dim to 32",
        ),
    ],
)
def test_a_dim_that_no_mar_can_have_is_refused_before_training(
    recipe, encoder_folder, tmp_path, side, dim, message
):
    other = {"query": "document", "document": "query"}[side]
    config = {**SHAPE, "model_type": "gte", "hidden_size": 48 if dim == 48 else 304}
    sides = {
        side: {"source": str(encoder_folder), "pooling": "cls"},
        other: {"tokenizer": TOKENIZER, "pooling": "cls", "config": config},
    }
    built = recipe(dim=dim, **sides, stages=[DOCUMENT_INIT, JOINT])
    with pytest.raises(MarError, match=message):
        train(built, tmp_path / "out", say=silent)
    assert not (tmp_path / "out").exists()


def test_widths_that_the_files_call_by_another_name_are_read(recipe, tmp_path):
    AutoModel.from_config(make_config("gpt2")).save_pretrained(tmp_path / "gpt2")
    make_tokenizer("document").save_pretrained(tmp_path / "gpt2")
    built = recipe(document={"source": str(tmp_path / "gpt2")}, stages=[DOCUMENT_INIT, JOINT])
    check_models(built)
    wide = {"tokenizer": TOKENIZER, "config": {**SHAPE, "model_type": "gte", "hidden_size": 64}}
    built = recipe(dim=64, query=wide, document=built.document.model_dump(), stages=[DOCUMENT_INIT, JOINT])
    with pytest.raises(MarError, match="the document encoder have only 32 dimensions"):
        check_models(built)


def test_dims_beyond_the_width_of_a_source_are_refused(recipe, encoder_folder):
    source = {"source": str(encoder_folder), "projection": 48}
    document = {"tokenizer": TOKENIZER, "config": {**SHAPE, "model_type": "qwen3", "hidden_size": 48}}
    stages = [{**QUERY_INIT, "dims": [8, 40]}, DOCUMENT_INIT, JOINT]
    built = recipe(dim=48, query=source, document=document, stages=stages)
    with pytest.raises(MarError, match=r"dims \(8, 40\) exceed the width 32; the projection comes with"):
        check_models(built)
    bare = {"source": str(encoder_folder)}
    with pytest.raises(MarError, match=r"dims \(8, 40\) exceed the width 32\. Give dims up to 32"):
        check_models(recipe(dim=32, query=bare, document=None, stages=stages[:1]))
    alone = recipe(dim=48, query=source, document=None, stages=[{**QUERY_INIT, "dims": [8, 40]}])
    check_models(alone)  # trained with the projection


def test_a_source_with_a_linear_layer_needs_this_projection(recipe, projected):
    for given, named in (({}, "not given"), ({"projection": 32}, "32")):
        document = {"source": str(projected), "pooling": "cls", **given}
        built = recipe(document=document, stages=[DOCUMENT_INIT, JOINT])
        with pytest.raises(MarError, match=rf"a linear layer of width 24, but 'projection' is {named}\. Set"):
            check_models(built)


def test_the_linear_layer_of_a_source_is_taken_over(recipe, projected):
    query = {"source": str(projected), "projection": 24}
    built = recipe(dim=24, query=query, stages=[{**QUERY_INIT, "dims": [8, 24]}, DOCUMENT_INIT, JOINT])
    check_models(built)
    assert saved_projection(built.query) == 24
    assert saved_projection(built.document) is None
    own = Dense.load(str(projected), subfolder="2_Dense").linear.weight
    modules = Sides(built, []).for_stage(built.stages[0])
    assert torch.equal(modules[2].linear.weight, own)
