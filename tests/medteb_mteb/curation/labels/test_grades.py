"""Files of labels."""

from __future__ import annotations

import json

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.labels.grades import Label, read_judging, read_labels

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


@pytest.mark.parametrize("relevance", ['"0"', "-1", "true", "1.0", "[]"])
def test_a_relevance_that_is_no_whole_number_is_refused(tmp_path, relevance):
    row = f'{{"query-id": "q", "corpus-id": "d", "relevance": {relevance}}}\n'
    (tmp_path / "labels.jsonl").write_text(row, encoding="utf-8")
    with pytest.raises(BuildError, match=r"labels\.jsonl:1: relevance must be null or a whole number"):
        read_labels(tmp_path)


def judging(folder, **files):
    row = '{"query-id": "q", "corpus-id": "d", "judge": "a", "grade": "S"}\n'
    content = {"judgements.jsonl": row, "manifest.json": '{"judges": {"a": {}}}', "failed.jsonl": ""} | files
    for name, text in content.items():
        if text is not None:
            (folder / name).write_bytes(text.encode("gbk"))
    return folder


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"manifest.json": '{"judges":'}, r"manifest\.json is damaged"),
        ({"failed.jsonl": None}, r"failed\.jsonl cannot be read"),
        ({"failed.jsonl": "{}\n"}, r"failed\.jsonl:1: expected an object with query-id, corpus-id and judge"),
        ({"failed.jsonl": "问题\n"}, r"failed\.jsonl is not UTF-8"),
        ({"judgements.jsonl": '{"query-id": "问"}\n'}, r"judgements\.jsonl is not UTF-8"),
    ],
)
def test_a_damaged_folder_of_judgements_is_one_error(tmp_path, files, message):
    with pytest.raises(BuildError, match=message):
        read_judging(judging(tmp_path, **files))
