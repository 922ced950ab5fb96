from __future__ import annotations

import numpy as np
import pytest
import torch

from mar_st.errors import MarError
from mar_st.losses.asym_infonce import AsymInfoNCELoss
from mar_st.losses.score_distill import ScoreDistillLoss
from mar_st.model.adapters import has_adapter
from mar_st.stages import contrastive
from mar_st.stages.contrastive import train_joint
from tests.mar_st.stages.helpers import (
    TRIPLES,
    apart,
    changed,
    cross_encoder,
    mar,
    settings,
    source,
    stage,
    weights,
)


def _train(folder, model=None, sources=None, prompts=None, taught_by=None, **fields):
    model = model or mar()
    joint_stage = stage("joint", **fields)
    train_joint(model, sources or [source()], joint_stage, settings(folder), prompts or {}, teacher=taught_by)
    return model


def _sides(names):
    return {name.split(".")[2] for name in names}


@pytest.mark.parametrize("frozen", [None, "query", "document"])
def test_a_frozen_side_keeps_its_weights(tmp_path, frozen):
    model = mar()
    before = weights(model)
    _train(tmp_path, model=model, freeze=frozen)
    assert _sides(changed(model, before)) == {"query", "document"} - {frozen}


def test_lora_on_the_document_side_is_merged(tmp_path):
    model = mar()
    before = weights(model)
    _train(tmp_path, model=model, lora_r=2, lora_dropout=0.0)
    moved = {name for name in changed(model, before) if ".document." in name}
    assert moved
    assert all(name.endswith("_proj.weight") for name in moved)
    assert model.state_dict().keys() == before.keys()
    assert not has_adapter(model.route_modules("document")[0])


def test_every_field_reaches_the_loss(tmp_path, fit_arguments):
    fields = {"dims": (16, 4), "both_directions": True, "false_negative_margin": 0.25}
    fields |= {"mini_batch_size": 2, "mini_batch_tokens": 64}
    sources = [source(prompt="query"), source("sts", symmetric=True, prompt="STS")]
    _train(tmp_path, sources=sources, prompts={"query": "医生", "STS": "药"}, negatives=2, **fields)
    loss = fit_arguments["loss"]
    assert loss.gather_across_devices
    assert {name: getattr(loss, name) for name in fields} == fields
    assert fit_arguments["loss"].temperature == pytest.approx(0.1)
    columns = ("positive", "negative_1", "negative_2")
    assert fit_arguments["router_mapping"] == {
        "qa": {"query": "query", **dict.fromkeys(columns, "document")},
        "sts": {"query": "query", **dict.fromkeys(columns, "query")},
    }
    assert fit_arguments["prompts"] == {
        "qa": {"query": "医生"},
        "sts": {"query": "药", **dict.fromkeys(columns, "药")},
    }


@pytest.mark.parametrize(
    ("fields", "renormalise", "size"),
    [({}, True, 3), ({"kl_weight": 0.5}, False, None), ({"both_directions": True, "dims": (4, 8)}, False, 3)],
)
def test_stored_and_encoded_frozen_documents_train_the_same_weights(
    tmp_path, monkeypatch, fields, renormalise, size
):
    fields = {"freeze": "document", "mini_batch_size": size, "max_steps": 4, **fields}
    read = weights(_train(tmp_path / "read", mar(renormalise=renormalise), **fields))
    with monkeypatch.context() as patch:
        patch.setattr(contrastive, "reads_documents", lambda *_: False)
        encoded = weights(_train(tmp_path / "encoded", mar(renormalise=renormalise), **fields))
    assert apart(read, encoded, weights(mar(renormalise=renormalise))) < 1e-2


def test_frozen_documents_are_encoded_once(tmp_path):
    model, texts = mar(), []
    encoder = model.route_modules("document")[0]
    encoder.register_forward_pre_hook(lambda module, inputs: texts.append(len(inputs[0]["input_ids"])))
    _train(tmp_path, model=model, freeze="document", max_steps=20)
    assert sum(texts) <= len({d for t in TRIPLES for d in (*t.positives, *t.negatives)})


def test_symmetric_data_with_frozen_queries_are_refused(tmp_path):
    sources = [source(), source("sts", symmetric=True)]
    with pytest.raises(
        MarError, match="the symmetric data sts go through the query encoder, which is frozen"
    ):
        _train(tmp_path, sources=sources, freeze="query")


# -- learning scores --

NAMES = ("query", "positive", "negative_1")


def test_the_document_encoder_teaches_at_its_full_width(tmp_path, fit_arguments):
    model = mar()
    sources = [source(prompt="query"), source("sts", symmetric=True, prompt="STS")]
    prompts = {"query": "医生", "STS": "药", "document": "你好"}
    fields = {"kl_scope": "batch", "contrastive_weight": 0.5, "kl_weight": 2.0}
    alone = mar().encoder("document")
    _train(tmp_path, model, sources, prompts, lora_r=2, **fields)
    loss = fit_arguments["loss"]
    assert {name: getattr(loss, name) for name in fields} == fields
    for name, own in (("qa", ("医生", "你好", "你好")), ("sts", ("药", "药", "药"))):
        row = fit_arguments["data"][name][5]
        assert row["label"].shape == (3, 32)
        for vector, column, prompt in zip(row["label"], NAMES, own, strict=True):
            np.testing.assert_allclose(vector.numpy(), alone.encode(row[column], prompt=prompt), atol=1e-5)
    routes = dict(zip(NAMES, ("query", "document", "document"), strict=True))
    assert fit_arguments["router_mapping"]["qa"] == routes
    _train(tmp_path)
    assert type(fit_arguments["loss"]) is AsymInfoNCELoss


def test_the_kl_is_zero_if_all_vectors_equal_the_teachers(tmp_path, fit_arguments):
    model = mar()
    _train(tmp_path, model, kl_weight=1.0)
    rows = fit_arguments["data"]["qa"][:]
    loss = ScoreDistillLoss(model, temperature=0.1, contrastive_weight=0)

    def divergence(vectors):
        columns = [torch.from_numpy(column) for column in vectors]
        return float(loss.compute_loss_from_embeddings(columns, torch.stack(rows["label"])))

    teacher = model.encoder("document")
    assert divergence([teacher.encode(rows[name]) for name in NAMES]) < 1e-6
    tasks = ("query", "document", "document")
    both = [model.encode(rows[name], task=task, prompt="") for name, task in zip(NAMES, tasks, strict=True)]
    assert divergence(both) > 1e-3


TAUGHT = {"kl_weight": 1.0, "contrastive_weight": 0.0, "teacher": "cross-encoder:any"}


def test_a_cross_encoder_teaches_both_encoders(tmp_path):
    model = mar()
    before = weights(model)
    _train(tmp_path, model, taught_by=cross_encoder(tmp_path / "teacher"), **TAUGHT)
    assert _sides(changed(model, before)) == {"query", "document"}
