from __future__ import annotations

import json

import pytest

from mar_st.text.texts import TextsError, read_ids, read_texts


def _write(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def test_reads_texts_of_a_corpus_of_queries_and_of_lines(tmp_path):
    corpus = _write(
        tmp_path / "c.jsonl", [{"_id": 1, "title": "头", "text": "疼"}, {"_id": 2, "title": "", "text": "热"}]
    )
    assert read_texts(corpus) == {"头\n疼": "1", "热": "2"}
    assert read_ids(corpus) == {"1": "头\n疼", "2": "热"}
    assert list(read_texts(_write(tmp_path / "q.jsonl", [{"query": "药"}, {"query": "药"}]))) == ["药"]
    (tmp_path / "q.txt").write_text("头疼\n\n 发热 \n头疼\n", encoding="utf-8")
    assert list(read_texts(tmp_path / "q.txt")) == ["头疼", "发热"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"body": "头疼"}, r"t\.jsonl:2: needs 'text'.*has \['body'\]"),
        ({"text": " "}, r"t\.jsonl:2: the text is empty"),
        ({"text": 3}, r"t\.jsonl:2: the text is empty or not a string"),
        ({"_id": "a"}, r"t\.jsonl:2: has no 'text'"),
        (["头疼"], r"t\.jsonl:2: not a JSON object"),
    ],
)
def test_bad_lines_are_refused_with_their_number(tmp_path, row, message):
    with pytest.raises(TextsError, match=message):
        read_texts(_write(tmp_path / "t.jsonl", [{"text": "头疼"}, row]))


@pytest.mark.parametrize("line", [b"[" * 100_000, b'{"text": "\xba"}', b'{"text": "\\ud800"}', b'{"text": 1'])
def test_lines_that_cannot_be_read_are_refused_with_their_number(tmp_path, line):
    (tmp_path / "t.jsonl").write_bytes(b'{"text": "a"}\n' + line + b"\n")
    with pytest.raises(TextsError, match=r"t\.jsonl:2: not a JSON object"):
        read_texts(tmp_path / "t.jsonl")


def test_files_without_texts_are_refused(tmp_path):
    with pytest.raises(TextsError, match="There is no file"):
        read_texts(tmp_path / "none.jsonl")
    with pytest.raises(TextsError, match="holds no texts"):
        read_texts(_write(tmp_path / "empty.jsonl", []))


@pytest.mark.parametrize(
    ("name", "content"),
    [("q.txt", "头疼\r\n发热\r\n"), ("q.jsonl", '{"text": "头疼"}\r\n{"text": "发热"}\r\n')],
)
def test_a_byte_order_mark_is_no_part_of_a_text(tmp_path, name, content):
    (tmp_path / name).write_bytes(content.encode("utf-8-sig"))
    assert list(read_texts(tmp_path / name)) == ["头疼", "发热"]
