"""A study: its rows and seeds, what it refuses, and a run that resumes."""

from __future__ import annotations

import json

import pytest

from mar_st.evaluation.tasks import Task
from mar_st.planning.tiny import shrink
from mar_st.study import Study, load_study, run_study, study_names


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
