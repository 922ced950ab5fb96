"""The step `anonymize`: what it replaces, keeps and refuses, and that a killed run resumes."""

from __future__ import annotations

import pytest
from tests.conftest import write_jsonl

from mar_st.errors import MarError
from medteb_mteb.curation.anonymize.kinds import IDENTIFIER_KINDS, placeholder
from medteb_mteb.curation.anonymize.step import ANONYMIZE, Anonymise
from medteb_mteb.curation.anonymize.surrogates import salt_for
from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.files.records import Text

SECRETS = ("13812345678", "王秀兰", "20210034567", "zhang_wei88", "张建国")
ROWS = [
    {"text": "患者王秀兰，电话13812345678，血压120/80mmHg。", "phone": 13812345678, "note": "王秀兰之女陪同"},
    {"text": "感冒多喝水。", "phone": 13900000000, "note": "普通"},
    {"text": "住院号：20210034567，阿司匹林100mg qd。", "title": "张建国医生的出院小结", "note": ""},
    {"text": "加微信zhang_wei88，血糖7.8。", "phone": 1, "note": "复诊"},
]


@pytest.fixture
def anonymised(tmp_path, run_step):
    """Runs the step: `anonymised(rows, mode=...) -> texts`; `.counts` and `.written` (all files) follow."""

    def call(rows, out="out", **options):
        call.counts = run_step(ANONYMIZE, out, **{"in": write_jsonl(tmp_path / "raw.jsonl", rows)}, **options)
        files = (path for path in (tmp_path / out).iterdir() if path.is_file())
        call.written = "".join(path.read_text(encoding="utf-8") for path in files)
        return list(read_texts(tmp_path / out))

    return call


def test_identifiers_become_placeholders(anonymised):
    texts = anonymised(ROWS)
    assert [text.text for text in texts] == [
        "患者[姓名]，电话[电话]，血压120/80mmHg。",
        "感冒多喝水。",
        "住院号：[病历号]，阿司匹林100mg qd。",
        "加微信[账号]，血糖7.8。",
    ]
    assert texts[2].title == "[姓名]医生的出院小结"
    assert texts[0].identifiers == {"NAME": 1, "PHONE": 1}
    assert all(text.anonymised for text in texts)
    assert anonymised.counts["details"]["identifiers"] == {
        "ACCOUNT": 1, "NAME": 2, "PHONE": 1, "RECORD_NUMBER": 1
    }  # fmt: skip


@pytest.mark.parametrize("mode", ["placeholder", "surrogate"])
def test_nothing_leaks_into_any_file(anonymised, mode):
    anonymised(ROWS, mode=mode)
    assert [secret for secret in SECRETS if secret in anonymised.written] == []


def test_replies_to_a_post_are_searched_together_with_it(anonymised):
    replies = [
        {"text": "王秀兰女士，您好：建议复查血糖。有事打13812345678。", "verified": True},
        {"text": "同问", "verified": False},
    ]
    post = {"_id": "t1", "date": "2024-05-03", "text": "患者王秀兰，空腹血糖7.8，怎么办？"}
    (text,) = anonymised([{**post, "replies": replies}])
    assert (text.date, text.text) == ("2024-05-03", "患者[姓名]，空腹血糖7.8，怎么办？")
    assert [reply["verified"] for reply in text.replies] == [True, False]
    assert text.replies[0]["text"] == "[姓名]女士，您好：建议复查血糖。有事打[电话]。"
    assert [secret for secret in SECRETS if secret in anonymised.written] == []


def test_placeholders_are_in_the_language_of_the_text_and_tell_kinds_apart():
    text = Anonymise().process(Text("1", "Dr. Smith called 212-555-0187.", "复诊 13812345678"))
    assert (text.text, text.title) == ("Dr. [NAME] called [PHONE].", "复诊 [电话]")
    for chinese in (True, False):
        assert len({placeholder(kind, chinese=chinese) for kind in IDENTIFIER_KINDS}) == len(IDENTIFIER_KINDS)


def test_ids_made_from_the_content_are_made_again_and_stay_different(anonymised):
    texts = anonymised([{"text": f"电话1381234567{number}"} for number in range(5)])
    assert [text.id.partition("-")[2] for text in texts] == ["", "2", "3", "4", "5"]


def test_ids_that_are_identifiers_become_new_ones(anonymised):
    rows = [{"_id": "q1", "text": "头疼"}, {"_id": "13812345678", "text": "发烧"}]
    first, second = (text.id for text in anonymised(rows))
    assert first == "q1"
    assert second != "13812345678"
    assert anonymised.counts["details"]["identifiers"] == {"PHONE": 1}
    assert "13812345678" not in anonymised.written


def test_an_id_is_read_with_its_column_as_label(anonymised):
    rows = [{"病历号": "20210034567", "序号": "20210034567", "text": "好转。"}]
    assert anonymised(rows, columns={"id": "病历号"})[0].id != "20210034567"
    assert anonymised(rows, "b", columns={"id": "序号"})[0].id == "20210034567"


def test_a_digest_with_the_digits_of_a_phone_is_not_an_identifier():
    assert Anonymise().process(Text("13812345678abcde", "头疼")).id == "13812345678abcde"


def test_surrogates_are_the_same_throughout_and_the_secret_stays_out(anonymised, tmp_path):
    rows = [{"_id": str(number), "text": f"{number}号：电话13812345678，患者王秀兰。"} for number in range(6)]
    texts = {text.text.partition("：")[2] for text in anonymised(rows, mode="surrogate")}
    assert len(texts) == 1
    assert "[" not in texts.copy().pop()
    salt = tmp_path / "surrogates.salt"
    assert salt.stat().st_mode & 0o077 == 0
    assert salt.read_text().strip() not in anonymised.written
    again = anonymised(rows, "again", mode="surrogate")
    assert {text.text.partition("：")[2] for text in again} == texts


def test_a_secret_that_is_too_short_is_refused(tmp_path):
    (tmp_path / "surrogates.salt").write_text("abc")
    with pytest.raises(MarError, match="3 bytes"):
        salt_for(tmp_path / "out")


def test_doubtful_identifiers_go_to_a_sheet_and_answers_are_obeyed(anonymised, tmp_path):
    rows = [{"text": "复查时间2023年5月6日，王秀兰陪同。"}, {"text": "高血压"}]
    sheet = tmp_path / "sheet.csv"
    anonymised(rows, review=sheet)
    assert sheet.stat().st_mode & 0o077 == 0
    assert sheet.read_text(encoding="utf-8-sig").startswith("identifier,kind,value")
    before = sheet.read_bytes()
    anonymised([*rows, {"text": "复查时间2023年5月7日，李桂英陪同。"}], review=sheet)
    assert sheet.read_bytes() == before  # it may hold answers
