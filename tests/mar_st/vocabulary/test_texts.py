"""Texts that decide which pieces of a vocabulary are kept, from every kind of file."""

from __future__ import annotations

import json

import pytest

from mar_st.data import read_source
from mar_st.errors import MarError
from mar_st.recipes.inputs import Data
from mar_st.vocabulary.texts import file_texts, source_texts

TEXTS = ["头疼怎么办", "发热", "多喝水"]


def jsonl(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
def test_lines_of_a_text_file_are_texts(tmp_path, start, end):
    path = tmp_path / "texts.txt"
    path.write_bytes(start + end.join([TEXTS[0], "", f"  {TEXTS[1]} ", TEXTS[2], ""]).encode())
    assert list(file_texts(str(path))) == TEXTS


def test_a_text_file_in_another_encoding_is_read(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_bytes("hello\n头疼\n".encode("gbk"))
    assert list(file_texts(str(path))) == ["hello", "头疼"]


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_a_file_without_texts_is_refused(tmp_path, content):
    (tmp_path / "texts.txt").write_text(content)
    with pytest.raises(MarError, match="holds no"):
        file_texts(str(tmp_path / "texts.txt"))


def test_all_texts_of_training_data_count(tmp_path):
    row = {"query": TEXTS[0], "positive": TEXTS[1], "negatives": [TEXTS[2]]}
    path = jsonl(tmp_path / "pairs.jsonl", [row])
    assert sorted(file_texts(str(path))) == sorted(TEXTS)
    source = read_source(Data(name="pairs", path=str(path)))
    assert sorted(source_texts(source)) == sorted(TEXTS)


def test_single_texts_are_read_from_jsonl(tmp_path):
    path = jsonl(tmp_path / "texts.jsonl", [{"text": text} for text in TEXTS])
    assert list(file_texts(str(path))) == TEXTS


def test_a_folder_gives_its_documents_and_queries(tmp_path):
    jsonl(tmp_path / "corpus.jsonl", [{"_id": "d1", "text": TEXTS[0]}, {"_id": "d2", "text": TEXTS[1]}])
    jsonl(tmp_path / "queries.jsonl", [{"_id": "q1", "text": TEXTS[2]}])
    assert list(file_texts(str(tmp_path))) == TEXTS


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(MarError, match=r"nowhere\.jsonl"):
        file_texts(str(tmp_path / "nowhere.jsonl"))
