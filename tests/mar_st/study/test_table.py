"""Tests of the numbers of a study's table, and of its Markdown."""

from __future__ import annotations

import copy
import json
import sys
from functools import cache

import numpy as np
import pytest

from mar_st.evaluation.scored_set import Task
from mar_st.evaluation.tasks import TaskData
from mar_st.study.schema import Study
from mar_st.study.table import make_table, markdown, timings_markdown, write_table

ITEMS = 12
COST = {
    "model": "x",
    "parameters": 2_500_000,
    "parameters_without_embeddings": 500_000,
    "flops_per_query": 3e6,
}


def study(*, names=("full", "small", "bm25"), **fields):
    rows = [
        {"name": name, "recipe": "any"} if name != "bm25" else {"name": name, "model": name} for name in names
    ]
    tasks = [{"name": name, "path": name} for name in ("faq", "pairs")]
    content = {"name": "s", "full": "full", "seeds": [1, 2], "rows": rows, "tasks": tasks, "resamples": 1000}
    return Study.model_validate(content | fields)


def tasks():
    queries = {f"q{number}": "问" for number in range(ITEMS)}
    faq = TaskData(
        Task(name="faq", path="faq"), "retrieval", "ndcg@10", "1", queries, qrels={key: {} for key in queries}
    )
    gold = [number / ITEMS for number in range(ITEMS)]
    pairs = TaskData(
        Task(name="pairs", path="pairs"), "sts", "pearson", "2", pairs=[("甲", "乙")] * ITEMS, gold=gold
    )
    return [faq, pairs]


def values(seed=0, level=0.5, seeds=2):
    rng = np.random.default_rng(seed)
    gold = np.linspace(0, 1, ITEMS)
    return {
        "faq": [rng.uniform(level, 1, ITEMS).tolist() for _ in range(seeds)],
        "pairs": [(gold + rng.normal(0, 0.3, ITEMS)).tolist() for _ in range(seeds)],
    }


def table(of=None, scores=None, costs=None):
    of = of or study()
    scores = scores or {"full": values(1), "small": values(2, level=0.1), "bm25": values(3, seeds=1)}
    models = {row.name: {seed: f"{row.name}-{seed}" for seed in of.seeds_of(row)} for row in of.rows}
    return make_table(of, tasks(), scores, models, costs or {"full": COST, "small": COST})


@cache
def usual():
    return table()


def by_name(made):
    return {row["name"]: row for row in made["rows"]}


def cells(line):
    return line.replace("\\|", "").strip("|").split("|")


def test_rows_have_means_over_tasks_and_seeds():
    made = usual()
    assert json.loads(json.dumps(made)) == made
    small, full = by_name(made)["small"], by_name(made)["full"]
    scores = values(2, level=0.1)
    faq = np.mean(scores["faq"], axis=1)
    pairs = [np.corrcoef(row, np.linspace(0, 1, ITEMS))[0, 1] for row in scores["pairs"]]
    for name, seeds in {"faq": faq, "pairs": pairs, "average": (faq + pairs) / 2}.items():
        score = small["scores"][name]
        assert score["seeds"] == pytest.approx(list(seeds))
        assert score["mean"] == pytest.approx(np.mean(seeds))
        assert score["std"] == pytest.approx(np.std(seeds, ddof=1))
        assert score["low"] < score["mean"] < score["high"]
        assert score["difference"] == pytest.approx(score["mean"] - full["scores"][name]["mean"])
    assert small["of_full"] == pytest.approx(
        small["scores"]["average"]["mean"] / full["scores"]["average"]["mean"]
    )
    assert by_name(made)["bm25"]["scores"]["faq"]["std"] is None
    assert "model" not in small["cost"]


def test_the_same_scores_give_the_same_table():
    assert table() == usual()
    assert table(study(test_seed=1)) != usual()


def test_a_row_that_equals_the_full_model_does_not_differ():
    made = table(scores={"full": values(1), "small": values(1), "bm25": values(3, seeds=1)})
    average = by_name(made)["small"]["scores"]["average"]
    assert (average["difference"], average["p"], average["p_holm"]) == (0, 1, 1)
    assert average["difference_low"] == -average["difference_high"]
    assert by_name(made)["small"]["of_full"] == 1
    assert "p" not in by_name(made)["full"]["scores"]["average"]


def test_p_values_are_adjusted_for_the_number_of_rows():
    rows = by_name(usual())
    averages = sorted(
        (rows[name]["scores"]["average"] for name in ("small", "bm25")), key=lambda a: a["p_mixed"]
    )
    assert averages[0]["p_holm"] == pytest.approx(min(1, 2 * averages[0]["p_mixed"]))
    assert averages[1]["p_holm"] == pytest.approx(max(averages[0]["p_holm"], averages[1]["p_mixed"]))
    alone = table(study(names=("full", "small")), {"full": values(1), "small": values(2, level=0.1)})
    average = by_name(alone)["small"]["scores"]["average"]
    assert average["p_holm"] == average["p_mixed"]


def test_of_a_full_model_that_scores_0_there_is_no_share():
    nothing = {"faq": [[0.0] * ITEMS] * 2, "pairs": [[0.5] * ITEMS] * 2}
    made = table(scores={"full": nothing, "small": values(2), "bm25": values(3, seeds=1)})
    assert [row["of_full"] for row in made["rows"]] == [None, None, None]
    assert " undefined |" in markdown(made)
    assert by_name(made)["small"]["scores"]["average"]["difference"] > 0


def test_pairs_in_the_opposite_order_of_published_numbers_are_listed():
    published = {"name": "paper", "source": "table 1", "scores": {"full": 60, "small": 70, "bm25": 50}}
    made = table(study(published=[published | {"task": "faq"}, published]))
    first, second = made["published"]
    means = {name: row["scores"]["faq"]["mean"] for name, row in by_name(made).items()}
    assert {name: entry["here"] for name, entry in first["rows"].items()} == pytest.approx(means)
    assert means["full"] > means["small"]
    pair = next(pair for pair in first["opposite_pairs"] if pair["higher_published"] == "small")
    assert pair["difference"] == pytest.approx(means[pair["higher_here"]] - means["small"])
    assert pair["published_difference"] == 70 - published["scores"][pair["higher_here"]]
    assert second["task"] is None
    text = markdown(made)
    assert "Beside paper (table 1; faq here): Kendall's tau" in text
    assert "Beside paper (table 1; average here)" in text


@pytest.mark.parametrize("label", ["a | b", "two\nlines\n", "\t", "| --- |", "图\u2028表"])
def test_every_line_of_the_markdown_has_all_cells(label):
    made = copy.deepcopy(usual())
    made["rows"][1] |= {"label": label, "group": label}
    made["rows"][2] |= {"group": "other"}
    lines = markdown(made).split("\n\n")[0].split("\n")
    assert len(lines) == 2 + 3 + 2  # head, rows, groups
    assert {len(cells(line)) for line in lines} == {len(cells(lines[0]))}
    assert all(len(line.splitlines()) == 1 for line in lines)
    timings = {"small": {"median_ms": 1.0, "p95_ms": 2.0, "device": "cpu", "threads": 2}}
    rows = timings_markdown(made, timings).split("\n\n")[0].splitlines()
    assert [len(cells(row)) for row in rows] == [3, 3, 3]


def test_the_markdown_marks_the_full_model_and_leaves_unknown_cells_empty():
    lines = markdown(usual()).splitlines()
    full = cells(next(line for line in lines if "**full**" in line))
    bm25 = cells(next(line for line in lines if line.startswith("| bm25")))
    assert [cell.strip() for cell in full[5:]] == ["100.0%", "", "", "2.50M (0.50M)", "3.0"]
    assert [cell.strip() for cell in bm25[-2:]] == ["", ""]
    assert cells(lines[0])[1].strip() == "faq (ndcg@10)"


def test_files_are_written_and_a_missing_plot_is_said(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    made, said = usual(), []
    path = write_table(made, {}, tmp_path, said.append)
    assert json.loads(path.read_text(encoding="utf-8")) == made
    assert (tmp_path / "table.md").read_text(encoding="utf-8") == markdown(made)
    assert any("table.png is left out" in line for line in said)
    assert "on no device" in (tmp_path / "timings.md").read_text(encoding="utf-8")
