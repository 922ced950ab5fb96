"""Mapped files take their room before they are written: a full disk is one error and no bus error."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mar_st.encode import write_vectors
from mar_st.files import open_reserved
from mar_st.files.reserve import DiskFullError
from mar_st.index import build_index

if TYPE_CHECKING:
    from pathlib import Path


def test_a_reserved_file_is_an_array_of_zeros_that_takes_its_space(tmp_path: Path) -> None:
    array = open_reserved(tmp_path / "a.npy", "float32", (1000, 32))
    assert (tmp_path / "a.npy").stat().st_blocks * 512 >= array.nbytes
    assert array.dtype == np.float32
    array[:] = np.arange(32)
    array.flush()
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), np.tile(np.arange(32), (1000, 1)))


def test_a_planted_link_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    (tmp_path / "a.npy").symlink_to(tmp_path / "precious")
    open_reserved(tmp_path / "a.npy", "float32", (10, 2))
    assert (tmp_path / "precious").read_text() == "x"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_too_little_space_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def full(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    write_vectors(tmp_path / "v", ["a", "b"], np.eye(2, 8, dtype=np.float32))
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(DiskFullError, match=r"no room for .*vectors\.npy\.part: it needs 192 bytes"):
        build_index(tmp_path / "v", tmp_path / "index", kind="exact", progress=False)
    assert not list((tmp_path / "index" / "segments" / "000001").glob("vectors*"))


def test_a_file_system_that_cannot_reserve_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "no")

    monkeypatch.setattr(os, "posix_fallocate", cannot)
    assert open_reserved(tmp_path / "a.npy", "int8", (3, 4)).shape == (3, 4)


def _on_a_disk_of(size: str, folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run Python with a disk of a size mounted at a folder, in a namespace of its own."""
    folder.mkdir()
    script = f"mount -t tmpfs -o size={size} tmpfs {folder} && exec {sys.executable} -c '{code}'"
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if shutil.which("unshare") is None or subprocess.run([*command, "true"], check=False).returncode:
        pytest.skip("a small disk cannot be mounted on this machine")
    return subprocess.run([*command, script], capture_output=True, text=True, check=False)


@pytest.mark.thorough(but=["exact-64k"])
@pytest.mark.parametrize(
    ("kind", "size"), [("exact", "2m"), ("hnsw", "2m"), ("int8", "4m"), ("exact", "64k")]
)
def test_a_full_disk_ends_a_build_with_one_error(tmp_path: Path, kind: str, size: str) -> None:
    names = [f"d{row}" for row in range(20_000)]
    vectors = np.random.default_rng(0).standard_normal((20_000, 64)).astype(np.float32)
    write_vectors(tmp_path / "v", names, vectors)
    code = f"""
    import sys
    from mar_st.cli import main
    sys.argv = ["mar", "index", "build", "{tmp_path}/v", "{tmp_path}/disk/index", "--kind", "{kind}"]
    main()
    """
    process = _on_a_disk_of(size, tmp_path / "disk", textwrap.dedent(code).replace("'", '"'))
    assert process.returncode == 2, process.stderr
    assert process.stderr.splitlines()[-1].startswith("mar: error:")
    assert "Free disk space" in process.stderr.splitlines()[-1]
    assert "Traceback" not in process.stderr
