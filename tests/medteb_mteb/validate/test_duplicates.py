from __future__ import annotations

import json

import pytest

from medteb_mteb.validate.duplicates import duplicate_documents, duplicate_queries


def document(name, word, text):
    return json.dumps({"_id": name, "title": word, "text": text}, ensure_ascii=False)


COPY = document("copy", "感冒", "得了感冒的病人应当在医生指导下用药，并注意休息！")


def test_clusters_of_queries_count_as_one(look, add):
    assert look(duplicate_queries).numbers["equal to another"] == 0
    add("queries.jsonl", '{"_id": "twin", "text": "感冒，吃什么药？"}')
    add("qrels/test.tsv", "twin\tp0\t1")
    finding = look(duplicate_queries)
    assert finding.numbers["equal to another"] == 1
    assert finding.numbers["largest cluster"] >= 2
    assert finding.verdict == "fail"


def test_documents_that_differ_are_in_order(look):
    assert look(duplicate_documents).verdict == "ok"


def test_an_unlabelled_copy_of_a_positive_is_a_wrong_label(look, add):
    add("corpus.jsonl", COPY)
    finding = look(duplicate_documents)
    assert finding.verdict == "fail"
    assert finding.numbers["equal to another"] == finding.numbers["unlabelled copies of positives"] == 1
    assert finding.numbers["near-duplicates of another"] == 1


@pytest.mark.parametrize(
    ("name", "line"),
    [("qrels/test.tsv", "q0\tcopy\t1"), ("judged_negatives.tsv", "q0\tcopy"), ("disputed.tsv", "q0\tcopy")],
)
def test_a_labelled_copy_is_only_a_copy(look, add, name, line):
    add("corpus.jsonl", COPY)
    if name == "disputed.tsv":
        add(name, "query-id\tcorpus-id")
    add(name, line)
    finding = look(duplicate_documents)
    assert (finding.verdict, finding.numbers["unlabelled copies of positives"]) == ("warning", 0)


def test_near_copies_are_counted_apart(look, add):
    add("corpus.jsonl", document("near", "感冒", "得了感冒的病人应当在医生的指导下用药，并注意休息。"))
    finding = look(duplicate_documents)
    assert finding.numbers["equal to another"] == 0
    assert finding.numbers["unlabelled near-copies of positives"] == 1
    assert finding.verdict == "ok"
