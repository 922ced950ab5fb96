from __future__ import annotations

import numpy as np
import pytest
import torch

from mar_st.errors import MarError
from mar_st.stages.contrastive import train_distill
from mar_st.teachers.model import ModelTeacher
from tests.mar_st.stages.helpers import (
    TRIPLES,
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


def test_the_student_takes_over_the_scores_of_a_wider_teacher(tmp_path):
    teacher = _teacher()
    before, kept = _divergence(encoder(), teacher), weights(teacher)
    fields = {"max_steps": 30, "contrastive_weight": 0.0, "kl_scope": "batch", "learning_rate": 1e-2}
    student = _train(tmp_path, teacher=teacher, **fields)
    assert _divergence(student, teacher) < 0.75 * before
    assert not changed(teacher, kept)
    assert not student.training


def test_every_field_reaches_the_loss(tmp_path, fit_arguments):
    fields = {"kl_weight": 2.0, "kl_scope": "batch", "contrastive_weight": 0.5}
    fields |= {"false_negative_margin": 0.25, "mini_batch_size": 2, "mini_batch_tokens": 64}
    _train(tmp_path, negatives=2, **fields)
    loss = fit_arguments["loss"]
    assert {name: getattr(loss, name) for name in fields} == fields
    assert loss.gather_across_devices
    assert fit_arguments["loss"].temperature == pytest.approx(0.1)
    assert len(fit_arguments["data"]["qa"].column_names) == 5
    _train(tmp_path)
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


def test_each_side_is_asked_with_its_own_prompts(tmp_path, fit_arguments, monkeypatch):
    asks = {}
    vectors = ModelTeacher.vectors

    def spy(self, texts, role):
        asks.setdefault(tuple(texts)[:1], {})[role] = self.prompts[role]
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


def test_a_teacher_with_an_unsupported_similarity_is_refused(tmp_path):
    teacher = _teacher()
    teacher.similarity_fn_name = "manhattan"
    with pytest.raises(MarError, match="compares by manhattan"):
        _train(tmp_path, teacher=teacher)


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
