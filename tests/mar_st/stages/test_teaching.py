"""Labels from teachers: vectors and scores with the teacher's own prompts, and defaults of the loss."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mar_st.stages.columns import read_columns
from mar_st.stages.teaching import DistillError, kl_scope, taught, teacher_temperature, teacher_vectors
from tests.mar_st.stages.helpers import TRIPLES, cross_encoder, encoder, settings, source, stage

TEXTS = ["头疼发热", "咳嗽"]
PROMPTS = {"query": "头疼", "STS": "发热", "passage": "药", "document": ""}


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    monkeypatch.delenv("MAR_STORE", raising=False)


def _teacher(**options):
    model = encoder("qwen3", 32, seed=7, **options).eval()
    model.prompts = dict(PROMPTS)
    return model


@pytest.mark.parametrize(
    ("entry", "query"),
    [({"prompt": "query"}, "头疼"), ({"prompt": "STS"}, "发热"), ({"prompt": "other"}, "头疼"), ({}, "")],
)
def test_a_teacher_is_asked_with_the_prompts_that_it_has(tmp_path, entry, query):
    teacher = _teacher()
    asked = teacher_vectors(teacher, settings(tmp_path).teacher_store(), source(**entry).entry)
    for role, prompt in (("query", query), ("document", "药")):
        rows = asked.vectors(TEXTS, role)[:]
        np.testing.assert_allclose(rows, teacher.encode(TEXTS, prompt=prompt), atol=1e-5)


@pytest.mark.parametrize(("similarity", "unit"), [("cosine", True), ("dot", False)])
def test_the_dot_product_of_vectors_is_the_score_of_the_teacher(tmp_path, similarity, unit):
    teacher = _teacher(normalise=False)
    teacher.similarity_fn_name = similarity
    asked = teacher_vectors(teacher, settings(tmp_path).teacher_store(), source().entry)
    queries, documents = (asked.vectors(TEXTS, role)[:] for role in ("query", "document"))
    expected = teacher.similarity(teacher.encode(TEXTS, prompt=""), teacher.encode(TEXTS, prompt="药"))
    np.testing.assert_allclose(queries @ documents.T, expected.numpy(), rtol=1e-4, atol=1e-5)
    assert np.allclose(np.linalg.norm(queries, axis=1), 1) is unit


def test_both_columns_of_symmetric_data_are_queries_for_the_teacher(tmp_path):
    teacher, entry = _teacher(), source(symmetric=True, prompt="STS")
    columns = {"qa": read_columns(entry, 3)}
    row = taught(columns, teacher, [entry], stage("distill"), settings(tmp_path))["qa"][4]
    expected = teacher.encode([row[name] for name in columns["qa"].column_names], prompt="发热")
    np.testing.assert_allclose(row["label"].numpy(), expected, atol=1e-5)


def test_a_cross_encoder_labels_each_entry_with_scores_of_its_own_rows(tmp_path):
    teacher = cross_encoder(tmp_path / "teacher")
    data = {name: read_columns(source(name), seed) for name, seed in (("qa", 0), ("more", 1))}
    made = taught(data, teacher, [], stage("distill", teacher="cross-encoder:any"), settings(tmp_path))
    assert list(made) == ["qa", "more"]
    for columns in made.values():
        row = columns[2]
        pairs = [(row["query"], row[name]) for name in ("positive", "negative_1")]
        scores = teacher.predict(pairs, activation_fn=torch.nn.Identity())
        np.testing.assert_allclose(row["label"].numpy(), scores, atol=1e-5)


@pytest.mark.parametrize("similarity", ["manhattan", "euclidean", None])
def test_a_teacher_that_scores_by_neither_cosine_nor_dot_product_is_refused(tmp_path, similarity):
    teacher = None if similarity is None else _teacher()
    if teacher is not None:
        teacher.similarity_fn_name = similarity
    got = "there is none" if similarity is None else f"this one scores by {similarity}"
    with pytest.raises(DistillError, match=f"stage distill: .* cosine or dot product; {got}"):
        taught({}, teacher, [source()], stage("distill"), settings(tmp_path))


@pytest.mark.parametrize(
    ("negatives", "given", "scope"),
    [
        ([1], None, "group"),
        ([0], None, "batch"),
        ([1, 0], None, "batch"),
        ([0], "group", "group"),
        ([2], "batch", "batch"),
    ],
)
def test_the_kl_compares_the_documents_of_a_query_if_each_has_several(negatives, given, scope):
    data = {str(n): read_columns(source(str(n), negatives=n), 0) for n in negatives}
    labelled = {name: columns.add_column("label", [0.0] * len(TRIPLES)) for name, columns in data.items()}
    made = stage("distill", kl_scope=given)
    assert kl_scope(made, data) == kl_scope(made, labelled) == scope


@pytest.mark.parametrize(
    ("fields", "temperature"),
    [
        ({}, None),
        ({"teacher_temperature": 0.3}, 0.3),
        ({"teacher": "cross-encoder:any"}, 1.0),
        ({"teacher": "cross-encoder:any", "teacher_temperature": 0.3}, 0.3),
    ],
)
def test_logits_of_a_cross_encoder_have_temperature_1_by_default(fields, temperature):
    assert teacher_temperature(stage("distill", **fields)) == temperature
