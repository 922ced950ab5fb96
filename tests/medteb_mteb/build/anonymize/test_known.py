"""Identifiers that are known beforehand are replaced wherever they stand; the list stays secret."""

from __future__ import annotations

import json

import pytest

from medteb_mteb.build.anonymize.find import Finder
from medteb_mteb.build.anonymize.known import Known, read_known
from medteb_mteb.build.anonymize.step import Anonymise, anonymize
from medteb_mteb.build.read import read_texts
from medteb_mteb.build.records import BuildError

BARE = "昨天王秀兰说胸闷，复查后好转，Anna Li也来了，流水ZY20230017。"


@pytest.fixture
def listed(tmp_path):
    path = tmp_path / "known.txt"
    path.write_text("王秀兰\nanna li\n\nZY20230017\tRECORD_NUMBER\n王秀\n", encoding="utf-8-sig")
    return path


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "texts.jsonl"
    rows = [
        {"_id": "a", "text": BARE},
        {"_id": "b", "title": "王秀兰", "text": "血压120/80mmHg，Joanna Lin无恙。"},
    ]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def found(finder, text):
    return {(text[span.start : span.end], span.kind) for span in finder(text)}


def test_known_identifiers_are_found_where_rules_are_blind(listed):
    assert found(Finder(), BARE) == set()
    expected = {("王秀兰", "NAME"), ("Anna Li", "NAME"), ("ZY20230017", "RECORD_NUMBER")}
    assert found(Finder(known=read_known(listed)), BARE) == expected
    # Not inside of longer words, and only of the kinds that are asked for.
    assert found(Finder(known=read_known(listed)), "Joanna Lin") == set()
    assert found(Finder(["PHONE"], read_known(listed)), BARE) == set()


def test_the_step_replaces_them_in_all_fields(source, listed, tmp_path):
    anonymize(source, tmp_path / "out", known=listed, show_progress=False)
    first, second = read_texts(tmp_path / "out")
    assert first.text == "昨天[姓名]说胸闷，复查后好转，[姓名]也来了，流水[病历号]。"
    assert (second.title, second.text) == ("[姓名]", "血压120/80mmHg，Joanna Lin无恙。")
    written = b"".join(path.read_bytes() for path in (tmp_path / "out").iterdir() if path.is_file())
    assert "王秀兰".encode() not in written


def test_the_same_known_name_gets_the_same_surrogate(source, listed, tmp_path):
    anonymize(source, tmp_path / "out", mode="surrogate", known=listed, show_progress=False)
    first, second = read_texts(tmp_path / "out")
    assert second.title in first.text
    assert "王秀兰" not in first.text


def test_another_list_is_another_step(source, listed, tmp_path):
    anonymize(source, tmp_path / "out", known=listed, show_progress=False)
    anonymize(source, tmp_path / "out", known=listed, show_progress=False)
    other = tmp_path / "other.txt"
    other.write_text("李四\n", encoding="utf-8")
    with pytest.raises(BuildError, match="another settings"):
        anonymize(source, tmp_path / "out", known=other, show_progress=False)


def test_the_digest_needs_the_secret():
    known = Known({"NAME": ["王秀兰"]})
    assert known.digest(b"a" * 32) != known.digest(b"b" * 32)
    assert known.digest(b"a" * 32) == Known({"NAME": ["王秀兰", "王秀兰"]}).digest(b"a" * 32)
    with pytest.raises(BuildError, match="need a secret"):
        Anonymise(known=known)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("王\n", "line 1: a known identifier has 2 characters"),
        ("张三丰\n李四\tNAMES\n", "line 2: There is no kind of identifier 'NAMES'"),
        ("\n \n", "holds no identifiers"),
    ],
)
def test_a_list_that_cannot_be_used_is_refused_without_telling_it(tmp_path, content, message):
    path = tmp_path / "known.txt"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(BuildError, match=message) as error:
        read_known(path)
    assert "李四" not in str(error.value)


def test_a_missing_list_is_said(tmp_path):
    with pytest.raises(BuildError, match="cannot be read"):
        read_known(tmp_path / "none.txt")
