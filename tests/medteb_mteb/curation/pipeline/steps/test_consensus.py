"""The step `consensus`: its rule, the judges that it names, and the labels."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.labels.consensus import ConsensusRule
from medteb_mteb.curation.labels.labelling import write_labels

LABELS = {"step": "consensus", "in": "judgements.jsonl"}
WEIGHTED = {
    "rule": "weighted",
    "positive": ("S",),
    "weights": {"b": 3.0},
    "share": 0.6,
    "spread": 2,
    "judges": ("a", "b"),
    "incomplete": True,
    "keep_suspicious": True,
}


@pytest.fixture
def judgements(save):
    """Grades of three judges for three pairs."""
    grades = {"d1": "SAA", "d2": "SDB", "d3": "DCD"}
    rows = [
        {"query-id": "q", "corpus-id": document, "judge": judge, "grade": grade}
        for document, letters in grades.items()
        for judge, grade in zip("abc", letters, strict=True)
    ]
    return save("judgements.jsonl", rows)


def test_every_option_reaches_the_rule(parsed):
    rule = asdict(parsed(**LABELS, **WEIGHTED).made())
    assert rule == {"kind": WEIGHTED["rule"], **{key: WEIGHTED[key] for key in WEIGHTED if key != "rule"}}
    assert parsed(**LABELS).made() == ConsensusRule()


@pytest.mark.parametrize("options", [{}, {"rule": "majority"}, WEIGHTED])
def test_the_step_writes_what_the_function_writes(made, parsed, judgements, files_of, tmp_path, options):
    result, folder = made({**LABELS, **options})
    by_hand = write_labels(judgements, tmp_path / "by-hand", parsed(**LABELS, **options).made())
    assert files_of(folder) == files_of(tmp_path / "by-hand")
    assert result == by_hand


def test_every_judged_pair_is_forecast(planned, judgements):
    volume = planned(LABELS).writes
    assert (volume.items, volume.queries) == (3, 1)


BOTH = {"queries": "queries.jsonl", "documents": "documents.jsonl"}
JUDGED = [
    {"step": "pool", **BOTH, "retrievers": ["bm25"]},
    {"step": "judge", **BOTH, "pools": "pool"},
    {"step": "consensus", "in": "judge"},
]


@pytest.mark.parametrize(
    "options", [{"judges": ["rule-words", "none"]}, {"rule": "weighted", "weights": {"none": 2}}]
)
def test_a_judge_that_the_pipeline_does_not_have_is_named_before_anything_is_judged(planned, options):
    with pytest.raises(
        BuildError, match="Step 'consensus': 'none' is not a judge; choose from rule-words, rule-"
    ):
        planned(*JUDGED[:2], {**JUDGED[2], **options})


def test_judges_of_a_file_of_judgements_are_not_those_of_the_pipeline(made, judgements):
    result, _ = made({**LABELS, "judges": ["a"]})
    assert result["labels"] == {"negative": 1, "positive": 2}
    with pytest.raises(BuildError, match="The judge 'rule-words' has graded nothing"):
        made({**LABELS, "name": "other", "judges": ["rule-words"]})
