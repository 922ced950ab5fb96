from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from mar_st.encode.folder import write_vectors
from mar_st.errors import MarError
from mar_st.teachers.store import FolderTeacher, TeacherStore, store_root
from tests.mar_st.teachers.digits import TEXTS, Digits


def _files(folder):
    return {
        p.relative_to(folder).as_posix(): p.read_bytes()
        for p in folder.rglob("*")
        if p.suffix in (".json", ".arrow") and "teacher" not in p.name
    }


def test_stored_vectors_equal_the_live_ones(tmp_path):
    teacher = Digits()
    vectors = TeacherStore(tmp_path, shard=16).vectors(teacher, TEXTS, "document")
    np.testing.assert_array_equal(np.asarray(vectors), teacher.live(TEXTS))
    assert vectors.shape == (50, 6)
    assert len(vectors) == 50
    assert [len(texts) for texts in teacher.asked] == [16, 16, 16, 2]


def test_only_missing_texts_are_computed(tmp_path):
    store, teacher = TeacherStore(tmp_path, shard=16), Digits()
    store.vectors(teacher, TEXTS[:30], "document")
    teacher.asked.clear()
    shuffled = [*reversed(TEXTS), TEXTS[3], TEXTS[49], TEXTS[49]]
    vectors = store.vectors(teacher, shuffled, "document")
    assert sorted(text for texts in teacher.asked for text in texts) == sorted(TEXTS[30:])
    np.testing.assert_array_equal(np.asarray(vectors), teacher.live(shuffled))
    teacher.asked.clear()
    np.testing.assert_array_equal(
        np.asarray(TeacherStore(tmp_path).vectors(teacher, TEXTS, "document")), teacher.live(TEXTS)
    )
    assert teacher.asked == []


def test_each_teacher_and_role_has_its_own_folder(tmp_path):
    store = TeacherStore(tmp_path)
    for teacher, role in ((Digits(), "document"), (Digits("other"), "document"), (Digits(), "query")):
        vectors = store.vectors(teacher, TEXTS, role)
        assert teacher.asked
        np.testing.assert_array_equal(np.asarray(vectors), teacher.live(TEXTS))
    assert len(list(tmp_path.glob("*/teacher.json"))) == 3


def test_no_texts_give_no_vectors(tmp_path):
    assert TeacherStore(tmp_path).vectors(Digits(), [], "document").shape == (0, 0)
    assert not any(tmp_path.iterdir())


SCRIPT = """
import os, signal, sys
from mar_st.teachers.store import TeacherStore
from tests.mar_st.teachers.digits import Digits, TEXTS

class Killed(Digits):
    def encode(self, texts, role):
        if len(self.asked) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().encode(texts, role)

TeacherStore(sys.argv[1], shard=16).vectors(Killed(), TEXTS, "document")
"""


@pytest.mark.slow
def test_killed_and_resumed_store_equals_an_uninterrupted_one(tmp_path):
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.run([sys.executable, "-c", SCRIPT, str(killed)], env=environment, check=False)
    assert process.returncode == -signal.SIGKILL
    assert len(list(killed.rglob("manifest.json"))) == 2
    resumed, fresh = Digits(), Digits()
    vectors = TeacherStore(killed, shard=16).vectors(resumed, TEXTS, "document")
    expected = TeacherStore(whole, shard=16).vectors(fresh, TEXTS, "document")
    np.testing.assert_array_equal(np.asarray(vectors), np.asarray(expected))
    assert _files(killed) == _files(whole)
    assert len(_files(whole)) == 12
    assert resumed.asked == fresh.asked[2:]


def test_two_concurrent_callers_share_the_work(tmp_path):
    both_at_work = threading.Barrier(2)

    class Met(Digits):
        def encode(self, texts, role):
            if not self.asked:  # its first shard, held until the other has one as well
                both_at_work.wait(timeout=60)
            return super().encode(texts, role)

    teachers = [Met(), Met()]
    by_caller = {}

    def ask(number):
        by_caller[number] = np.asarray(
            TeacherStore(tmp_path, shard=5).vectors(teachers[number], TEXTS, "document")
        )

    threads = [threading.Thread(target=ask, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asked = [len(teacher.asked) for teacher in teachers]
    assert sum(asked) == 10
    assert min(asked) >= 1
    for vectors in by_caller.values():
        np.testing.assert_array_equal(vectors, teachers[0].live(TEXTS))


def test_bad_vectors_are_refused_and_not_stored(tmp_path):
    class Broken(Digits):
        def encode(self, texts, role):
            vectors = super().encode(texts, role)
            vectors[0, 0] = np.nan
            return vectors

    class Short(Digits):
        def encode(self, texts, role):
            return super().encode(texts, role)[1:]

    store = TeacherStore(tmp_path)
    with pytest.raises(MarError, match="NaN or infinite"):
        store.vectors(Broken(), TEXTS, "document")
    with pytest.raises(MarError, match="shape"):
        store.vectors(Short(), TEXTS, "document")
    assert not list(tmp_path.rglob("manifest.json"))
    store.vectors(Digits(), TEXTS[:10], "document")
    with pytest.raises(MarError, match="it has changed"):
        store.vectors(Digits(dim=4), TEXTS, "document")


def test_the_store_is_next_to_the_run_or_in_mar_store(tmp_path, monkeypatch):
    monkeypatch.delenv("MAR_STORE", raising=False)
    assert store_root(tmp_path / "runs" / "mine") == tmp_path / "runs" / "teacher-store"
    monkeypatch.setenv("MAR_STORE", str(tmp_path / "vectors"))
    assert store_root(tmp_path / "runs" / "mine") == tmp_path / "vectors"


# -- folders of vectors --

FOLDER_TEXTS = [f"文{i}" for i in range(7)]
FOLDER_VECTORS = np.random.default_rng(0).normal(size=(7, 8)).astype(np.float32)


def _written(path, vectors=FOLDER_VECTORS, **options):
    write_vectors(
        path, [f"d{i}" for i in range(7)], vectors, **{"texts": FOLDER_TEXTS, "shard": 3, **options}
    )
    return path


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_vectors_are_found_by_their_texts(tmp_path, dtype):
    teacher = FolderTeacher(_written(tmp_path / "v", dtype=dtype, space="abc"))
    vectors = teacher.vectors(["文6", "文0", "文3", "文0"], "document")
    np.testing.assert_allclose(np.asarray(vectors), FOLDER_VECTORS[[6, 0, 3, 0]], atol=2e-3)
    assert np.asarray(vectors).dtype == np.float32
    assert teacher.space == "abc"


def test_identity_follows_the_content(tmp_path):
    first = FolderTeacher(_written(tmp_path / "a")).identity("query")
    assert first == FolderTeacher(_written(tmp_path / "b")).identity("document")
    assert first != FolderTeacher(_written(tmp_path / "c", FOLDER_VECTORS + 1)).identity("query")
    assert first != FolderTeacher(_written(tmp_path / "d", texts=FOLDER_TEXTS[::-1])).identity("query")


def test_what_cannot_teach_is_refused(tmp_path):
    with pytest.raises(MarError, match="2 of 3 queries have no vector"):
        FolderTeacher(_written(tmp_path / "good")).vectors(["文1", "新", "旧"], "query")
    with pytest.raises(MarError, match="7 of 7 texts have no vector"):
        FolderTeacher(_written(tmp_path / "bare", texts=None)).vectors(FOLDER_TEXTS, "document")
    with pytest.raises(MarError, match="not a folder of vectors"):
        FolderTeacher(tmp_path)
    damaged = next((_written(tmp_path / "damaged") / "shards").glob("*.arrow"))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\0")
    with pytest.raises(MarError, match="is not the file that was written"):
        FolderTeacher(tmp_path / "damaged")
