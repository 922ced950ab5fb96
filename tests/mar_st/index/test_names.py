"""Tests of the names of a segment's files."""

from __future__ import annotations

import pytest

from mar_st.index.kinds import hnsw
from mar_st.index.names import INDEX, MEANS, TRAINED_INDEX, VECTORS
from tests.mar_st.index.conftest import clustered
from tests.mar_st.index.segments import built, rows_of


@pytest.mark.parametrize(
    ("kind", "given", "files"),
    [
        ("exact", {}, {VECTORS}),
        ("int8", {}, {VECTORS, INDEX, TRAINED_INDEX}),
        ("binary", {}, {VECTORS, INDEX, MEANS}),
        ("hnsw", {}, {INDEX}),
        ("hnsw", {"storage": "int8"}, {VECTORS, INDEX, TRAINED_INDEX}),
        ("ivf-pq", {}, {VECTORS, INDEX, TRAINED_INDEX}),
    ],
)
def test_a_finished_segment_holds_the_files_of_its_kind_alone(tmp_path, monkeypatch, kind, given, files):
    """Temporary files and those of an unfinished build are gone."""
    monkeypatch.setattr(hnsw, "SAVE_EVERY", -1.0)
    built(tmp_path / "segment", rows_of(clustered(120, 16)), kind, given)
    assert {path.name for path in (tmp_path / "segment").iterdir()} == files
