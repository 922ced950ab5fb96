from __future__ import annotations

import json

import pytest
from pydantic import ValidationError
from tests.conftest import write_jsonl

from mar_st.errors import MarError
from medteb_mteb.curation.labels.consensus import (
    CONSENSUS,
    ConsensusRule,
    ConsensusSettings,
    consensus,
    counts,
)
from medteb_mteb.curation.labels.grades import Judgement, read_judgements, read_labels
from medteb_mteb.curation.lineage import lineage
from medteb_mteb.curation.step import perform


def judged(**grades):
    """Judgements of one query: document -> a letter per judge, `-` where a judge gave none."""
    return [
        Judgement("q", document, f"judge-{i}", letter)
        for document, letters in grades.items()
        for i, letter in enumerate(letters)
        if letter != "-"
    ]


def labels(result):
    return {one.document_id: one.reason if one.relevance is None else one.relevance for one in result}


def test_the_published_rule_keeps_only_what_all_agree_on():
    result = consensus(judged(a="SSA", b="SAB", c="BCD", d="SDD", e="SS-"))
    assert labels(result) == {
        "a": 1,
        "b": "judges disagree",
        "c": 0,
        "d": "judges disagree",
        "e": "a judge is missing",
    }
    assert counts(result) == {
        "positive": 1, "negative": 1, "discarded: a judge is missing": 1, "discarded: judges disagree": 2,
    }  # fmt: skip


def test_where_a_positive_begins_is_a_setting():
    given = judged(a="SSA", b="AAB")
    assert labels(consensus(given, ConsensusRule(worst_positive="S"))) == {"a": "judges disagree", "b": 0}
    assert labels(consensus(given, ConsensusRule(worst_positive="B"))) == {"a": 1, "b": 1}


def test_a_majority_decides_and_ties_are_discarded():
    given = judged(a="SSD", b="SDD", c="SD-")
    expected = {"a": 1, "b": 0, "c": "a judge is missing"}
    assert labels(consensus(given, ConsensusRule(rule="majority"))) == expected
    assert labels(consensus(judged(a="SD"), ConsensusRule(rule="majority"))) == {"a": "tie"}


def test_graded_keeps_the_mean_and_discards_what_is_far_apart():
    given = judged(a="SSA", b="AAA", c="AAB", d="ABB", e="BBC", f="SSB")
    assert labels(consensus(given, ConsensusRule(rule="graded"))) == {
        "a": 4, "b": 3, "c": 3, "d": 0, "e": 0, "f": "grades too far apart",
    }  # fmt: skip


def test_a_rule_may_use_only_some_judges():
    given = judged(a="SDS", b="DDS")
    rule = ConsensusRule(only=("judge-0", "judge-2"))
    assert labels(consensus(given, rule)) == {"a": 1, "b": "judges disagree"}
    with pytest.raises(
        MarError, match="'gpt' has graded nothing; there are grades from judge-0, judge-1, judge-2"
    ):
        consensus(given, ConsensusRule(only=("gpt",)))


@pytest.mark.parametrize("settings", [{"rule": "mean"}, {"only": ("a", "b", "a")}, {"worst_positive": "X"}])
def test_impossible_rules_are_refused(settings):
    with pytest.raises(ValidationError):
        ConsensusRule(**settings)


ROW = '{"query-id": "q", "corpus-id": "d", "judge": "j", "grade": "S"}'


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['{"query-id": "q", "corpus-id": "d", "judge": "j"}'], ":1: "),
        (["[1]"], "row 1: "),
        ([ROW.replace("S", "E")], "grade 'E' is not one of S, A"),
        ([ROW.replace('"d"', "3")], ":1: "),
        ([ROW] * 2, ":2: j graded q and d before"),
        ([], "holds no judgements"),
    ],
)
def test_unusable_judgements_are_named_with_their_line(tmp_path, lines, message):
    (tmp_path / "judgements.jsonl").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(MarError, match=message):
        list(read_judgements(tmp_path))


def test_judgements_are_read(tmp_path):
    (tmp_path / "j.jsonl").write_text(f'{ROW[:-1]}, "extra": 1}}\n\n', encoding="utf-8")
    assert list(read_judgements(tmp_path / "j.jsonl")) == [Judgement("q", "d", "j", "S")]


def test_a_positive_passage_that_may_instruct_judges_is_discarded(tmp_path):
    rows = [
        {"query-id": "q", "corpus-id": document, "judge": judge, "grade": grade, **marked}
        for document, grade, marked in (
            ("raised", "S", {"suspicious": True}),
            ("low", "D", {"suspicious": True}),
            ("plain", "S", {}),
        )
        for judge in ("one", "two")
    ]
    write_jsonl(tmp_path / "judgements.jsonl", rows)
    given = list(read_judgements(tmp_path))
    reason = "positive of a passage that may instruct judges"
    assert labels(consensus(given)) == {"raised": reason, "low": 0, "plain": 1}
    assert counts(consensus(given)) == {"positive": 1, "negative": 1, f"discarded: {reason}": 1}


def test_the_step_writes_labels_agreement_and_what_is_missing(tmp_path):
    grades = [("q1", "d1", "b", "S"), ("q1", "d1", "a", "A"), ("q1", "d2", "b", "D")]
    names = ("query-id", "corpus-id", "judge", "grade")
    failed = [("q1", "d2", "a"), ("q1", "d3", "a"), ("q1", "d3", "b")]
    folder = tmp_path / "judged"
    write_jsonl(folder / "judgements.jsonl", [dict(zip(names, row, strict=True)) for row in grades])
    write_jsonl(folder / "failed.jsonl", [dict(zip(names[:3], row, strict=True)) for row in failed])
    settings = ConsensusSettings.model_validate({"in": folder, "out": tmp_path / "labels"})
    record, kept = perform(CONSENSUS, settings)
    missing = "a judge is missing"
    assert [(one.document_id, one.relevance, one.reason) for one in read_labels(tmp_path / "labels")] == [
        ("d1", 1, ""),
        ("d2", None, missing),
        ("d3", None, missing),
    ]
    assert not kept
    assert record["counts"]["details"]["missing"] == {"a": 2, "b": 1}
    content = json.loads((tmp_path / "labels" / "agreement.json").read_text())
    assert (content["rule"], content["labels"]["positive"]) == ("unanimous", 1)
    assert content["agreement"]["pairs"] == 1
    (entry,) = lineage(tmp_path / "labels")[-1]["provenance"]["consensus"]
    assert (entry["rule"], entry["positive"]) == ("unanimous", ["S", "A"])
