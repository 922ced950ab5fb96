"""A study: its rows and seeds, what it refuses, and a run that resumes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from mar_st.evaluation.tasks import Task, TaskData
from mar_st.planning.tiny import shrink
from mar_st.study.grid import Study, load_study, run_study, study_names
from mar_st.study.table import make_table


def _study(**fields):
    content = {
        "name": "tiny",
        "base": "mini-symmetric-query",
        "changes": {"stages": {"symmetric": {"max_steps": 2}}},
        "seeds": 2,
        "full": "all",
        "rows": [
            {"name": "all"},
            {"name": "warm", "label": "warmer", "changes": {"stages": {"symmetric": {"temperature": 0.3}}}},
        ],
        "tasks": [{"name": "sts", "path": "MedTEBSTS"}],
    }
    return Study.model_validate({**content, **fields})


def test_packaged_studies_give_a_recipe_for_every_row_and_seed():
    for name in study_names():
        study = load_study(name)
        assert {study.recipe(row, seed).seed for row, seed in study.runs[:3] if row.model is None} <= set(
            study.seeds
        )


@pytest.mark.parametrize(
    "fields",
    [
        {"full": "none"},
        {"rows": [{"name": "all"}, {"name": "all"}]},
        {"rows": [{"name": "all", "changes": {"seed": 1}}]},
        {"base": None},
    ],
)
def test_impossible_studies_are_refused(fields):
    with pytest.raises(ValueError, match="Value error"):
        _study(**fields)


def test_tasks_with_the_same_questions_are_resampled_together():
    queries = {f"q{n}": f"问题 {n}" for n in range(40)}
    first = TaskData(
        Task(name="sts", path="-"), "retrieval", "ndcg@10", "1", queries, {}, {key: {} for key in queries}
    )
    turned = dict(reversed(queries.items()))
    other = replace(
        first, task=Task(name="again", path="-"), queries=turned, qrels={key: {} for key in turned}
    )
    study = _study(tasks=(first.task, other.task), seeds=1)
    values = [n % 7 / 7 for n in range(40)]
    scores = {"sts": values, "again": values[::-1]}
    table = make_table(study, [first, other], {("all", 42): scores, ("warm", 42): scores})
    scores = table["rows"][0]["scores"]
    assert scores["average"] == scores["again"] == scores["sts"]


@pytest.mark.slow
def test_a_run_writes_the_table_and_keeps_what_is_finished(tmp_path):
    study = _study(tasks=(Task(name="sts", path="MedTEBSTS"),))
    table = run_study(study, tmp_path, prepare=shrink, say=lambda line: None)
    content = json.loads(table.read_text())
    assert [row["name"] for row in content["rows"]] == ["all", "warm"]
    assert all(len(row["scores"]["average"]["seeds"]) == 2 for row in content["rows"])
    assert 0 <= content["rows"][1]["p"] <= 1
    assert "warmer" in table.with_suffix(".md").read_text()
    lines = []
    run_study(study, tmp_path, prepare=shrink, say=lines.append)
    assert lines == []
    assert json.loads(table.read_text()) == content
