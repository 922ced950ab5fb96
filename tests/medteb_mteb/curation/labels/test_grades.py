"""Files of labels."""

from __future__ import annotations

import json

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.labels.grades import Label, read_labels

LABELS = [
    Label("q1", "d1", 2),
    Label("q1", "d\u2028two", 0),
    Label("q\x85", "d3", None, "a first line\u2029and another"),
]


def write(path, labels):
    lines = [json.dumps(label.to_json(), ensure_ascii=False) + "\n" for label in labels]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def test_labels_are_read_as_they_were_written(tmp_path):
    assert read_labels(write(tmp_path / "labels.jsonl", LABELS)) == LABELS
    assert read_labels(tmp_path) == LABELS


@pytest.mark.parametrize("line", ["", "[]", "{}", '{"query-id": "q", "corpus-id": "d"}', '{"query-id": "q"'])
def test_a_broken_line_is_named(tmp_path, line):
    path = write(tmp_path / "labels.jsonl", LABELS)
    path.write_text(f"{path.read_text(encoding='utf-8')}{line}\n", encoding="utf-8")
    with pytest.raises(BuildError, match=r"labels\.jsonl:4: expected query-id, corpus-id and relevance"):
        read_labels(path)


def test_a_folder_without_labels_is_one_error(tmp_path):
    with pytest.raises(BuildError, match="'medteb consensus' writes it"):
        read_labels(tmp_path)
