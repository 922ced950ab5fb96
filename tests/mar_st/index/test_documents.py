from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mar_st.index import IndexingError, parse_filter
from mar_st.index.documents import (
    DOCUMENTS_PER_BATCH,
    ROWS,
    TEXTS,
    Documents,
    DocumentWriter,
    Stored,
    _passing,
)


def written(folder, documents, fields=None):
    writer = DocumentWriter(folder, fields)
    for document in documents:
        writer.add(document)
    return writer.close()


def test_written_files_are_read(tmp_path):
    given = []
    for row in range(2 * DOCUMENTS_PER_BATCH + 3):
        metadata = {"year": row, "even": row % 2 == 0} if row % 3 else {}
        given.append(Stored(f"d{row}", f"t{row}" * (row % 2), f"text {row}\n二", metadata))
    assert written(tmp_path, given) == {"even": "boolean", "year": "integer"}
    documents = Documents(tmp_path)
    assert len(documents) == len(given)
    rows = [0, 1, 2, DOCUMENTS_PER_BATCH - 1, DOCUMENTS_PER_BATCH, 2 * DOCUMENTS_PER_BATCH, len(given) - 1]
    assert [documents.document(row) for row in rows] == [given[row] for row in rows]
    assert documents.ids_of(np.array(rows[::-1])) == [given[row].id for row in rows[::-1]]
    assert documents.find(["d7", "nobody", f"d{DOCUMENTS_PER_BATCH}"]).tolist() == [7, DOCUMENTS_PER_BATCH]
    here = slice(DOCUMENTS_PER_BATCH - 2, DOCUMENTS_PER_BATCH + 5)
    texts = [f"{one.title}\n{one.text}" if one.title else one.text for one in given[here]]
    assert list(documents.texts(here.start, here.stop)) == texts


def test_reading_many_documents_equals_reading_each(tmp_path):
    given = [
        Stored(f"d{row}", "", f"text {row}", {"year": row, "part": f"p{row % 3}", "name": f"n{row}"})
        if row % 5
        else Stored(f"d{row}", "", "bare", {})
        for row in range(500)
    ]
    written(tmp_path, given)
    documents = Documents(tmp_path)
    rows = [*range(499, 0, -3), 7, 7]
    assert documents.documents(rows) == [given[row] for row in rows]
    assert documents.documents([]) == []


def test_the_type_of_a_field_holds_all_its_values(tmp_path):
    fields = written(
        tmp_path,
        [
            Stored("a", "", "x", {"mixed": 1, "number": 1, "large": 2**63, "odd": float("nan")}),
            Stored("b", "", "x", {"mixed": "1b", "number": 1.5, "large": 1}),
            Stored("c", "", "x", {"mixed": True}),
        ],
    )
    assert fields == {"large": "number", "mixed": "string", "number": "number"}
    documents = Documents(tmp_path)
    assert [documents.document(row).metadata.get("mixed") for row in range(3)] == ["1", "1b", "true"]
    assert documents.mask(parse_filter("mixed=true").typed(fields)).tolist() == [False, False, True]


def test_many_distinct_strings_filter_as_few_do(tmp_path):
    few, many = tmp_path / "few", tmp_path / "many"
    for folder in (few, many):
        folder.mkdir()
    written(few, [Stored(str(row), "", "x", {"field": str(row % 3)}) for row in range(100)])
    written(many, [Stored(str(row), "", "x", {"field": str(row)}) for row in range(100)])
    where = parse_filter("field=1").typed({"field": "string"})
    assert Documents(few).mask(where).sum() == 33
    assert Documents(many).mask(where).nonzero()[0].tolist() == [1]


def test_a_value_of_another_type_than_the_index_has_is_refused(tmp_path):
    with pytest.raises(IndexingError, match=r"'year' is of type integer.*document 'b' has 'soon'"):
        written(
            tmp_path,
            [Stored("a", "", "x", {"year": 1}), Stored("b", "", "x", {"year": "soon"})],
            {"year": "integer"},
        )
    for kind in ("number", "string"):
        assert written(tmp_path, [Stored("a", "", "x", {"score": 1})], {"score": kind}) == {"score": kind}


def test_a_damaged_file_is_named(tmp_path):
    written(tmp_path, [Stored("a", "", "x", {})])
    (tmp_path / TEXTS).write_bytes(b"nothing of Arrow")
    with pytest.raises(IndexingError, match="damaged"):
        Documents(tmp_path)


@pytest.mark.parametrize("name", [ROWS, TEXTS])
@pytest.mark.parametrize("end", [1 << 40, -1])
def test_offsets_outside_a_file_are_refused(tmp_path, name, end):
    written(tmp_path, [Stored(text * 2, text * 2, text * 2, {}) for text in "abc"])
    path = tmp_path / name
    content = path.read_bytes()
    places = np.array([0, 2, 4, 6], dtype="<i8").tobytes()
    assert places in content
    path.write_bytes(content.replace(places, np.array([0, 2, 4, end], dtype="<i8").tobytes()))
    with pytest.raises(IndexingError, match="damaged"):
        Documents(tmp_path)


def test_a_text_that_is_not_utf8_is_one_error(tmp_path):
    """Texts are checked when they are read: checking all of a large index would take minutes."""
    writer = DocumentWriter(tmp_path)
    for number in range(3):
        writer.add(Stored(str(number), "title", "abcdefgh" * 9, {}))
    writer.close()
    path = tmp_path / "documents.arrow"
    content = path.read_bytes()
    path.write_bytes(content.replace(b"abcdefgh", b"\xb4bcdefgh", 1))
    documents = Documents(tmp_path)
    for read in (lambda: documents.document(0), lambda: list(documents.texts(0, 3))):
        with pytest.raises(IndexingError, match="are damaged"):
            read()
    assert documents.document(2).text == "abcdefgh" * 9


@pytest.mark.parametrize(
    ("before", "after"), [(b"metadata:y", b"metadata:\x80"), (b"metadata:y", b"metadata:x")]
)
def test_names_of_fields_that_cannot_be_read_are_one_error(tmp_path, before, after):
    """No UTF-8, or twice the same."""
    written(tmp_path, [Stored("a", "t", "t", {"x": 1, "y": 2})])
    path = tmp_path / ROWS
    content = path.read_bytes()
    assert before in content
    path.write_bytes(content.replace(before, after))
    with pytest.raises(IndexingError, match="are damaged"):
        Documents(tmp_path)


def test_types_of_fields_are_those_that_were_written(tmp_path):
    kinds = {"flag": True, "many": "x", "number": 1.5, "whole": 2}
    documents = [Stored(f"d{i}", "t", "t", {**kinds, "few": "a"} | {"many": str(i)}) for i in range(40)]
    fields = written(tmp_path, documents)
    opened = Documents(tmp_path)
    opened.check(fields)  # few strings are stored as a dictionary, many are not
    opened.check({})
    for name in fields:
        other = "integer" if fields[name] != "integer" else "string"
        with pytest.raises(IndexingError, match=f"'{name}' is of type {other} in the index"):
            opened.check({**fields, name: other})


def test_strings_with_unsigned_offsets_are_filtered():
    places = pa.array([0, None, 1, 0], pa.uint8())
    column = pa.DictionaryArray.from_arrays(places, pa.array(["a", "b"]))
    (condition,) = parse_filter("kind=a").typed({"kind": "string"}).conditions
    assert _passing(column, condition).tolist() == [True, False, False, True]
