from __future__ import annotations

import json
import sys

import pytest
from tests.medteb_mteb.english.snapshots import write_snapshot
from tests.medteb_mteb.results import write_result

from medteb_mteb.english.table import english_tasks

WIKI = ("clustering_wiki_syndromes_dataset", "classification_wiki_pain_vs_fever_dataset")
TRIALS = "retrieval_clinical_trials_officialTitle_vsdetailedDescription"

pytest.importorskip("matplotlib", reason="figures need the report extra")


@pytest.fixture
def results(tmp_path):
    folder = tmp_path / "results"
    write_result(folder, "a/one", WIKI[0], 0.2)
    write_result(folder, "a/one", WIKI[1], 0.6, 4.0)
    write_result(folder, "a/one", TRIALS, 0.9)
    write_result(folder, "b/two", WIKI[1], 0.5, 40.0)
    write_result(folder, "b/two", "BIOSSES", 0.7, 40.0)
    return folder


def numbers(path):
    assert path.read_bytes().startswith(b"\x89PNG")
    return json.loads(path.with_suffix(".json").read_text())


def test_means_by_source_state_their_number_of_tasks(medteb, results, tmp_path):
    code, out, err = medteb("report", "sources", tmp_path / "f" / "s.png", "--results", results)
    assert (code, err) == (0, "")
    assert out.split() == [str(tmp_path / "f" / "s.png"), str(tmp_path / "f" / "s.json")]
    means = numbers(tmp_path / "f" / "s.png")["measured"]
    assert means["a/one"]["Wikipedia"] == {"score": pytest.approx(0.4), "tasks": 2, "of": 11}
    assert means["a/one"]["ClinicalTrials.gov"] == {"score": 0.9, "tasks": 1, "of": 4}
    assert means["b/two"] == {"Wikipedia": {"score": 0.5, "tasks": 1, "of": 11}}
    assert sum(1 for task in english_tasks().values() if task.source == "Wikipedia") == 11


@pytest.mark.thorough
def test_the_published_means_are_those_of_the_paper(medteb, tmp_path):
    for name in ("one", "two"):
        assert medteb("report", "sources", tmp_path / f"{name}.png", "--published")[0] == 0
    means = numbers(tmp_path / "one.png")["published"]
    assert len(means) == 17
    assert means["bge-base-en-v1.5"]["ClinicalTrials.gov"] == 0.68
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()


def test_time_and_score_are_over_the_tasks_that_all_models_have(medteb, results, tmp_path):
    assert medteb("report", "time", results, tmp_path / "t.png")[0] == 0
    assert numbers(tmp_path / "t.png") == {
        "a/one": {"seconds": 4.0, "score": 0.6, "tasks": 1},
        "b/two": {"seconds": 40.0, "score": 0.5, "tasks": 1},
    }
    write_result(results, "c/three", "BIOSSES", 0.1)
    code, _, err = medteb("report", "time", results, tmp_path / "u.png")
    assert (code, "no task was measured with all models" in err) == (2, True)


def test_results_that_cannot_be_used_are_one_clear_error(medteb, results, tmp_path):
    out = tmp_path / "s.png"
    for arguments, expected in (
        ((out,), "give --results FOLDER, --published, or both"),
        ((out, "--results", tmp_path / "none"), "no results; give the output folder of `medteb run`"),
        ((tmp_path / "s.jpg", "--published"), "give a file that ends in .png"),
    ):
        code, _, err = medteb("report", "sources", *arguments)
        assert (code, expected in err) == (2, True)
    path = write_result(results, "a/one", TRIALS, 0.9)
    path.write_text('{"task_name": "x", "scores": [], "evaluation_time": 1}')
    code, _, err = medteb("report", "sources", out, "--results", results)
    assert (code, "is not a result that mteb saved" in err) == (2, True)


def test_without_matplotlib_the_error_says_what_to_install(medteb, tmp_path, monkeypatch):
    for name in [one for one in sys.modules if one.startswith("matplotlib")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, _, err = medteb("report", "sources", tmp_path / "s.png", "--published")
    assert (code, "pip install 'medteb[report]'" in err) == (2, True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
def test_texts_of_a_task_are_drawn_by_label(medteb, tmp_path, monkeypatch):
    write_snapshot(tmp_path, list(WIKI))
    monkeypatch.setenv("MEDTEB_DATA", str(tmp_path))
    for task, labels in ((WIKI[0], {"Cardiology", "Dermatology"}), (WIKI[1], {"0", "1"})):
        code, _, err = medteb("report", "tsne", task, tmp_path / "t.png", "-m", "mar-mini", "--most", 10)
        assert (code, err) == (0, "")
        drawn = numbers(tmp_path / "t.png")
        assert set(drawn["texts"]) == labels
        assert sum(drawn["texts"].values()) == 10
        assert drawn["perplexity"] == 3


def test_a_task_without_labels_or_data_is_one_clear_error(medteb, tmp_path, monkeypatch):
    code, _, err = medteb("report", "tsne", "MedTEBRetrieval", tmp_path / "t.png", "-m", "mar-mini")
    assert (code, "give one of classification or clustering" in err) == (2, True)
    code, _, err = medteb("report", "tsne", WIKI[0], tmp_path / "t.png", "-m", "mar-mini")
    assert (code, "are not published" in err) == (2, True)
    code, _, err = medteb("report", "similarities", "MedTEBSTS", tmp_path / "t.png", "-m", "mar-mini")
    assert (code, "give a retrieval task" in err) == (2, True)


@pytest.mark.slow
def test_positives_are_nearer_than_other_documents(medteb, tmp_path):
    arguments = ("MedTEBRetrieval", tmp_path / "s.png", "-m", "mar-mini", "--most", 20)
    assert medteb("report", "similarities", *arguments)[0] == 0
    first = numbers(tmp_path / "s.png")
    similarities = first["models"]["mar-mini"]
    assert similarities["pairs"] >= 20
    assert similarities["auc"] > 0.8
    assert similarities["positives"]["mean"] > similarities["others"]["mean"]
    medteb("report", "similarities", *arguments)
    assert numbers(tmp_path / "s.png") == first


@pytest.mark.thorough
def test_speed_is_printed_as_a_table_or_json(medteb):
    arguments = ("report", "speed", "MedTEBRetrieval", "-m", "mar-mini", "--documents", 8, "--queries", 3)
    code, out, _ = medteb(*arguments, "--json")
    speed = json.loads(out)["models"]["mar-mini"]
    assert code == 0
    assert (speed["documents"], speed["queries"], speed["batch_size"]) == (8, 3, 32)
    assert speed["documents_per_second"] > 0
    assert speed["query_ms"] > 0
    code, out, _ = medteb(*arguments)
    assert out.startswith("| model | documents per second | ms per query |")
    assert "8 documents in batches of 32, 3 queries of MedTEBRetrieval; " in out
