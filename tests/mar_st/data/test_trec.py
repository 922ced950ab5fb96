from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval

from mar_st.data.trec import read_qrels, read_run, write_qrels, write_run
from mar_st.errors import MarError

RUN = {"q1": {"d2": 0.1 + 0.2, "d1": -1e-9, "d10": float(np.float32(-0.3))}, "问题": {"文档": 1.0}}


@pytest.mark.parametrize("suffix", [".trec", ".run", ".json"])
def test_written_files_are_read(tmp_path, suffix):
    path = tmp_path / f"one{suffix}"
    write_run(path, RUN)
    run = read_run(path)
    assert run == RUN
    assert list(run["q1"]) == ["d2", "d1", "d10"]
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_trec_tools_read_the_written_files(tmp_path):
    write_run(tmp_path / "one.trec", RUN, tag="mar")
    write_qrels(tmp_path / "one.qrels", {"q1": {"d2": 2, "d1": 0}})
    assert (tmp_path / "one.trec").read_text(encoding="utf-8").splitlines()[
        0
    ] == f"q1 Q0 d2 1 {0.1 + 0.2!r} mar"
    with (tmp_path / "one.trec").open(encoding="utf-8") as stream:
        assert pytrec_eval.parse_run(stream) == RUN
    with (tmp_path / "one.qrels").open() as stream:
        assert pytrec_eval.parse_qrel(stream) == {"q1": {"d2": 2, "d1": 0}}


def test_ties_are_ordered_by_rank_and_lines_may_come_in_any_order(tmp_path):
    path = tmp_path / "one.trec"
    path.write_text("q Q0 c 3 0.5 x\nq\tQ0\ta\t1\t0.5\tx\n\nq Q0 b 2 0.5 x\n")
    assert list(read_run(path)["q"]) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "line",
    [
        "q Q0 d 1 0.5", "q Q0 d 1 nan x", "q Q0 d 1 inf x", "q Q0 d 1 high x", "q Q0 d 1.5 0.5 x",
        "q Q0 d -1 0.5 x", "q Q0 d " + "1" * 5000 + " 0.5 x", "q Q0 first 2 0.5 x",
    ],
)  # fmt: skip
def test_errors_name_the_invalid_line(tmp_path, line):
    path = tmp_path / "one.trec"
    path.write_text(f"q Q0 first 1 0.9 x\n{line}\n")
    with pytest.raises(MarError, match=r"one\.trec:2: "):
        read_run(path)


@pytest.mark.parametrize(("query", "document"), [("p", "d"), ("q", "e")])
def test_other_queries_and_documents_are_refused(tmp_path, query, document):
    write_run(tmp_path / "one.trec", {query: {document: 1.0}})
    with pytest.raises(MarError, match="there is no"):
        read_run(tmp_path / "one.trec", queries={"q"}, documents={"d"})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"q": {"d": NaN}}', "not a finite number"),
        ('{"q": {"d": true}}', "finite number"),
        ('{"q": {"d": 1, "d": 2}}', "'d' occurs twice"),
        ('{"q": ["d"]}', "expected an object"),
        ("[1", "not a JSON|surrogate"),
        ('{"\\ud800": {"d": 1}}', "not a JSON|surrogate"),
        ("{}", "holds no results"),
        ('{"q": {"e": 1}}', "there is no document 'e'"),
    ],
)
def test_invalid_json_runs_are_refused(tmp_path, content, message):
    path = tmp_path / "one.json"
    path.write_text(content)
    with pytest.raises(MarError, match=message):
        read_run(path, documents={"d"})


def test_mteb_predictions_are_read_as_runs(tmp_path):
    path = tmp_path / "T_predictions.json"
    path.write_text(json.dumps({"mteb_model_meta": {}, "default": {"test": {"q": {"a": 0.1, "b": 0.2}}}}))
    assert list(read_run(path)["q"]) == ["b", "a"]
    assert read_run(path, split="test") == read_run(path)
    with pytest.raises(MarError, match="'zh'"):
        read_run(path, subset="zh")
    with pytest.raises(MarError, match="splits test"):
        read_run(path, split="dev")


def test_names_and_ids_that_the_format_cannot_hold_are_refused(tmp_path):
    with pytest.raises(MarError, match="the suffix decides"):
        write_run(tmp_path / "run.txt", RUN)
    for run in ({"a b": {"d": 1.0}}, {"a": {"": 1.0}}, {"a": {"d\u3000e": 1.0}}):
        with pytest.raises(MarError, match="cannot hold the id"):
            write_run(tmp_path / "run.trec", run)
    with pytest.raises(MarError, match="cannot hold the id"):
        write_qrels(tmp_path / "one.qrels", {"q": {"d 1": 1}})
    assert list(Path(tmp_path).iterdir()) == []
    with pytest.raises(MarError, match="There is no run"):
        read_run(tmp_path / "run.trec")


def test_qrels_are_read_as_a_table_and_as_trec(tmp_path):
    expected = {"q 1": {"a": 1, "b": 0}, "q2": {"c": 2}}
    path, trec = tmp_path / "test.tsv", tmp_path / "test.qrels"
    for separator in "\t", ",":  # many write commas into a .tsv
        lines = ("query-id\tcorpus-id\tscore", "q 1\ta\t1", "q 1\tb\t0", "", "q2\tc\t2.0")
        path.write_text("\n".join(lines).replace("\t", separator))
        assert read_qrels(path) == read_qrels(tmp_path, "test") == expected
    trec.write_text("q1 0 a 1\nq1 0 b 0\nq2 0 c 2\n")
    assert read_qrels(trec) == {"q1": expected["q 1"], "q2": expected["q2"]}
    (tmp_path / "true.jsonl").write_text('{"query-id": "q", "corpus-id": "d", "score": true}\n')
    path.write_text("query-id\tcorpus-id\tscore\nq1\ta\tmuch\n")
    (tmp_path / "again.csv").write_text("query-id,corpus-id,score\nq1,a,1\nq1,a,0\n")
    trec.write_text("q1 a 1\n")
    for wrong in ("true.jsonl", "test.tsv", "again.csv", "test.qrels", "none.tsv", "none.qrels"):
        with pytest.raises(MarError, match=wrong):
            read_qrels(tmp_path / wrong)
