"""C++ is compiled once per user, into a place that is the user's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from mar_st.kernels import build
from mar_st.kernels.build import CompileError, library

if TYPE_CHECKING:
    from pathlib import Path

needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="this machine has no C++ compiler"
)

SOURCE = '#include "number.hpp"\nextern "C" int number() { return NUMBER; }\n'


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "number.hpp").write_text("#define NUMBER 41\n", encoding="utf-8")
    path = tmp_path / "source" / "number.cpp"
    path.write_text(SOURCE, encoding="utf-8")
    return path


def cached(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache" / "medteb").glob("*.so"))


@needs_compiler
def test_compiled_libraries_are_cached(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert library(source, []).number() == 41
    assert [path.name.rpartition("-")[0] for path in cached(tmp_path)] == ["number"]
    assert [path.suffix for path in (tmp_path / "cache" / "medteb").iterdir()] == [".so"]
    monkeypatch.setattr(shutil, "which", lambda _: None)  # no compiler any more
    assert library(source, []).number() == 41


@needs_compiler
def test_a_broken_library_is_recompiled(source: Path, tmp_path: Path) -> None:
    code = f"from mar_st.kernels.build import library, Path; library(Path({str(source)!r}), [])"
    subprocess.run([sys.executable, "-c", code], check=True)  # a process loads what has one name once
    (path,) = cached(tmp_path)
    path.write_bytes(b"\x7fELF")
    assert library(source, []).number() == 41
    assert path.stat().st_size > 1000


@needs_compiler
@pytest.mark.parametrize("how", ["others may write", "a file", "none"])
def test_a_cache_that_others_can_change_is_not_used(
    how: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cache" / "medteb"
    folder.parent.mkdir()
    if how == "others may write":
        folder.mkdir()
        folder.chmod(0o777)
    elif how == "a file":
        folder.write_text("", encoding="utf-8")
    else:
        monkeypatch.setattr(os, "getuid", lambda: -1)
    assert library(source, []).number() == 41
    assert cached(tmp_path) == []


def test_errors_say_what_is_missing(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(CompileError, match=r"no C\+\+ compiler\. Install one"):
        library(source, [])
    monkeypatch.setattr(build.platform, "system", lambda: "Darwin")
    with pytest.raises(CompileError, match="on Linux only; this is Darwin"):
        library(source, [])
