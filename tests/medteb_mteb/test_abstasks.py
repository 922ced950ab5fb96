"""Tasks of local data: copies, statistics beside the data, judged measures, and NaN vectors."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import mteb
import numpy as np
import pytest
from tests.conftest import write_judged

from medteb_mteb.abstasks import DataUnavailableError, copy_of, finite
from medteb_mteb.editions import STATISTICS, find_edition, verify
from medteb_mteb.folders.content import read_folder
from medteb_mteb.folders.tasks import task_from_folder
from medteb_mteb.measures import means, score_queries

OURS = ("MedTEBRetrieval", "MedTEBReranking", "MedTEBSTS")


def test_a_copy_is_a_folder_in_the_data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MEDTEB_DATA", "~/data")
    assert copy_of("Set") is None
    (tmp_path / "data" / "Set").mkdir(parents=True)
    assert copy_of("Set") == tmp_path / "data" / "Set"


def test_a_copy_has_its_own_revision_and_an_unusable_one_is_reported_on_use(
    make_folder, tmp_path, monkeypatch
):
    of_hub = mteb.get_task("CmedqaRetrieval").metadata.revision
    folder = make_folder("Retrieval", "data/CmedqaRetrieval")
    (folder / "qrels" / "test.tsv").rename(folder / "qrels" / "dev.tsv")
    monkeypatch.setenv("MEDTEB_DATA", str(tmp_path / "data"))
    task = mteb.get_task("CmedqaRetrieval")
    assert task.metadata.revision != of_hub
    task.load_data()
    assert len(task.dataset["default"]["dev"]["queries"]) == 3
    task.unload_data()
    assert task.metadata.revision != of_hub
    (folder / "corpus.jsonl").unlink()
    task = mteb.get_task("CmedqaRetrieval")
    with pytest.raises(ValueError, match="no corpus"):
        task.load_data()


def test_without_a_copy_a_failed_fetch_says_where_to_put_one(monkeypatch):
    monkeypatch.setenv("MEDTEB_DATA", "/data")
    with pytest.raises(DataUnavailableError, match=r"hf download .*put the copy at /data/CmedqaRetrieval/"):
        mteb.get_task("CmedqaRetrieval").load_data()


@pytest.mark.parametrize("name", OURS)
def test_packaged_tasks_are_filled_as_mteb_asks_of_its_own(name, monkeypatch):
    monkeypatch.delenv("MEDTEB_DATA", raising=False)
    task = mteb.get_task(name)
    task.metadata._validate_metadata()
    assert task.metadata.is_filled()
    assert task.metadata.n_samples is not None
    assert task.metadata.descriptive_stat_path.parent == find_edition(name).path / STATISTICS
    verify(find_edition(name))  # statistics are not a data file


def test_statistics_are_kept_beside_the_data_and_never_in_mteb(make_folder, monkeypatch):
    task = task_from_folder(make_folder("Retrieval", "clinic"))
    assert task.metadata.descriptive_stats is None
    computed = task.calculate_descriptive_statistics()
    assert computed["test"]["num_documents"] == 6
    assert task.metadata.descriptive_stat_path.is_relative_to(task.folder)
    monkeypatch.setattr(type(task), "read", lambda self, folder: pytest.fail("computed again"))
    assert type(task)().calculate_descriptive_statistics() == computed
    assert not list((Path(mteb.__file__).parent / "descriptive_stats").rglob("clinic.json"))


@pytest.fixture(scope="module")
def encoder(encoder_folder):
    return mteb.get_model(str(encoder_folder), device="cpu")


def evaluate(model, folder, predictions):
    task = task_from_folder(folder)
    result = mteb.evaluate(
        model, task, cache=None, co2_tracker=False, prediction_folder=predictions, show_progress_bar=False
    )
    saved = json.loads((predictions / task.prediction_file_name).read_text())
    (scores,) = result.task_results[0].scores["test"]
    return scores, saved["default"]["test"]


def test_results_carry_the_measures_where_negatives_are_known(encoder, make_folder, tmp_path):
    folder = make_folder("Retrieval")
    scores, _ = evaluate(encoder, folder, tmp_path / "a")
    assert "judged_at_10" not in scores
    write_judged(folder, [("q1", "d2", 0), ("q2", "d1", 0), ("q3", "d5", 0)], "labels.tsv")
    scores, run = evaluate(encoder, folder, tmp_path / "b")
    data = read_folder(folder).retrieval
    mean = means(score_queries(data.qrels, data.judged, run).values())
    names = ("ndcg_at_10", "judged_at_10", "bpref", "condensed_ndcg_at_10")
    expected = (mean.ndcg, mean.judged, mean.bpref, mean.condensed)
    assert [scores[name] for name in names] == pytest.approx(expected, abs=1e-5)
    assert 0 < scores["judged_at_10"] < 1


@pytest.mark.parametrize("name", ["encoder", "bm25"])
def test_a_disputed_document_does_not_count_as_wrong(encoder, make_folder, tmp_path, name):
    model = mteb.get_model("bm25-char-bigram") if name == "bm25" else encoder
    folder = make_folder("Retrieval")
    before, run = evaluate(model, folder, tmp_path / "a")
    qrels = read_folder(folder).retrieval.qrels
    # Whatever is ranked first and is not relevant: judges do not agree on it.
    wrong = {q: next(d for d in scores if d not in qrels[q]) for q, scores in run.items() if len(scores) > 1}
    write_judged(folder, [(query, document, "") for query, document in wrong.items()], "disputed.tsv")
    after, cut = evaluate(model, folder, tmp_path / "b")
    assert cut == {q: {d: s for d, s in scores.items() if d != wrong.get(q)} for q, scores in run.items()}
    assert after["ndcg_at_10"] >= before["ndcg_at_10"]


class NanModel:
    """An encoder or a cross-encoder with a value that is not finite."""

    def __init__(self, model, method, value):
        broken = copy.copy(model)

        def bad(self, *args, **kwargs):
            values = np.array(getattr(type(model), method)(self, *args, **kwargs))
            values.flat[0] = value
            return values

        broken.__class__ = type("Broken", (type(model),), {method: bad})
        self.model = broken


class CrossEncoder:
    """Scores pairs by their length."""

    mteb_model_meta = mteb.get_model_meta("bm25-jieba")

    def predict(self, inputs1, inputs2, **kwargs):
        return np.array([float(len(text)) for batch in inputs2 for text in batch["text"]])


KINDS = ["Retrieval", "Reranking", "STS", "PairClassification", "Classification", "Clustering"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_vectors_that_are_not_finite_are_refused(encoder, make_folder, kind, value):
    broken = NanModel(encoder, "encode", value).model
    with pytest.raises(ValueError, match="NaN or infinite"):
        mteb.evaluate(broken, task_from_folder(make_folder(kind)), cache=None, show_progress_bar=False)


def test_scores_of_a_cross_encoder_that_are_not_finite_are_refused(make_folder):
    task, model = task_from_folder(make_folder("Reranking")), CrossEncoder()
    assert mteb.evaluate(model, task, cache=None, show_progress_bar=False).task_results
    with pytest.raises(ValueError, match="NaN or infinite"):
        broken = NanModel(model, "predict", np.nan).model
        mteb.evaluate(broken, task, cache=None, show_progress_bar=False)


@pytest.mark.parametrize("name", [*OURS, "CMedQAv1-reranking"])
def test_registered_tasks_refuse_them_too(encoder, data_root, make_folder, name):
    if name not in OURS:
        make_folder("Reranking", f"data/{name}")
    broken = NanModel(encoder, "encode", np.nan).model
    with pytest.raises(ValueError, match="NaN or infinite"):
        mteb.evaluate(broken, mteb.get_task(name), cache=None, show_progress_bar=False)


def test_a_checked_model_gives_the_same_scores_and_leaves_the_model_as_it_was(encoder, make_folder):
    before = dict(vars(encoder))
    task = task_from_folder(make_folder("STS"))
    scores = [
        mteb.evaluate(model, task, cache=None, show_progress_bar=False).task_results[0].get_score()
        for model in (encoder, finite(encoder))
    ]
    assert scores[0] == scores[1]
    assert vars(encoder) == before
