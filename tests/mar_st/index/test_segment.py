"""Tests of one segment of an index: deleted rows, filters, and files that are not those of the manifest."""

from __future__ import annotations

import copy
import shutil

import numpy as np
import pytest

from mar_st.files import entry_of
from mar_st.index import IndexingError, build_index, delete
from mar_st.index.filters import parse_filter
from mar_st.index.manifest import read_manifest
from mar_st.index.segment import Segment
from tests.mar_st.index.conftest import make_library

COUNT, DIM = 60, 16
DELETED = [0, 7, 59]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("segment")
    library = make_library(folder / "library", count=COUNT, dim=DIM)
    options = {"corpus": library.corpus, "kind": "exact", "tokens": "char-bigram", "progress": False}
    build_index(library.open, folder / "index", **options)
    delete(folder / "index", [f"d{row}" for row in DELETED])
    return folder / "index"


@pytest.fixture
def index(built, tmp_path):
    return shutil.copytree(built, tmp_path / "index")


def _open(index, **changes):
    (entry,) = copy.deepcopy(read_manifest(index)["segments"])
    return Segment(index, {**entry, **changes}, DIM, words=True)


def test_deleted_rows_pass_no_filter_and_are_not_found(index):
    segment = _open(index)
    assert len(segment) == COUNT
    np.testing.assert_array_equal(np.flatnonzero(~segment.alive.flags()), DELETED)
    where = parse_filter({"department": "心内科"}).typed(read_manifest(index)["fields"])
    passed = [row for row in range(COUNT) if row % 4 == 0 and row not in DELETED]
    np.testing.assert_array_equal(segment.mask(where).rows, passed)
    np.testing.assert_array_equal(segment.find(["d7", "d8", "nowhere", "d59", "d1"]), [1, 8])


def test_without_deleted_rows_all_are_there(index):
    segment = _open(index, deleted=None)
    assert segment.alive is None
    np.testing.assert_array_equal(segment.find(["d7", "d8"]), [7, 8])


@pytest.mark.parametrize(
    "rows",
    [
        np.array([0, 7], dtype=np.int64),
        np.array([0, 7, 60], dtype=np.int64),
        np.array([-1, 7, 59], dtype=np.int64),
        np.array([7, 0, 59], dtype=np.int64),
        np.array([0, 7, 7], dtype=np.int64),
        np.array([0, 7, 59], dtype=np.int32),
        np.array([0, 7, 59], dtype=np.float64),
        np.array([[0, 7, 59]], dtype=np.int64),
        np.array(7),
        b"half a file",
    ],
    ids=str,
)
def test_a_list_of_deleted_rows_that_does_not_fit_is_refused(index, rows):
    (entry,) = read_manifest(index)["segments"]
    path = index / "segments" / entry["deleted"]["file"]
    if isinstance(rows, bytes):
        path.write_bytes(rows)
    else:
        np.save(path, rows)
    listed = {**entry["deleted"], **entry_of(path)}  # as by somebody who also changed the manifest
    with pytest.raises(
        IndexingError, match=r"\.npy (does not list 3 of 60 rows|is damaged) .*Copy the index"
    ):
        _open(index, deleted=listed)


def _files(index):
    return sorted(path for path in (index / "segments").rglob("*") if path.is_file())


def test_a_changed_byte_in_any_file_is_found(index):
    segment = _open(index)
    segment.verify()
    assert len(_files(index)) > 5
    for path in _files(index):
        content = path.read_bytes()
        for damaged in (content[:-1] + bytes([content[-1] ^ 1]), content + b"x", content[:-1]):
            path.unlink()  # the segment has mapped the old file
            path.write_bytes(damaged)
            for check in (segment.verify, lambda: _open(index)):
                with pytest.raises(IndexingError, match=rf"{path.name} (has|holds)"):
                    check()
        path.write_bytes(content)
    _open(index).verify()


def test_missing_files_are_named(index):
    segment = _open(index)
    for path in _files(index):
        moved = path.rename(path.with_name("moved"))
        with pytest.raises(IndexingError, match=rf"{path.name} is missing\. Copy the index again"):
            segment.verify()
        with pytest.raises(FileNotFoundError):
            _open(index)
        moved.rename(path)


def test_other_numbers_of_documents_are_refused(index):
    with pytest.raises(IndexingError, match=str(COUNT)):
        _open(index, count=COUNT + 1)
