"""Tests of a document space: what it keeps of the teacher's vectors, and how teacher and texts are opened."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from mar_st.errors import MarError
from mar_st.model.encoders import load_encoder
from mar_st.spaces import AlignSettings, Space, SpaceError, open_teacher
from mar_st.spaces.space import open_inputs
from mar_st.teachers import EndpointTeacher, FolderTeacher
from tests.mar_st.conftest import make_config, make_tokenizer

TEXTS = ["头疼", "感冒发热", "高血压", "咳嗽"]


@pytest.fixture
def folder(tmp_path):
    """Writes vectors of `TEXTS` as a teacher."""

    def write(vectors, name="vectors"):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "vectors.npy", vectors)
        rows = [{"_id": f"d{place}", "text": text} for place, text in enumerate(TEXTS)]
        (tmp_path / name / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return tmp_path / name

    return write


@pytest.fixture
def vectors():
    return np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def space_of(path, dim=None):
    return Space.of(FolderTeacher(path), {"query": [], "document": TEXTS}, dim)


def test_vectors_of_length_one_make_a_space_of_cosines(folder, vectors):
    path = folder(unit(vectors).astype(np.float16))
    space = space_of(path)
    assert (space.full, space.dim, space.unit, space.similarity) == (6, 6, True, "cosine")
    np.testing.assert_array_equal(space.vectors(TEXTS, "query"), np.load(path / "vectors.npy"))
    np.testing.assert_array_equal(space.documents(TEXTS), np.load(path / "vectors.npy"))


def test_students_of_a_space_of_dot_products_learn_directions_alone(folder, vectors):
    space = space_of(folder(vectors))
    assert (space.unit, space.similarity) == (False, "dot")
    np.testing.assert_allclose(space.vectors(TEXTS[1:], "query"), unit(vectors[1:]), atol=1e-6)
    np.testing.assert_array_equal(space.documents(TEXTS), vectors)


@pytest.mark.parametrize("lengths", [1.0, 3.0])
def test_the_first_dimensions_are_cut_before_lengths_are(folder, vectors, lengths):
    path = folder(unit(vectors) * np.float32(lengths))
    space = space_of(path, dim=2)
    assert (space.full, space.dim) == (6, 2)
    first = np.load(path / "vectors.npy")[:, :2]
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
    with pytest.raises(SpaceError, match=f"vector of document 3 of 4 {message}"):
        space_of(folder(vectors), dim)


def test_all_vectors_are_checked_before_training(tmp_path, vectors):
    texts = [f"头疼{number}" for number in range(300)]
    rows = unit(np.random.default_rng(1).standard_normal((300, 6)).astype(np.float32))
    rows[:, 0] += np.where(np.arange(300) == 299, 3, 0)
    np.save(tmp_path / "vectors.npy", rows)
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    assert not Space.of(FolderTeacher(tmp_path), {"document": texts}, None).unit
    rows[299] = np.nan
    np.save(tmp_path / "vectors.npy", rows)
    with pytest.raises(MarError, match=r"Vector 299 of .* holds NaN"):
        Space.of(FolderTeacher(tmp_path), {"document": texts}, None)


def test_more_dimensions_than_the_teacher_has_are_refused(folder, vectors):
    with pytest.raises(SpaceError, match="--dim is 7, but the teacher's vectors have 6 dimensions"):
        space_of(folder(vectors), dim=7)


class Euclidean:
    """A teacher whose vectors are compared by their distance."""

    def __init__(self, model):
        self.model = model

    def vectors(self, texts, role):
        return np.linspace(1, 2, len(texts))[:, None] * np.ones((1, 3))


def test_a_space_of_distances_is_refused(mar):
    mar.similarity_fn_name = "euclidean"
    with pytest.raises(SpaceError, match=r"by euclidean; .* with cosine or dot product"):
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


def _inputs(tmp_path, teacher, queries=None, texts=None):
    return open_inputs(str(teacher), tmp_path / "out", queries, texts, tmp_path / "store", AlignSettings())


def test_texts_of_vectors_are_the_documents_unless_others_are_given(tmp_path, folder, vectors, files):
    path = folder(vectors)
    queries, texts, _ = files
    assert _inputs(tmp_path, path)[1:] == ([], TEXTS)
    _, found, documents = _inputs(tmp_path, path, queries, texts)
    assert [len(found), len(documents)] == [40, 64]
    lines = [json.dumps({"_id": f"d{place}"}) + "\n" for place in range(4)]
    (path / "texts.jsonl").write_text("".join(lines))  # their texts are in a file that may have more
    known = tmp_path / "known.jsonl"
    rows = [{"_id": f"d{place}", "text": f"text {place}"} for place in range(9)]
    known.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert _inputs(tmp_path, path, None, known)[2] == [f"text {place}" for place in range(4)]


def test_no_texts_and_several_processes_are_refused(tmp_path, teacher, monkeypatch):
    with pytest.raises(SpaceError, match="nothing to align on: give --queries, --texts, or both"):
        _inputs(tmp_path, teacher)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SpaceError, match="runs in one process; start it without torchrun"):
        _inputs(tmp_path, teacher)
