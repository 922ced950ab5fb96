"""Building the data of a task from raw files: bytes, options, errors, scores."""

from __future__ import annotations

import json
import re

import mteb
import pytest
from tests.medteb_mteb.curation.relatives import raw_samples
from tests.medteb_mteb.curation.relatives.raw_samples import WRITERS
from tests.medteb_mteb.tasks.published_layouts import write_published

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives import SETS, WriterSettings, build_set, build_written_task
from medteb_mteb.curation.relatives.build import chosen_options, estimate_written_task
from medteb_mteb.folders import read_folder
from medteb_mteb.tasks import DataUnavailableError
from medteb_mteb.tasks.needs import needs_of, size_of
from medteb_mteb.tasks.relatives import BMRETRIEVER_SETS


def test_options_change_queries_and_grades_and_the_digest(built, tmp_path):
    plain, _ = built("MedQuADLiveQARetrieval")
    source = tmp_path / "raw" / "MedQuADLiveQARetrieval"
    other, _ = build_set(
        "MedQuADLiveQARetrieval", source, tmp_path / "b", {"grades": "higher", "queries": "paraphrase"}
    )
    data = read_folder(other.path).retrieval
    assert data.qrels["TQ2"]["NHLBI_0000003_Sec1.txt"] == 2
    assert [row["text"] for row in data.queries] == [
        "What is fever?",
        "What is asthma?",
        "How is a mole checked?",
    ]
    assert other.digest != plain.digest
    with pytest.raises(BuildError, match=r"holds another edition \(raw 1, "):
        build_set("MedQuADLiveQARetrieval", source, tmp_path / "data", {"grades": "higher"})


@pytest.mark.thorough(but=["BIOSSES"])
@pytest.mark.parametrize("name", sorted(SETS))
def test_a_set_built_twice_by_command_is_the_same_and_can_be_scored(
    name, tmp_path, monkeypatch, medteb, encoder_folder
):
    monkeypatch.delenv("MEDTEB_DATA", raising=False)
    if name != "BIOSSES":  # which is on the Hub, too
        task = mteb.get_task(name)
        assert needs_of(task) == ("credentials" if name == "DrugBankRetrieval" else "network")
        with pytest.raises(DataUnavailableError, match=f"medteb build relatives {name} FOLDER DATA"):
            task.load_data()
    WRITERS[name](tmp_path / "raw")
    code, out, err = medteb("build", "relatives", name, tmp_path / "raw", tmp_path / "data", "--json")
    assert (code, err) == (0, "")
    first = json.loads(out)
    assert first["built_before"] is False
    again = json.loads(medteb("build", "relatives", name, tmp_path / "raw", tmp_path / "data", "--json")[1])
    assert again == first | {"built_before": True}
    other = json.loads(medteb("build", "relatives", name, tmp_path / "raw", tmp_path / "other", "--json")[1])
    assert other["digest"] == first["digest"]
    assert sorted(path.name for path in (tmp_path / "data").iterdir() if not path.name.startswith(".")) == [
        name
    ]
    monkeypatch.setenv("MEDTEB_DATA", str(tmp_path / "data"))
    task = mteb.get_task(name)
    assert needs_of(task) == "nothing"
    assert task.metadata.revision == first["digest"]
    if task.metadata.type == "Retrieval":
        assert size_of(task) == (first["counts"]["queries"], first["counts"]["corpus"])
    code, out, err = medteb(
        "run", "-t", name, "-m", "mar-mini", "-m", encoder_folder, "-m", "bm25-english", "-q", "--json",
        "--output-folder", tmp_path / "results",
    )  # fmt: skip
    assert code == 0, err
    rows = json.loads(out)["rows"]
    assert len(rows) == 3
    assert all(0 <= abs(cell["score"]) <= 1 for row in rows for cell in row["scores"].values())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_benchmark_of_bmretriever_runs_end_to_end(tmp_path, monkeypatch, medteb, encoder_folder):
    """Four of mteb's tasks in the layout of the Hub, seven sets that are built."""
    four, built = BMRETRIEVER_SETS[:4], BMRETRIEVER_SETS[4:]
    for name in four:
        write_published(tmp_path / "data" / name)
    for name in built:
        WRITERS[name](tmp_path / "raw" / name)
        build_set(name, tmp_path / "raw" / name, tmp_path / "data")
    monkeypatch.setenv("MEDTEB_DATA", str(tmp_path / "data"))
    args = ("run", "-b", "BMRetriever(eng, v1)", "-m", "mar-mini", "-m", encoder_folder)
    code, out, _ = medteb(*args, "--output-folder", tmp_path / "results", "--json", "-q")
    report = json.loads(out)
    assert (code, report["errors"], report["left_out"]) == (0, [], {})
    assert report["tasks"] == list(BMRETRIEVER_SETS)
    for row in report["rows"]:
        scores = [row["scores"][name]["score"] for name in BMRETRIEVER_SETS]
        assert row["averages"]["average of 4"] == pytest.approx(sum(scores[:4]) / 4)
        assert row["averages"]["average of 5"] == pytest.approx(sum(scores[:5]) / 5)


def test_changed_files_are_not_overwritten(tmp_path):
    source = raw_samples.write_ontology(tmp_path / "raw")
    build_set("DiseaseOntologyRetrieval", source, tmp_path / "data")
    (tmp_path / "data" / "DiseaseOntologyRetrieval" / "corpus.jsonl").write_text("changed")
    with pytest.raises(BuildError, match=r"was changed after the build: .* Delete it and build it again"):
        build_set("DiseaseOntologyRetrieval", source, tmp_path / "data")


def test_unknown_names_and_options_are_refused(tmp_path, medteb):
    code, _, err = medteb("build", "relatives", "MedQuADLiveQARetrival", tmp_path, tmp_path)
    assert code == 2
    assert "No set 'MedQuADLiveQARetrival' can be built. Did you mean 'MedQuADLiveQARetrieval'?" in err
    code, _, err = medteb("build", "relatives", "x", tmp_path, tmp_path)
    assert "Known: MedQuADLiveQARetrieval, " in err
    for option, message in (
        ("grades", "--option takes NAME=VALUE; got 'grades'"),
        ("grades=mean", "grades is one of lower, higher; got 'mean'"),
        ("colour=red", "has no option 'colour'; it has queries, grades"),
    ):
        code, _, err = medteb(
            "build", "relatives", "MedQuADLiveQARetrieval", tmp_path, tmp_path, "-o", option
        )
        assert code == 2
        assert message in err


@pytest.mark.parametrize(
    ("name", "file", "content", "message"),
    [
        ("BioASQ500SnippetsRetrieval", "7B1_golden.json", '{"questions": [1]}', "a list of JSON objects"),
        ("BioASQ500SnippetsRetrieval", "qrels.beir-v1.0.0-bioasq.test.txt", "q1 12 1", ":1: expected query"),
        ("PubMedQA500Retrieval", "ori_pqal.json", '{"1": {"CONTEXTS": []}}', "1 has no CONTEXTS"),
        ("BIOSSES", "all.tsv", "sentence1\tsentence2\tscore\na\tb\tnan\n", "a score from 0 to 4"),
        ("DiseaseOntologyRetrieval", "doid.obo", "format-version: 1.2\n", "hold nothing to build from"),
        ("ICliniqRetrieval", "iCliniq.json", '[{"input": "a"}]', "record 0 has no input and answer_icliniq"),
        ("DrugBankRetrieval", "full database.xml", "<!DOCTYPE a><a/>", "declares a document type"),
        ("RELISHReranking", "evaluation.jsonl", '{"query": 1, "candidates": []}\n', "expected query and"),
        ("MedQuADLiveQARetrieval", "MedQuAD.tar.gz", "no archive", "cannot be unpacked"),
    ],
)  # fmt: skip
def test_malformed_raw_files_are_one_clear_error(name, file, content, message, tmp_path, medteb):
    WRITERS[name](tmp_path / "raw")
    (tmp_path / "raw" / file).write_text(content, encoding="utf-8")
    code, _, err = medteb("build", "relatives", name, tmp_path / "raw", tmp_path / "data")
    assert code == 2
    assert err.startswith("medteb: error: ")
    assert err.count("\n") == 1
    assert re.search(message, err), err
    assert not (tmp_path / "data" / name).exists()


def test_options_without_a_value_have_their_first_one():
    known = {"queries": ("original", "summary"), "grades": ("lower", "higher")}
    assert chosen_options("x", known, {}) == {"queries": "original", "grades": "lower"}
    assert chosen_options("x", known, {"grades": "higher"}) == {"queries": "original", "grades": "higher"}
    with pytest.raises(BuildError, match=r"x has no option 'queries'; it has none\."):
        chosen_options("x", {}, {"queries": "summary"})


def test_a_task_without_texts_of_an_llm_is_neither_built_nor_estimated_with_one(tmp_path):
    writer = WriterSettings(None, tmp_path / "answers.sqlite")
    name = "retrieval_mimic_Chief_Complaint_vs_Discharge_Diagnosis"
    message = f"No LLM writes texts of {name}; build it without --llm"
    for call in (
        lambda: build_written_task(name, tmp_path, tmp_path / "data", writer),
        lambda: estimate_written_task(name, tmp_path, writer),
    ):
        with pytest.raises(BuildError, match=message):
            call()
    assert list(tmp_path.iterdir()) == []
