from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from mar_st.encode import write_vectors
from mar_st.teachers import FolderTeacher
from mar_st.teachers.folder import TeacherFolderError
from mar_st.teachers.vectors import StoreError
from mar_st.text.texts import TextsError

TEXTS = ["头疼", "发热", "咳嗽", "头疼"]
VECTORS = np.arange(20, dtype=np.float32).reshape(4, 5)
VECTORS[3] = VECTORS[0]


def _write(folder, rows, vectors=VECTORS):
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "vectors.npy", vectors)
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / "texts.jsonl").write_text(lines, encoding="utf-8")
    return folder


def test_vectors_are_found_by_text_and_read_where_they_lie(tmp_path):
    teacher = FolderTeacher(_write(tmp_path, [{"text": text} for text in TEXTS]))
    vectors = teacher.vectors(["咳嗽", "头疼"], "document")
    np.testing.assert_array_equal(np.asarray(vectors), VECTORS[[2, 0]])
    assert vectors.parts[0].path == tmp_path / "vectors.npy"
    assert {path.name for path in tmp_path.iterdir()} == {"vectors.npy", "texts.jsonl"}


def test_a_text_with_two_different_vectors_is_refused(tmp_path):
    vectors = VECTORS.copy()
    vectors[3] += 1
    folder = _write(tmp_path, [{"text": text} for text in TEXTS], vectors)
    with pytest.raises(TeacherFolderError, match=r"twice with different vectors: rows 1 and 4, '头疼'"):
        FolderTeacher(folder)


def test_vectors_of_a_text_that_differ_by_rounding_are_kept(tmp_path):
    vectors = VECTORS.copy()
    vectors[3] *= 1.001
    teacher = FolderTeacher(_write(tmp_path, [{"text": text} for text in TEXTS], vectors))
    np.testing.assert_array_equal(np.asarray(teacher.vectors(["头疼"], "query")), VECTORS[:1])


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_dtypes_in_safetensors_are_read_as_float32(tmp_path, dtype):
    folder = _write(tmp_path, [{"text": text} for text in TEXTS])
    (folder / "vectors.npy").unlink()
    save_file({"embeddings": VECTORS.astype(dtype)}, folder / "vectors.safetensors", metadata={"a": "b"})
    vectors = np.asarray(FolderTeacher(folder).vectors(TEXTS[:3], "query"))
    np.testing.assert_array_equal(vectors, VECTORS[:3])
    assert vectors.dtype == np.float32


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff" * 100, (10).to_bytes(8, "little") + b"[1,2,3]   ", slice(0, -8)],
    ids=["empty", "other bytes", "other header", "cut"],
)
def test_a_damaged_safetensors_file_is_refused(tmp_path, content):
    folder = _write(tmp_path, [{"text": text} for text in TEXTS])
    (folder / "vectors.npy").unlink()
    save_file({"embeddings": VECTORS}, folder / "vectors.safetensors")
    path = folder / "vectors.safetensors"
    path.write_bytes(path.read_bytes()[content] if isinstance(content, slice) else content)
    with pytest.raises(TeacherFolderError, match=r"vectors.safetensors is damaged .* copy it again"):
        FolderTeacher(folder)


def test_titles_are_joined_and_ids_looked_up(tmp_path):
    folder = _write(tmp_path, [{"title": "头", "text": "疼"}, {"_id": "b"}, {"_id": 7}, {"text": "头疼"}])
    teacher = FolderTeacher(folder, {"b": "发热", "7": "咳嗽"})
    assert teacher.texts == ["头\n疼", "发热", "咳嗽", "头疼"]
    assert teacher.by_id
    with pytest.raises(
        TeacherFolderError, match=r"texts\.jsonl:2: has no 'text', and its _id 'b' is not in the corpus"
    ):
        FolderTeacher(folder)


def test_identity_follows_the_content(tmp_path):
    rows = [{"text": text} for text in TEXTS]
    first = FolderTeacher(_write(tmp_path / "a", rows)).identity("query")
    assert first == FolderTeacher(_write(tmp_path / "b", rows)).identity("document")
    assert first != FolderTeacher(_write(tmp_path / "c", rows, VECTORS + 1)).identity("query")
    assert first != FolderTeacher(_write(tmp_path / "d", [{"text": "药"}, *rows[1:]])).identity("query")


def test_mismatched_inputs_are_refused(tmp_path):
    rows = [{"text": text} for text in TEXTS]
    teacher = FolderTeacher(_write(tmp_path / "good", rows))
    with pytest.raises(TeacherFolderError, match="2 of 3 queries have no vector"):
        teacher.vectors(["头疼", "新", "旧"], "query")
    with pytest.raises(TeacherFolderError, match=r"holds 4 vectors, but texts\.jsonl 3 lines"):
        FolderTeacher(_write(tmp_path / "short", rows[:3]))
    with pytest.raises(StoreError, match=r"shape \(20,\)"):
        FolderTeacher(_write(tmp_path / "flat", rows, VECTORS.reshape(-1)))
    with pytest.raises(StoreError, match="in C order"):
        FolderTeacher(_write(tmp_path / "fortran", rows, np.asfortranarray(VECTORS)))
    with pytest.raises(TeacherFolderError, match=r"needs vectors\.npy"):
        FolderTeacher(tmp_path)
    with pytest.raises(TextsError, match=r"texts\.jsonl:1: needs 'text'"):
        FolderTeacher(_write(tmp_path / "keys", [{"body": "头疼"}, *rows[1:]]))
    folder = _write(tmp_path / "two", rows)
    (folder / "vectors.npy").unlink()
    save_file({"a": VECTORS, "b": VECTORS}, folder / "vectors.safetensors")
    with pytest.raises(TeacherFolderError, match="holds 2 tensors"):
        FolderTeacher(folder)


def test_a_folder_written_by_mar_encode_can_be_a_teacher(tmp_path):
    texts = {f"d{i}": f"文{i}" for i in range(7)}
    vectors = np.random.default_rng(0).normal(size=(7, 8)).astype(np.float32)
    folder = write_vectors(tmp_path / "v", list(texts), vectors, space="abc", shard=3)
    assert len(folder.manifest["shards"]) == 3
    teacher = FolderTeacher(tmp_path / "v", texts)
    asked = ["文6", "文0", "文3"]
    np.testing.assert_array_equal(np.asarray(teacher.vectors(asked, "document")), vectors[[6, 0, 3]])
    assert (teacher.space, teacher.by_id, teacher.texts) == ("abc", True, list(texts.values()))
    other = write_vectors(tmp_path / "w", list(texts), vectors + 1, space="abc", shard=3)
    assert FolderTeacher(other.path, texts).identity("query") != teacher.identity("query")
    with pytest.raises(TeacherFolderError, match="_id 'd6' is not in the corpus"):
        FolderTeacher(tmp_path / "v", {name: text for name, text in texts.items() if name != "d6"})
    rough = write_vectors(tmp_path / "i", list(texts), vectors, dtype="int8")
    with pytest.raises(TeacherFolderError, match="holds int8 vectors"):
        FolderTeacher(rough.path, texts)
