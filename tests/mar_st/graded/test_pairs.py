"""Tests of graded pairs read from files."""

from __future__ import annotations

import pytest

from mar_st.errors import MarError
from mar_st.graded.train import GradedPair, read_graded
from tests.conftest import write_jsonl

ROW = {"query": "头疼", "document": "休息", "label": 3}


def test_rows_keep_the_order_of_files_and_lines(tmp_path):
    first = write_jsonl(tmp_path / "b.jsonl", [ROW | {"label": 0}, ROW | {"label": 100}])
    (tmp_path / "a.csv").write_text("label,query,document\n4,头疼,休息\n", "utf-8")
    pairs = read_graded([str(first), tmp_path / "a.csv", first])
    assert [pair.label for pair in pairs] == [0, 100, 4, 0, 100]
    assert pairs[2] == GradedPair("头疼", "休息", 4)


@pytest.mark.parametrize(
    "change",
    [{"label": label} for label in (-1, 101, 3.5, "3", "S", True, None, [3])]
    + [{"query": ""}, {"document": " \n"}, {"query": ["a"]}],
)
def test_an_invalid_row_is_refused_with_its_line(tmp_path, change):
    with pytest.raises(MarError, match=r"graded\.jsonl:2: "):
        read_graded([write_jsonl(tmp_path / "graded.jsonl", [ROW, ROW | change])])


def test_files_without_rows_are_refused(tmp_path):
    with pytest.raises(MarError, match=r"empty\.jsonl: no graded pairs"):
        read_graded([write_jsonl(tmp_path / "empty.jsonl", [])])
