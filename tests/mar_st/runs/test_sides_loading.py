"""How sides are loaded: dtype, attention and dropout of a backbone."""

from __future__ import annotations

import pytest
import torch
from sentence_transformers import SentenceTransformer

from mar_st.data import read_source
from mar_st.errors import MarError
from mar_st.runs.sides import Sides
from mar_st.runs.train import train
from tests.mar_st.runs.sides_recipe import ALIGN, DOCUMENT_INIT, JOINT, QUERY_INIT, silent


@pytest.mark.thorough
def test_only_what_is_trained_is_float32(recipe, tmp_path):
    """Weights stored in half precision: full training in them would lose its small updates."""
    out = tmp_path / "out"
    first = recipe("precision=bf16", stages=[QUERY_INIT, DOCUMENT_INIT, JOINT])
    train(first, out, say=silent, until="document-init")
    for role, folder in (("query", "01-query-init"), ("document", "02-document-init")):
        model = SentenceTransformer(str(out / folder / "model"), device="cpu").bfloat16()
        model.save_pretrained(str(tmp_path / role), create_model_card=False)
    backbones = {role: {"source": str(tmp_path / role), "max_length": 24} for role in ("query", "document")}
    cases = [
        (JOINT, torch.float32),
        ({**JOINT, "freeze": "document"}, torch.bfloat16),
        ({**JOINT, "lora_r": 2}, torch.bfloat16),
        (ALIGN, torch.bfloat16),
    ]
    for stage, document in cases:
        for precision, wanted in (("bf16", document), ("fp32", torch.float32)):
            built = recipe(f"precision={precision}", **backbones, stages=[stage])
            mar = Sides(built, []).for_stage(built.stages[0])
            dtypes = [next(mar.route_modules(role)[0].parameters()).dtype for role in ("query", "document")]
            assert dtypes == [torch.float32, wanted], (stage, precision)


@pytest.mark.thorough
def test_dtype_and_attention_of_a_backbone_reach_every_load(recipe, tmp_path):
    frozen = {**JOINT, "freeze": "document"}
    stages = [QUERY_INIT, {**DOCUMENT_INIT, "lora_r": 2}, frozen]
    settings = ["precision=bf16", "document.dtype=bfloat16", "query.dtype=bfloat16",
                "query.attn_implementation=eager", "document.attn_implementation=sdpa"]  # fmt: skip
    built = recipe(*settings, stages=stages)
    train(built, tmp_path / "out", say=silent, until="document-init")
    data = [read_source(entry, built.seed) for entry in built.data]
    fresh, later = Sides(built, data), Sides(built, data)
    later.folders = {
        "query": tmp_path / "out" / "01-query-init" / "model",
        "document": tmp_path / "out" / "02-document-init" / "model",
    }
    for sides in (fresh, later):
        mar = sides.for_stage(built.stages[-1])
        for role, dtype, attention in (
            ("query", torch.float32, "eager"),
            ("document", torch.bfloat16, "sdpa"),
        ):
            model = mar.route_modules(role)[0].model
            assert next(model.parameters()).dtype == dtype
            assert model.config._attn_implementation == attention
    # Of a MAR that an earlier stage left, too.
    mar.save_pretrained(str(tmp_path / "mar"), create_model_card=False)
    later.folders = {"query": tmp_path / "mar", "document": tmp_path / "mar"}
    mar = later.for_stage(built.stages[-1])
    assert mar.route_modules("query")[0].model.config._attn_implementation == "eager"
    assert next(mar.route_modules("document")[0].model.parameters()).dtype == torch.bfloat16


@pytest.mark.thorough
def test_the_dropout_of_a_backbone_reaches_every_load(recipe, tmp_path):
    built = recipe("document.dropout=0.25", "query.dropout=0.0", stages=[QUERY_INIT, DOCUMENT_INIT, JOINT])
    train(built, tmp_path / "out", say=silent, until="document-init")
    data = [read_source(entry, built.seed) for entry in built.data]
    sides = Sides(built, data)
    for folders in ({}, {"document": tmp_path / "out" / "02-document-init" / "model"}):
        sides.folders = folders
        for role, probability in (("query", 0.0), ("document", 0.25)):
            model = sides.modules(role)[0].model
            probabilities = {value for name, value in model.config.to_dict().items() if "dropout" in name}
            assert probabilities - {None} == {probability}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["query.config.model_type=nosuch"],
            "query backbone: transformers cannot build an encoder from",
        ),
        (["query.config.num_attention_heads=3"], "hidden_size 16 of 'config' is not a multiple of its 3"),
        (["document.dtype=bfloat16"], "precision fp32 computes in float32"),
        (["precision=bf16", "document.attn_implementation=flash_attention_2"], "cannot run with flash_att"),
    ],
)
def test_an_unusable_config_dtype_or_attention_is_refused_before_training(
    recipe, tmp_path, overrides, message
):
    with pytest.raises(MarError, match=message):
        train(recipe(*overrides, stages=[ALIGN]), tmp_path / "out", say=silent)
    assert not (tmp_path / "out").exists()
