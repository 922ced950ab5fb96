"""Tests of a document space: what it keeps of the teacher's vectors, and how teacher and texts are opened."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from mar_st.encode.folder import write_vectors
from mar_st.errors import MarError
from mar_st.model.encoders import load_encoder
from mar_st.spaces.space import Space, open_teacher
from mar_st.teachers.endpoint import EndpointTeacher
from mar_st.teachers.store import FolderTeacher
from tests.mar_st.conftest import make_config, make_tokenizer

TEXTS = ["头疼", "感冒发热", "高血压", "咳嗽"]


@pytest.fixture
def folder(tmp_path):
    """Writes vectors of `TEXTS` as a teacher."""

    def write(vectors, texts=TEXTS):
        dtype = "float16" if vectors.dtype == np.float16 else "float32"
        write_vectors(tmp_path / "v", list(map(str, range(len(texts)))), vectors, texts=texts, dtype=dtype)
        return tmp_path / "v"

    return write


@pytest.fixture
def vectors():
    return np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def space_of(path, dim=None):
    return Space.of(FolderTeacher(path), {"query": [], "document": TEXTS}, dim)


def test_vectors_of_length_one_make_a_space_of_cosines(folder, vectors):
    stored = unit(vectors).astype(np.float16)
    space = space_of(folder(stored))
    assert (space.full, space.dim, space.unit, space.similarity) == (6, 6, True, "cosine")
    np.testing.assert_array_equal(space.vectors(TEXTS, "query"), stored)
    np.testing.assert_array_equal(space.documents(TEXTS), stored)


def test_students_of_a_space_of_dot_products_learn_directions_alone(folder, vectors):
    space = space_of(folder(vectors))
    assert (space.unit, space.similarity) == (False, "dot")
    np.testing.assert_allclose(space.vectors(TEXTS[1:], "query"), unit(vectors[1:]), atol=1e-6)
    np.testing.assert_array_equal(space.documents(TEXTS), vectors)


@pytest.mark.parametrize("lengths", [1.0, 3.0])
def test_the_first_dimensions_are_cut_before_lengths_are(folder, vectors, lengths):
    stored = unit(vectors) * np.float32(lengths)
    space = space_of(folder(stored), dim=2)
    assert (space.full, space.dim) == (6, 2)
    first = stored[:, :2]
    np.testing.assert_allclose(space.vectors(TEXTS, "document"), unit(first), atol=1e-6)
    np.testing.assert_allclose(space.documents(TEXTS), unit(first) if space.unit else first, atol=1e-6)


@pytest.mark.parametrize(
    ("row", "dim", "message"),
    [
        ([0.0] * 6, None, "has the length 0 in 6 dimensions"),
        ([0.0, 0.0, 1.0, 0.0, 0.0, 0.0], 2, "has the length 0 in 2 dimensions"),
        ([1e30] * 6, None, "has the length inf"),
    ],
)
def test_vectors_without_a_direction_are_refused(folder, vectors, row, dim, message):
    vectors[2] = row
    with pytest.raises(MarError, match=f"vector of document 3 of 4 {message}"):
        space_of(folder(vectors), dim)


def test_all_vectors_are_checked_before_training(folder):
    texts = [f"头疼{number}" for number in range(300)]
    rows = unit(np.random.default_rng(1).standard_normal((300, 6)).astype(np.float32))
    rows[:, 0] += np.where(np.arange(300) == 299, 3, 0)
    assert not Space.of(FolderTeacher(folder(rows, texts)), {"document": texts}, None).unit


def test_more_dimensions_than_the_teacher_has_are_refused(folder, vectors):
    with pytest.raises(MarError, match="--dim is 7, but the teacher's vectors have 6 dimensions"):
        space_of(folder(vectors), dim=7)


class Euclidean:
    """A teacher whose vectors are compared by their distance."""

    def __init__(self, model):
        self.model = model

    def vectors(self, texts, role):
        return np.linspace(1, 2, len(texts))[:, None] * np.ones((1, 3))


def test_a_space_of_distances_is_refused(mar):
    mar.similarity_fn_name = "euclidean"
    with pytest.raises(MarError, match=r"by euclidean; .* with cosine or dot product"):
        Space.of(Euclidean(mar), {"query": TEXTS, "document": []}, None)
    mar.similarity_fn_name = "dot"
    assert not Space.of(Euclidean(mar), {"query": TEXTS, "document": []}, None).unit


@pytest.fixture
def teacher(tmp_path):
    """A saved BERT that lacks the weights of its pooler, which nothing uses."""
    from safetensors.torch import load_file, save_file

    modules = [*load_encoder((make_config("bert"), make_tokenizer("query")), "query"), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(tmp_path / "teacher"))
    path = tmp_path / "teacher" / "model.safetensors"
    kept = {name: weight for name, weight in load_file(path).items() if "pooler" not in name}
    assert len(kept) < len(load_file(path))
    save_file(kept, path, metadata={"format": "pt"})
    return str(tmp_path / "teacher")


def test_a_teacher_that_lacks_unused_weights_is_the_same_each_time(tmp_path, teacher):
    identities = []
    for seed in (5, 6):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        identities.append(open_teacher(teacher, tmp_path / "store").identity("query"))
        assert torch.equal(torch.get_rng_state(), before)
    assert identities[0] == identities[1]


def test_the_name_decides_what_kind_of_teacher_is_opened(tmp_path, folder, vectors, monkeypatch):
    monkeypatch.setenv("MAR_ENDPOINT_KEY", "key")
    spec = "openai:embed@https://host.example/v1"
    endpoint = open_teacher(spec, tmp_path / "store", prompts={"query": "问：", "document": ""})
    assert isinstance(endpoint, EndpointTeacher)
    assert (endpoint.model, endpoint.prompts["query"]) == ("embed", "问：")
    assert isinstance(open_teacher(str(folder(vectors)), tmp_path / "store"), FolderTeacher)
    with pytest.raises(MarError, match=r"teacher: .*no folder"):
        open_teacher(str(tmp_path / "nowhere"), tmp_path / "store")
    assert not (tmp_path / "store").exists()
