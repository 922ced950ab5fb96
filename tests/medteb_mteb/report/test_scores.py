from __future__ import annotations

import json

import mteb
import pytest

from medteb_mteb.folders.tasks import task_from_folder
from medteb_mteb.report.intervals import score_of
from medteb_mteb.report.scores import load_items, save_items


@pytest.fixture(scope="module")
def model(encoder_folder):
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(encoder_folder), device="cpu")


def evaluate(model, folder, predictions, main_score=None):
    if main_score:
        (folder / "README.md").write_text(f"---\nmedteb: {{main_score: {main_score}}}\n---\n")
    task = task_from_folder(folder)
    task.load_data()
    result = mteb.evaluate(
        model, task, cache=None, co2_tracker=False, prediction_folder=predictions, show_progress_bar=False
    )
    return task, result.task_results[0].get_score()


@pytest.mark.parametrize(
    ("kind", "main_score"),
    [
        ("Retrieval", "ndcg_at_10"),
        ("Retrieval", "mrr_at_3"),
        ("Reranking", "map_at_1000"),
        ("STS", "cosine_spearman"),
        ("STS", "pearson"),
        ("PairClassification", "max_ap"),
        ("Classification", "accuracy"),
    ],
)
def test_items_give_back_mtebs_main_score(model, make_folder, tmp_path, kind, main_score):
    task, score = evaluate(model, make_folder(kind), tmp_path, main_score)
    path = tmp_path / "items.json"
    save_items(path, task, tmp_path, score)
    sample, ids, note = load_items(path, score)
    assert len(ids) == (3 if kind in ("Retrieval", "Reranking") else 0)
    assert note == ""
    assert score_of(sample) == pytest.approx(score, abs=6e-6)
    assert len(sample) == {"Retrieval": 3, "Reranking": 3, "PairClassification": 7}.get(kind, 6)
    assert load_items(path, score + 0.01)[0] is None
    path.write_text("{")
    assert load_items(path, score)[0] is None


def test_clustering_has_no_score_per_text(make_folder, tmp_path):
    task = task_from_folder(make_folder("Clustering"))
    task.load_data()
    (tmp_path / task.prediction_file_name).write_text('{"default": {"test": {"Level 0": [[0, 1]]}}}')
    save_items(tmp_path / "items.json", task, tmp_path, 0.5)
    assert load_items(tmp_path / "items.json", 0.5) == (
        None,
        (),
        "v_measure of Clustering tasks has no score per text",
    )


def test_items_that_do_not_give_the_score_are_refused(model, make_folder, tmp_path):
    task, score = evaluate(model, make_folder("Retrieval"), tmp_path)
    path, file = tmp_path / "items.json", tmp_path / task.prediction_file_name
    saved = json.loads(file.read_text())
    saved["default"]["test"]["q1"] = {"d6": 1.0}
    file.write_text(json.dumps(saved))
    save_items(path, task, tmp_path, score)
    assert "not the reported" in load_items(path, score)[2]
    file.unlink()
    save_items(path, task, tmp_path, score)
    assert "no predictions" in load_items(path, score)[2]
