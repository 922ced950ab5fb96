"""`medteb dedup`: texts that nearly repeat an earlier one."""

from __future__ import annotations

import json

import pytest

from medteb_mteb.curation.files.read import read_texts

ARGS = ("dedup", "texts.jsonl", "out", "-q")
TEXTS = {
    "a": "感冒以后应该多喝温水并且注意休息",
    "b": "感冒以后应该多喝温水并且注意休息。",
    "c": "感冒以后应该多喝温水并且注意保暖",
    "d": "高血压患者要低盐饮食",
}


@pytest.fixture
def texts(work, write):
    write(work / "texts.jsonl", [{"_id": name, "text": text} for name, text in TEXTS.items()])
    return work


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ((), ["a", "c", "d"]),
        (("--threshold", "0.6"), ["a", "d"]),
        (("--threshold", "1"), ["a", "c", "d"]),  # punctuation does not count
        (("--threshold", "0.77"), ["a", "c", "d"]),
        (("--threshold", "0.77", "--width", "1"), ["a", "d"]),
    ],
)
def test_threshold_and_width_decide_what_is_a_repetition(medteb, texts, more, expected):
    code, out, err = medteb(*ARGS, *more)
    assert (code, err) == (0, "")
    assert [text.id for text in read_texts(texts / "out")] == expected
    assert out.startswith(f"{len(expected)} of 4 texts kept, ")
    assert out.endswith(" dropped: out\n")


def test_a_second_run_reads_the_finished_folder(medteb, texts):
    first = json.loads(medteb(*ARGS, "--json")[1])
    again = json.loads(medteb(*ARGS, "--json")[1])
    assert again == first | {"resumed": 4}
    assert (first["read"], first["kept"], sum(first["dropped"].values())) == (4, 3, 1)


def test_columns_and_sources_are_those_of_the_options(medteb, work):
    (work / "raw.csv").write_text("问题,号\n头疼怎么办,1\n头疼怎么办,2\n", encoding="utf-8")
    more = ("--column", "text=问题", "--column", "id=号", "--source", "own=cc-by-4.0", "-q")
    code, _, err = medteb("dedup", "raw.csv", "out", *more)
    assert code == 0, err
    assert [text.id for text in read_texts(work / "out")] == ["1"]
    step = json.loads((work / "out" / "step.json").read_text("utf-8"))
    assert step["sources"] == [{"name": "own", "licence": "cc-by-4.0"}]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((*ARGS, "--threshold", "0"), "above 0, at most 1"),
        ((*ARGS, "--width", "0"), "'--width'"),
        (("dedup", "gone.jsonl", "out"), "There is no gone.jsonl"),
        (("dedup", "empty.jsonl", "out", "-q"), "empty.jsonl"),
        ((*ARGS, "--column", "words=x"), "'words' is not a field of a text"),
        ((*ARGS, "--source", "own"), "--source takes NAME=LICENCE"),
    ],
)
def test_unusable_input_is_refused(medteb, texts, args, message):
    (texts / "empty.jsonl").touch()
    code, out, err = medteb(*args)
    assert (code, out) == (2, "")
    assert message in err
    assert not (texts / "out" / "manifest.json").exists()
