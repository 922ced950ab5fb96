"""Digests of data, and negatives that answer their query."""

from __future__ import annotations

import json

import pytest

from mar_st.data.sequences import Triple
from mar_st.data.training import data_digest, read_source
from mar_st.errors import MarError
from mar_st.recipes.schema import Data

ROWS = [
    {
        "query": f"问{number % 40}",
        "positives": [f"答{number}-{part}" for part in range(number % 3 + 1)],
        "negatives": [f"错{number % 25}-{part}" for part in range(number % 4 + 1)],
        "source": "ab"[number % 2],
        "instruction": "找",
    }
    for number in range(100)
]


def _write(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return str(path)


def _entry(path, **settings):
    return Data(name="entry", path=path, prompt="", **settings)


def test_the_digest_covers_contents_names_and_settings(tmp_path):
    path = _write(tmp_path / "rows.jsonl", ROWS)
    first = data_digest(_entry(path))
    assert data_digest(_entry(path, weight=2)) == first == data_digest(_entry(path))
    assert data_digest(_entry(path, limit=3)) != first
    _write(tmp_path / "rows.jsonl", ROWS[:-1])
    assert data_digest(_entry(path)) != first
    with pytest.raises(MarError, match="There is no file"):
        data_digest(str(tmp_path / "absent"))


def test_positives_of_the_query_and_their_copies_are_no_negatives(tmp_path):
    rows = [
        {"query": "问", "positives": ["多喝水，ABC"], "negatives": ["打球", "多休息。", "多 喝 水 ａｂｃ"]},
        {"query": "问", "positives": ["多休息"], "negatives": ["熬夜", "打球!"]},
        {"query": "别的", "positives": ["打球"], "negatives": ["多休息"]},
    ]
    source = read_source(_entry(_write(tmp_path / "rows.jsonl", rows)))
    assert source.triples == [
        Triple("问", ("多喝水，ABC",), ("打球",)),
        Triple("问", ("多休息",), ("熬夜", "打球!")),
        Triple("别的", ("打球",), ("多休息",)),
    ]
    assert source.left_out == {"negatives that answer their query": 2}
