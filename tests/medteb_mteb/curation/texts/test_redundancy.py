from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.medteb_mteb.results import write_result

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.texts.redundancy import correlation, leakage, read_scores

# MAR paper, Table 9, zero-shot: both CMedQA sets, then retrieval, reranking and STS of the new benchmark.
TABLE = (Path(__file__).parents[2] / "mar_table_9.csv").read_text(encoding="utf-8")
OLD, NEW = ["CMedQAv1", "CMedQAv2"], ["Retrieval", "Reranking", "STS"]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text(TABLE, encoding="utf-8")
    return path


def test_the_correlation_equals_the_published_one(table):
    result = correlation(read_scores(table), OLD, NEW)
    assert len(result.models) == 14
    assert result.spearman == pytest.approx(0.354, abs=5e-4)
    assert result.p == pytest.approx(0.215, abs=5e-4)
    assert result.low < result.spearman < result.high


def test_equal_orders_correlate_by_one_and_opposite_ones_by_minus_one():
    rng = np.random.default_rng(0)
    scores = {f"m{i}": {"a": float(i), "b": i**2 + 0.1, "c": -float(i), "d": rng.random()} for i in range(12)}
    same = correlation(scores, ["a"], ["b"])
    assert (same.spearman, same.kendall, same.low, same.high) == pytest.approx((1, 1, 1, 1))
    assert correlation(scores, ["b"], ["c"]).spearman == pytest.approx(-1)
    noise = correlation(scores, ["a"], ["d"])
    assert noise.low < 0 < noise.high


def test_models_without_all_scores_are_left_out(table):
    table.write_text(TABLE + "half,80.1,,40.2,50.1,60.2\n", encoding="utf-8")
    result = correlation(read_scores(table), OLD, NEW)
    assert result.left_out == ("half",)
    assert len(result.models) == 14


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        (["CMedQA"], NEW, "No model has a score on 'CMedQA'; choose from CMedQAv1"),
        (OLD, ["STS", "CMedQAv1"], "CMedQAv1 is in both groups"),
        (OLD, [], "Both groups need a task"),
    ],
)
def test_unusable_groups_are_refused(table, left, right, message):
    with pytest.raises(BuildError, match=message):
        correlation(read_scores(table), left, right)


def test_too_few_models_are_refused(table):
    table.write_text("\n".join(TABLE.splitlines()[:4]) + "\n", encoding="utf-8")
    with pytest.raises(BuildError, match="3 models have scores on all of"):
        correlation(read_scores(table), OLD, NEW)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,a\nx,1\n", "no column 'model'; it has name, a"),
        ("model,a\nx,much\n", r":2: could not convert .*a score is a number"),
        ("model,a\nx,1\nx,2\n", ":3: the model 'x' is given twice"),
        ("model,a\nx,1,2\n", ":2: the row has more cells than the 2 columns"),
        ("model,a,b,a\nx,1,2,3\n", ":1: the column 'a' occurs twice"),
        ("model,a\nx,nan\n", ":2: nan is not finite; a score is a number"),
    ],
)
def test_unusable_tables_are_refused(tmp_path, text, message):
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    with pytest.raises(BuildError, match=message):
        read_scores(tmp_path / "t.csv")
    with pytest.raises(BuildError, match="holds no results of mteb"):
        read_scores(tmp_path)
    with pytest.raises(BuildError, match="There is no"):
        read_scores(tmp_path / "gone")


def test_results_of_mteb_are_read(tmp_path):
    place = tmp_path / "results" / "org__one" / "rev"
    place.mkdir(parents=True)
    (place / "model_meta.json").write_text("{}")
    rows = [{"main_score": 0.25}, {"main_score": 0.75}]
    (place / "T.json").write_text(json.dumps({"task_name": "T", "scores": {"test": rows}}))
    assert read_scores(tmp_path) == {"org/one": {"T": 0.5}}


def test_a_table_in_another_encoding_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("model,检索\nx,1\n", encoding="gbk")
    with pytest.raises(BuildError, match="is not valid UTF-8"):
        read_scores(tmp_path / "t.csv")


def test_models_with_equal_averages_are_refused():
    scores = {f"m{i}": {"a": 1.0, "b": float(i)} for i in range(6)}
    with pytest.raises(BuildError, match="equal averages over a or over b"):
        correlation(scores, ["a"], ["b"])


def test_a_result_without_a_score_is_named(tmp_path):
    file = write_result(tmp_path, "org/one", "T", None)
    with pytest.raises(BuildError, match=f"{file}: .*a score is a number"):
        read_scores(tmp_path)


def test_results_of_several_revisions_of_a_model_are_refused(tmp_path):
    file = write_result(tmp_path, "org/one", "T", 0.5)
    shutil.copytree(file.parent, file.parents[1] / "2")
    with pytest.raises(BuildError, match=r"several revisions of org/one \(1, 2\); keep one"):
        read_scores(tmp_path)


def test_leaks_are_counted_equal_and_near():
    training = ["感冒了怎么办？", "糖尿病能吃西瓜吗", "多喝水，注意休息。"]
    report = leakage(
        ["感冒怎么办", "糖尿病能吃西瓜吗？", "湿疹痒"], ["多喝水 注意休息", "外用药膏"], training
    )
    assert (report.queries, report.equal, report.near) == (3, 1, 2)
    assert (report.documents, report.equal_documents) == (2, 1)
    assert report.examples == (("糖尿病能吃西瓜吗？", "糖尿病能吃西瓜吗"), ("感冒怎么办", "感冒了怎么办？"))
    assert leakage(["湿疹痒"], [], training).near == 0


def test_the_commands_print_correlation_and_leakage(medteb, table, tmp_path):
    code, out, _ = medteb("redundancy", table, "--left", ",".join(OLD), "--right", ",".join(NEW))
    assert code == 0
    assert "14 models with scores on all, 0 left out" in out
    assert "Spearman 0.354" in out
    assert "p = 0.215" in out
    folder = tmp_path / "task"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text('{"_id": "d", "title": "", "text": "多喝水。"}\n', encoding="utf-8")
    (folder / "queries.jsonl").write_text('{"_id": "q", "text": "感冒怎么办"}\n', encoding="utf-8")
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\td\t1\n", encoding="utf-8")
    (tmp_path / "train.jsonl").write_text(
        '{"query": "感冒了怎么办", "positive": "多喝水"}\n', encoding="utf-8"
    )
    aligned = tmp_path / "aligned"
    aligned.mkdir()
    (aligned / "queries.jsonl").write_text('{"_id": "a", "text": "感冒了怎么办", "source": 0}\n', "utf-8")
    (aligned / "corpus.jsonl").write_text('{"_id": "b", "text": "多喝水", "source": 0}\n', "utf-8")
    code, out, _ = medteb("leakage", folder, "--training", aligned)
    assert code == 0
    assert "queries: 1, of which equal 0, near-duplicates 1" in out
    assert "relevant documents: 1, of which equal 1" in out
    code, out, _ = medteb("leakage", folder, "--training", tmp_path / "train.jsonl")
    assert code == 0
    assert "queries: 1, of which equal 0, near-duplicates 1" in out
    assert "relevant documents: 1, of which equal 1" in out
