"""Tests of the digests of data: equal content gives equal digests, and any change another one."""

from __future__ import annotations

import hashlib
import json

import pytest

from mar_st.data import DataError, Source, Triple
from mar_st.data.content import data_digest, source_digest, vocabulary_cut
from mar_st.data.records import row_line
from mar_st.data.sequences import Triples
from mar_st.recipes.inputs import VocabularyCut
from mar_st.recipes.schema import Data

ROWS = [{"query": f"问{i}", "positive": f"答{i}", "source": "ab"[i % 2]} for i in range(6)]
TRIPLES = [Triple("问", ("答", "解"), ("错",)), Triple("题", ("文",), (), "找：", "网")]


def _write(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def _entry(path, **settings):
    return Data(name="entry", path=str(path), **settings)


def test_the_digest_of_an_entry_covers_its_files_and_what_is_read_of_them(tmp_path):
    (tmp_path / "inner").mkdir()
    path = _write(tmp_path / "inner" / "a.jsonl", ROWS)
    whole = data_digest(str(tmp_path))
    assert data_digest(_entry(tmp_path)) == whole
    assert data_digest(_entry(tmp_path, weight=2, negatives=3, prompt="")) == whole
    others = [
        {"limit": 3},
        {"where": {"source": ("a",)}},
        {"columns": {"query": "positive"}},
        {"form": "triples"},
    ]
    assert len({whole, *(data_digest(_entry(tmp_path, **settings)) for settings in others)}) == 5
    _write(tmp_path / "inner" / "a.jsonl", ROWS[:5])
    assert data_digest(str(tmp_path)) != whole
    assert data_digest(path) != data_digest(str(tmp_path))
    with pytest.raises(DataError, match="data set of the Hub"):
        data_digest("hub:org/name")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data" / "b").mkdir(parents=True)
    for name, content in (("a", "1"), ("b/c", "2"), ("b-c", "3")):
        (tmp_path / "data" / name).write_text(content)
    return tmp_path / "data"


def test_the_digest_of_a_folder_does_not_depend_on_where_it_is(folder, tmp_path):
    before = data_digest(str(folder))
    folder.rename(tmp_path / "moved")
    assert data_digest(str(tmp_path / "moved")) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "a").rename(folder / "d"),
        lambda folder: (folder / "a").rename(folder / "b" / "a"),
        lambda folder: (folder / "a").unlink(),
        lambda folder: (folder / "new").write_text(""),
        lambda folder: ((folder / "a").write_text("2"), (folder / "b" / "c").write_text("1")),
        lambda folder: ((folder / "a").write_text(""), (folder / "b-c").write_text("13")),
    ],
)
def test_renamed_moved_and_swapped_files_change_the_digest(folder, change):
    before = data_digest(str(folder))
    change(folder)
    assert data_digest(str(folder)) != before


@pytest.mark.parametrize("as_list", [list, Triples.of])
def test_the_digest_of_a_source_is_over_the_lines_of_its_rows(as_list):
    expected = hashlib.sha256(b"".join(map(row_line, TRIPLES))).hexdigest()
    assert source_digest(Source(_entry("x"), as_list(TRIPLES))) == expected
    assert source_digest(Source(_entry("x"), as_list(TRIPLES[::-1]))) != expected
    texts = Source(_entry("x", form="texts", role="query"), texts=["一", "二"])
    assert source_digest(texts) == hashlib.sha256('"一"\n"二"\n'.encode()).hexdigest()


def test_the_cut_of_a_vocabulary_follows_the_contents_of_its_texts(tmp_path):
    cut = VocabularyCut(keep=9, texts=("qa", str(tmp_path / "texts.txt")))
    (tmp_path / "texts.txt").write_text("一")
    first = vocabulary_cut(cut, {"qa": "d" * 64})
    assert first == {"keep": 9, "texts": ["d" * 64, data_digest(str(tmp_path / "texts.txt"))]}
    (tmp_path / "texts.txt").write_text("二")
    assert vocabulary_cut(cut, {"qa": "d" * 64}) != first
