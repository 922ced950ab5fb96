"""Reading corpora: every form gives the same entries, errors name the place, and a scan finds odd values."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mar_st.data.corpus import Entry, FieldTypes, ShardReader, read_corpus, scan_corpus
from mar_st.errors import MarError
from mar_st.text.texts import join_document
from tests.conftest import write_jsonl

ROWS: list[dict[str, Any]] = [
    {"_id": "d1", "title": "头疼", "text": "吃药", "department": "神经内科", "year": 2024, "tags": ["a"]},
    {
        "_id": "d2",
        "title": "",
        "text": "多喝水",
        "metadata": {"source": "手册", "ok": True, "deep": {"x": 1}},
    },
    {"id": 3, "text": "发热\n咳嗽", "department": None},
]
ENTRIES = [
    Entry("d1", "头疼", "吃药", {"department": "神经内科", "year": 2024}),
    Entry("d2", "", "多喝水", {"source": "手册", "ok": True}),
    Entry("3", "", "发热\n咳嗽", {}),
]
MINI = Path(__file__).parents[3] / "tasks" / "MedTEBRetrieval"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "corpus.jsonl", ROWS)


def test_jsonl_gzip_and_folder_give_the_same_entries(file: Path) -> None:
    zipped = file.with_name("other.jsonl.gz")
    zipped.write_bytes(gzip.compress(file.read_bytes()))
    for source in (file, str(file), zipped, file.parent):
        assert list(read_corpus(source)) == ENTRIES


def test_the_packaged_edition_is_read() -> None:
    entries = list(read_corpus(MINI))
    raw = json.loads((MINI / "corpus.jsonl").open(encoding="utf-8").readline())
    assert (len(entries), entries[0].id) == (5000, "d00000")
    assert entries[0].document == join_document(raw)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"_id": "x"', "JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"text": "a"}', "needs an '_id'"),
        ('{"_id": true, "text": "a"}', "needs an '_id'"),
        ('{"_id": "x"}', "document x is empty"),
        ('{"_id": "x", "text": 5}', "should be strings"),
        ('{"_id": "x", "text": "\\ud800"}', "surrogate"),
        ('{"_id": "x", "text": "a", "metadata": {"\\ud800": 1}}', "surrogate"),
        ('{"_id": "a\\nb\\u001b[2J"}', r"a\\nb\\x1b\[2J is empty"),
    ],
)
def test_a_bad_line_is_named(file: Path, line: str, message: str) -> None:
    file.write_text(file.read_text(encoding="utf-8") + "\n" + line + "\n", encoding="utf-8")
    with pytest.raises(MarError, match=f"corpus.jsonl:5: .*{message}"):
        list(read_corpus(file))


def test_sources_that_are_no_corpus_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(MarError, match="Parquet"):
        list(read_corpus(tmp_path / "bad.parquet"))
    for name in (tmp_path / "nothing.jsonl", tmp_path / "empty", "org/name"):
        with pytest.raises(MarError, match=r"There is no file|holds no corpus"):
            list(read_corpus(name))


def test_reading_does_not_import_torch(file: Path) -> None:
    code = (
        "import sys; from mar_st import VectorFolder; from mar_st.data.corpus import read_corpus; "
        f"print(len(list(read_corpus({str(file)!r})))); "
        "assert not {'torch', 'sentence_transformers'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"3\n"


def test_a_field_of_numbers_may_have_a_few_other_values() -> None:
    fields = FieldTypes()
    for number in range(40):
        odd = {7: "unknown", 9: True}.get(number)
        code = number if number % 2 else "x"
        mixed = {"year": odd or 2000 + number, "weight": number / 2 or 0, "code": code}
        fields.add(Entry(f"d{number}", "", "text", mixed))
    assert fields.types() == {"year": "number", "weight": "number", "code": "string"}
    text, boolean, number = sorted(fields.odd(), key=lambda line: "'unknown'" not in line)[:3]
    assert "1 of its 40" in text
    assert "'unknown' (d7)" in text
    assert any("True (d9)" in line for line in (boolean, number))


def test_cells_of_csv_are_numbers_and_odd_values_are_reported_with_an_id(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    path.write_text("_id,text,age,code\n1.0,a,5,007\nb,b,30.5,012\nc,c,70,9\nd,d,不详,010\ne,e,,010\n")
    entries = list(read_corpus(path))
    assert entries[0].id == "1"
    assert [entry.metadata.get("age") for entry in entries] == [5, 30.5, 70, "不详", None]
    assert [entry.metadata["code"] for entry in entries] == ["007", "012", 9, "010", "010"]
    age, code = scan_corpus(path, 4, show_progress=False).odd
    assert "'age' is of type number" in age
    assert "'不详' (d)" in age
    assert "'code' is of type string" in code
    assert "9 (c)" in code


def test_ids_that_pandas_made_floats_are_whole_numbers(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text('{"_id": 1.0, "text": "a"}\n{"_id": 20.0, "text": "b"}\n')
    assert [entry.id for entry in read_corpus(path)] == ["1", "20"]
    path.write_text('{"_id": 1.5, "text": "a"}\n')
    with pytest.raises(MarError, match=r"got 1\.5"):
        list(read_corpus(path))


def test_a_scan_counts_digests_and_refuses_repeated_ids(tmp_path: Path) -> None:
    rows = [{"_id": f"d{number}", "text": f"t{number}"} for number in range(10)]
    path = write_jsonl(tmp_path / "corpus.jsonl", rows)
    scan = scan_corpus(path, 4, show_progress=False)
    assert (scan.count, scan.shards, [scan.size(number) for number in range(3)]) == (10, 3, [4, 4, 2])

    reader = ShardReader(scan)
    for number in (0, 2, 1):  # forwards, and back to the beginning
        ids = [entry.id for entry in reader.read(number)]
        assert ids == [f"d{row}" for row in range(10)][4 * number : 4 * number + 4]

    write_jsonl(path, [*rows, rows[2]])
    with pytest.raises(MarError, match="the id 'd2' occurs twice"):
        scan_corpus(path, 4, show_progress=False)
    path.write_text("\n")
    with pytest.raises(MarError, match="no documents"):
        scan_corpus(path, 4, show_progress=False)
