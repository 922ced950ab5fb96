"""Writes that a power cut cannot tear: what has a name is on the disk."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mar_st.encode import VectorFolder, write_vectors
from mar_st.errors import MarError
from mar_st.files import finished, finished_folder, move_folder, replace_folder, write_json
from mar_st.index import Index, add, build_index, compact, delete
from mar_st.integrity.verify import verify
from tests.mar_st.index.conftest import make_library
from tests.mar_st.index.parts import part

if TYPE_CHECKING:
    from collections.abc import Callable


class Disk:
    """Worst-case model of a disk after a power cut.

    A file keeps the bytes of its last sync, and a folder the names of its last sync. Renames of this process
    are tracked and checked when they happen.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.synced: dict[tuple[int, int], int] = {}
        self.torn: list[str] = []
        self.unsynced: set[str] = set()
        self.renames = 0
        fsync = os.fsync

        def synced(handle: int) -> None:
            status = os.fstat(handle)
            self.synced[status.st_dev, status.st_ino] = status.st_mtime_ns
            self.unsynced.discard(os.path.realpath(f"/proc/self/fd/{handle}"))
            fsync(handle)

        def moving(move: Callable[..., None]) -> Callable[..., None]:
            def moved(source: Any, target: Any, **options: Any) -> None:
                self.renames += 1
                paths = [path for path in Path(source).rglob("*") if path.is_file()] or [Path(source)]
                for path in paths:
                    status = path.stat()
                    if self.synced.get((status.st_dev, status.st_ino)) != status.st_mtime_ns:
                        self.torn.append(str(path))
                move(source, target, **options)
                self.unsynced.add(os.path.realpath(Path(target).parent))

            return moved

        monkeypatch.setattr(os, "fsync", synced)
        for name in ("replace", "rename"):
            monkeypatch.setattr(os, name, moving(getattr(os, name)))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["exact", "hnsw", "int8", "binary", "ivf-pq"])
def test_files_are_synced_before_they_are_named(tmp_path: Path, disk: Disk, kind: str) -> None:
    library = make_library(tmp_path / "library", count=400)
    out = tmp_path / "index"
    build_index(library.open, out, corpus=library.corpus, kind=kind, tokens="char-bigram", progress=False)
    more = part(tmp_path / "more", range(400, 420))
    add(out, more.folder, corpus=more.corpus, progress=False)
    delete(out, ["d1"])
    compact(out, progress=False)
    assert disk.renames > 10
    assert disk.torn == []
    assert disk.unsynced == set()
    for path in (out / "segments").rglob("*"):  # files that were written under their own name, too
        status = path.stat()
        if path.is_file():
            assert disk.synced.get((status.st_dev, status.st_ino)) == status.st_mtime_ns, path


def test_a_folder_is_moved_once_all_its_files_are_synced(tmp_path: Path, disk: Disk) -> None:
    (tmp_path / "part" / "a").mkdir(parents=True)
    (tmp_path / "part" / "a" / "b").write_text("x")
    move_folder(tmp_path / "part", tmp_path / "whole")
    assert (tmp_path / "whole" / "a" / "b").read_text() == "x"
    assert (disk.renames, disk.torn, disk.unsynced) == (1, [], set())


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    with finished(path) as aside:
        aside.write_text('{"a": 2}')
    with pytest.raises(FileNotFoundError), finished(path) as aside:
        aside.unlink()
    assert json.loads(path.read_text()) == {"a": 2}
    assert [one.name for one in tmp_path.iterdir()] == ["manifest.json"]


def test_a_finished_folder_replaces_only_the_old_one(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for folder in (out, tmp_path / "out.old", tmp_path / "out.part"):
        folder.mkdir()
        (folder / "mine").touch()
    with finished_folder(out) as part:
        (part / "new").touch()
        assert (out / "mine").is_file()
    names = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*"))
    assert names == ["out", "out.old", "out.old/mine", "out.part", "out.part/mine", "out/new"]
    with pytest.raises(ZeroDivisionError), finished_folder(out):
        _ = 1 / 0
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")) == names


def test_an_old_folder_comes_back_if_the_new_one_cannot_be_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, part = tmp_path / "out", tmp_path / "part"
    for folder in (out, part):
        folder.mkdir()
    (out / "mine").touch()
    rename = Path.rename

    def failing(self: Path, target: Path) -> Path:
        if self == part:
            raise OSError(errno.EXDEV, "no")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OSError, match="no"):
        replace_folder(part, out)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["mine", "out", "part"]


def test_a_planted_link_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    (tmp_path / "a.json.part").symlink_to(tmp_path / "precious")
    write_json(tmp_path / "a.json", [1])
    assert (tmp_path / "precious").read_text() == "x"
    assert not (tmp_path / "a.json").is_symlink()


class CutError(Exception):
    """The power is gone."""


def _failing(monkeypatch: pytest.MonkeyPatch, after: int, failure: Exception) -> None:
    """Let the sync or rename after so many others fail, and all that follow."""
    remaining = [after]

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            remaining[0] -= 1
            if remaining[0] < 0:
                raise failure
            return call(*arguments, **options)

        return run

    for name in ("fsync", "replace", "rename"):
        monkeypatch.setattr(os, name, counted(getattr(os, name)))


@pytest.mark.parametrize(
    "failure",
    [CutError(), pytest.param(OSError(errno.ENOSPC, "full"), marks=pytest.mark.slow),
     pytest.param(OSError(errno.EIO, "broken"), marks=pytest.mark.slow)],
)  # fmt: skip
def test_a_fault_at_any_sync_leaves_the_index_before_or_after(tmp_path: Path, failure: Exception) -> None:
    library = make_library(tmp_path / "library", count=60)
    more = part(tmp_path / "more", range(60, 70))
    begun = tmp_path / "begun"
    build_index(library.open, begun, corpus=library.corpus, kind="exact", bm25=False, progress=False)
    out, counts = tmp_path / "index", set()
    for after in range(200):
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(begun, out)
        with pytest.MonkeyPatch.context() as patched:
            _failing(patched, after, failure)
            try:
                add(out, more.folder, corpus=more.corpus, progress=False)
                done = True
            except (CutError, OSError, MarError):
                done = False
        assert verify(out).whole
        counts.add(len(Index.open(out)))
        if done:
            break
        if after % 5 == 0 and len(Index.open(out)) == 60:  # the same update goes through
            add(out, more.folder, corpus=more.corpus, progress=False)
            assert len(Index.open(out)) == 70
    assert done
    assert counts == {60, 70}


@pytest.mark.parametrize("failure", [CutError(), OSError(errno.ENOSPC, "full")])
def test_a_fault_at_any_sync_leaves_no_torn_vectors(tmp_path: Path, failure: Exception) -> None:
    values = np.eye(8, 16, dtype=np.float32)
    for after in range(100):
        out = tmp_path / f"v{after}"
        with pytest.MonkeyPatch.context() as patched:
            _failing(patched, after, failure)
            try:
                write_vectors(out, [f"d{row}" for row in range(8)], values, shard=3)
                done = True
            except (CutError, OSError):
                done = False
        if done:
            VectorFolder.open(out).verify()
            break
        if (out / "manifest.json").is_file():  # it is moved last; only the sync of its folder failed
            VectorFolder.open(out).verify()
    assert done
    assert after > 10
