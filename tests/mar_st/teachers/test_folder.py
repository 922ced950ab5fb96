from __future__ import annotations

import numpy as np
import pytest

from mar_st.encode.folder import write_vectors
from mar_st.errors import MarError
from mar_st.teachers.store import FolderTeacher

TEXTS = [f"文{i}" for i in range(7)]
VECTORS = np.random.default_rng(0).normal(size=(7, 8)).astype(np.float32)


def _folder(path, vectors=VECTORS, **options):
    write_vectors(path, [f"d{i}" for i in range(7)], vectors, **{"texts": TEXTS, "shard": 3, **options})
    return path


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_vectors_are_found_by_their_texts(tmp_path, dtype):
    teacher = FolderTeacher(_folder(tmp_path / "v", dtype=dtype, space="abc"))
    vectors = teacher.vectors(["文6", "文0", "文3", "文0"], "document")
    np.testing.assert_allclose(np.asarray(vectors), VECTORS[[6, 0, 3, 0]], atol=2e-3)
    assert np.asarray(vectors).dtype == np.float32
    assert teacher.space == "abc"


def test_identity_follows_the_content(tmp_path):
    first = FolderTeacher(_folder(tmp_path / "a")).identity("query")
    assert first == FolderTeacher(_folder(tmp_path / "b")).identity("document")
    assert first != FolderTeacher(_folder(tmp_path / "c", VECTORS + 1)).identity("query")
    assert first != FolderTeacher(_folder(tmp_path / "d", texts=TEXTS[::-1])).identity("query")


def test_what_cannot_teach_is_refused(tmp_path):
    with pytest.raises(MarError, match="2 of 3 queries have no vector"):
        FolderTeacher(_folder(tmp_path / "good")).vectors(["文1", "新", "旧"], "query")
    with pytest.raises(MarError, match="7 of 7 texts have no vector"):
        FolderTeacher(_folder(tmp_path / "bare", texts=None)).vectors(TEXTS, "document")
    with pytest.raises(MarError, match="not a folder of vectors"):
        FolderTeacher(tmp_path)
    damaged = next((_folder(tmp_path / "damaged") / "shards").glob("*.arrow"))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\0")
    with pytest.raises(MarError, match="is not the file that was written"):
        FolderTeacher(tmp_path / "damaged")
