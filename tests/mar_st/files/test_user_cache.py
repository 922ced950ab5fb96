"""The cache folder of a user: made where it is missing, not used where others could change it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mar_st.files.user_cache import is_own, user_cache

pytestmark = pytest.mark.skipif(os.name == "nt", reason="permissions are not checked on Windows")


@pytest.fixture
def base(tmp_path, monkeypatch):
    """The folder for caches, which is the user's own and does not exist yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches" / "deep"))
    return tmp_path / "caches" / "deep"


def test_the_cache_is_made_for_this_user_alone(base):
    base.mkdir(parents=True)
    before = os.umask(0)
    try:
        folder = user_cache()
    finally:
        os.umask(before)
    assert folder == (base / "medteb").resolve()
    assert folder.stat().st_mode & 0o777 == 0o700
    (folder / "kept").write_text("x", encoding="utf-8")
    assert (user_cache() / "kept").read_text(encoding="utf-8") == "x"


def test_without_a_folder_for_caches_it_is_in_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_cache() == (tmp_path / ".cache" / "medteb").resolve()


def _writable(base):
    (base / "medteb").mkdir(parents=True)
    (base / "medteb").chmod(0o770)


def _writable_above(base):
    base.mkdir(parents=True)
    base.chmod(0o777)


def _file(base):
    base.mkdir(parents=True)
    (base / "medteb").write_text("", encoding="utf-8")


def _link_to_a_writable_folder(base):
    other = base.parent / "other"
    other.mkdir(parents=True)
    other.chmod(0o777)
    base.mkdir()
    (base / "medteb").symlink_to(other)


@pytest.mark.parametrize("damage", [_writable, _writable_above, _file, _link_to_a_writable_folder])
def test_a_folder_that_others_could_change_is_not_used(base, damage):
    damage(base)
    assert user_cache() is None


def test_a_folder_of_somebody_else_is_not_used(base, monkeypatch):
    assert user_cache() is not None
    own = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: own + 1)
    assert user_cache() is None


def test_others_may_write_beside_it_if_they_cannot_replace_it(base):
    base.mkdir(parents=True)
    base.chmod(0o1777)  # as /tmp
    assert user_cache() == (base / "medteb").resolve()


@pytest.mark.parametrize(("mode", "own"), [(0o600, True), (0o644, True), (0o620, False), (0o602, False)])
def test_a_file_is_own_if_nobody_else_may_write_to_it(tmp_path, mode, own):
    path = tmp_path / "file"
    path.write_text("", encoding="utf-8")
    path.chmod(mode)
    assert is_own(path) is own


def test_links_and_missing_files_are_not_own(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")
    names = ("file", "link", "pipe", "none")
    assert [is_own(Path(tmp_path / name)) for name in names] == [True, False, False, False]
