from __future__ import annotations

import pytest

from medteb_mteb.curation.anonymize.evaluate import parse_marked, quality, read_marked
from medteb_mteb.curation.anonymize.spans import Span
from medteb_mteb.curation.files.records import BuildError


def test_marks_are_read():
    sentence = parse_marked("电话[[phone:13800138000]]，找[[NAME:张]]医生", 7)
    assert sentence.text == "电话13800138000，找张医生"
    assert sentence.spans == (Span(2, 13, "PHONE"), Span(15, 16, "NAME"))
    assert sentence.line == 7


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[[TEL:1]]", "unknown kind TEL"),
        ("[[NAME:]]", "empty mark"),
        ("[[NAME:张", "not closed"),
        ("张]]", "not closed"),
    ],
)
def test_invalid_marks_are_refused(line, message):
    with pytest.raises(BuildError, match=f"line 3: .*{message}"):
        parse_marked(line, 3)


def test_a_file_names_its_faulty_lines(tmp_path):
    file = tmp_path / "own.txt"
    file.write_text("# mine\n\n[[NAME:张]]医生\n[[X:1]]\n[[NAME:]]\n", encoding="utf-8")
    with pytest.raises(BuildError, match=r"line 4: .*line 5: "):
        read_marked(file)
    file.write_text("# mine\n", encoding="utf-8")
    with pytest.raises(BuildError, match="no sentences"):
        read_marked(file)
    with pytest.raises(BuildError, match="cannot be read"):
        read_marked(tmp_path / "gone.txt")


def test_precision_and_recall_equal_values_computed_manually():
    sentences = [
        parse_marked("患者[[NAME:王秀兰]]，[[PHONE:13800138000]]"),
        parse_marked("没有"),
        parse_marked("也没有"),
    ]
    answers = {
        sentences[0].text: [Span(2, 4, "NAME"), Span(6, 17, "LANDLINE")],
        "没有": [],
        "也没有": [Span(0, 1, "NAME")],
    }
    result = quality(sentences, lambda text: answers[text])
    # 王秀 of 王秀兰 counts as near, not as exact; a phone found as a landline is wrong, but it is covered.
    assert (result.recall(), result.precision()) == (1 / 2, 1 / 3)
    assert (result.recall(exact=True), result.precision(exact=True)) == (0, 0)
    assert (result.recall("NAME"), result.precision("NAME"), result.recall("PHONE")) == (1, 1 / 2, 0)
    assert (result.covered, result.characters) == (13, 14)
    assert (result.plain, result.disturbed, result.sentences) == (2, 1, 3)
    assert len(result.errors) == 3
    assert "13800138000" not in str(result.to_json())


def test_one_find_counts_for_one_mark():
    sentence = parse_marked("[[NAME:王]][[NAME:李]]")
    result = quality([sentence], lambda _: [Span(0, 2, "NAME")])
    assert (result.near.total(), result.found.total(), result.marked.total()) == (1, 1, 2)


def test_kinds_that_are_not_requested_do_not_count():
    sentence = parse_marked("[[NAME:王]]医生 [[PHONE:13800138000]]")
    result = quality([sentence], lambda _: [Span(0, 1, "NAME")], kinds=["NAME"])
    assert (result.recall(), result.precision()) == (1, 1)
