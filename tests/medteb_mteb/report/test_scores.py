from __future__ import annotations

import json

import mteb
import numpy as np
import pytest

from medteb_mteb.folders import task_from_folder
from medteb_mteb.report import (
    CorrelationSample,
    ItemScores,
    MeanSample,
    NoItemScoresError,
    item_scores,
    load_item_scores,
    save_item_scores,
    score_of,
)


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


@pytest.mark.thorough(
    but=[
        "Classification-accuracy",
        "Retrieval-ndcg_at_10",
        "Reranking-map_at_1000",
        "PairClassification-max_ap",
        "STS-cosine_spearman",
    ]
)
@pytest.mark.parametrize(
    ("kind", "main_score"),
    [
        ("Retrieval", "ndcg_at_10"),
        ("Retrieval", "mrr_at_3"),
        ("Retrieval", "recall_at_3"),
        ("Retrieval", "precision_at_3"),
        ("Retrieval", "hit_rate_at_1"),
        ("Reranking", "map_at_1000"),
        ("STS", "cosine_spearman"),
        ("STS", "cosine_pearson"),
        ("STS", "manhattan_spearman"),
        ("STS", "pearson"),
        ("PairClassification", "max_ap"),
        ("PairClassification", "euclidean_ap"),
        ("Classification", "accuracy"),
    ],
)
def test_items_give_back_mtebs_main_score(model, make_folder, tmp_path, kind, main_score):
    task, score = evaluate(model, make_folder(kind), tmp_path, main_score)
    scores = item_scores(task, tmp_path, score)
    assert score_of(scores.sample) == pytest.approx(score, abs=6e-6)
    assert scores.metric == main_score
    expected = {"Retrieval": 3, "Reranking": 3, "PairClassification": 7}.get(kind, 6)
    assert len(scores.sample) == expected


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "main_score", "reason"),
    [
        ("PairClassification", "max_f1", "has no score per text"),
        ("Classification", "f1", "has no score per text"),
    ],
)
def test_scores_without_items_say_so(model, make_folder, tmp_path, kind, main_score, reason):
    task, score = evaluate(model, make_folder(kind), tmp_path, main_score)
    with pytest.raises(NoItemScoresError, match=reason):
        item_scores(task, tmp_path, score)


def test_clustering_has_no_score_per_text(make_folder, tmp_path):
    task = task_from_folder(make_folder("Clustering"))
    with pytest.raises(ValueError, match="holds no data"):
        item_scores(task, tmp_path, 0.5)
    task.load_data()
    (tmp_path / task.prediction_file_name).write_text('{"default": {"test": {"Level 0": [[0, 1]]}}}')
    with pytest.raises(NoItemScoresError, match="v_measure of Clustering tasks has no score per text"):
        item_scores(task, tmp_path, 0.5)


def test_an_interval_that_does_not_belong_to_the_score_is_refused(model, make_folder, tmp_path):
    task, score = evaluate(model, make_folder("Retrieval"), tmp_path)
    with pytest.raises(NoItemScoresError, match="not the reported"):
        item_scores(task, tmp_path, score + 1e-4)
    file = tmp_path / task.prediction_file_name
    saved = json.loads(file.read_text())
    saved["default"]["test"]["q1"] = {"d6": 1.0}
    file.write_text(json.dumps(saved))
    with pytest.raises(NoItemScoresError, match="not the reported"):
        item_scores(task, tmp_path, score)
    file.unlink()
    with pytest.raises(NoItemScoresError, match="no predictions"):
        item_scores(task, tmp_path, score)


SAVED = [
    MeanSample(np.array([0.25, 1.0])),
    CorrelationSample(np.array([0.0, 1.0, 2.0]), np.array([0.1, 0.3, 0.2]), "spearman"),
]


@pytest.mark.parametrize("sample", SAVED)
def test_saved_scores_read_back_and_are_tied_to_data_metric_and_score(tmp_path, sample):
    path = tmp_path / "deep" / "items.json"
    save_item_scores(path, ItemScores(sample, "m", "rev", ["a", "b"]))
    score = score_of(sample)
    read = load_item_scores(path, metric="m", dataset_revision="rev", main_score=score)
    assert score_of(read.sample) == score
    assert read.ids == ["a", "b"]
    for changed, message in (
        ({"metric": "other"}, "of other data"),
        ({"dataset_revision": "other"}, "of other data"),
        ({"main_score": score + 0.01}, "of another run"),
    ):
        with pytest.raises(NoItemScoresError, match=message):
            load_item_scores(
                path, **{"metric": "m", "dataset_revision": "rev", "main_score": score, **changed}
            )
    path.write_text("{")
    with pytest.raises(NoItemScoresError, match="damaged"):
        load_item_scores(path, metric="m", dataset_revision="rev", main_score=score)


@pytest.mark.parametrize(
    "parts",
    [
        {"kind": "mean", "values": [[1.0, 1.0]]},
        {"kind": "pearson", "gold": [1, 2, 3], "predicted": [1, 2]},
        {"kind": "kendall", "gold": [1, 2, 3], "predicted": [1, 2, 3]},
    ],
)
def test_item_scores_of_another_form_are_damaged(tmp_path, parts):
    path = tmp_path / "items.json"
    path.write_text(json.dumps({"metric": "m", "dataset_revision": "rev", "ids": None, **parts}))
    with pytest.raises(NoItemScoresError, match=r"items\.json is damaged; run again with --overwrite"):
        load_item_scores(path, metric="m", dataset_revision="rev", main_score=1.0)
