"""Tests that repaired files equal those first written, byte for byte."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from typer.testing import CliRunner

from mar_st.cli import app
from mar_st.encode import EncodeSettings, encode_corpus
from mar_st.errors import MarError
from mar_st.index import build_index, delete
from mar_st.integrity.repair import RepairError, repair
from mar_st.integrity.verify import verify
from mar_st.teachers.store import TeacherStore
from tests.mar_st.encode.conftest import corpus, model  # noqa: F401
from tests.mar_st.index.conftest import make_library
from tests.mar_st.integrity.damage import flip

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def digests(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


@pytest.fixture
def vectors(model: Path, corpus: Path, tmp_path: Path) -> Path:  # noqa: F811
    encode_corpus(model, corpus, tmp_path / "vectors", EncodeSettings(shard=40, dim=8), show_progress=False)
    return tmp_path / "vectors"


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["verify", *map(str, arguments)])


@pytest.mark.thorough(but=["flipped", "missing"])
@pytest.mark.parametrize("damage", ["flipped", "missing", "cut", "manifest"])
def test_vectors_are_encoded_again(vectors: Path, corpus: Path, damage: str) -> None:  # noqa: F811
    before = digests(vectors)
    path = vectors / "shards" / "000001.safetensors"
    if damage == "flipped":
        flip(path)
    elif damage == "missing":
        path.with_suffix(".arrow").unlink()
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:-9])
    else:
        (vectors / "manifest.json").write_text("{")
    assert run(vectors).exit_code == 1
    given = ["--source", corpus] if damage == "manifest" else []
    done = run(vectors, "--repair", *given)
    assert done.exit_code == 0, done.output
    assert digests(vectors) == before
    assert verify(vectors).whole


def test_vectors_are_not_repaired_from_another_corpus(vectors: Path, corpus: Path, tmp_path: Path) -> None:  # noqa: F811
    flip(vectors / "shards" / "000001.safetensors")
    other = tmp_path / "other.jsonl"
    lines = corpus.read_text(encoding="utf-8").splitlines(keepends=True)
    other.write_text("".join(lines[1:] + lines[:1]), encoding="utf-8")
    with pytest.raises(MarError, match="another corpus"):
        repair(verify(vectors), other)
    (vectors / "manifest.json").write_text("{")
    with pytest.raises(RepairError, match="does not say which corpus"):
        repair(verify(vectors))
    (vectors / "encode.json").unlink()
    with pytest.raises(RepairError, match="does not say what it was encoded with"):
        repair(verify(vectors), corpus)


@pytest.mark.thorough(but=["exact", "ivf-pq"])
@pytest.mark.parametrize("kind", ["exact", "int8", "hnsw", "binary", "ivf-pq"])
def test_an_index_is_built_again_from_its_vectors(tmp_path: Path, kind: str) -> None:
    import faiss

    faiss.omp_set_num_threads(1)
    library = make_library(tmp_path / "library", count=300)
    manifest = library.folder / "manifest.json"
    content = json.loads(manifest.read_text(encoding="utf-8"))
    manifest.write_text(json.dumps({**content, "corpus": {"path": str(library.corpus), "digest": "0"}}))
    index = tmp_path / "index"
    build_index(library.folder, index, kind=kind, tokens="char-bigram", progress=False)
    delete(index, ["d7"])
    before = digests(index)
    segment = index / "segments" / "000001"
    for path in sorted(path for path in segment.rglob("*") if path.is_file()):
        flip(path)
    (segment / "rows.arrow").unlink()
    assert len(verify(index).problems) > 5
    done = run(index, "--repair", "--source", library.folder)
    assert done.exit_code == 0, done.output
    assert digests(index) == before


def test_an_index_is_repaired_from_its_own_vectors_alone(tmp_path: Path) -> None:
    library, other = (make_library(tmp_path / name, count=30, seed=at) for at, name in enumerate("ab"))
    index = tmp_path / "index"
    build_index(library.folder, index, kind="exact", progress=False)
    flip(index / "segments" / "000001" / "vectors.npy")
    for source, message in ((None, "--source VECTORS"), (other.folder, "other vectors")):
        with pytest.raises(RepairError, match=message):
            repair(verify(index), source)
    assert isinstance(run(index, "--repair", "--source", other.folder).exception, RepairError)
    assert run(index, "--source", other.folder).exit_code == 2


class Teacher:
    """Vectors by the length of a text."""

    def identity(self, role: str) -> dict[str, Any]:
        return {"name": "lengths", "role": role}

    def encode(self, texts: Sequence[str], role: str) -> np.ndarray:
        return np.array([[len(text), 1.0, 2.0] for text in texts], dtype=np.float32)


@pytest.mark.thorough(but=["flipped", "missing"])
@pytest.mark.parametrize("damage", ["flipped", "keys", "no keys", "header", "missing", "older"])
def test_teacher_vectors_are_checked_and_computed_again(tmp_path: Path, damage: str) -> None:
    store, texts = TeacherStore(tmp_path / "store", shard=3), ["a" * size for size in range(1, 11)]
    expected = np.asarray(store.vectors(Teacher(), texts, "document", show_progress=False))
    assert verify(store.root).whole
    assert verify(store.root).digests
    shard = sorted(store.root.glob("*/float32/[0-9]*"))[1]
    path = shard / ("keys.npy" if "keys" in damage else "vectors.npy")
    if damage in ("header", "no keys"):
        path.write_bytes(b"\x93NUMPY" + b"x" * 40)
    elif damage == "missing":
        path.unlink()
    else:
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    if damage == "older":  # its keys still say which texts they are of
        (shard / "digests.json").unlink()
        verified = verify(store.root)
        assert verified.whole
        assert "older" in verified.notes[0]
        return
    assert run(store.root).exit_code == 1
    if damage == "no keys":
        with pytest.raises(MarError, match=r"keys\.npy cannot be read .*'mar verify --repair'"):
            store.vectors(Teacher(), texts, "document", show_progress=False)
    assert run(store.root, "--repair").exit_code == 0
    assert not shard.exists()
    again = np.asarray(store.vectors(Teacher(), texts, "document", show_progress=False))
    np.testing.assert_array_equal(again, expected)
    assert verify(store.root).whole


def test_files_without_a_source_are_named(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text("[")
    with pytest.raises(RepairError, match="cannot be rebuilt"):
        repair(verify(tmp_path))
