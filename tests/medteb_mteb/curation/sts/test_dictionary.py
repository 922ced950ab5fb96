from __future__ import annotations

import json

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.sts import Dictionary, DictionaryEntry, read_dictionary
from medteb_mteb.folders.problems import FolderError

ROWS = [("高血压", "血压高"), ("高血压", "高血压病"), ("HPV", "人乳头瘤病毒")]


def write(path):
    if path.suffix == ".jsonl":
        lines = [json.dumps({"origin": o, "replace": r, "source": "x"}, ensure_ascii=False) for o, r in ROWS]
    else:
        mark = "," if path.suffix == ".csv" else "\t"
        lines = [mark.join(row) for row in [("origin", "replace"), *ROWS]]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["terms.tsv", "terms.csv", "terms.jsonl"])
def test_dictionaries_of_every_format_are_read(tmp_path, name):
    dictionary = read_dictionary(write(tmp_path / name))
    assert [(entry.origin, entry.replace) for entry in dictionary.entries] == ROWS
    assert [entry.replace for entry in dictionary.of("高血压")] == ["血压高", "高血压病"]
    assert [entry.replace for entry in dictionary.of("hpv")] == ["人乳头瘤病毒"]
    assert dictionary.of("血压高") == []


def test_rows_that_cannot_be_used_are_named(tmp_path):
    file = tmp_path / "terms.tsv"
    file.write_text("origin\treplace\n高血压\t\n感冒\t伤风\nCT\tＣＴ\n")
    with pytest.raises(FolderError) as error:
        read_dictionary(file)
    assert "terms.tsv:2: 'replace' is empty" in str(error.value)
    assert "terms.tsv:4: origin and replace are the same term" in str(error.value)
    file.write_text("from\tto\n高血压\t血压高\n")
    with pytest.raises(FolderError, match="expected a column 'origin'; the columns are from, to"):
        read_dictionary(file)
    with pytest.raises(BuildError, match="There is no"):
        read_dictionary(tmp_path / "none.tsv")


def test_repeated_entries_are_counted():
    dictionary = Dictionary(
        [
            DictionaryEntry("CT", "计算机断层"),
            DictionaryEntry("ｃｔ", "计算机断层"),
            DictionaryEntry("CT", "断层扫描"),
        ]
    )
    assert (len(dictionary.entries), dictionary.repeated) == (2, 1)


def test_a_pair_has_no_direction():
    assert DictionaryEntry("CT", "断层扫描").pair == DictionaryEntry("断层扫描", "ｃｔ").pair
