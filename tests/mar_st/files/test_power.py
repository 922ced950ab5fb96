"""Power cuts at every moment, with what was not synced lost in any order; and writes that end early."""

from __future__ import annotations

import random
import resource
import shutil
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mar_st.encode import VectorFolder, write_vectors
from mar_st.files import sync_folder, write_json
from mar_st.index import Index, add, build_index, compact, delete
from mar_st.integrity.verify import verify
from tests.mar_st.files.power import Disk
from tests.mar_st.index.conftest import make_library
from tests.mar_st.index.parts import part

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def followed(root: Path, work: Callable[[], object]) -> Disk:
    """Do something, and have the moments of it."""
    with pytest.MonkeyPatch.context() as patched:
        disk = Disk(root, patched)
        work()
        disk.close()
    return disk


def states(disk: Disk, out: Path, each: int) -> Any:
    """Folders as they may be after a cut at each moment; each is removed after it was looked at."""
    values = random.Random(0)
    for number, cut in enumerate(disk.cuts):
        for way in range(each):
            shutil.rmtree(out, ignore_errors=True)
            cut.write(out, values if way else None)
            yield number, out


def test_the_modelled_disk_loses_unsynced_content(tmp_path: Path) -> None:
    """The model itself: a file that is renamed without a sync may be empty, old or torn."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "a").write_bytes(b"old" * 4000)

    def careless() -> None:
        (root / "a.part").write_bytes(b"new" * 4000)
        (root / "a.part").replace(root / "a")

    contents = {
        (out / "a").read_bytes() if (out / "a").exists() else None
        for _, out in states(followed(root, careless), tmp_path / "out", 40)
    }
    assert {b"old" * 4000, b"new" * 4000, b""} < contents
    assert any(content and b"new" in content and len(content) < 12_000 for content in contents)
    (root / "a").write_bytes(b"old" * 4000)
    careful = followed(root, lambda: write_json(root / "a", ["new"] * 3000))
    contents = {(out / "a").read_bytes() for _, out in states(careful, tmp_path / "out", 40)}
    assert contents == {b"old" * 4000, (root / "a").read_bytes()}


def test_a_name_is_lost_until_its_folder_is_synced(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()

    def work() -> None:
        write_json(root / "a", [1])
        (root / "a").rename(root / "b")
        sync_folder(root)

    disk = followed(root, work)
    names = {tuple(sorted(p.name for p in out.iterdir())) for _, out in states(disk, tmp_path / "out", 40)}
    assert {("a",), ("b",), ()} < names
    disk.cuts[-1].write(tmp_path / "last", None)
    assert [path.name for path in (tmp_path / "last").iterdir()] == ["b"]


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["exact", pytest.param("hnsw", marks=pytest.mark.slow)])
def test_an_update_is_complete_or_absent_after_a_power_cut(tmp_path: Path, kind: str) -> None:
    library = make_library(tmp_path / "library", count=60)
    more = part(tmp_path / "more", range(60, 70))
    out = tmp_path / "index"
    build_index(library.open, out, corpus=library.corpus, kind=kind, tokens="char-bigram", progress=False)
    for change, after in (
        (lambda: add(out, more.folder, corpus=more.corpus, progress=False), 70),
        (lambda: delete(out, ["d1", "d65"]), 68),
        (lambda: compact(out, progress=False), 68),
    ):
        before = len(Index.open(out))
        disk = followed(out, change)
        assert len(disk.cuts) > 10
        counts = set()
        for number, state in states(disk, tmp_path / "state", 2):
            verified = verify(state)
            assert verified.whole, (number, verified.problems)
            index = Index.open(state)
            assert index.find_words(["高血压"], 3, None).keys[0]
            counts.add(len(index))
        assert counts == {before, after}
        disk.cuts[-1].write(tmp_path / "kept", None)  # it has returned, so it is on the disk
        assert len(Index.open(tmp_path / "kept")) == after
        shutil.rmtree(tmp_path / "kept")


@pytest.mark.parametrize("place", ["index", "new/folders/index"])
def test_a_finished_index_survives_a_power_cut(tmp_path: Path, place: str) -> None:
    library = make_library(tmp_path / "library", count=30)
    root = tmp_path / "root"
    root.mkdir()
    disk = followed(
        root, lambda: build_index(library.open, root / place, kind="exact", bm25=False, progress=False)
    )
    disk.cuts[-1].write(tmp_path / "kept", None)
    assert verify(tmp_path / "kept" / place).whole


def test_vectors_are_complete_or_absent_after_a_power_cut(tmp_path: Path) -> None:
    values = np.eye(8, 16, dtype=np.float32)
    root = tmp_path / "root"
    root.mkdir()
    names = [f"d{row}" for row in range(8)]
    disk = followed(root, lambda: write_vectors(root / "v", names, values, shard=3))
    finished = 0
    for _, state in states(disk, tmp_path / "state", 4):
        if (state / "v" / "manifest.json").exists():
            VectorFolder.open(state / "v").verify()
            finished += 1
    assert finished
    disk.cuts[-1].write(tmp_path / "kept", None)
    np.testing.assert_array_equal(VectorFolder.open(tmp_path / "kept" / "v")[:], values)


UPDATE = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
from mar_st.cli import main
sys.argv = ["mar", *sys.argv[2:]]
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["exact", "hnsw"])
def test_truncated_writes_leave_an_index_unchanged(tmp_path: Path, kind: str) -> None:
    """The system takes the first bytes of a file and refuses the rest, in C++ and Arrow, too."""
    assert resource.RLIMIT_FSIZE is not None
    library = make_library(tmp_path / "library", count=60)
    more = part(tmp_path / "more", range(60, 400))
    begun, out = tmp_path / "begun", tmp_path / "index"
    build_index(library.open, begun, corpus=library.corpus, kind=kind, tokens="char-bigram", progress=False)
    counts = []
    for size in (0, 1, 200, 900, 2500, 5000, 10_000, 20_000, 40_000, 70_000, 10**7):
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(begun, out)
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(UPDATE), str(size), "index", "update", str(out), "--add",
             str(more.folder), "--corpus", str(more.corpus)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        counts.append(len(Index.open(out)))
        assert verify(out).whole
        assert (done.returncode == 0) == (counts[-1] == 400), done.stderr
        assert done.returncode in (0, 2), done.stderr
        assert "Traceback" not in done.stderr, done.stderr
    assert counts[0] == 60
    assert counts[-1] == 400
