"""Tests of graded pairs read from JSONL files."""

from __future__ import annotations

import json

import pytest

from mar_st.errors import MarError
from mar_st.graded import GradedPair, read_graded

ROW = {"query": "头疼", "document": "休息", "label": 3}


def write(path, *lines):
    path.write_bytes(b"".join(line if isinstance(line, bytes) else line.encode() for line in lines))
    return path


def line(**fields):
    return json.dumps({**ROW, **fields}, ensure_ascii=False) + "\n"


def test_rows_are_read(tmp_path):
    file = write(tmp_path / "graded.jsonl", line(), "\n")
    assert read_graded([file, file]) == [GradedPair("头疼", "休息", 3)] * 2
    with pytest.raises(MarError, match="There is no"):
        read_graded([tmp_path / "none"])


def test_rows_keep_the_order_of_files_and_lines_and_repeated_rows_are_kept(tmp_path):
    first = write(tmp_path / "b.jsonl", line(label=0), line(label=1))
    second = write(tmp_path / "a.jsonl", line(label=0))
    assert [pair.label for pair in read_graded([str(first), second])] == [0, 1, 0]


@pytest.mark.parametrize("text", ["换\u2028行\u0085字\x1c符", " 空格 ", "\ufeff\0", "🩺\U0010ffff"])
def test_texts_are_returned_as_they_are_written(tmp_path, text):
    file = write(tmp_path / "graded.jsonl", line(query=text).replace("\n", "\r\n"), line(document=text))
    assert read_graded([file]) == [GradedPair(text, "休息", 3), GradedPair("头疼", text, 3)]


@pytest.mark.parametrize("label", [0, 100])
def test_labels_from_0_to_100_are_allowed(tmp_path, label):
    assert read_graded([write(tmp_path / "graded.jsonl", line(label=label))])[0].label == label


@pytest.mark.parametrize("label", ["-1", "101", "3.0", '"3"', '"S"', "true", "null", "NaN", "[3]"])
def test_other_labels_are_refused(tmp_path, label):
    content = line().replace("3}", f"{label}}}")
    with pytest.raises(MarError, match=r"jsonl:2: label must be a whole number from 0.*D, C, B, A, S as 0"):
        read_graded([write(tmp_path / "graded.jsonl", line(), content)])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not JSON"),
        pytest.param(b"[" * 100_000, "not JSON", id="deep"),
        (line()[:20], "not JSON"),
        pytest.param(line(label=1).replace("1}", "1" * 5000 + "}"), "not JSON", id="huge number"),
        (
            b'{"query": "\xff", "document": "a", "label": 1}',
            "not JSON .*'utf-8' codec can't decode byte 0xff",
        ),
        (line().encode("utf-16"), "not JSON"),
        ("[]", "expected an object"),
        ('{"query": "a", "label": 1}', "non-empty texts"),
        (line(query=""), "non-empty texts"),
        (line(document=" \n"), "non-empty texts"),
        (line(query=["a"]), "non-empty texts"),
        ('{"query": "a\\ud83e", "document": "a", "label": 1}', r"not valid Unicode .*'\\ud83e'"),
        ('{"query": "a", "document": "\\udc00a", "label": 1}', r"not valid Unicode .*'\\udc00'"),
    ],
)
def test_an_invalid_row_is_refused_with_its_line(tmp_path, content, message):
    with pytest.raises(MarError, match=rf"graded\.jsonl:3: .*{message}"):
        read_graded([write(tmp_path / "graded.jsonl", line(), "\n", content)])


def test_files_without_rows_are_refused(tmp_path):
    with pytest.raises(MarError, match=r"empty\.jsonl: no graded pairs"):
        read_graded([write(tmp_path / "empty.jsonl", "\n \n")])
