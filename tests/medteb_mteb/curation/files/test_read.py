"""Texts of files, and work on them shard by shard."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.conftest import write_jsonl

from mar_st.errors import MarError
from medteb_mteb.curation.anonymize.step import ANONYMIZE, AnonymizeSettings
from medteb_mteb.curation.files.layout import write_texts
from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.files.records import Text
from medteb_mteb.curation.files.step import TextsSettings, run_step
from medteb_mteb.curation.step import perform

ROWS = [
    {"_id": "a", "title": "感冒", "text": "多喝水，注意休息。", "department": "内科"},
    {"_id": "b", "title": "", "text": "饭后服用，一日三次。", "department": "药房"},
]
TEXTS = [Text("a", "多喝水，注意休息。", "感冒"), Text("b", "饭后服用，一日三次。", "")]


def test_a_file_and_its_folder_give_the_same_texts(tmp_path):
    file = write_jsonl(tmp_path / "corpus.jsonl", ROWS)
    assert list(read_texts(file)) == list(read_texts(tmp_path)) == TEXTS


def test_dates_stay_with_their_texts_and_strict_mode_keeps_the_month(tmp_path):
    rows = [{"_id": "a", "text": "感冒", "posted": "2026-10-05"}, {"_id": "b", "text": "头疼", "posted": ""}]
    file = write_jsonl(tmp_path / "q.jsonl", rows)
    for strict, date in ((False, "2026-10-05"), (True, "2026-10")):
        out = tmp_path / f"strict-{strict}"
        columns = {"date": "posted"}
        perform(ANONYMIZE, AnonymizeSettings(source=file, out=out, columns=columns, strict=strict))
        assert [text.date for text in read_texts(out)] == [date, ""]
        write_texts(out.with_suffix(".jsonl"), read_texts(out), titles=False)
        assert [text.date for text in read_texts(out.with_suffix(".jsonl"))] == [date, ""]
    write_jsonl(file, [{"text": "感冒", "date": "5.10.2026"}])
    with pytest.raises(MarError, match=r"q.jsonl:1: 'date'"):
        list(read_texts(file))


def test_columns_may_be_named_and_ids_follow_from_the_content(tmp_path):
    file = write_jsonl(tmp_path / "q.jsonl", [{"问题": "发烧怎么办", "source": "x"}, {"问题": "头疼"}])
    first, second = read_texts(file, {"text": "问题"})
    assert first.text == "发烧怎么办"
    assert first.id != second.id
    assert next(read_texts(write_jsonl(tmp_path / "r.jsonl", [{"text": "发烧怎么办"}]))).id == first.id
    with pytest.raises(MarError, match="'body' is not a field"):
        list(read_texts(file, {"body": "问题"}))


def test_copies_of_a_text_without_an_id_are_dropped_and_counted(tmp_path, caplog):
    texts = [("", "头疼"), ("", "发烧"), ("", "头疼"), ("题", "头疼"), ("", "头疼")]
    file = write_jsonl(tmp_path / "q.jsonl", [{"title": title, "text": text} for title, text in texts])
    dropped = Counter()
    assert [text.full for text in read_texts(file, dropped=dropped)] == ["头疼", "发烧", "题\n头疼"]
    assert (dropped, caplog.messages) == ({"repeated": 2}, [])
    assert len(list(read_texts(file))) == 3
    assert len(caplog.messages) == 1


def test_a_column_named_anonymised_is_not_trusted(tmp_path):
    file = write_jsonl(tmp_path / "q.jsonl", [{"text": "张三，电话 13800138000", "anonymised": "yes"}])
    assert next(read_texts(file)).anonymised == ""


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"_id": "a", "text": "x"}, {"_id": "a", "text": "y"}], "q.jsonl:2: the id 'a' is taken"),
        ([{"_id": "a", "text": "  "}], "q.jsonl:1: 'text' is empty"),
        ([{"_id": "a\tb", "text": "x"}], "q.jsonl:1: .*a tab or a line break"),
        ([{"_id": "a", "texts": "x"}], "q.jsonl:1: expected a column text or .*; the columns are _id, texts"),
        ([{"_id": None, "text": "x"}], "q.jsonl:1: '_id' is empty"),
        ([{"_id": "a", "text": "x", "title": 3}], "q.jsonl:1: 'title' is not text"),
        ([], "holds no rows"),
    ],
)
def test_unusable_rows_are_named_with_their_line(tmp_path, rows, message):
    with pytest.raises(MarError, match=message):
        list(read_texts(write_jsonl(tmp_path / "q.jsonl", rows)))


def test_work_counts_what_it_keeps_and_why_it_drops(tmp_path):
    class Keep:
        name = "keep"

        def restore(self, kept):
            raise AssertionError

        def __call__(self, texts):
            return texts

    source = write_jsonl(tmp_path / "t.jsonl", [{"text": "一二三"}, {"text": "一二三"}, {"text": "四"}])
    settings = TextsSettings(**{"in": source}, out=tmp_path / "out")
    counts = run_step(Keep(), settings)
    assert (counts.rows, counts.tokens) == (2, 4)
    assert counts.details == {"read": 3, "kept": 2, "dropped": {"repeated": 1}}


@pytest.mark.parametrize("reply", ["多休息。", {"verified": True}, {"text": "多休息。", "verified": "yes"}])
def test_unusable_replies_to_a_post_are_refused(tmp_path, reply):
    post = {"_id": "t", "text": "头疼怎么办？", "replies": [{"text": "多休息。"}]}
    (text,) = read_texts(write_jsonl(tmp_path / "a.jsonl", [post]))
    assert text.replies == [{"text": "多休息。", "verified": False}]
    with pytest.raises(MarError, match="replies"):
        list(read_texts(write_jsonl(tmp_path / "b.jsonl", [{**post, "replies": [reply]}])))
