from __future__ import annotations

import json

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.labels.consensus import ConsensusRule, consensus, counts
from medteb_mteb.curation.labels.grades import Judgement, read_judgements


def judged(**grades):
    """Judgements of one query: document -> a letter per judge, `-` where a judge gave none."""
    return [
        Judgement("q", document, f"judge-{i}", letter)
        for document, letters in grades.items()
        for i, letter in enumerate(letters)
        if letter != "-"
    ]


def labels(result):
    return {
        label.document_id: label.relevance if label.relevance is not None else label.reason
        for label in result
    }


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
    assert labels(consensus(given, ConsensusRule(positive=("S",)))) == {"a": "judges disagree", "b": 0}
    assert labels(consensus(given, ConsensusRule(positive=("S", "A", "B")))) == {"a": 1, "b": 1}
    with pytest.raises(BuildError, match="best ones down to some letter"):
        ConsensusRule(positive=("S", "B"))
    with pytest.raises(BuildError, match="some of S, A, B, C, D; got X"):
        ConsensusRule(positive=("X",))


def test_a_majority_decides_and_ties_are_discarded():
    given = judged(a="SSD", b="SDD", c="SD-")
    assert labels(consensus(given, ConsensusRule("majority"))) == {"a": 1, "b": 0, "c": "a judge is missing"}
    assert labels(consensus(given, ConsensusRule("majority", incomplete=True)))["c"] == "tie"


def test_weights_decide_and_equal_ones_are_the_majority():
    given = judged(a="SDD", b="SSD", c="DDD")
    assert labels(consensus(given, ConsensusRule("weighted", weights={"judge-0": 3}))) == {
        "a": 1,
        "b": 1,
        "c": 0,
    }
    assert labels(consensus(given, ConsensusRule("weighted"))) == labels(
        consensus(given, ConsensusRule("majority"))
    )
    # 4 of 5 is the share of b's judges, and the rule requires more.
    strict = ConsensusRule("weighted", weights={"judge-0": 3}, share=0.8)
    assert labels(consensus(given, strict)) == {"a": "tie", "b": "tie", "c": 0}


def test_graded_keeps_the_mean_and_discards_what_is_far_apart():
    given = judged(a="SSA", b="AAA", c="AAB", d="ABB", e="BBC", f="SSB")
    assert labels(consensus(given, ConsensusRule("graded"))) == {
        "a": 4, "b": 3, "c": 3, "d": 0, "e": 0, "f": "grades too far apart",
    }  # fmt: skip
    assert labels(consensus(given, ConsensusRule("graded", spread=2)))["f"] == 3


def test_a_rule_may_use_only_some_judges():
    given = judged(a="SDS", b="DDS")
    rule = ConsensusRule(judges=("judge-0", "judge-2"))
    assert labels(consensus(given, rule)) == {"a": 1, "b": "judges disagree"}
    with pytest.raises(
        BuildError, match="'gpt' has graded nothing; there are grades from judge-0, judge-1, judge-2"
    ):
        consensus(given, ConsensusRule(judges=("gpt",)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "mean"}, "'mean' is not a rule; choose from unanimous, majority"),
        ({"weights": {"a": 1}}, "Weights are for the rule 'weighted'"),
        ({"kind": "weighted", "weights": {"a": -1}}, "cannot be negative"),
        ({"kind": "weighted", "share": 0.2}, "between 0.5 and 1"),
        ({"kind": "weighted", "share": 1.0}, "between 0.5 and 1"),
        ({"judges": ("a", "b", "a")}, "The judge 'a' is named twice"),
    ],
)
def test_impossible_rules_are_refused(settings, message):
    with pytest.raises(BuildError, match=message):
        ConsensusRule(**settings)


def test_a_judge_may_weigh_less_than_one_or_nothing():
    given = judged(a="SD", b="DS")
    for weight in (0.0, 0.5):
        rule = ConsensusRule("weighted", weights={"judge-0": weight, "judge-1": 1.0}, share=0.5)
        assert labels(consensus(given, rule)) == {"a": 0, "b": 1}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['{"query-id": "q", "corpus-id": "d", "judge": "j"}'], r":1: expected an object with query-id"),
        (["[1]"], ":1: expected an object"),
        (['{"query-id": "q", "corpus-id": "d", "judge": "j", "grade": "E"}'], "grade 'E' is not one of S, A"),
        (['{"query-id": "q", "corpus-id": 3, "judge": "j", "grade": "S"}'], "must be strings"),
        (
            ['{"query-id": "q", "corpus-id": "d", "judge": "j", "grade": "S"}'] * 2,
            r":2: j graded q and d in line 1",
        ),
        ([], "holds no judgements"),
    ],
)
def test_unusable_judgements_are_named_with_their_line(tmp_path, lines, message):
    (tmp_path / "judgements.jsonl").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(BuildError, match=message):
        list(read_judgements(tmp_path))


def test_judgements_are_read(tmp_path):
    row = {"query-id": "q", "corpus-id": "d", "judge": "j", "grade": "A", "extra": 1}
    (tmp_path / "j.jsonl").write_text(json.dumps(row) + "\n\n", encoding="utf-8")
    assert list(read_judgements(tmp_path / "j.jsonl")) == [Judgement("q", "d", "j", "A")]
    with pytest.raises(BuildError, match="There is no"):
        list(read_judgements(tmp_path / "gone.jsonl"))


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
    (tmp_path / "judgements.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = list(read_judgements(tmp_path))
    reason = "positive of a passage that may instruct judges"
    assert labels(consensus(given)) == {"raised": reason, "low": 0, "plain": 1}
    assert labels(consensus(given, ConsensusRule(keep_suspicious=True))) == {
        "raised": 1,
        "low": 0,
        "plain": 1,
    }
    assert counts(consensus(given)) == {"positive": 1, "negative": 1, f"discarded: {reason}": 1}


def test_the_options_of_a_rule_are_those_that_differ_from_the_default():
    assert ConsensusRule().options() == {}
    rule = ConsensusRule(
        "weighted", weights={"one": 2.0, "two": 1.0}, share=0.6, judges=("one", "two"), incomplete=True
    )
    assert rule.options() == {
        "options": {
            "weights": {"one": 2.0, "two": 1.0},
            "share": 0.6,
            "judges": ["one", "two"],
            "incomplete": True,
        }
    }
    assert ConsensusRule("graded", spread=2).options() == {"options": {"spread": 2}}
    assert ConsensusRule(keep_suspicious=True).options() == {"options": {"keep_suspicious": True}}


def test_a_label_that_is_kept_has_no_reason():
    kept = consensus(judged(a="SSA", c="BCD"))
    assert [(label.relevance, label.reason) for label in kept] == [(1, ""), (0, "")]
    decided = consensus(judged(a="SSB"), ConsensusRule("majority"))
    assert [(label.relevance, label.reason) for label in decided] == [(1, "")]
