"""Sets out of raw files of the published layouts: content, bytes, errors, scores."""

from __future__ import annotations

import json
import re
import shutil

import mteb
import pytest
from tests.medteb_mteb.curation.relatives import raw_samples
from tests.medteb_mteb.curation.relatives.raw_samples import SOURCES, WRITERS
from tests.medteb_mteb.tasks.published_layouts import write_published

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives import SETS, build_set
from medteb_mteb.curation.relatives import medquad as reading
from medteb_mteb.curation.relatives.raw import Raw
from medteb_mteb.folders import read_folder
from medteb_mteb.tasks import DataUnavailableError
from medteb_mteb.tasks.needs import needs_of, size_of
from medteb_mteb.tasks.relatives import BMRETRIEVER_SETS, MedQuADLiveQARetrieval


def real(*places: str):
    """Raw files of the sources; the test is skipped without them."""
    for place in places:
        if not (SOURCES / place).exists():
            pytest.skip(f"no raw files of the sources at {SOURCES / place}")
    return [SOURCES / place for place in places]


@pytest.fixture
def built(tmp_path, monkeypatch):
    """Builds a sample set under MEDTEB_DATA and returns its content."""

    def build(name, **options):
        WRITERS[name](tmp_path / "raw" / name)
        edition, _ = build_set(name, tmp_path / "raw" / name, tmp_path / "data", options)
        monkeypatch.setenv("MEDTEB_DATA", str(tmp_path / "data"))
        return edition, read_folder(edition.path).retrieval

    return build


def test_grades_are_gains_and_the_lower_of_two_grades_counts(built):
    edition, data = built("MedQuADLiveQARetrieval")
    assert data.qrels == {
        "TQ1": {"ADAM_0000007_Sec1.txt": 3, "NHLBI_0000003_Sec1.txt": 0},
        "TQ2": {"NHLBI_0000003_Sec1.txt": 1, "ADAM_0000007_Sec1.txt": 0},
    }
    assert [row["text"] for row in data.queries] == ["I am hot , what is\na fever", "lungs\nwhat is asthma"]
    corpus = {row["id"]: (row["title"], row["text"]) for row in data.corpus}
    assert corpus == {
        "ADAM_0000007_Sec1.txt": ("What is fever ?", "Fever is a high temperature of the body."),
        "NHLBI_0000003_Sec1.txt": ("What is asthma ?", "Asthma is a disease of the airways & lungs."),
        "CancerGov_0000001_Sec2.txt": (
            "How is a mole checked ?",
            "A doctor looks at its edge, its colour and its size.",
        ),
        "1_CancerGov_QA/0000001-1": ("What is a mole ?", "A mole is a spot of pigment\non the skin."),
    }
    assert edition.extra["left_out"] == {
        "pairs without an answer": 1,
        "repeated pairs": 1,
        "pairs that are among the graded answers": 2,
        "questions without an answer that is at least related": 1,
    }
    assert (
        "2 answers have two different grades for one question; the lower one counts"
        in edition.extra["description"]
    )
    assert data.judged.known
    assert edition.licence == "cc-by-4.0"


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


def test_an_archive_and_a_checkout_give_the_same_data(tmp_path):
    a = raw_samples.write_medquad(tmp_path / "a")
    b = raw_samples.write_medquad(tmp_path / "b", packed=False)
    first, _ = build_set("MedQuADLiveQARetrieval", a, tmp_path / "x")
    second, _ = build_set("MedQuADLiveQARetrieval", b, tmp_path / "y")
    assert first.files == second.files
    assert first.digest != second.digest  # the manifest says from what files


def test_snippets_become_documents(built):
    edition, data = built("BioASQ500SnippetsRetrieval")
    assert {row["id"]: (row["title"], row["text"]) for row in data.corpus} == {
        "11": ("", "Insulin lowers blood sugar."),
        "12": ("Influenza in adults", "Flu is an infection. It is caused by a virus."),
        "13": ("", "Gallstones in pregnancy"),
    }
    assert data.qrels == {"q1": {"12": 1}, "q2": {"11": 1}}
    assert edition.extra["left_out"] == {
        "judgements of documents without a snippet": 2,
        "topics without a document": 1,
        "gold documents without a snippet": 1,
    }


def test_artificial_abstracts_join_the_corpus_if_available(built, tmp_path):
    _, data = built("PubMedQA500Retrieval")
    assert data.qrels == {"q1": {"1": 1}, "q2": {"2": 1}}
    assert len(data.corpus) == 4
    assert data.corpus[0]["text"] == "We studied aspirin.\nA trial."
    more, _ = build_set(
        "PubMedQA500Retrieval", raw_samples.write_pubmedqa(tmp_path / "m", artificial=True), tmp_path / "n"
    )
    assert more.counts["corpus"] == 5
    assert "(PQA-A)" in more.extra["description"]


def test_terms_of_the_ontology_are_queries_and_definitions_documents(built):
    edition, data = built("DiseaseOntologyRetrieval")
    assert data.queries == [{"id": "qDOID:1", "text": "angina"}, {"id": "qDOID:2", "text": "rhinitis"}]
    assert data.corpus[0]["text"] == 'A heart disease with "tight" chest pain.'
    assert edition.extra["left_out"] == {"obsolete terms": 1, "terms without a definition": 1}


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
    with pytest.raises(BuildError, match=r"is not what was built: .* Delete it and build it again"):
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


@pytest.mark.slow
def test_the_real_medquad_has_the_documented_size(tmp_path):
    """With made-up texts for the questions, whose file has no licence."""
    (folder,) = real("medquad")
    (tmp_path / "raw").mkdir()
    shutil.copy(folder / "MedQuAD.tar.gz", tmp_path / "raw")
    numbers = sorted({one.question for one in reading.read_grades(Raw(folder))})
    raw_samples.write_live_questions(tmp_path / "raw", {number: f"question {number}" for number in numbers})
    edition, _ = build_set("MedQuADLiveQARetrieval", tmp_path / "raw", tmp_path / "data")
    assert (edition.counts["queries"], edition.counts["corpus"]) == MedQuADLiveQARetrieval.built_size


@pytest.mark.thorough
def test_the_real_sets_have_the_documented_sizes(tmp_path):
    bioasq, anserini, ontology, biosses = real("mirage/bioasq", "anserini", "do", "biosses")
    (tmp_path / "raw").mkdir()
    for place in [*bioasq.glob("*.json"), *anserini.glob("*bioasq.test*")]:
        (tmp_path / "raw" / place.name).write_bytes(place.read_bytes())
    edition, _ = build_set("BioASQ500SnippetsRetrieval", tmp_path / "raw", tmp_path / "data")
    assert edition.counts == {"queries": 500, "corpus": 13_449, "qrels": 2307}
    assert "Of the 2,298 relevant documents 2,246 have a snippet" in edition.extra["description"]
    edition, _ = build_set("DiseaseOntologyRetrieval", ontology, tmp_path / "data")
    assert edition.counts["queries"] == 3281
    edition, _ = build_set("BIOSSES", biosses, tmp_path / "data")
    assert edition.counts == {"pairs": 100}


def test_the_real_abstracts_of_pubmedqa_become_an_edition_of_500_queries(tmp_path):
    test, labelled = real("mirage/pubmedqa/test_set.json", "pubmedqa/ori_pqal.json")
    (tmp_path / "raw").mkdir()
    for file in (test, labelled):
        (tmp_path / "raw" / file.name).write_bytes(file.read_bytes())
    edition, _ = build_set("PubMedQA500Retrieval", tmp_path / "raw", tmp_path / "data")
    assert edition.counts == {"queries": 500, "corpus": 1000, "qrels": 500}
