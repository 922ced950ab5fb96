"""Vectors from another source are checked before anything is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mar_st.encode import write_vectors
from mar_st.errors import MarError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vectors": np.full((3, 2), np.nan)}, "NaN"),
        ({"ids": ["a", "b", "\ud800"]}, "half of a surrogate pair"),
        ({"texts": ["a", "b", "\ud800"]}, "half of a surrogate pair"),
        ({"vectors": np.ones((3, 0))}, "dim and shard are at least 1"),
        ({"shard": 0}, "dim and shard are at least 1"),
    ],
)
def test_refused_vectors_leave_a_folder_that_can_be_written(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    good: dict[str, Any] = {"ids": ["a", "b", "c"], "vectors": np.ones((3, 2)), "shard": 2}
    with pytest.raises(MarError, match=message):
        write_vectors(tmp_path / "v", **{**good, **change})
    assert len(write_vectors(tmp_path / "v", **good)) == 3
    assert sorted(path.name for path in (tmp_path / "v").iterdir()) == ["manifest.json", "shards"]


@pytest.mark.parametrize("unit", [True, False])
def test_lengths_are_measured_over_all_shards(tmp_path: Path, unit: bool) -> None:
    vectors = np.eye(3)
    vectors[2] *= 1 if unit else 2
    assert write_vectors(tmp_path / "v", ["a", "b", "c"], vectors, shard=2).normalised is unit
