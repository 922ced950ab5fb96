"""`mar verify`: every kind of folder, whole, damaged, and as earlier versions wrote it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mar_st import MAR
from mar_st.encode import write_vectors
from mar_st.errors import MarError
from mar_st.files import DIGESTS, write_digests
from mar_st.index import build_index, delete
from mar_st.integrity.verify import verify
from mar_st.model.family import add_query_encoder
from mar_st.model.packed import pack, unpack
from mar_st.model.packing import store_as
from tests.mar_st.encode.older import without_digests
from tests.mar_st.integrity.damage import flip

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    values = np.random.default_rng(0).standard_normal((5000, 32)).astype(np.float32)
    write_vectors(tmp_path / "vectors", [f"d{row}" for row in range(5000)], values, shard=4000)
    return tmp_path / "vectors"


@pytest.fixture
def index(vectors: Path, tmp_path: Path) -> Path:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"_id": f"d{row}", "text": "头痛"}) + "\n" for row in range(5000)))
    build_index(vectors, tmp_path / "index", corpus=corpus, kind="int8", tokens="char-bigram", progress=False)
    delete(tmp_path / "index", ["d1"])
    return tmp_path / "index"


@pytest.fixture
def model(mar: MAR, tmp_path: Path) -> Path:
    mar.save_pretrained(str(tmp_path / "model"))
    write_digests(tmp_path / "model")
    return tmp_path / "model"


def named(folder: Path) -> list[str]:
    return [problem.file.rpartition("/")[2] for problem in verify(folder).problems]


def test_damaged_and_missing_vector_files_are_found(vectors: Path) -> None:
    verified = verify(vectors)
    assert (verified.kind, verified.files, verified.whole, verified.notes) == ("vectors", 4, True, [])
    assert verified.bytes == sum(path.stat().st_size for path in (vectors / "shards").iterdir())
    flip(vectors / "shards" / "000000.safetensors")
    (vectors / "shards" / "000001.arrow").unlink()
    assert named(vectors) == ["000000.safetensors", "000001.arrow"]
    problem = verify(vectors).problems[0]
    assert problem.found == "holds other bytes than were written"
    assert "mar encode" in problem.do


def test_vectors_of_an_earlier_version_are_verified(vectors: Path) -> None:
    without_digests(vectors)
    assert verify(vectors).whole
    assert "earlier version" in verify(vectors).notes[0]
    flip(vectors / "shards" / "000000.safetensors")
    assert named(vectors) == ["000000.safetensors"]


@pytest.mark.parametrize(
    "name",
    ["vectors.npy", "index.faiss", "trained.faiss", "rows.arrow", "documents.arrow", "bm25/vocab.index.json"],
)
def test_damaged_index_files_are_found(index: Path, name: str) -> None:
    assert verify(index).whole
    assert verify(index).notes == []
    flip(index / "segments" / "000001" / name)
    assert named(index) == [name.rpartition("/")[2]]


def test_unlisted_files_are_noted_and_damage_to_deleted_rows_is_found(index: Path) -> None:
    (index / "segments" / "000009").mkdir()
    (index / "segments" / "000009" / "left.npy").write_text("x")
    assert verify(index).whole
    assert "000009/left.npy" in verify(index).notes[0]
    flip(next((index / "segments" / "deleted").iterdir()))
    assert named(index) == ["000002-000001.npy"]


@pytest.mark.thorough
@pytest.mark.parametrize("content", ["", "{", '{"format": "mar-index", "version": 1}'])
def test_a_manifest_that_is_damaged_is_a_problem(index: Path, content: str) -> None:
    (index / "manifest.json").write_text(content)
    assert named(index) == ["manifest.json"]


def test_damaged_and_missing_model_files_are_found(model: Path, mar: MAR) -> None:
    verified = verify(model)
    assert (verified.kind, verified.whole, verified.digests, verified.notes) == ("model", True, True, [])
    (model / "README.md").write_text("a better card")
    assert verify(model).whole
    weights = sorted(model.rglob("*.safetensors"))[0]
    flip(weights)
    assert named(model) == ["model.safetensors"]
    weights.unlink()
    assert verify(model).problems[0].found == "is missing"


def test_a_model_without_digests_is_checked_by_the_form_of_its_files(model: Path) -> None:
    (model / DIGESTS).unlink()
    verified = verify(model)
    assert (verified.whole, verified.digests) == (True, False)
    assert "carries no digests" in verified.notes[0]
    weights = sorted(model.rglob("*.safetensors"))[0]
    weights.write_bytes(weights.read_bytes()[:-10])
    (model / "config_sentence_transformers.json").write_text("{")
    assert sorted(named(model)) == ["config_sentence_transformers.json", "model.safetensors"]


def test_digests_follow_what_this_package_changes(model: Path, tmp_path: Path) -> None:
    weights = sorted(model.rglob("*.safetensors"))[0]
    before = json.loads((model / DIGESTS).read_text())["files"]
    flip(weights)
    add_query_encoder(model, MAR.from_pretrained(model).route_modules("query"), "query-extra")
    assert weights.name in named(model)  # a new part gives damage no digest of its own
    flip(weights)
    assert verify(model).whole
    assert len(json.loads((model / DIGESTS).read_text())["files"]) > len(before)
    store_as(model, "float16")
    assert verify(model).whole
    pack(model, tmp_path / "packed")
    assert verify(tmp_path / "packed").kind == "packed model"
    assert verify(tmp_path / "packed").whole
    unpack(tmp_path / "packed", tmp_path / "unpacked")
    assert not verify(tmp_path / "unpacked").digests
    flip(tmp_path / "packed" / "packed.safetensors")
    assert named(tmp_path / "packed") == ["packed.json"]


def test_digests_of_files_outside_the_folder_are_a_problem(model: Path) -> None:
    content = json.loads((model / DIGESTS).read_text())
    content["files"]["x/../../../ESCAPED"] = {"bytes": 1, "sha256": "0" * 64}
    (model / DIGESTS).write_text(json.dumps(content))
    assert "ESCAPED" in verify(model).problems[0].found


def test_other_folders_are_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(MarError):
            verify(folder)


def test_the_exit_status_tells_whether_a_folder_is_whole(
    vectors: Path, index: Path, run_mar: Callable[..., tuple[int, str, str]]
) -> None:
    code, out, _ = run_mar("verify", vectors, index)
    assert code == 0
    assert f"{vectors}: vectors, 4 files" in out
    flip(vectors / "shards" / "000000.safetensors")
    code, out, err = run_mar("verify", vectors, "--json")
    assert code == 1, err
    content = json.loads(out)
    assert (content["whole"], content["kind"], len(content["problems"])) == (False, "vectors", 1)
    assert set(content["problems"][0]) == {"file", "found", "do"}
