from __future__ import annotations

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from mar_st.stages import distill
from mar_st.stages.distill import train_distill
from mar_st.stages.teaching import DistillError
from mar_st.teachers import CrossEncoderTeacher, ModelTeacher
from tests.mar_st.stages.helpers import (
    TRIPLES,
    apart,
    changed,
    cross_encoder,
    encoder,
    settings,
    source,
    stage,
    weights,
)

QUERIES = [triple.query for triple in TRIPLES]
DOCUMENTS = [triple.positives[0] for triple in TRIPLES]


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    monkeypatch.delenv("MAR_STORE", raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _teacher(**options):
    return encoder("qwen3", 32, seed=7, **options)


def _train(folder, student=None, teacher=None, sources=None, prompts=None, named="document", **fields):
    student, teacher = student or encoder(), teacher or _teacher()
    distill_stage = stage("distill", teacher=named, **fields)
    train_distill(student, teacher, sources or [source()], distill_stage, settings(folder), prompts or {})
    return student


def _divergence(student, teacher):
    """Mean KL of the scores of all queries over all documents."""
    logs = [
        (model.similarity(model.encode(QUERIES), model.encode(DOCUMENTS)) / 0.1).log_softmax(dim=1)
        for model in (teacher, student)
    ]
    return float((logs[0].exp() * (logs[0] - logs[1])).sum(dim=1).mean())


@pytest.mark.thorough(but=["None"])
@pytest.mark.parametrize("size", [None, 3])
def test_the_student_takes_over_the_scores_of_a_wider_teacher(tmp_path, size):
    teacher = _teacher()
    before, kept = _divergence(encoder(), teacher), weights(teacher)
    student = _train(
        tmp_path,
        teacher=teacher,
        max_steps=30,
        contrastive_weight=0.0,
        kl_scope="batch",
        learning_rate=1e-2,
        mini_batch_size=size,
    )
    assert _divergence(student, teacher) < 0.75 * before
    assert not changed(teacher, kept)
    assert not student.training


@pytest.fixture
def fit_arguments(monkeypatch):
    """Arguments that the stage passes to the trainer, which does not run."""
    arguments = {}

    def fit(model, data, loss, stage, settings, **options):
        arguments.update(data=data, loss=loss, **options)

    monkeypatch.setattr(distill, "fit", fit)
    return arguments


def test_every_field_reaches_the_loss(tmp_path, fit_arguments):
    fields = {
        "teacher_temperature": 0.7,
        "kl_weight": 2.0,
        "kl_scope": "batch",
        "contrastive_weight": 0.5,
        "false_negative_margin": 0.25,
        "mini_batch_size": 2,
        "mini_batch_tokens": 64,
    }
    _train(tmp_path, negatives=2, **fields)
    config = fit_arguments["loss"].get_config_dict()
    assert {name: config[name] for name in fields} == fields
    assert config["gather_across_devices"] is True
    assert fit_arguments["loss"].temperature == pytest.approx(0.1)
    assert len(fit_arguments["data"]["qa"].column_names) == 5
    _train(tmp_path, cross_device_negatives=False)
    assert fit_arguments["loss"].gather_across_devices is False
    assert fit_arguments["loss"].teacher_temperature == pytest.approx(0.1)
    assert fit_arguments["loss"].kl_scope == "group"
    _train(tmp_path, negatives=0)
    assert fit_arguments["loss"].kl_scope == "batch"  # a query with one document has no group


@pytest.mark.parametrize("normalise", [True, False])
def test_labels_equal_the_vectors_of_the_live_teacher(tmp_path, fit_arguments, normalise):
    teacher = _teacher(normalise=normalise)
    _train(tmp_path, teacher=teacher)
    rows = fit_arguments["data"]["qa"][[3, 0, 20]]
    for row, label in enumerate(rows["label"]):
        texts = [rows[name][row] for name in ("query", "positive", "negative_1")]
        np.testing.assert_allclose(label.numpy(), teacher.encode(texts), atol=1e-5)
    lengths = np.linalg.norm(rows["label"][0].numpy(), axis=1)
    assert bool(np.allclose(lengths, 1)) is normalise


def test_a_cosine_teacher_without_normalisation_scores_by_cosine(tmp_path, fit_arguments):
    teacher = _teacher(normalise=False)
    teacher.similarity_fn_name = "cosine"
    _train(tmp_path, teacher=teacher)
    label = fit_arguments["data"]["qa"][0]["label"].numpy()
    np.testing.assert_allclose(np.linalg.norm(label, axis=1), 1, atol=1e-5)
    texts = [fit_arguments["data"]["qa"][0][name] for name in ("query", "positive")]
    scores = teacher.similarity(*teacher.encode(texts)).item()
    assert float(label[0] @ label[1]) == pytest.approx(scores, abs=1e-5)


def test_the_teacher_is_asked_once_for_every_distinct_text(tmp_path, monkeypatch):
    asked = []
    encode = ModelTeacher.encode

    def spy(self, texts, role):
        asked.extend((role, text) for text in texts)
        return encode(self, texts, role)

    monkeypatch.setattr(ModelTeacher, "encode", spy)
    _train(tmp_path, max_steps=None, epochs=3)
    assert len(asked) == len(set(asked))
    assert {text for role, text in asked if role == "query"} == set(QUERIES)
    assert set(DOCUMENTS) <= {text for role, text in asked if role == "document"}
    assert (tmp_path / "teacher-store").is_dir()
    first = len(asked)
    (tmp_path / "again").mkdir()
    _train(tmp_path, student=encoder(seed=5))  # the same run folder's store
    assert len(asked) == first


def test_each_side_is_asked_with_its_own_prompts(tmp_path, fit_arguments, monkeypatch):
    asks = {}
    vectors = ModelTeacher.vectors

    def spy(self, texts, role):
        asks.setdefault(tuple(texts)[:1], {})[role] = self.asks[role].prompt
        return vectors(self, texts, role)

    monkeypatch.setattr(ModelTeacher, "vectors", spy)
    teacher = _teacher()
    teacher.prompts = {"query": "头疼", "STS": "发热", "document": "药", "empty": ""}
    for prompt, symmetric, expected in (
        ("query", False, {"query": "头疼", "document": "药"}),
        ("STS", True, {"query": "发热"}),
        ("other", False, {"query": "头疼", "document": "药"}),
        ("", False, {"query": "", "document": "药"}),
    ):
        asks.clear()
        sources = [source(prompt=prompt, symmetric=symmetric)]
        _train(tmp_path, teacher=teacher, sources=sources, prompts={"query": "医生", "STS": "你好"})
        assert {role: text for by_role in asks.values() for role, text in by_role.items()} == expected
        own = {"query": "医生", "STS": "你好"}.get(prompt)
        columns = ("query", "positive", "negative_1") if symmetric else ("query",)
        assert fit_arguments["prompts"] == {"qa": dict.fromkeys(columns, own) if own else {}}


@pytest.mark.thorough
def test_gradcache_trains_the_same_weights(tmp_path):
    start = weights(encoder())
    plain, cached, other = (
        weights(_train(tmp_path / name, **fields))
        for name, fields in (("a", {}), ("b", {"mini_batch_size": 3}), ("c", {"kl_weight": 9.0}))
    )
    assert apart(plain, cached, start) < 1e-2
    assert apart(plain, other, start) > 0.1


@pytest.mark.thorough
def test_a_teacher_loaded_from_a_folder_trains_the_same_weights(tmp_path):
    teacher = _teacher()
    teacher.save_pretrained(str(tmp_path / "teacher"), create_model_card=False)
    loaded = SentenceTransformer(str(tmp_path / "teacher"), device="cpu")
    first, second = (
        weights(_train(tmp_path / name, teacher=model)) for name, model in (("a", teacher), ("b", loaded))
    )
    for name, value in first.items():
        torch.testing.assert_close(value, second[name], rtol=1e-3, atol=1e-5)


def test_a_teacher_with_an_unsupported_similarity_is_refused(tmp_path):
    teacher = _teacher()
    teacher.similarity_fn_name = "manhattan"
    with pytest.raises(DistillError, match="this one scores by manhattan"):
        _train(tmp_path, teacher=teacher)
    with pytest.raises(DistillError, match="there is none"):
        train_distill(encoder(), None, [source()], stage("distill"), settings(tmp_path), {})


@pytest.mark.thorough
def test_the_scope_of_the_kl_changes_training(tmp_path):
    start = weights(encoder())
    group, batch = (weights(_train(tmp_path / scope, kl_scope=scope)) for scope in ("group", "batch"))
    assert apart(group, batch, start) > 0.05


def test_a_cross_encoder_teaches_by_its_logits(tmp_path, fit_arguments):
    teacher = cross_encoder(tmp_path / "teacher")
    _train(tmp_path, teacher=teacher, negatives=2, named="cross-encoder:any")
    rows = fit_arguments["data"]["qa"][[3, 0, 20]]
    assert list(rows) == ["query", "positive", "negative_1", "negative_2", "label"]
    for row, label in enumerate(rows["label"]):
        pairs = [(rows["query"][row], rows[name][row]) for name in list(rows)[1:-1]]
        expected = teacher.predict(pairs, activation_fn=torch.nn.Identity())
        np.testing.assert_allclose(label.numpy(), expected, atol=1e-5)
    assert np.ptp(rows["label"][0].numpy()) > 1e-3
    assert fit_arguments["loss"].teacher_temperature == 1.0


@pytest.mark.thorough
def test_scores_of_a_cross_encoder_are_computed_once(tmp_path, monkeypatch):
    asked = []
    encode = CrossEncoderTeacher.encode

    def spy(self, texts, role):
        asked.extend(texts)
        return encode(self, texts, role)

    monkeypatch.setattr(CrossEncoderTeacher, "encode", spy)
    teacher = cross_encoder(tmp_path / "teacher")
    start = weights(encoder())
    first = weights(_train(tmp_path, teacher=teacher, named="cross-encoder:any", contrastive_weight=0.0))
    assert len(asked) == len(set(asked)) == 2 * len(TRIPLES)
    (tmp_path / "run" / "01-stage").rename(tmp_path / "run" / "02-before")
    again = weights(_train(tmp_path, teacher=teacher, named="cross-encoder:any", contrastive_weight=0.0))
    assert len(asked) == 2 * len(TRIPLES)
    assert apart(first, again, start) == 0
    assert any(not torch.equal(first[name], start[name]) for name in start)
    other = cross_encoder(tmp_path / "other", seed=9)
    (tmp_path / "run" / "01-stage").rename(tmp_path / "run" / "03-before")
    _train(tmp_path, teacher=other, named="cross-encoder:any")
    assert len(asked) == 4 * len(TRIPLES)
