from __future__ import annotations

import json

import pytest

from mar_st.evaluation.tasks import load_task, score
from mar_st.lookup import fit_lookup
from mar_st.model.family import add_query_encoder
from mar_st.model.mar import MAR
from mar_st.study import load_study
from mar_st.study.grid import run_study


@pytest.mark.thorough
def test_rows_can_be_finished_models_or_bm25(done, study_folder, change, trained):
    model = study_folder / "out/runs/full/1/model"
    rows = [
        {"name": "bm25", "model": "bm25"},
        {"name": "as-it-is", "model": str(model), "prompts": {"query": "检索："}},
        {"name": "full", "label": "all stages"},
    ]
    change(rows=rows, published=[])
    run_study(load_study(study_folder / "study.yaml"), study_folder / "out", say=lambda line: None)
    assert trained == []
    table = json.loads((study_folder / "out/table.json").read_text(encoding="utf-8"))
    bm25, same, full = table["rows"]
    assert same["scores"]["faq"]["mean"] == full["scores"]["faq"]["seeds"][0]
    assert bm25["cost"] == {}
    assert bm25["scores"]["faq"]["mean"] > 0.6  # questions and answers share the symptom
    assert bm25["scores"]["pairs"]["mean"] > 0.3
    assert "bm25" in (study_folder / "out/table.md").read_text(encoding="utf-8")


@pytest.mark.thorough
def test_a_row_can_be_a_finished_model_with_a_lookup_encoder(done, study_folder, change):
    folder, model = study_folder / "with-lookup", study_folder / "out/runs/full/1/model"
    task = load_task(load_study(study_folder / "study.yaml").tasks[0])
    texts = list(task.queries.values())
    lookup = fit_lookup(texts, MAR(model).encode_queries(texts), ridge=0.1, show_progress=False)
    MAR.from_pretrained(model, routes="document").save_pretrained(str(folder))
    add_query_encoder(folder, [lookup], "query")
    change(rows=[{"name": "full"}, {"name": "lookup", "model": str(folder)}], published=[])
    run_study(load_study(study_folder / "study.yaml"), study_folder / "out", say=lambda line: None)
    row = json.loads((study_folder / "out/table.json").read_text(encoding="utf-8"))["rows"][1]
    kept = json.loads((study_folder / "out/scores/lookup/1/faq.json").read_text(encoding="utf-8"))
    assert kept["values"] == score(MAR.from_pretrained(folder), task)
    # One weight of each n-gram, and the bias; the table of n-gram vectors does not count.
    assert row["cost"]["parameters_without_embeddings"] == len(lookup.features) + lookup.dim


@pytest.mark.slow
def test_a_changed_prompt_scores_a_finished_model_again(done, study_folder, change):
    row = {"name": "as-it-is", "model": str(study_folder / "out/runs/full/1/model")}
    scores = []
    for prompts in ({"query": "检索："}, {"query": "头疼怎么预防"}):
        change(rows=[{"name": "full"}, {**row, "prompts": prompts}], published=[])
        run_study(load_study(study_folder / "study.yaml"), study_folder / "out", say=lambda line: None)
        scores.append(json.loads((study_folder / "out/scores/as-it-is/1/faq.json").read_text())["score"])
    assert scores[0] != scores[1]
