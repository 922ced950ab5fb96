from __future__ import annotations

import errno
import os

import pytest
from safetensors import SafetensorError

from mar_st.errors import os_error_message


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "Free disk space"),
        (errno.EACCES, "folder that may be written"),
        (errno.ENAMETOOLONG, "Give the path of an existing file"),
        (errno.ENOTDIR, "another path to write to"),
        (errno.EEXIST, "another path to write to"),
    ],
)
def test_errors_of_disks_and_paths_come_with_advice(number, advice):
    message = os_error_message(OSError(number, os.strerror(number), "there"))
    assert os.strerror(number) in message
    assert "'there'" in message
    assert advice in message


@pytest.mark.parametrize(
    "error",
    [
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
        RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 135232 vs 135120"),
        RuntimeError("basic_ios::clear: iostream error"),
        OSError("10000 requested and 2484 written"),
    ],
)
def test_a_disk_that_is_full_has_advice_whichever_library_writes(error):
    message = os_error_message(error)
    assert str(error) in message
    assert "Free disk space" in message


@pytest.mark.parametrize("error", [OSError("no number"), ConnectionResetError(errno.ECONNRESET, "reset")])
def test_other_errors_have_none(error):
    assert os_error_message(error) is None
