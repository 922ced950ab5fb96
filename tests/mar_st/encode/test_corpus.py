"""Tests of reading corpora: every form gives the same entries, and errors name the place."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mar_st.encode import CorpusError, Entry, read_corpus
from mar_st.text.texts import join_document

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


def lines(rows: list[Any]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    path.write_text(lines(ROWS), encoding="utf-8")
    return path


def test_jsonl_gzip_and_folder_give_the_same_entries(file: Path) -> None:
    zipped = file.with_name("other.jsonl.gz")
    zipped.write_bytes(gzip.compress(file.read_bytes()))
    for source in (file, str(file), zipped, file.parent):
        assert list(read_corpus(source)) == ENTRIES


def test_parquet_and_saved_datasets_are_read(tmp_path: Path) -> None:
    from datasets import Dataset, DatasetDict

    rows = [
        {"_id": entry.id, "title": entry.title, "text": entry.text, "year": 1900 + place}
        for place, entry in enumerate(ENTRIES)
    ]
    expected = [Entry(r["_id"], r["title"], r["text"], {"year": r["year"]}) for r in rows]
    (tmp_path / "a").mkdir()
    pq.write_table(pa.Table.from_pylist(rows[:2]), tmp_path / "a" / "corpus-0.parquet")
    pq.write_table(pa.Table.from_pylist(rows[2:]), tmp_path / "a" / "corpus-1.parquet")
    Dataset.from_list(rows).save_to_disk(str(tmp_path / "b"))
    DatasetDict({"corpus": Dataset.from_list(rows)}).save_to_disk(str(tmp_path / "c"))

    for name in "abc":
        assert list(read_corpus(tmp_path / name)) == expected
    assert list(read_corpus(tmp_path / "a" / "corpus-1.parquet")) == expected[2:]


def test_the_packaged_edition_is_read() -> None:
    entries = list(read_corpus(MINI))
    assert len(entries) == 5000
    assert entries[0].id == "d00000"
    raw = json.loads((MINI / "corpus.jsonl").open(encoding="utf-8").readline())
    assert entries[0].document == join_document(raw)


@pytest.mark.parametrize("entry", ENTRIES)
def test_title_and_text_are_joined_as_the_model_joins_them(entry: Entry) -> None:
    assert entry.document == join_document({"title": entry.title, "text": entry.text})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[1]", "expected an object"),
        ('{"_id": "x"', "not a JSON object"),
        ("[" * 100_000, "not a JSON object"),
        ('{"text": "a"}', "needs an '_id'"),
        ('{"_id": true, "text": "a"}', "needs an '_id'"),
        ('{"_id": "x"}', "'text' of document x is missing"),
        ('{"_id": "x", "text": 5}', "'text' of document x is of type int"),
        ('{"_id": "x", "text": "a", "title": 5}', "'title' of document x is of type int"),
        ('{"_id": "x", "text": "  "}', "document x is empty"),
        ('{"_id": "x", "text": "\\ud800"}', "half a surrogate pair"),
        ('{"_id": "x", "text": "a", "year": "\\ud800"}', "half a surrogate pair"),
        ('{"_id": "x", "text": "a", "\\ud800": 1}', "half a surrogate pair"),
        ('{"_id": "x", "text": "a", "metadata": {"\\ud800": 1}}', "half a surrogate pair"),
        ('{"_id": "x", "text": "a", "year": 1' + 400 * "0" + "}", "an integer of more than 308 digits"),
        ('{"_id": "a\\nb\\u001b[2J"}', r"'text' of document a\\nb\\x1b\[2J is missing"),
    ],
)
def test_a_bad_line_is_named(file: Path, line: str, message: str) -> None:
    file.write_text(lines(ROWS) + "\n" + line + "\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=f"corpus.jsonl:5: .*{message}"):
        list(read_corpus(file))


def test_bad_utf8_and_cut_gzip_are_named(file: Path) -> None:
    file.write_bytes(lines(ROWS[:1]).encode() + b'{"_id": "x", "text": "\xff"}\n')
    with pytest.raises(CorpusError, match=r"corpus.jsonl:2: .*UTF-8"):
        list(read_corpus(file))
    zipped = file.with_suffix(".jsonl.gz")
    zipped.write_bytes(gzip.compress(lines(ROWS * 500).encode())[:-20])
    with pytest.raises(CorpusError, match="damaged gzip"):
        list(read_corpus(zipped))


def test_invalid_corpora_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b")
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(CorpusError, match="neither JSONL"):
        list(read_corpus(tmp_path / "x.csv"))
    with pytest.raises(CorpusError, match="holds no corpus"):
        list(read_corpus(tmp_path / "empty"))
    with pytest.raises(CorpusError, match="cannot be read as Parquet"):
        list(read_corpus(tmp_path / "bad.parquet"))
    for name in (tmp_path / "nothing.jsonl", "nothing.jsonl", str(tmp_path / "nothing")):
        with pytest.raises(CorpusError, match="There is no corpus"):
            list(read_corpus(name))


def test_an_unreachable_hub_name_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    def absent(*_: Any, **__: Any) -> Any:
        raise ConnectionError("offline")

    monkeypatch.setattr(datasets, "get_dataset_split_names", absent)
    with pytest.raises(CorpusError, match="no-such-org/no-such-corpus could not be opened"):
        next(read_corpus("no-such-org/no-such-corpus"))


def test_reading_does_not_import_torch(file: Path) -> None:
    code = (
        "import sys; from mar_st.encode import read_corpus, VectorFolder; "
        "from mar_st.model.space import space_of; "
        f"print(len(list(read_corpus({str(file)!r})))); "
        "assert not {'torch', 'transformers', 'sentence_transformers'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"3\n"


def test_a_corpus_in_parquet_names_each_column_once(tmp_path: Path) -> None:
    columns = [pa.array(["1"]), pa.array(["头疼"]), pa.array(["发热"])]
    pq.write_table(pa.table(columns, names=["_id", "text", "text"]), tmp_path / "a.parquet")
    with pytest.raises(CorpusError, match=r"a\.parquet: the column 'text' occurs twice"):
        list(read_corpus(tmp_path / "a.parquet"))
