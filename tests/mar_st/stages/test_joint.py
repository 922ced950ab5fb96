from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from mar_st.losses import AsymInfoNCELoss, ScoreDistillLoss
from mar_st.model.adapters import has_adapter
from mar_st.stages import joint
from mar_st.stages.joint import JointError, train_joint
from mar_st.stages.monitor import MetricsFile
from mar_st.teachers import ModelTeacher
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


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _train(folder, model=None, sources=None, prompts=None, taught_by=None, **fields):
    model = model or mar()
    joint_stage = stage("joint", **fields)
    train_joint(model, sources or [source()], joint_stage, settings(folder), prompts or {}, teacher=taught_by)
    return model


def _sides(names):
    return {name.split(".")[2] for name in names}


@pytest.fixture
def optimised(monkeypatch):
    """Number of values with optimiser state, by learning rate, after the first step of a run."""
    counts = {}

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 1:
            counts.clear()
            optimizer = kwargs["optimizer"]
            state = getattr(optimizer, "optimizer", optimizer).state
            for group in optimizer.param_groups:
                rate = group["initial_lr"]
                counts[rate] = counts.get(rate, 0) + sum(p.numel() for p in group["params"] if p in state)

    monkeypatch.setattr(MetricsFile, "on_step_end", on_step_end, raising=False)
    return counts


def _size(model, route):
    modules = model.route_modules(route)[:1]
    return sum(parameter.numel() for module in modules for parameter in module.parameters())


@pytest.mark.thorough
@pytest.mark.parametrize("size", [None, 3])
@pytest.mark.parametrize("frozen", [None, "query", "document"])
def test_a_frozen_side_keeps_its_weights_and_has_no_optimiser_state(tmp_path, optimised, frozen, size):
    model = mar()
    before = weights(model)
    _train(tmp_path, model=model, freeze=frozen, mini_batch_size=size)
    trained = {"query", "document"} - {frozen}
    assert _sides(changed(model, before)) == trained
    assert optimised == {3e-3: sum(_size(model, route) for route in trained)}


@pytest.mark.thorough
@pytest.mark.parametrize("fields", [{"freeze": "document"}, {"lora_r": 2, "lora_dropout": 0.0}])
def test_start_share_mixes_the_first_and_the_trained_weights_of_trained_sides(tmp_path, fields):
    start, trained, mixed = (
        weights(model)
        for model in (
            mar(),
            _train(tmp_path / "a", max_steps=3, **fields),
            _train(tmp_path / "b", max_steps=3, start_share=0.25, **fields),
        )
    )
    assert apart(trained, mixed, start) == pytest.approx(0.25, abs=0.01)
    for name, weight in mixed.items():
        assert torch.allclose(weight, 0.75 * trained[name] + 0.25 * start[name], atol=1e-6), name
    if "freeze" in fields:
        frozen = [name for name in start if ".document." in name]
        assert frozen
        assert all(torch.equal(mixed[name], start[name]) for name in frozen)


@pytest.mark.thorough
def test_a_thawed_side_is_trained_again(tmp_path):
    model = mar().requires_grad_(False)
    before = weights(model)
    _train(tmp_path, model=model)
    moved = changed(model, before)
    assert _sides(moved) == {"query", "document"}
    assert not any("2.linear.weight" in name for name in moved)  # the truncation


def test_lora_on_the_document_side_is_merged(tmp_path, optimised):
    model = mar()
    before = weights(model)
    _train(tmp_path, model=model, lora_r=2, lora_dropout=0.0, lora_targets=("q_proj",))
    moved = {name for name in changed(model, before) if ".document." in name}
    assert moved
    assert all(name.endswith("q_proj.weight") for name in moved)
    assert model.state_dict().keys() == before.keys()
    assert not has_adapter(model.route_modules("document")[0])
    assert optimised == {3e-3: _size(model, "query") + 2 * 2 * (32 + 32)}


def test_each_route_has_its_own_learning_rate(tmp_path, optimised):
    model = mar()
    before = weights(model)
    _train(tmp_path, model=model, document_learning_rate=1e-9)
    moved = {
        route: max((model.state_dict()[n] - before[n]).abs().max() for n in before if f".{route}." in n)
        for route in ("query", "document")
    }
    assert moved["document"] < 1e-6
    assert moved["query"] > 1e-3
    assert optimised == {3e-3: _size(model, "query"), 1e-9: _size(model, "document")}


def test_every_field_reaches_the_loss(tmp_path, monkeypatch):
    fit_arguments = {}
    monkeypatch.setattr(joint, "fit", lambda *args, **options: fit_arguments.update(loss=args[2], **options))
    fields = {
        "dims": (16, 4),
        "both_directions": True,
        "false_negative_margin": 0.25,
        "mini_batch_size": 2,
        "mini_batch_tokens": 64,
    }
    sources = [source(prompt="query"), source("sts", symmetric=True, prompt="STS")]
    _train(tmp_path, sources=sources, prompts={"query": "医生", "STS": "药"}, negatives=2, **fields)
    config = fit_arguments["loss"].get_config_dict()
    assert config["gather_across_devices"] is True
    assert {name: config[name] for name in fields} == fields
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
    _train(tmp_path, cross_device_negatives=False)
    assert fit_arguments["loss"].gather_across_devices is False


@pytest.mark.thorough
@pytest.mark.parametrize("renormalise", [True, False])
def test_gradcache_trains_the_same_weights(tmp_path, renormalise):
    sources = [source(), source("sts", symmetric=True)]
    trained = [
        weights(
            _train(
                tmp_path / str(size),
                mar(renormalise=renormalise),
                sources,
                dims=[16, 4],
                mini_batch_size=size,
            )
        )
        for size in (None, 3)
    ]
    start = weights(mar(renormalise=renormalise))
    assert apart(*trained, start) < 1e-2
    other = weights(_train(tmp_path / "c", mar(renormalise=renormalise), sources))
    assert apart(trained[0], other, start) > 0.1


def test_freezing_documents_keeps_their_vectors(tmp_path):
    documents = [t.positives[0] for t in TRIPLES]
    model = mar()
    before = model.encode_corpus(documents)
    queries = model.encode_queries([t.query for t in TRIPLES], prompt="")
    _train(tmp_path, model=model, freeze="document", max_steps=20, learning_rate=1e-2)
    assert (model.encode_corpus(documents) == before).all()
    after = model.encode_queries([t.query for t in TRIPLES], prompt="")
    own = [(vectors * before).sum(axis=1) - (vectors @ before.T).mean(axis=1) for vectors in (queries, after)]
    assert own[1].mean() > own[0].mean() + 0.1


def combinations():
    """All combinations of loss, normalisation and GradCache; by default each value of each in some."""
    losses = {"plain": {}, "kl": {"kl_weight": 0.5}, "dims": {"both_directions": True, "dims": (4, 8)}}
    default = {("plain", True, 3), ("kl", False, None), ("kl", True, 3), ("dims", False, 3)}
    for name, renormalise, size in product(losses, (True, False), (None, 3)):
        marks = () if (name, renormalise, size) in default else pytest.mark.slow
        yield pytest.param(losses[name], renormalise, size, marks=marks, id=f"{name}-{renormalise}-{size}")


@pytest.mark.thorough(but=["plain-True-3"])
@pytest.mark.parametrize(("fields", "renormalise", "size"), list(combinations()))
def test_stored_and_encoded_frozen_documents_train_the_same_weights(
    tmp_path, monkeypatch, fields, renormalise, size
):
    fields = {"freeze": "document", "mini_batch_size": size, "max_steps": 4, **fields}
    read = weights(_train(tmp_path / "read", mar(renormalise=renormalise), **fields))
    with monkeypatch.context() as patch:
        patch.setattr(joint, "reads_documents", lambda *_: False)
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
        JointError, match="the symmetric data sts go through the query encoder, which is frozen"
    ):
        _train(tmp_path, sources=sources, freeze="query")


# -- learning scores --

NAMES = ("query", "positive", "negative_1")


def _recorded_fit(monkeypatch):
    arguments = {}

    def fit(model, data, loss, stage, settings, **options):
        arguments.update(data=data, loss=loss, **options)

    monkeypatch.setattr(joint, "fit", fit)
    return arguments


def test_the_document_encoder_teaches_at_its_full_width(tmp_path, monkeypatch):
    fit_arguments, model = _recorded_fit(monkeypatch), mar()
    sources = [source(prompt="query"), source("sts", symmetric=True, prompt="STS")]
    prompts = {"query": "医生", "STS": "药", "document": "你好"}
    fields = {"kl_scope": "batch", "teacher_temperature": 0.7, "contrastive_weight": 0.5, "kl_weight": 2.0}
    alone = mar().encoder("document")
    _train(tmp_path, model, sources, prompts, lora_r=2, lora_targets=("q_proj",), **fields)
    config = fit_arguments["loss"].get_config_dict()
    assert {name: config[name] for name in fields} == fields
    for name, own in (("qa", ("医生", "你好", "你好")), ("sts", ("药", "药", "药"))):
        row = fit_arguments["data"][name][5]
        assert row["label"].shape == (3, 32)
        for vector, column, prompt in zip(row["label"], NAMES, own, strict=True):
            np.testing.assert_allclose(vector.numpy(), alone.encode(row[column], prompt=prompt), atol=1e-5)
    routes = dict(zip(NAMES, ("query", "document", "document"), strict=True))
    assert fit_arguments["router_mapping"]["qa"] == routes
    _train(tmp_path)
    assert type(fit_arguments["loss"]) is AsymInfoNCELoss


def test_the_kl_is_zero_if_all_vectors_equal_the_teachers(tmp_path, monkeypatch):
    fit_arguments, model = _recorded_fit(monkeypatch), mar()
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


@pytest.mark.thorough
@pytest.mark.parametrize("fields", [{}, {"kl_scope": "batch", "dims": [16, 4], "both_directions": True}])
def test_gradcache_trains_the_same_weights_with_a_teacher(tmp_path, fields):
    start = weights(mar())
    plain, cached = (
        weights(_train(tmp_path / str(size), kl_weight=2.0, mini_batch_size=size, **fields))
        for size in (None, 3)
    )
    assert apart(plain, cached, start) < 1e-2
    other = weights(_train(tmp_path / "other", **fields))
    assert apart(plain, other, start) > 0.05


@pytest.mark.thorough
def test_stored_vectors_teach_a_second_run(tmp_path, monkeypatch):
    first = weights(_train(tmp_path, kl_weight=1.0))
    assert (tmp_path / "teacher-store").is_dir()
    (tmp_path / "run" / "01-stage").rename(tmp_path / "run" / "02-before")

    def refuse(*args, **kwargs):
        raise AssertionError("the teacher was asked again")

    monkeypatch.setattr(ModelTeacher, "encode", refuse)
    again = weights(_train(tmp_path, kl_weight=1.0))
    for name, value in first.items():
        assert torch.equal(value, again[name])
    with pytest.raises(AssertionError, match="asked again"):
        _train(tmp_path / "b", kl_weight=1.0)


def test_a_cross_encoder_teaches_both_encoders(tmp_path, monkeypatch):
    teacher = cross_encoder(tmp_path / "teacher")
    model = mar()
    before = weights(model)
    fields = {"kl_weight": 1.0, "contrastive_weight": 0.0, "teacher": "cross-encoder:any"}
    _train(tmp_path, model, taught_by=teacher, **fields)
    assert _sides(changed(model, before)) == {"query", "document"}
    fit_arguments = _recorded_fit(monkeypatch)
    _train(tmp_path, taught_by=teacher, **fields)
    assert fit_arguments["loss"].teacher_temperature == 1.0
    row = fit_arguments["data"]["qa"][0]
    pairs = [(row["query"], row[name]) for name in NAMES[1:]]
    expected = teacher.predict(pairs, activation_fn=torch.nn.Identity())
    np.testing.assert_allclose(row["label"].numpy(), expected, atol=1e-5)
