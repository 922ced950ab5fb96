"""English MedTEB: runs of the tasks over a snapshot folder, and its options."""

from __future__ import annotations

import json
import math

import mteb
import numpy as np
import pytest
from mteb.cache import ResultCache
from tests.medteb_mteb.english.snapshots import write_csv, write_snapshot

from medteb_mteb.abstasks.pairs import f1_by_train_threshold
from medteb_mteb.abstasks.tuned import fine_tuned
from medteb_mteb.curation.relatives.fetch import SOURCES
from medteb_mteb.editions import sha256_of
from medteb_mteb.english.snapshot import COLUMNS
from medteb_mteb.english.table import averages, english_tasks
from medteb_mteb.folders import FolderError
from medteb_mteb.tasks import DataUnavailableError
from medteb_mteb.tasks.needs import needs_of

CLS = "classification_wiki_pain_vs_fever_dataset"
CLU = "clustering_wiki_broad_medical_topics_dataset"
PAIR = "pairclassification_medqa_pair_classification"
RET = "retrieval_medquad_dataset"
MIMIC = "retrieval_mimic_Chief_Complaint_vs_Discharge_Diagnosis"


def scored(name, model):
    result = mteb.evaluate(model, mteb.get_task(name), cache=None, show_progress_bar=False).task_results[0]
    return result.scores["test"][0]


def test_a_run_says_which_tasks_differ_from_the_published_ones(snapshot, tmp_path, medteb):
    folder = snapshot(CLU, RET)
    differs = {RET: "titles in the place of\n\x1b[31mquestions", CLU: ["no text"]}
    tasks = {
        name: {"differs": text, "sha256": sha256_of(folder / f"{name}.csv")} for name, text in differs.items()
    }
    (folder / "snapshot.json").write_text(json.dumps({"options": {}, "tasks": tasks}), encoding="utf-8")
    where = ("-t", RET, "-t", CLU, "-m", "mar-mini", "--output-folder", tmp_path / "results")
    code, out, err = medteb("run", *where)
    assert code == 0, err
    assert f"{RET}: not the published data: titles in the place of \\x1b[31mquestions\n" in out
    assert f"{CLU}: not the published data" not in out
    code, out, _ = medteb("run", *where, "-q", "--json")
    assert json.loads(out)["differs"] == {RET: "titles in the place of \\x1b[31mquestions"}


@pytest.mark.thorough
def test_available_tasks_are_run_and_the_others_listed(snapshot, tmp_path, medteb, encoder_folder):
    snapshot(CLS, CLU, PAIR, RET)
    models = ("-m", "mar-mini", "-m", encoder_folder)
    code, out, err = medteb(
        "run", "-b", "MedTEB(eng, v1)", *models, "-q", "--json", "--output-folder", tmp_path / "results"
    )
    assert code == 0, err
    report = json.loads(out)
    assert [set(row["scores"]) for row in report["rows"]] == [{CLS, CLU, PAIR, RET}] * 2
    assert len(report["left_out"]) == 47
    assert "making it needs credentials" in report["left_out"][MIMIC]


@pytest.mark.slow
def test_all_51_tasks_run_and_average_as_published(tmp_path, monkeypatch, medteb, encoder_folder):
    write_snapshot(tmp_path / "data")
    monkeypatch.setenv("MEDTEB_DATA", str(tmp_path / "data"))
    models = ("-m", "mar-mini", "-m", encoder_folder)
    code, out, err = medteb(
        "run", "-b", "MedTEB(eng, v1)", *models, "-q", "--json", "--output-folder", tmp_path / "r"
    )
    assert code == 0, err
    report = json.loads(out)
    assert report["left_out"] == {}
    benchmark = mteb.get_benchmark("MedTEB(eng, v1)")
    results = ResultCache(tmp_path / "r").load_results(tasks=benchmark.tasks, include_remote=False)
    by_mteb = benchmark.get_score(results)
    assert len(by_mteb) == len(report["rows"]) == 2
    for row in report["rows"]:
        ours = averages({task: cell["score"] for task, cell in row["scores"].items()})
        assert row["averages"] == pytest.approx({**ours.types, "by type": ours.by_type})
        (theirs,) = (scores for model, scores in by_mteb.items() if row["model"] in str(model))
        assert theirs["Mean(Task)"] == pytest.approx(ours.overall)
        assert theirs["Mean(TaskType)"] == pytest.approx(ours.by_type)
        assert theirs["PairClassification"] == pytest.approx(ours.types["PAIR"])
    assert len({task.metadata.main_score for task in benchmark.tasks}) == 4


def test_missing_tasks_say_what_they_need(snapshot, monkeypatch):
    snapshot(RET)
    needs = {name: needs_of(mteb.get_task(name)) for name in (RET, CLS, MIMIC, "retrieval_biorxiv_dataset")}
    assert list(needs.values()) == ["nothing", "network", "credentials", "an LLM"]
    with pytest.raises(DataUnavailableError, match=rf"{MIMIC}\.csv; the source is MIMIC-IV"):
        mteb.get_task(MIMIC).load_data()
    monkeypatch.delenv("MEDTEB_DATA")
    assert needs_of(mteb.get_task(RET)) == "an LLM"
    with pytest.raises(DataUnavailableError, match=r"Expected \$MEDTEB_DATA/MedTEB-eng/retrieval_medquad"):
        mteb.get_task(RET).load_data()
    with pytest.raises(
        DataUnavailableError, match="network: `medteb build fetch wikipedia FOLDER --contact "
    ):
        mteb.get_task(CLS).load_data()


def test_every_task_of_an_api_names_its_source_for_fetching():
    apis = {task.name: task.api for task in english_tasks().values() if task.api}
    assert apis == {task: name for name, source in SOURCES.items() for task in source.tasks}


def test_rows_are_split_70_to_30(snapshot):
    snapshot(CLS)
    task = mteb.get_task(CLS)
    task.load_data()
    assert {split: len(rows) for split, rows in task.dataset.items()} == {"train": 28, "test": 12}
    labels = {row["text"]: row["label"] for rows in task.dataset.values() for row in rows}
    assert labels["fever of the skin in patient 0"] == 0  # in the order in which they occur
    assert labels["cough of the heart in patient 1"] == 1


def test_documents_have_no_title_unless_asked_for(snapshot, encoder_folder):
    snapshot(RET)
    plain = mteb.get_task(RET)
    plain.load_data()
    data = plain.dataset["default"]["test"]
    assert set(data["corpus"]["title"]) == {""}
    assert data["relevant_docs"]["q_3"] == {"doc_3": 1}
    snapshot(RET, title="No title")
    titled = mteb.get_task(RET)
    titled.load_data()
    assert set(titled.dataset["default"]["test"]["corpus"]["title"]) == {"No title"}
    assert titled.metadata.revision != plain.metadata.revision


def test_options_change_only_the_revision_of_their_tasks(snapshot):
    snapshot(RET, PAIR, CLS, CLU)
    before = {name: mteb.get_task(name).metadata.revision for name in (RET, PAIR, CLS, CLU)}
    snapshot(RET, PAIR, CLS, CLU, threshold="train")
    after = {name: mteb.get_task(name).metadata.revision for name in (RET, PAIR, CLS, CLU)}
    assert [name for name in before if before[name] != after[name]] == [PAIR]
    snapshot(CLS, threshold="test", title="none", classifier="frozen")  # the defaults
    assert mteb.get_task(CLS).metadata.revision == before[CLS]


def test_a_threshold_of_other_pairs_is_not_better(snapshot, encoder_folder):
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(encoder_folder), device="cpu")
    snapshot(PAIR)
    best = scored(PAIR, model)
    assert best["main_score"] == best["max_f1"]
    snapshot(PAIR, threshold="train")
    other = scored(PAIR, model)
    assert other["cosine_f1"] == best["cosine_f1"]
    assert other["max_f1"] != best["max_f1"]


def test_the_f1_threshold_is_chosen_on_train_pairs():
    cosine = [0.9, 0.8, 0.2, 0.1, 0.7, 0.85]
    labels, train, test = [1, 1, 0, 0, 1, 0], [0, 1, 2, 3], [4, 5]
    similarities = {
        "cosine_scores": cosine,
        "dot_scores": [0.0] * 6,
        "manhattan_distances": [1.0] * 6,
        "euclidean_distances": [1.0] * 6,
    }
    # The best threshold of the first four is 0.8: of the others it takes the wrong one.
    assert f1_by_train_threshold(similarities, labels, train, test) == 0
    similarities["cosine_scores"] = [0.9, 0.7, 0.2, 0.1, 0.7, 0.6]
    assert f1_by_train_threshold(similarities, labels, train, test) == 1


@pytest.mark.thorough
def test_fine_tuning_changes_a_copy(snapshot, encoder_folder, monkeypatch):
    from mteb.models import SentenceTransformerEncoderWrapper
    from sentence_transformers import SentenceTransformer

    from medteb_mteb.tasks import english

    model = SentenceTransformer(str(encoder_folder), device="cpu")
    wrapper = SentenceTransformerEncoderWrapper(model)
    sick = ["感冒发烧", "血压高", "胃炎"]
    before = model.encode(sick)
    first, second = (fine_tuned(wrapper, sick * 20, [0, 1, 2] * 20).model.encode(sick) for _ in range(2))
    assert np.array_equal(model.encode(sick), before)
    assert np.array_equal(first, second)
    assert not np.allclose(first, before, atol=1e-4)
    tuned = []

    def record(given, texts, labels):
        tuned.append((len(texts), sorted(set(labels))))
        return given

    monkeypatch.setattr(english, "fine_tuned", record)
    snapshot(CLS)
    scored(CLS, model)
    assert tuned == []
    snapshot(CLS, classifier="fine-tuned")
    scored(CLS, model)
    assert tuned == [(28, [0, 1])]


def test_fine_tuning_needs_a_model_with_one_encoder():
    with pytest.raises(TypeError, match="model with one encoder; BM25Model is not one"):
        fine_tuned(mteb.get_model("bm25-english"), ["a", "b"], [0, 1])
    with pytest.raises(TypeError, match="Use classifier=frozen"):
        fine_tuned(mteb.get_model("mar-mini"), ["a", "b"], [0, 1])


def test_clusters_are_made_of_all_rows(snapshot):
    snapshot(CLU)
    task = mteb.get_task(CLU)
    task.load_data()
    assert len(task.dataset["test"]) == 1
    assert len(task.dataset["test"][0]["sentences"]) == 40
    made = task.evaluator(
        None,
        input_column_name="",
        label_column_name="",
        task_metadata=None,
        hf_split="",
        hf_subset="",
        timer=None,
    )
    assert made.clustering_batch_size == 32


def test_data_that_change_after_the_task_was_made_are_refused(snapshot):
    folder = snapshot(RET)
    task = mteb.get_task(RET)
    write_csv(folder / f"{RET}.csv", COLUMNS["RET"], [("a", "b"), ("c", "d")])
    with pytest.raises(FolderError, match="changed after the task was created"):
        task.load_data()


def test_scores_are_numbers(snapshot):
    snapshot(RET)
    assert math.isfinite(scored(RET, mteb.get_model("bm25-english"))["main_score"])
