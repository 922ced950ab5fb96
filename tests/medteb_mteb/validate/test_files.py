from __future__ import annotations

import pytest

from medteb_mteb.editions import write_manifest
from medteb_mteb.validate.files import files, identifiers, positives, rows

CHECKS = (files, rows, identifiers, positives)


def test_a_whole_folder_is_in_order(look, folder):
    verdicts = [look(check).verdict for check in CHECKS]
    assert verdicts == ["not known", "ok", "ok", "ok"]
    assert "no manifest" in look(files).reason
    write_manifest(folder, task="clinic", name="c", version="1", licence="cc-by-4.0", counts={})
    assert look(files).verdict == "ok"
    assert look(files).numbers["files"] == 4


def test_a_changed_file_is_named(look, folder, add):
    write_manifest(folder, task="clinic", name="c", version="1", licence="cc-by-4.0", counts={})
    add("judged_negatives.tsv", "q0\tu0")
    finding = look(files)
    assert finding.verdict == "fail"
    assert finding.reason.startswith("judged_negatives.tsv has ")


@pytest.mark.parametrize(
    ("name", "line", "check", "numbers"),
    [
        ("corpus.jsonl", '{"_id": "x", "text": ', rows, {"unusable rows": 1}),
        ("corpus.jsonl", '{"_id": "p0", "text": "noch einmal"}', rows, {"unusable rows": 1}),
        ("corpus.jsonl", "[" * 100_000, rows, {"unusable rows": 1}),
        ("queries.jsonl", '{"_id": "q99", "text": " "}', rows, {"unusable rows": 1}),
        ("qrels/test.tsv", "q0\tgone\t1", identifiers, {"dangling ids": 1}),
        ("qrels/test.tsv", "q99\tp0\t1", identifiers, {"dangling ids": 1}),
        ("judged_negatives.tsv", "q0\tp0", identifiers, {"contradicting judgements": 1}),
    ],
)
def test_defects_are_counted_and_not_errors(look, add, name, line, check, numbers):
    add(name, line)
    finding = look(check)
    assert finding.verdict == "fail"
    assert finding.numbers.items() >= numbers.items()


def test_queries_without_judgements_give_a_warning(look, add):
    add("queries.jsonl", '{"_id": "q99", "text": "谁来回答"}')
    finding = look(identifiers)
    assert (finding.verdict, finding.numbers["queries in no split"]) == ("warning", 1)


def test_queries_without_a_positive_fail(look, folder):
    path = folder / "qrels" / "test.tsv"
    path.write_text(path.read_text().replace("q3\tp3\t1", "q3\tp3\t0"))
    finding = look(positives)
    assert (finding.verdict, finding.numbers["queries without a positive"]) == ("fail", 1)
    assert "1 of 12 queries have no positive; mteb leaves them out" in finding.reason


def test_the_examples_of_unusable_rows_are_such_rows(look, add):
    for number in range(30):
        add("qrels/test.tsv", f"gone{number}\tp0\t1")
        add("qrels/test.tsv", f"q0\tgone{number}\t1")
    add("corpus.jsonl", '{"_id": "p0", "text": "noch einmal"}')
    reason = look(rows).reason
    assert reason.startswith("1 rows cannot be used, for example corpus.jsonl:")
    assert "gone" not in reason
