from __future__ import annotations

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from mar_st import MAR
from mar_st.model.encoders import load_encoder
from mar_st.teachers.model import ModelTeacher
from mar_st.teachers.store import TeacherStore

TEXTS = ["头疼吃什么药", "感冒发热咳嗽怎么办呢医生你好", "高血压", "头疼", "咳嗽吃药"]


def test_the_document_encoder_of_a_mar_encodes_both_roles(mar, tmp_path):
    teacher = ModelTeacher.of_documents(mar, TeacherStore(tmp_path))
    live = mar.encode_corpus(TEXTS)
    for role in ("document", "query"):
        np.testing.assert_allclose(np.asarray(teacher.vectors(TEXTS, role)), live, atol=1e-6)
    assert len(list(tmp_path.rglob("teacher.json"))) == 1


def test_without_renormalisation_vectors_are_shorter_than_one(query_source, document_source, tmp_path):
    mar = MAR.from_encoders(query=query_source, document=document_source, renormalise=False, device="cpu")
    vectors = np.asarray(ModelTeacher.of_documents(mar, TeacherStore(tmp_path)).vectors(TEXTS, "document"))
    np.testing.assert_allclose(vectors, mar.encode_corpus(TEXTS), atol=1e-6)
    assert np.linalg.norm(vectors, axis=1).max() < 0.999


@pytest.fixture
def symmetric(document_source):
    modules = [*load_encoder(document_source, "document"), Normalize()]
    return SentenceTransformer(modules=modules, prompts={"query": "头疼", "document": "药"}, device="cpu")


def test_any_model_encodes_queries_and_documents_as_it_does(symmetric, tmp_path):
    teacher = ModelTeacher.of_model(symmetric, TeacherStore(tmp_path))
    queries, documents = (np.asarray(teacher.vectors(TEXTS, role)) for role in ("query", "document"))
    np.testing.assert_allclose(queries, symmetric.encode_query(TEXTS), atol=1e-6)
    np.testing.assert_allclose(documents, symmetric.encode_document(TEXTS), atol=1e-6)
    assert np.abs(queries - documents).max() > 1e-3


def test_cut_vectors_are_those_of_matryoshka(symmetric, tmp_path):
    vectors = ModelTeacher.of_model(symmetric, TeacherStore(tmp_path)).vectors(TEXTS, "document")
    expected = symmetric.encode_document(TEXTS, truncate_dim=16, normalize_embeddings=True)
    np.testing.assert_allclose(np.asarray(vectors.cut(16, normalised=True)), expected, atol=1e-6)


@pytest.mark.parametrize(
    "change",
    [
        lambda mar: mar.route_modules("document")[0].model.norm.weight.data.mul_(1.01),
        lambda mar: setattr(mar.route_modules("document")[0], "max_seq_length", 8),
        lambda mar: setattr(mar.route_modules("document")[0].model.config, "rope_theta", 5.0),
        lambda mar: mar.route_modules("document")[0].tokenizer.add_tokens(["头疼"]),
        lambda mar: mar.route_modules("document")[0].bfloat16(),
    ],
)
def test_the_identity_follows_changes_of_the_vectors(mar, tmp_path, change):
    def name():
        return ModelTeacher.of_documents(mar, TeacherStore(tmp_path)).identity("document")

    before = name()
    mar.route_modules("query")[0].model.embeddings.word_embeddings.weight.data.mul_(2)
    assert name() == before  # the query encoder is not part of it
    change(mar)
    assert name() != before


def test_settings_are_part_of_the_teachers_identity(symmetric, tmp_path):
    store = TeacherStore(tmp_path)
    teachers = [
        ModelTeacher.of_model(symmetric, store),
        ModelTeacher.of_model(symmetric, store, autocast=True),
    ]
    symmetric.prompts["document"] = "好"
    teachers.append(ModelTeacher.of_model(symmetric, store))
    names = {str(store.folder(teacher, "document")) for teacher in teachers}
    assert len(names) == 3


def test_autocast_rounds_the_vectors(symmetric, tmp_path):
    plain = ModelTeacher.of_model(symmetric, TeacherStore(tmp_path)).encode(TEXTS, "document")
    cast = ModelTeacher.of_model(symmetric, TeacherStore(tmp_path), autocast=True).encode(TEXTS, "document")
    assert cast.dtype == np.float32
    assert 0 < np.abs(plain - cast).max() < 0.05
    assert not torch.is_autocast_enabled("cpu")
