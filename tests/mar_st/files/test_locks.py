from __future__ import annotations

import pytest
from filelock import FileLock

from mar_st.errors import MarError
from mar_st.files.locks import LOCK, alone, clear


class BusyError(MarError):
    """Error of a command."""


def test_a_second_process_is_refused(tmp_path):
    folder = tmp_path / "new" / "out"
    with alone(folder, BusyError):
        busy = pytest.raises(BusyError, match=r"Another process is writing .*out\. Wait for it to end")
        with busy, alone(folder, BusyError):
            pass
        assert folder.is_dir()
        (folder / "content").touch()
    with alone(folder, BusyError):
        pass
    assert (folder / "content").is_file()


def test_a_new_folder_without_content_is_deleted_again(tmp_path):
    with pytest.raises(ValueError, match="before any work"), alone(tmp_path / "new" / "out", BusyError):
        raise ValueError("before any work")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "own").mkdir()
    with alone(tmp_path / "own", BusyError):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["own"]


def test_the_lock_survives_clearing(tmp_path):
    with alone(tmp_path, BusyError):
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder" / "file").touch()
        (tmp_path / "link").symlink_to(tmp_path / "folder")
        clear(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == [LOCK]
        with pytest.raises(BusyError), alone(tmp_path, BusyError):
            pass
    assert FileLock(tmp_path / LOCK).acquire(timeout=0)
