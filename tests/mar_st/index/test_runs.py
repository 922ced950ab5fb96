from __future__ import annotations

import math

import pytest

from mar_st.errors import MarError
from mar_st.index.runs import evaluate, read_qrels, read_queries


def test_scores_are_those_of_the_definitions():
    qrels = {"q1": {"a": 2, "b": 1, "c": 0}, "q2": {"x": 1}, "q3": {"y": 0}, "q4": {"z": 1}}
    run = {"q1": {"b": 3.0, "n": 2.0, "a": 1.0}, "q2": {"n": 2.0, "m": 1.0}, "q3": {"y": 1.0}}
    ideal = 2 + 1 / math.log2(3)
    scores = evaluate(run, qrels, 2)
    assert scores["queries"] == 3  # q3 has nothing relevant; q4, which found nothing, counts
    assert scores["ndcg@10"] == pytest.approx((1 + 2 / math.log2(4)) / ideal / 3)
    assert scores["recall@2"] == pytest.approx(0.5 / 3)
    assert scores["recall@10"] == pytest.approx(1 / 3)
    assert scores["mrr"] == pytest.approx(1 / 3)


def test_runs_of_other_queries_are_refused():
    with pytest.raises(MarError, match="belong to the same data"):
        evaluate({"q": {"a": 1.0}}, {"p": {"a": 1}}, 10)


def test_qrels_are_read_with_and_without_a_header(tmp_path):
    path = tmp_path / "test.tsv"
    expected = {"q1": {"a": 1, "b": 0}, "q2": {"c": 2}}
    path.write_text("query-id\tcorpus-id\tscore\nq1\ta\t1\nq1\tb\t0\n\nq2\tc\t2\n")
    assert read_qrels(path) == expected
    path.write_text("q1 0 a 1\nq1 0 b 0\nq2 0 c 2\n")
    assert read_qrels(path) == expected
    path.write_text("q1\ta\t1\nq1\tb\tmuch\n")
    with pytest.raises(MarError, match=r"test.tsv:2: expected"):
        read_qrels(path)
    path.write_bytes("q1\t头疼\t1\n".encode("gbk"))
    with pytest.raises(MarError, match=r"test.tsv cannot be read"):
        read_qrels(path)
    with pytest.raises(MarError, match="cannot be read"):
        read_qrels(tmp_path / "none.tsv")


def test_ids_in_qrels_may_hold_spaces(tmp_path):
    path = tmp_path / "test.tsv"
    path.write_text("query-id\tcorpus-id\tscore\nq 1\tArticle 12\t1\nq2\tArticle 13 b\t1\n")
    assert read_qrels(path) == {"q 1": {"Article 12": 1}, "q2": {"Article 13 b": 1}}
    path.write_text("q1 Article 12 b 1\n")
    with pytest.raises(MarError, match=r"test.tsv:1: expected .* separated by tabs"):
        read_qrels(path)


@pytest.mark.parametrize("line", ["q1\td1\t1.0", "q1\td1\thigh", "q1 0 d1 1.0"])
def test_a_first_line_with_another_grade_is_no_header(tmp_path, line):
    path = tmp_path / "test.tsv"
    path.write_text(f"{line}\nq1\td2\t1\n")
    with pytest.raises(MarError, match=r"test.tsv:1: expected .* whole-number grade"):
        read_qrels(path)


def test_queries_are_read_from_a_file_or_a_folder(tmp_path):
    path = tmp_path / "queries.jsonl"
    path.write_text('{"_id": "q1", "text": "头疼"}\n{"_id": "q2", "text": "发热"}\n')
    assert read_queries(path) == read_queries(tmp_path) == {"q1": "头疼", "q2": "发热"}
    path.write_text('{"_id": "q1", "text": "头疼"}\n' * 2)
    with pytest.raises(MarError, match="'q1' occurs twice"):
        read_queries(path)


def test_a_pair_that_is_judged_twice_is_named(tmp_path):
    path = tmp_path / "test.qrels"
    path.write_text("q1 0 a 1\nq1 0 a 0\n")
    with pytest.raises(MarError, match=r"test.qrels:2: .*judged twice"):
        read_qrels(path)
