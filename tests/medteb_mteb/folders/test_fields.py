"""Fields of queries: further columns, or keys of their metadata."""

from __future__ import annotations

import json

import pytest

from medteb_mteb.folders import FolderError, inspect_folder
from medteb_mteb.folders.fields import query_field


@pytest.fixture
def field(make_folder):
    """The field `dept` of queries with these columns."""

    def call(*rows, name="dept"):
        folder = make_folder("Retrieval")
        lines = [json.dumps({"_id": f"q{i}", "text": "问", **row}) for i, row in enumerate(rows, start=1)]
        (folder / "queries.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return query_field(inspect_folder(folder), name)

    return call


def test_a_field_is_a_column_or_a_key_of_the_metadata_and_the_column_wins(field):
    rows = [{"dept": "内科"}, {"metadata": {"dept": "外科"}}, {"dept": "儿科", "metadata": {"dept": "外科"}}]
    assert field(*rows) == {"q1": "内科", "q2": "外科", "q3": "儿科"}


@pytest.mark.parametrize(
    ("value", "text"),
    [(3, "3"), (1.5, "1.5"), (True, "True"), (" a \n\tb ", "a b"), ("内\u3000科", "内 科")],
)
def test_values_are_text_in_one_line(field, value, text):
    assert field({"dept": value}) == {"q1": text}


@pytest.mark.parametrize("value", ["", " \n", None, ["a"], {"a": 1}, float("nan"), "\ud800"])
def test_queries_without_a_usable_value_are_left_out(field, value):
    assert field({"dept": "a"}, {"dept": value}, {}) == {"q1": "a"}


def test_numbers_and_other_spellings_of_ids_are_the_ids_of_the_queries(field):
    assert field({"_id": 17, "dept": "a"}, {"_id": None, "dept": "b"}) == {"17": "a"}


@pytest.mark.parametrize("name", ["dept", "text", "_id", "metadata"])
def test_a_field_that_no_query_has_is_refused_with_those_there_are(field, name):
    with pytest.raises(FolderError, match=rf"no query has a field '{name}'; the fields are hour, kind$"):
        field({"kind": "x", "metadata": {"hour": 3, "list": []}}, name=name)
    with pytest.raises(FolderError, match=r"queries have no further fields$"):
        field({}, name=name)
