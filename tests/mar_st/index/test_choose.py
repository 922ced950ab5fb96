from __future__ import annotations

import numpy as np
import pytest

from mar_st.index import IndexingError
from mar_st.index import choose as choosing
from mar_st.index.choose import choose, table_lines
from mar_st.index.registry import kind_of
from mar_st.index.source import RowsSource
from tests.mar_st.index.conftest import clustered

COUNT, DIM = 6000, 32


@pytest.fixture(scope="module")
def source():
    return RowsSource([(clustered(COUNT, DIM), np.arange(COUNT))])


def test_a_small_index_is_exact(source):
    choice = choose(source, limit=None, target=0.95, sample=2000)
    assert (choice["kind"], choice["params"]) == ("exact", {})
    assert "fast enough" in choice["why"]
    assert len(choice["measured"]) == 1


def test_memory_rules_out_what_does_not_fit(source, monkeypatch):
    limit = COUNT * DIM * 2
    monkeypatch.setattr(choosing, "FAST_ENOUGH_MS", 0.0)
    lines = []
    choice = choose(source, limit=limit, target=0.9, sample=2000, say=lines.append)
    rows = {(row["kind"], tuple(row["params"].items())): row for row in choice["measured"]}
    assert rows["exact", ()]["note"] == "does not fit into the memory"
    assert not any("exact" in line for line in lines)
    assert choice["kind"] in ("int8", "binary", "ivf-pq")
    chosen = next(row for row in choice["measured"] if row["note"] == "chosen")
    assert chosen["megabytes"] * 1e6 <= limit
    assert chosen["recall"] >= 0.9
    reaching = [row for row in choice["measured"] if row["recall"] is not None and row["recall"] >= 0.9]
    assert chosen["projected_ms"] <= 1.1 * min(row["projected_ms"] for row in reaching)
    assert choice["why"].startswith(choice["kind"])
    assert len(table_lines(choice["measured"])) == len(choice["measured"]) + 1


def test_a_limit_that_nothing_meets_is_refused(source):
    with pytest.raises(IndexingError, match="the smallest, binary, needs"):
        choose(source, limit=1000, target=0.9, sample=1000)


def test_latency_is_projected_to_all_vectors(source, monkeypatch):
    monkeypatch.setattr(choosing, "_candidates", lambda dim: [(kind_of("int8"), {})])
    row = choose(source, limit=None, target=0.5, sample=1500)["measured"][0]
    assert row["projected_ms"] == pytest.approx(row["sample_ms"] * COUNT / 1500, rel=0.01)
