"""Labels of a folder of judgements: what is written, and where it is refused."""

from __future__ import annotations

import json

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.labels.consensus import ConsensusRule
from medteb_mteb.curation.labels.grades import Label, read_labels
from medteb_mteb.curation.labels.labelling import write_labels


@pytest.fixture
def own(tmp_path):
    """A file of judgements by two judges, made by hand."""
    grades = [("d1", "SA"), ("d2", "SD"), ("d3", "DC")]
    rows = [
        {"query-id": "q", "corpus-id": document, "judge": judge, "grade": grade}
        for document, pair in grades
        for judge, grade in zip("ab", pair, strict=True)
    ]
    (tmp_path / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "own.jsonl"


def test_labels_and_agreement_are_written_as_returned(own, tmp_path):
    content = write_labels(own, tmp_path / "x" / "labels")
    assert read_labels(tmp_path / "x" / "labels") == [
        Label("q", "d1", 1),
        Label("q", "d2", None, "judges disagree"),
        Label("q", "d3", 0),
    ]
    assert content["labels"] == {"negative": 1, "positive": 1, "discarded: judges disagree": 1}
    assert (content["rule"], content["positive"]) == ("unanimous", ["S", "A"])
    assert content["agreement"]["missing"] == {"a": 0, "b": 0}
    assert json.loads((tmp_path / "x" / "labels" / "agreement.json").read_text(encoding="utf-8")) == content
    assert sorted(path.name for path in (tmp_path / "x" / "labels").iterdir()) == [
        "agreement.json",
        "labels.jsonl",
    ]


def test_a_single_judge_gives_labels_but_no_agreement(own, tmp_path):
    content = write_labels(own, tmp_path / "labels", ConsensusRule(judges=("a",)))
    assert content["labels"] == {"negative": 1, "positive": 2}
    assert content["options"] == {"judges": ["a"]}
    assert set(content["agreement"]) == {"note", "missing"}


def test_missing_grades_are_counted_and_their_pairs_discarded(judged, tmp_path):
    content = write_labels(judged, tmp_path / "labels")
    assert content["agreement"]["missing"] == {"a": 2, "b": 1}
    assert content["labels"] == {"positive": 1, "discarded: a judge is missing": 2}


def test_the_provenance_is_that_of_the_judgements_and_of_no_earlier_ones(judged, own, tmp_path):
    out = tmp_path / "labels"
    write_labels(judged, out)
    judges = json.loads((out / "provenance.json").read_text(encoding="utf-8"))["judges"]
    assert [judge["name"] for judge in judges] == ["a", "b"]
    write_labels(own, out)
    assert not (out / "provenance.json").exists()


def test_the_folder_of_the_judging_is_not_written_to(judged):
    before = {path.name: path.read_bytes() for path in judged.iterdir()}
    for source in (judged, judged / "judgements.jsonl"):
        with pytest.raises(BuildError, match=r"judged holds the judgements .*; give another folder"):
            write_labels(source, judged)
    assert {path.name: path.read_bytes() for path in judged.iterdir()} == before


def test_a_folder_that_cannot_be_made_is_one_clear_error(own):
    with pytest.raises(BuildError, match=r"own\.jsonl cannot be written to \(File exists\)"):
        write_labels(own, own)
