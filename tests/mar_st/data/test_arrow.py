"""Tests of Arrow tables in mapped files."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mar_st.data.arrow import forget_pages, map_table, write_table

SCHEMA = pa.schema([("text", pa.string()), ("parts", pa.list_(pa.string()))])
BATCHES = [
    pa.RecordBatch.from_pydict({"text": ["一", None, ""], "parts": [["a"], [], None]}, schema=SCHEMA),
    pa.RecordBatch.from_pydict({"text": [], "parts": []}, schema=SCHEMA),
    pa.RecordBatch.from_pydict({"text": ["二" * 5000], "parts": [["b", None]]}, schema=SCHEMA),
]


@pytest.mark.parametrize("batches", [BATCHES, BATCHES[:1], []])
def test_a_written_table_is_mapped_with_the_same_rows(tmp_path, batches):
    write_table(tmp_path / "rows.arrow", SCHEMA, iter(batches))
    assert map_table(tmp_path / "rows.arrow").equals(pa.Table.from_batches(batches, SCHEMA))


def test_a_mapped_table_is_read_from_its_file_and_not_copied(tmp_path):
    path = tmp_path / "rows.arrow"
    write_table(path, SCHEMA, BATCHES)
    table = map_table(path)
    content = path.read_bytes()
    with path.open("r+b") as stream:
        stream.write(content.replace("二".encode(), "三".encode()))
    forget_pages()
    assert table.column("text").to_pylist() == ["一", None, "", "三" * 5000]


def test_a_mapped_table_outlives_the_name_of_its_file(tmp_path):
    path = tmp_path / "rows.arrow"
    write_table(path, SCHEMA, BATCHES)
    table = map_table(path)
    path.unlink()
    forget_pages()
    assert table.equals(pa.Table.from_batches(BATCHES, SCHEMA))


def test_batches_of_another_schema_are_refused(tmp_path):
    other = pa.RecordBatch.from_pydict({"text": ["一"]})
    with pytest.raises(pa.ArrowInvalid):
        write_table(tmp_path / "rows.arrow", SCHEMA, [other])
