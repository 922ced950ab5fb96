from __future__ import annotations

import hashlib
import json
import multiprocessing
import os

import pytest

from medteb_mteb.curation.anonymize.known import read_known
from medteb_mteb.curation.anonymize.step import ENTITIES_FILE, IDENTIFIERS_KEY, VERSION, Anonymise, anonymize
from medteb_mteb.curation.files.folder import read_json
from medteb_mteb.curation.files.read import read_texts, source_digest
from medteb_mteb.curation.files.records import BuildError, Text
from medteb_mteb.curation.files.step import run_step

SECRETS = ("13812345678", "王秀兰", "20210034567", "zhang_wei88", "张建国")
ROWS = [
    {"text": "患者王秀兰，电话13812345678，血压120/80mmHg。", "phone": 13812345678, "note": "王秀兰之女陪同"},
    {"text": "感冒多喝水。", "phone": 13900000000, "note": "普通"},
    {
        "text": "住院号：20210034567，阿司匹林100mg qd。",
        "title": "张建国医生的出院小结",
        "phone": None,
        "note": "",
    },
    {"text": "加微信zhang_wei88，血糖7.8。", "phone": 1, "note": "复诊"},
]


def write(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def source(tmp_path):
    return write(tmp_path / "raw.jsonl", ROWS)


def content(folder):
    return "".join(path.read_text(encoding="utf-8") for path in sorted(folder.iterdir()) if path.is_file())


def test_identifiers_become_placeholders(source, tmp_path):
    result = anonymize(source, tmp_path / "out", show_progress=False)
    texts = list(read_texts(tmp_path / "out"))
    assert [text.text for text in texts] == [
        "患者[姓名]，电话[电话]，血压120/80mmHg。",
        "感冒多喝水。",
        "住院号：[病历号]，阿司匹林100mg qd。",
        "加微信[账号]，血糖7.8。",
    ]
    assert texts[2].title == "[姓名]医生的出院小结"
    assert texts[0].meta == {IDENTIFIERS_KEY: {"NAME": 1, "PHONE": 1}}
    assert texts[1].meta == {}
    assert all(text.anonymised.startswith(f"anonymize/{VERSION}:") for text in texts)
    assert result.identifiers == {"ACCOUNT": 1, "NAME": 2, "PHONE": 1, "RECORD_NUMBER": 1}
    assert (result.texts_with, result.left_out) == (3, ("note", "phone"))
    assert json.loads((tmp_path / "out" / ENTITIES_FILE).read_text()) == result.to_json()


def test_nothing_leaks_into_any_file(source, tmp_path):
    for mode in ("placeholder", "surrogate"):
        for keep in ((), ("phone", "note")):
            folder = tmp_path / f"{mode}{len(keep)}"
            anonymize(source, folder, mode=mode, keep_meta=keep, show_progress=False)
            written = content(folder)
            assert [secret for secret in SECRETS if secret in written] == []


def test_kept_meta_is_anonymised_with_its_key_as_label(tmp_path):
    rows = [
        {
            "_id": "1",
            "text": "头疼三天",
            "patient_name": "李建平",
            "姓名": "王秀兰",
            "phone": 13812345678,
            "age": 54,
            "tags": ["神经内科", "联系人：赵国栋", {"电话": "87654321", "13812345678": True}],
            "secret": "x",
        }
    ]
    keep = ("patient_name", "姓名", "phone", "age", "tags")
    result = anonymize(
        write(tmp_path / "r.jsonl", rows), tmp_path / "out", keep_meta=keep, show_progress=False
    )
    (text,) = read_texts(tmp_path / "out")
    assert text.meta["patient_name"] == text.meta["姓名"] == "[姓名]"
    assert (text.meta["phone"], text.meta["age"]) == ("[PHONE]", 54)
    assert text.meta["tags"] == ["神经内科", "联系人：[姓名]", {"电话": "[座机]", "[PHONE]": True}]
    assert result.left_out == ("secret",)


def test_english_text_gets_english_placeholders():
    text = Anonymise().process(Text("1", "Dr. Smith called 212-555-0187.", "复诊 13812345678"))
    assert (text.text, text.title) == ("Dr. [NAME] called [PHONE].", "复诊 [电话]")


def test_ids_made_from_the_content_are_recomputed(source, tmp_path):
    before = [text.id for text in read_texts(source)]
    anonymize(source, tmp_path / "out", show_progress=False)
    after = [text.id for text in read_texts(tmp_path / "out")]
    # The second text has no identifiers: its id tells nothing that its text does not.
    assert [one == other for one, other in zip(before, after, strict=True)] == [False, True, False, False]
    assert not set(before[:1] + before[2:]) & set(content(tmp_path / "out").split('"'))


def test_texts_that_become_the_same_keep_different_ids(tmp_path):
    rows = [{"text": f"电话1381234567{number}"} for number in range(5)]
    source = write(tmp_path / "r.jsonl", rows)
    for shard in (1, 2, 5):
        anonymize(source, tmp_path / f"out{shard}", shard=shard, show_progress=False)
        ids = [text.id for text in read_texts(tmp_path / f"out{shard}")]
        assert len(set(ids)) == 5
        assert [one.partition("-")[2] for one in ids] == ["", "2", "3", "4", "5"]


def test_given_ids_that_are_identifiers_are_refused(tmp_path):
    rows = [{"_id": "q1", "text": "头疼"}, {"_id": "13812345678", "text": "发烧"}]
    source = write(tmp_path / "r.jsonl", rows)
    with pytest.raises(BuildError, match=r"text 2 of the input is itself an identifier \(PHONE\)") as caught:
        anonymize(source, tmp_path / "a", show_progress=False)
    assert "13812345678" not in str(caught.value)
    anonymize(source, tmp_path / "b", ids="keep", show_progress=False)
    assert [text.id for text in read_texts(tmp_path / "b")] == ["q1", "13812345678"]
    anonymize(source, tmp_path / "c", ids="digest", show_progress=False)
    assert not {"q1", "13812345678"} & {text.id for text in read_texts(tmp_path / "c")}


def test_surrogates_are_the_same_throughout_a_build_and_the_secret_stays_out(source, tmp_path):
    rows = [{"_id": str(number), "text": f"{number}号：电话13812345678，患者王秀兰。"} for number in range(6)]
    source = write(tmp_path / "r.jsonl", rows)
    anonymize(source, tmp_path / "out", mode="surrogate", shard=2, show_progress=False)
    texts = [text.text.partition("：")[2] for text in read_texts(tmp_path / "out")]
    assert len(set(texts)) == 1
    assert "[" not in texts[0]
    salt = (tmp_path / "out.salt").read_text().strip()
    assert salt not in content(tmp_path / "out")
    anonymize(source, tmp_path / "again", mode="surrogate", salt=tmp_path / "out.salt", show_progress=False)
    assert [text.text.partition("：")[2] for text in read_texts(tmp_path / "again")] == texts
    (tmp_path / "out.salt").unlink()
    with pytest.raises(BuildError, match="other settings"):
        anonymize(source, tmp_path / "out", mode="surrogate", show_progress=False)


def test_the_mark_follows_the_settings():
    marks = {
        Anonymise().mark,
        Anonymise(kinds=["NAME"]).mark,
        Anonymise(keep_meta=["a"]).mark,
        Anonymise(ids="digest").mark,
        Anonymise(mode="surrogate", salt=b"0" * 16).mark,
        Anonymise(mode="surrogate", salt=b"1" * 16).mark,
    }
    assert len(marks) == 6
    assert Anonymise(keep_meta=["b", "a"]).mark == Anonymise(keep_meta=["a", "b", "a"]).mark
    assert b"0" * 16 not in json.dumps(Anonymise(mode="surrogate", salt=b"0" * 16).settings()).encode()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "hide"}, "mode must be"),
        ({"ids": "drop"}, "ids must"),
        ({"mode": "surrogate"}, "need a secret"),
    ],
)
def test_impossible_settings_are_refused(options, message):
    with pytest.raises(BuildError, match=message):
        Anonymise(**options)


class Dies(Anonymise):
    """Ends like a killed process when the fourth shard begins."""

    calls = 0

    def __call__(self, texts):
        self.calls += 1
        if self.calls == 4:
            os._exit(9)
        return super().__call__(texts)


def test_a_killed_step_resumes_to_the_same_bytes(tmp_path):
    rows = [{"text": f"患者王秀兰，电话1381234567{number % 10}，第{number % 3}天"} for number in range(20)]
    source = write(tmp_path / "r.jsonl", rows)
    anonymize(source, tmp_path / "whole", shard=3, show_progress=False)
    killed = multiprocessing.get_context("fork").Process(
        target=run_step,
        args=(Dies(), source, tmp_path / "killed"),
        kwargs={"shard": 3, "show_progress": False},
    )
    killed.start()
    killed.join()
    assert killed.exitcode == 9
    assert not (tmp_path / "killed" / "manifest.json").exists()
    result = anonymize(source, tmp_path / "killed", shard=3, show_progress=False)
    assert result.report.resumed == 9
    for folder in (tmp_path / "whole", tmp_path / "killed"):
        (folder / ".lock").unlink(missing_ok=True)
    assert content(tmp_path / "killed") == content(tmp_path / "whole")
    assert (
        anonymize(source, tmp_path / "killed", shard=3, show_progress=False).identifiers == result.identifiers
    )


def test_an_id_that_the_text_says_is_a_number_of_the_patient_is_refused(tmp_path):
    source = write(tmp_path / "r.jsonl", [{"_id": "20210034567", "text": "住院号：20210034567，好转。"}])
    with pytest.raises(BuildError, match=r"is itself an identifier \(RECORD_NUMBER\)"):
        anonymize(source, tmp_path / "out", show_progress=False)


def test_an_id_is_read_with_its_column_as_label(tmp_path):
    source = write(tmp_path / "r.jsonl", [{"病历号": "20210034567", "序号": "20210034567", "text": "好转。"}])
    with pytest.raises(BuildError, match=r"is itself an identifier \(RECORD_NUMBER\)"):
        anonymize(source, tmp_path / "a", columns={"id": "病历号"}, show_progress=False)
    anonymize(source, tmp_path / "b", columns={"id": "序号"}, show_progress=False)
    anonymize(source, tmp_path / "c", columns={"id": "病历号"}, ids="keep", show_progress=False)


def test_keys_that_become_the_same_keep_their_values():
    meta = {"calls": {"13812345678": 1, "13912345678": 2}}
    text = Anonymise(keep_meta=["calls"]).process(Text("1", "头疼", meta=meta))
    assert text.meta["calls"] == {"[PHONE]": 1, "[PHONE]-2": 2}


def test_many_texts_that_become_the_same_take_no_longer_each():
    step = Anonymise()
    looked = 0

    class Taken(set):
        def __contains__(self, item):
            nonlocal looked
            looked += 1
            return super().__contains__(item)

    step._taken = Taken()
    for number in range(300):
        body = f"电话1381234{number:04d}"
        step.process(Text(hashlib.sha256(f"\n{body}".encode()).hexdigest()[:16], body))
    assert len(step._taken) == 300
    assert looked < 1000


@pytest.mark.parametrize(
    "identity",
    [
        "13812345678abcde",
        "13812345678abcde-2",
        "13812345678abcde1234567890abcdef",
        "138c2345-6789-4bcd-8234-13812345678a",
    ],
)
def test_a_digest_with_the_digits_of_a_phone_is_not_an_identifier(identity):
    assert Anonymise().process(Text(identity, "头疼")).id == identity
    with pytest.raises(BuildError, match="PHONE"):
        Anonymise().process(Text("13812345678", "头疼"))


def test_a_killed_step_with_known_names_resumes_to_the_same_surrogates(tmp_path):
    rows = [{"text": f"王秀兰来电1381234567{number % 10}，第{number % 3}天"} for number in range(20)]
    source = write(tmp_path / "r.jsonl", rows)
    listed = tmp_path / "known.txt"
    listed.write_text("王 秀兰\n秀兰\n", encoding="utf-8")
    salt = tmp_path / "salt"
    salt.write_text("s" * 32, encoding="utf-8")
    options = {"mode": "surrogate", "known": listed, "salt": salt, "shard": 3, "show_progress": False}
    anonymize(source, tmp_path / "whole", **options)
    step = Dies(mode="surrogate", salt=salt.read_bytes(), known=read_known(listed))
    killed = multiprocessing.get_context("fork").Process(
        target=run_step,
        args=(step, source, tmp_path / "killed"),
        kwargs={"shard": 3, "show_progress": False},
    )
    killed.start()
    killed.join()
    assert killed.exitcode == 9
    assert anonymize(source, tmp_path / "killed", **options).report.resumed == 9
    for folder in (tmp_path / "whole", tmp_path / "killed"):
        (folder / ".lock").unlink(missing_ok=True)
    assert content(tmp_path / "killed") == content(tmp_path / "whole")
    assert "秀兰" not in content(tmp_path / "whole")


def test_the_manifest_holds_no_plain_digest_of_the_raw_file(source, tmp_path):
    """Otherwise, a reader who knows all identifiers but one could guess it by trying digests."""
    anonymize(source, tmp_path / "out", show_progress=False)
    written = "".join((tmp_path / "out" / name).read_text() for name in ("step.json", "manifest.json"))
    assert source_digest(source) not in written
    assert len(read_json(tmp_path / "out" / "step.json")["input"]) == 64
