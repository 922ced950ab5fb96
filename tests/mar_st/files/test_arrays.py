"""Files that are called `.npy` and hold something else."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mar_st.files.arrays import load_array

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("how", ["archive", "cut archive", "pickle", "empty", "objects"])
def test_invalid_array_files_are_refused(tmp_path: Path, how: str, mapped: bool) -> None:
    path = tmp_path / "a.npy"
    if how == "archive":
        np.savez(tmp_path / "a.npz", a=np.arange(3))
        (tmp_path / "a.npz").rename(path)
    elif how == "objects":
        np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    else:
        contents = {"cut archive": b"PK\x03\x04" + bytes(200), "pickle": pickle.dumps([1]), "empty": b""}
        path.write_bytes(contents[how])
    with pytest.raises(ValueError, match=r"not an \.npy file|allow_pickle|Python objects"):
        load_array(path, mapped=mapped)


@pytest.mark.parametrize("mapped", [True, False])
def test_arrays_are_read(tmp_path: Path, mapped: bool) -> None:
    np.save(tmp_path / "a.npy", np.arange(6).reshape(2, 3))
    np.testing.assert_array_equal(load_array(tmp_path / "a.npy", mapped=mapped), [[0, 1, 2], [3, 4, 5]])


@pytest.mark.parametrize("mapped", [True, False])
def test_a_wrong_header_is_explained_in_one_line(tmp_path: Path, mapped: bool) -> None:
    path = tmp_path / "a.npy"
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }".ljust(30_000) + b"\n"
    path.write_bytes(b"\x93NUMPY\x02\x00" + len(header).to_bytes(4, "little") + header + bytes(3))
    with pytest.raises(ValueError, match="header") as raised:
        load_array(path, mapped=mapped)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize(("descr", "refused"), [("1<f4", True), ("<f4", False)])
def test_elements_that_are_arrays_are_refused(
    tmp_path: Path, descr: str, refused: bool, mapped: bool
) -> None:
    path = tmp_path / "a.npy"
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': (), }}".ljust(117).encode() + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(4))
    if refused:
        with pytest.raises(ValueError, match="elements are arrays"):
            load_array(path, mapped=mapped)
    else:
        assert load_array(path, mapped=mapped).shape == ()
