"""Runs whose sides come from elsewhere than random weights of their own: layers, projections, teachers."""

from __future__ import annotations

import json
import sys
from types import ModuleType

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

from mar_st import MAR
from mar_st.data import read_source
from mar_st.errors import MarError
from mar_st.losses import AsymInfoNCELoss
from mar_st.model.context_means import HiddenMeans
from mar_st.model.encoders import keep_layers, load_encoder
from mar_st.modules.bigrams import BigramTransformer
from mar_st.recipes.load import load_recipe
from mar_st.runs.train import TrainError, train
from mar_st.stages import joint as stages_joint
from tests.mar_st.stages.helpers import cross_encoder

ROWS = [(s + q, a.format(s)) for s in ("头疼", "发热", "咳嗽", "胸闷") for q, a in
        (("吃什么药", "{}患者可以服用药物"), ("挂什么科", "{}应到门诊挂号"))]  # fmt: skip
SHAPE = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32,
         "max_position_embeddings": 64, "initializer_range": 0.2}  # fmt: skip
TOKENIZER = {"vocab_size": 100, "max_token_length": 2}
FAST = {"batch_size": 4, "learning_rate": 1.0e-3, "epochs": 1}
DOCUMENT_INIT = {
    **FAST,
    "stage": "contrastive",
    "name": "document-init",
    "side": "document",
    "temperature": 0.1,
}
QUERY_INIT = {**DOCUMENT_INIT, "name": "query-init", "side": "query"}
ALIGN = {**FAST, "stage": "align", "name": "align"}
JOINT = {**FAST, "stage": "joint", "name": "joint", "temperature": 0.1}


def _silent(line):
    del line


@pytest.fixture
def recipe(tmp_path):
    """Builds a recipe: ``recipe(stages=[...], dim=24, query={...})``."""
    lines = "".join(json.dumps({"query": q, "positive": p}, ensure_ascii=False) + "\n" for q, p in ROWS)
    (tmp_path / "triples.jsonl").write_text(lines, encoding="utf-8")

    def build(*overrides, **settings):
        content = {
            "name": "sides",
            "description": "for tests",
            "dim": 16,
            "prompts": {"query": "检索："},
            "query": {"max_length": 24, "tokenizer": TOKENIZER, "config": {**SHAPE, "model_type": "gte"}},
            "document": {
                "max_length": 24,
                "tokenizer": TOKENIZER,
                "config": {**SHAPE, "model_type": "qwen3", "hidden_size": 24, "num_hidden_layers": 3,
                           "num_key_value_heads": 1, "head_dim": 12},
            },
            "data": [{"name": "answers", "path": str(tmp_path / "triples.jsonl"), "negatives": 0}],
            **settings,
        }  # fmt: skip
        path = tmp_path / "recipe.yaml"
        path.write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
        return load_recipe(path, list(overrides))

    return build


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
    model = train(built, out, say=_silent)
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


def test_context_means_replace_the_embeddings_of_the_document(recipe, tmp_path):
    built = recipe(
        "stages.align.learning_rate=1e-12",  # leaves the weights where they were
        dim=24,
        query={"layers_of_document": [1], "max_length": 24, "context_means": ["answers"]},
        stages=[DOCUMENT_INIT, ALIGN],
    )
    model = train(built, tmp_path / "out", say=_silent)
    mar = MAR.from_pretrained(model, device="cpu")
    document = load_encoder(str(tmp_path / "out/01-document-init/model"), "document")[0]
    found = mar.route_modules("query")[0]
    queries = ["检索：" + query for query in dict(ROWS)]
    means = HiddenMeans.of(document, [1], queries, max_length=24, show_progress=False)
    own = document.model.get_input_embeddings().weight.clone()
    keep_layers([document], [1])
    means.write(document, 1)
    expected = document.model.get_input_embeddings().weight
    torch.testing.assert_close(found.model.get_input_embeddings().weight, expected, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(expected, own, atol=1e-2)


def test_pairs_of_tokens_reach_the_finished_model(recipe, tmp_path):
    query = {"layers_of_document": [1], "max_length": 24, "context_means": ["answers"], "bigrams": 50}
    built = recipe(dim=24, query=query, stages=[DOCUMENT_INIT, ALIGN, JOINT])
    model = train(built, tmp_path / "out", say=_silent)
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
def test_layers_of_the_document_keep_their_pooling_through_stages(recipe, tmp_path):
    built = recipe(
        dim=24,
        query={"layers_of_document": [1], "max_length": 24},
        stages=[DOCUMENT_INIT, QUERY_INIT, ALIGN, JOINT],
    )
    mar = MAR.from_pretrained(train(built, tmp_path / "out", say=_silent), device="cpu")
    assert mar.route_modules("query")[1].pooling_mode in ("lasttoken", ("lasttoken",))
    assert mar.encode_queries(["头疼"]).shape == (1, 24)


@pytest.mark.thorough
def test_a_projection_is_trained_from_the_first_joining_stage(recipe, tmp_path):
    query = {
        "max_length": 24,
        "tokenizer": TOKENIZER,
        "config": {**SHAPE, "model_type": "gte"},
        "projection": 24,
    }
    built = recipe(dim=24, query=query, stages=[QUERY_INIT, DOCUMENT_INIT, ALIGN, JOINT])
    out = tmp_path / "out"
    model = train(built, out, say=_silent)
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
    with pytest.raises(TrainError, match=r"dims .* exceed the width 16; the projection comes with"):
        train(
            recipe(dim=24, query=query, stages=[{**QUERY_INIT, "dims": [8, 24]}, DOCUMENT_INIT, JOINT]),
            tmp_path / "other",
            say=_silent,
        )


def test_a_symmetric_recipe_may_have_a_projection(recipe, tmp_path):
    query = {
        "max_length": 24,
        "tokenizer": TOKENIZER,
        "config": {**SHAPE, "model_type": "gte"},
        "projection": 8,
    }
    again = {**QUERY_INIT, "name": "again"}
    built = recipe(dim=8, query=query, document=None, stages=[QUERY_INIT, again])
    model = SentenceTransformer(str(train(built, tmp_path / "out", say=_silent)), device="cpu")
    assert [type(module).__name__ for module in model] == ["Transformer", "Pooling", "Dense", "Normalize"]
    assert model.encode(["头疼"]).shape == (1, 8)


def test_a_symmetric_recipe_may_train_raw_dot_products(recipe, tmp_path):
    built = recipe("stages.document-init.temperature=1", normalise=False, query=None, stages=[DOCUMENT_INIT])
    model = SentenceTransformer(str(train(built, tmp_path / "out", say=_silent)), device="cpu")
    assert [type(module).__name__ for module in model] == ["Transformer", "Pooling"]
    assert model.similarity_fn_name == "dot"
    assert abs(float(np.linalg.norm(model.encode(["头疼"]))) - 1) > 0.05


@pytest.mark.thorough(but=["lasttoken"])
@pytest.mark.parametrize("mode", ["mean", "lasttoken"])
def test_a_random_encoder_gets_the_pooling_of_the_recipe(recipe, tmp_path, mode):
    query = {
        "max_length": 24,
        "tokenizer": TOKENIZER,
        "config": {**SHAPE, "model_type": "gte"},
        "pooling": mode,
    }
    again = {**QUERY_INIT, "name": "again"}
    built = recipe(query=query, document=None, stages=[QUERY_INIT, again])
    model = SentenceTransformer(str(train(built, tmp_path / "out", say=_silent)), device="cpu")
    assert model[1].pooling_mode in (mode, (mode,))


class _Stage:
    """Stands for the module of a stage: keeps what it is called with, trains nothing."""

    def __init__(self, monkeypatch, kind):
        self.calls = []
        module = ModuleType(f"mar_st.stages.{kind}")
        setattr(module, f"train_{kind}", lambda *args, **_: self.calls.append(args))
        monkeypatch.setitem(sys.modules, f"mar_st.stages.{kind}", module)


def test_retromae_gets_the_query_side(recipe, tmp_path, monkeypatch):
    stage = _Stage(monkeypatch, "retromae")
    built = recipe(document=None, stages=[{**FAST, "stage": "retromae", "name": "pretrain"}, QUERY_INIT])
    train(built, tmp_path / "out", say=_silent)
    ((model, sources, given, settings, prompts),) = stage.calls
    assert [type(module).__name__ for module in model] == ["Transformer", "Pooling", "Normalize"]
    assert ([s.entry.name for s in sources], given.name) == (["answers"], "pretrain")
    assert (settings.folder, prompts) == (tmp_path / "out/01-pretrain", {"query": "检索："})


@pytest.mark.thorough(but=["document"])
@pytest.mark.parametrize("teacher", ["document", "folder"])
def test_distill_gets_its_teacher(recipe, tmp_path, monkeypatch, encoder_folder, teacher):
    stage = _Stage(monkeypatch, "distill")
    name = "document" if teacher == "document" else str(encoder_folder)
    distill = {
        **FAST,
        "stage": "distill",
        "name": "distill",
        "temperature": 0.1,
        "teacher": name,
        "negatives": 0,
    }
    train(recipe(stages=[DOCUMENT_INIT, distill]), tmp_path / "out", say=_silent)
    ((student, given, _, _, _, _),) = stage.calls
    folder = tmp_path / "out/01-document-init/model" if teacher == "document" else encoder_folder
    expected = SentenceTransformer(str(folder), device="cpu").encode(["头疼"])
    np.testing.assert_allclose(given.encode(["头疼"]), expected, atol=1e-5)
    assert student.get_embedding_dimension() == 16


@pytest.mark.thorough(but=["document"])
@pytest.mark.parametrize("teacher", ["document", "folder", "cross-encoder"])
def test_joint_gets_its_teacher(recipe, tmp_path, monkeypatch, encoder_folder, teacher):
    taught_by = []
    monkeypatch.setattr(
        stages_joint, "train_joint", lambda *args, teacher, **options: taught_by.append(teacher)
    )
    scoring = cross_encoder(tmp_path / "scoring")
    names = {"folder": str(encoder_folder), "cross-encoder": f"cross-encoder:{tmp_path / 'scoring'}"}
    taught = {**JOINT, "kl_weight": 1.0, "teacher": names.get(teacher, "document"), "negatives": 1}
    train(recipe(stages=[DOCUMENT_INIT, taught]), tmp_path / "out", say=_silent)
    (given,) = taught_by
    if teacher == "document":
        assert given is None  # the stage has it
    elif teacher == "folder":
        expected = SentenceTransformer(str(encoder_folder), device="cpu").encode(["头疼"])
        np.testing.assert_allclose(given.encode(["头疼"]), expected, atol=1e-5)
    else:
        pairs = [("头疼", "感冒"), ("头疼", "医生")]
        np.testing.assert_allclose(given.predict(pairs), scoring.predict(pairs), atol=1e-6)


@pytest.mark.thorough(but=["True"])
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
    out = train(built, tmp_path / "out", say=_silent)
    lengths = dict(seen[:2])
    torch.testing.assert_close(lengths[24], torch.ones_like(lengths[24]))
    assert bool(torch.allclose(lengths[16], torch.ones_like(lengths[16]))) is renormalise
    saved = SentenceTransformer(str(tmp_path / "out/01-document-init/model"), device="cpu")
    np.testing.assert_allclose(np.linalg.norm(saved.encode(["头疼"]), axis=1), 1, atol=1e-5)
    assert MAR.from_pretrained(out, device="cpu").encode_corpus(["头疼"]).shape == (1, 16)


def test_pre_training_comes_first(recipe, tmp_path):
    pretrain = {**FAST, "stage": "retromae", "name": "pretrain"}
    out = tmp_path / "out"
    train(recipe(document=None, stages=[pretrain, QUERY_INIT]), out, say=_silent)
    before, after = (
        load_file(out / stage / "model/model.safetensors") for stage in ("01-pretrain", "02-query-init")
    )
    assert before.keys() == after.keys()
    assert not any(torch.equal(before[name], after[name]) for name in before if "proj.weight" in name)


@pytest.mark.thorough
def test_distill_trains_a_student_of_the_document_encoder(recipe, tmp_path):
    distill = {**FAST, "stage": "distill", "name": "distill", "temperature": 0.1, "negatives": 0}
    out = tmp_path / "out"
    model = train(recipe(stages=[QUERY_INIT, DOCUMENT_INIT, distill]), out, say=_silent)
    before, after = (
        load_file(folder / "model.safetensors") for folder in (out / "01-query-init/model", model)
    )
    assert before.keys() == after.keys()
    assert not any(torch.equal(before[name], after[name]) for name in before if "proj.weight" in name)
    assert SentenceTransformer(str(model), device="cpu").encode(["头疼"]).shape == (1, 16)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"stages": [DOCUMENT_INIT, {**FAST, "stage": "distill", "name": "d", "temperature": 1,
                                     "teacher": "./gone"}]},
         "teacher of stage d: There is no folder ./gone"),
        ({"query": {"source": "./gone"}, "stages": [DOCUMENT_INIT, JOINT]}, "query backbone: There is no"),
        ({"evaluation": {"path": "./gone"}, "stages": [DOCUMENT_INIT, JOINT]}, "gone"),
    ],
)  # fmt: skip
def test_missing_models_are_noticed_before_training(recipe, tmp_path, settings, message):
    with pytest.raises(MarError, match=message):
        train(recipe(**settings), tmp_path / "out", say=_silent)
    assert not (tmp_path / "out").exists()


@pytest.mark.thorough
def test_only_what_is_trained_is_float32(recipe, tmp_path):
    """Weights stored in half precision: full training in them would lose its small updates."""
    from mar_st.runs.sides import Sides

    out = tmp_path / "out"
    first = recipe("precision=bf16", stages=[QUERY_INIT, DOCUMENT_INIT, JOINT])
    train(first, out, say=_silent, until="document-init")
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
            found = [next(mar.route_modules(role)[0].parameters()).dtype for role in ("query", "document")]
            assert found == [torch.float32, wanted], (stage, precision)


@pytest.mark.thorough
def test_dtype_and_attention_of_a_backbone_reach_every_load(recipe, tmp_path):
    from mar_st.runs.sides import Sides

    frozen = {**JOINT, "freeze": "document"}
    stages = [QUERY_INIT, {**DOCUMENT_INIT, "lora_r": 2}, frozen]
    settings = ["precision=bf16", "document.dtype=bfloat16", "query.dtype=bfloat16",
                "query.attn_implementation=eager", "document.attn_implementation=sdpa"]  # fmt: skip
    built = recipe(*settings, stages=stages)
    train(built, tmp_path / "out", say=_silent, until="document-init")
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


def test_the_dropout_of_a_backbone_reaches_every_load(recipe, tmp_path):
    from mar_st.runs.sides import Sides

    built = recipe("document.dropout=0.25", "query.dropout=0.0", stages=[QUERY_INIT, DOCUMENT_INIT, JOINT])
    train(built, tmp_path / "out", say=_silent, until="document-init")
    data = [read_source(entry, built.seed) for entry in built.data]
    sides = Sides(built, data)
    for folders in ({}, {"document": tmp_path / "out" / "02-document-init" / "model"}):
        sides.folders = folders
        for role, probability in (("query", 0.0), ("document", 0.25)):
            model = sides.modules(role)[0].model
            found = {value for name, value in model.config.to_dict().items() if "dropout" in name}
            assert found - {None} == {probability}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["document.dtype=bfloat16"], "precision fp32 computes in float32"),
        (["precision=bf16", "document.attn_implementation=flash_attention_2"], "cannot run with flash_att"),
    ],
)
def test_an_unusable_dtype_or_attention_is_refused_before_training(recipe, tmp_path, overrides, message):
    with pytest.raises(MarError, match=message):
        train(recipe(*overrides, stages=[ALIGN]), tmp_path / "out", say=_silent)
    assert not (tmp_path / "out").exists()
