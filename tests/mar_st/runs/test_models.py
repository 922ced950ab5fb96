"""Runs whose encoders do not start from random weights of their own: layers, projections, teachers."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

from mar_st import MAR
from mar_st.errors import MarError
from mar_st.losses.asym_infonce import AsymInfoNCELoss
from mar_st.model.context_means import cut_encoder
from mar_st.model.encoders import load_encoder
from mar_st.modules.bigrams import BigramTransformer
from mar_st.planning.plan import plan
from mar_st.recipes.load import load_recipe
from mar_st.runs.models import check_models
from mar_st.runs.train import train
from tests.mar_st.runs.sides_recipe import ALIGN, DOCUMENT_INIT, FAST, JOINT, QUERY, QUERY_INIT, ROWS
from tests.mar_st.train_helpers import silent


def _query_weights(folder):
    return load_file(folder / "query_0_Transformer/model.safetensors")


@pytest.mark.thorough
def test_query_layers_are_copied_from_the_trained_document_encoder(recipe, tmp_path):
    built = recipe(
        "stages.align.learning_rate=1e-12",  # leaves the weights where they were
        dim=24,
        query={"layers_of_document": [0, 2], "max_length": 24},
        stages=[DOCUMENT_INIT, ALIGN],
    )
    out = tmp_path / "out"
    model = train(built, out, say=silent)
    document = load_file(out / "01-document-init/model/model.safetensors")
    query = _query_weights(model)
    for name, tensor in query.items():
        origin = name.replace("layers.1.", "layers.2.")
        torch.testing.assert_close(tensor, document[origin], atol=1e-6, rtol=0)
    assert not any("layers.2." in name for name in query)
    plain = SentenceTransformer(str(model), device="cpu")
    mar = MAR.from_pretrained(model, device="cpu")
    assert mar.route_modules("query")[1].pooling_mode in ("lasttoken", ("lasttoken",))
    np.testing.assert_allclose(plain.encode_query(["头疼"]), mar.encode_queries(["头疼"]), atol=1e-5)


@pytest.mark.thorough
def test_context_means_replace_the_embeddings_of_the_document(recipe, tmp_path):
    built = recipe(
        "stages.align.learning_rate=1e-12",  # leaves the weights where they were
        dim=24,
        query={"layers_of_document": [1], "max_length": 24, "context_means": ["answers"]},
        stages=[DOCUMENT_INIT, ALIGN],
    )
    model = train(built, tmp_path / "out", say=silent)
    mar = MAR.from_pretrained(model, device="cpu")
    document = load_encoder(str(tmp_path / "out/01-document-init/model"), "document")[0]
    encoder = mar.route_modules("query")[0]
    queries = ["检索：" + query for query in dict(ROWS)]
    own = document.model.get_input_embeddings().weight.clone()
    cut_encoder([document], [1], queries, max_length=24)
    expected = document.model.get_input_embeddings().weight
    torch.testing.assert_close(encoder.model.get_input_embeddings().weight, expected, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(expected, own, atol=1e-2)


@pytest.mark.thorough
def test_pairs_of_tokens_reach_the_finished_model(recipe, tmp_path):
    query = {"layers_of_document": [1], "max_length": 24, "context_means": ["answers"], "bigrams": 50}
    built = recipe(dim=24, query=query, stages=[DOCUMENT_INIT, ALIGN, JOINT])
    model = train(built, tmp_path / "out", say=silent)
    aligned = MAR.from_pretrained(tmp_path / "out/02-align/model", routes="query", device="cpu")
    mar = MAR.from_pretrained(model, device="cpu")
    plain = SentenceTransformer(str(model), device="cpu", trust_remote_code=True)
    encoder, before = mar.route_modules("query")[0], aligned.route_modules("query")[0]
    assert isinstance(encoder, BigramTransformer)
    assert encoder.bigrams.first.abs().max() > 0
    for name in ("pairs", "first", "second"):  # joint training leaves them as they were
        assert torch.equal(getattr(encoder.bigrams, name), getattr(before.bigrams, name))
    np.testing.assert_allclose(plain.encode_query(["头疼"]), mar.encode_queries(["头疼"]), atol=1e-6)
    assert not isinstance(mar.route_modules("document")[0], BigramTransformer)
    assert "trust_remote_code=True" in (model / "README.md").read_text(encoding="utf-8")


@pytest.mark.thorough
def test_a_projection_is_trained_from_the_first_joining_stage(recipe, tmp_path):
    query = {**QUERY, "projection": 24}
    built = recipe(dim=24, query=query, stages=[QUERY_INIT, DOCUMENT_INIT, ALIGN, JOINT])
    out = tmp_path / "out"
    model = train(built, out, say=silent)
    init = SentenceTransformer(str(out / "01-query-init/model"), device="cpu")
    assert init.get_embedding_dimension() == 16
    weights = [
        load_file(next((out / stage / "model").glob("query_*_Dense")) / "model.safetensors")["linear.weight"]
        for stage in ("03-align", "04-joint")
    ]
    assert weights[0].shape == (24, 16)
    assert not torch.equal(*weights)
    plain = SentenceTransformer(str(model), device="cpu")
    assert plain.encode_query(["头疼"]).shape == plain.encode_document(["头疼"]).shape == (1, 24)


@pytest.mark.thorough
def test_a_symmetric_recipe_may_have_a_projection(recipe, tmp_path):
    query = {**QUERY, "projection": 8}
    again = {**QUERY_INIT, "name": "again"}
    built = recipe(dim=8, query=query, document=None, stages=[QUERY_INIT, again])
    model = SentenceTransformer(str(train(built, tmp_path / "out", say=silent)), device="cpu")
    assert [type(module).__name__ for module in model] == ["Transformer", "Pooling", "Dense", "Normalize"]
    assert model.encode(["头疼"]).shape == (1, 8)


@pytest.mark.thorough
def test_a_symmetric_recipe_may_train_raw_dot_products(recipe, tmp_path):
    built = recipe("stages.document-init.temperature=1", normalise=False, query=None, stages=[DOCUMENT_INIT])
    model = SentenceTransformer(str(train(built, tmp_path / "out", say=silent)), device="cpu")
    assert [type(module).__name__ for module in model] == ["Transformer", "Pooling"]
    assert model.similarity_fn_name == "dot"
    assert abs(float(np.linalg.norm(model.encode(["头疼"]))) - 1) > 0.05


@pytest.mark.thorough
@pytest.mark.parametrize("renormalise", [True, False])
def test_prefixes_are_renormalised_if_the_model_renormalises(recipe, tmp_path, monkeypatch, renormalise):
    """With a cut after the normalisation `document-init` scores prefixes as the finished model scores."""
    seen = []
    step = AsymInfoNCELoss.parts

    def spy(self, queries, documents, scope):
        seen.append((queries.shape[1], documents.detach().norm(dim=1)))
        return step(self, queries, documents, scope)

    monkeypatch.setattr(AsymInfoNCELoss, "parts", spy)
    init = {**DOCUMENT_INIT, "dims": [16, 24], "max_steps": 1}
    built = recipe(renormalise=renormalise, stages=[init, {**JOINT, "max_steps": 1}])
    out = train(built, tmp_path / "out", say=silent)
    lengths = dict(seen[:2])
    torch.testing.assert_close(lengths[24], torch.ones_like(lengths[24]))
    assert bool(torch.allclose(lengths[16], torch.ones_like(lengths[16]))) is renormalise
    saved = SentenceTransformer(str(tmp_path / "out/01-document-init/model"), device="cpu")
    np.testing.assert_allclose(np.linalg.norm(saved.encode(["头疼"]), axis=1), 1, atol=1e-5)
    assert MAR.from_pretrained(out, device="cpu").encode_corpus(["头疼"]).shape == (1, 16)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"stages": [DOCUMENT_INIT, {**FAST, "stage": "distill", "name": "d", "temperature": 1,
                                     "teacher": "./gone"}]},
         "teacher of stage d: .*There is no folder ./gone"),
        ({"query": {"source": "./gone"}, "stages": [DOCUMENT_INIT, JOINT]}, "query backbone: .*There is no"),
        ({"evaluation": {"path": "./gone"}, "stages": [DOCUMENT_INIT, JOINT]}, "gone"),
    ],
)  # fmt: skip
def test_missing_models_are_noticed_before_training(recipe, tmp_path, settings, message):
    with pytest.raises(MarError, match=message):
        train(recipe(**settings), tmp_path / "out", say=silent)
    assert not (tmp_path / "out").exists()


def _cut(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def _of_type(model_type):
    def change(folder):
        file = folder / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "model_type": model_type}))

    return change


@pytest.mark.parametrize("side", ["query", "document"])
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "model.safetensors").unlink(), "holds no model"),
        (_cut, "model.safetensors holds damaged weights"),
        (_of_type("unknown"), "is not an encoder of texts"),
        (_of_type("vit"), "is not an encoder of texts"),
    ],
    ids=["no weights", "cut weights", "unknown type", "type without texts"],
)
def test_bad_sources_of_either_side_are_noticed_before_training(
    recipe, encoder_folder, tmp_path, side, damage, message
):
    folder = shutil.copytree(encoder_folder, tmp_path / "source")
    damage(folder)
    built = recipe(**{side: {"source": str(folder), "pooling": "cls"}}, stages=[DOCUMENT_INIT, JOINT])
    with pytest.raises(MarError, match=message):
        check_models(built)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("dim=64", "dim is 64, but vectors of the query encoder have 128"),
        ("stages.document-init.dims=[64,512]", r"dims \(64, 512\) exceed the width 256"),
        ("stages.joint.dims=[64,129]", r"dims \(64, 129\) exceed the width 128"),
    ],
)
def test_widths_that_do_not_fit_are_noticed_before_training(setting, message):
    for check in (check_models, plan):
        with pytest.raises(MarError, match=message):
            check(load_recipe("mar-mini", [setting]))
