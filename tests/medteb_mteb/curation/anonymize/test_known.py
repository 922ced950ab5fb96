"""Identifiers that are known beforehand are replaced wherever they occur; the list stays secret."""

from __future__ import annotations

import pytest
from tests.conftest import write_jsonl

from mar_st.errors import MarError
from medteb_mteb.curation.anonymize.find import Finder
from medteb_mteb.curation.anonymize.known import Known, read_known
from medteb_mteb.curation.anonymize.step import ANONYMIZE, Anonymise
from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.files.records import Text

BARE = "昨天王秀兰说胸闷，复查后好转，Anna Li也来了，流水ZY20230017。"


@pytest.fixture
def anonymised(tmp_path, run_step):
    """Runs the step on two texts with the list of known identifiers."""
    known = tmp_path / "known.txt"
    known.write_text("王秀兰\nanna li\n\nZY20230017\tRECORD_NUMBER\n王秀\n", encoding="utf-8-sig")
    titled = {"_id": "b", "title": "王秀兰", "text": "血压120/80mmHg，Joanna Lin无恙。"}
    source = write_jsonl(tmp_path / "texts.jsonl", [{"_id": "a", "text": BARE}, titled])

    def call(**options):
        run_step(ANONYMIZE, "out", **{"in": source}, known=known, **options)
        return list(read_texts(tmp_path / "out"))

    return call


def identifiers(finder, text):
    return {(text[span.start : span.end], span.kind) for span in finder(text)}


def test_the_step_replaces_them_in_all_fields_where_rules_find_none(anonymised, tmp_path):
    assert ("Anna Li", "NAME") not in identifiers(Finder(), BARE)
    first, second = anonymised()
    assert first.text == "昨天[姓名]说胸闷，复查后好转，[姓名]也来了，流水[病历号]。"
    assert (second.title, second.text) == ("[姓名]", "血压120/80mmHg，Joanna Lin无恙。")
    written = b"".join(path.read_bytes() for path in (tmp_path / "out").iterdir() if path.is_file())
    assert "王秀兰".encode() not in written


def test_the_same_known_name_gets_the_same_surrogate(anonymised):
    first, second = anonymised(mode="surrogate")
    assert second.title in first.text
    assert "王秀兰" not in first.text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("王\n", "line 1: expected an identifier of 2 characters"),
        ("张三丰\n李四\t13812345678\n", "line 2: expected an identifier .* kind of URL"),
        ("\n \n", "holds no identifiers"),
    ],
)
def test_an_unusable_list_is_refused_without_showing_its_content(tmp_path, content, message):
    path = tmp_path / "known.txt"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(MarError, match=message) as error:
        read_known(path)
    assert "李四" not in str(error.value)
    assert "13812345678" not in str(error.value)
    with pytest.raises(MarError, match="cannot be read"):
        read_known(tmp_path / "none.txt")


@pytest.mark.parametrize(
    ("known", "text", "mention"),
    [
        ("阿卜杜·热西提", "昨日阿卜杜•热西提来电", "阿卜杜•热西提"),
        ("阿卜杜・热西提", "昨日阿卜杜‧热西提来电", "阿卜杜‧热西提"),
        ("阿卜杜·热西提", "昨日阿卜杜 · 热西提来电", "阿卜杜 · 热西提"),
        ("李明", "昨日李　明来电", "李　明"),
        ("李 明", "昨日李明来电", "李明"),
        ("王秀兰", "昨日王 秀\u200b兰来电", "王 秀\u200b兰"),
        ("Anna Li", "then Anna\n Li called", "Anna\n Li"),
        ("Anna Li", "then ＡＮＮＡ　ＬＩ called", "ＡＮＮＡ　ＬＩ"),
    ],
)
def test_blanks_width_and_the_form_of_a_dot_do_not_count(known, text, mention):
    assert identifiers(Finder(known=Known({"NAME": [known]})), text) == {(mention, "NAME")}


def test_a_name_does_not_span_two_lines():
    assert identifiers(Finder(known=Known({"NAME": ["李明"]})), "行李\n明天取") == set()


def test_overlapping_known_names_are_replaced_completely():
    step = Anonymise(known=Known({"NAME": ["王秀兰", "兰芳芳", "王秀"]}), salt=b"0" * 16)
    assert step.process(Text("a", "昨日王秀兰芳芳来电")).text == "昨日[姓名][姓名]来电"
