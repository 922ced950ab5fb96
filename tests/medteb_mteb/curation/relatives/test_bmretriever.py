"""Evaluation sets of BMRetriever out of raw files: content, options, errors."""

from __future__ import annotations

import json

import pytest
from tests.medteb_mteb.curation.relatives import raw_samples

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives import build_set
from medteb_mteb.curation.relatives.bmretriever import (
    build_bioasq,
    build_biosses,
    build_disease_ontology,
    build_pubmedqa,
)
from medteb_mteb.curation.relatives.raw import Raw


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


def test_sentences_may_be_quoted_and_have_tabs(tmp_path):
    made = build_biosses(Raw(raw_samples.write_biosses(tmp_path / "raw")), {})
    assert [(row["sentence2"], row["score"]) for row in made.rows] == [
        ("GATA2\tis a gene", 3.8),
        ("Rain fell.", 0.2),
        ("The drug is effective.", 3.0),
    ]
    assert (made.type, made.counts()) == ("STS", {"pairs": 3})


@pytest.mark.parametrize("row", ["a\tb\t4.1", "a\tb\t-0.5", "a\tb\tnan", "a\tb\thigh", " \tb\t3", "a\t \t3"])
def test_a_pair_without_two_sentences_and_a_score_is_refused(tmp_path, row):
    (tmp_path / "all.tsv").write_text(f"sentence1\tsentence2\tscore\n{row}\n", encoding="utf-8")
    with pytest.raises(BuildError, match=r"all\.tsv: expected two sentences and a score from 0 to 4"):
        build_biosses(Raw(tmp_path), {})


def test_a_snippet_inside_another_one_and_a_repeated_one_count_once(tmp_path):
    folder = raw_samples.write_bioasq(tmp_path / "raw")
    batch = json.loads((folder / "7B1_golden.json").read_text(encoding="utf-8"))
    snippets = batch["questions"][0]["snippets"]
    batch["questions"][0]["snippets"] = snippets[::-1]
    (folder / "8B1_golden.json").write_text(json.dumps(batch), encoding="utf-8")
    corpus = build_bioasq(Raw(folder), {}).corpus
    assert list(corpus) == ["11", "12", "13"]
    assert corpus["12"] == ("Influenza in adults", "Flu is an infection. It is caused by a virus.")
    assert corpus["11"] == ("", "Insulin lowers blood sugar.")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"document": "http://example.org/12"}, "'http://example.org/12' is not the address of a PubMed"),
        ({"offsetInBeginSection": "first"}, "a snippet without document, text and place"),
    ],
)
def test_a_snippet_without_document_or_place_is_refused(tmp_path, change, message):
    folder = raw_samples.write_bioasq(tmp_path / "raw")
    batch = json.loads((folder / "7B1_golden.json").read_text(encoding="utf-8"))
    batch["questions"][0]["snippets"][3].update(change)
    (folder / "7B1_golden.json").write_text(json.dumps(batch), encoding="utf-8")
    with pytest.raises(BuildError, match=message):
        build_bioasq(Raw(folder), {})


def test_a_question_without_text_is_refused(tmp_path):
    folder = raw_samples.write_pubmedqa(tmp_path / "raw")
    test = {"2": {"QUESTION": " ", "CONTEXTS": ["A trial."]}}
    (folder / "test_set.json").write_text(json.dumps(test), encoding="utf-8")
    with pytest.raises(BuildError, match=r"test_set\.json: 2 has no QUESTION"):
        build_pubmedqa(Raw(folder), {})


@pytest.mark.parametrize(
    ("term", "message"),
    [
        ('id: DOID:1\nname: angina\ndef: "Twice." []\n', "a second term DOID:1"),
        ('name: nothing\ndef: "Without an id." []\n', "a term without id and name: 'name: nothing"),
    ],
)
def test_a_repeated_or_nameless_term_is_refused(tmp_path, term, message):
    folder = raw_samples.write_ontology(tmp_path / "raw")
    with (folder / "doid.obo").open("a", encoding="utf-8") as file:
        file.write(f"\n[Term]\n{term}")
    with pytest.raises(BuildError, match=message):
        build_disease_ontology(Raw(folder), {})


@pytest.mark.thorough
def test_the_real_sets_have_the_documented_sizes(tmp_path, real):
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


def test_the_real_abstracts_of_pubmedqa_become_an_edition_of_500_queries(tmp_path, real):
    test, labelled = real("mirage/pubmedqa/test_set.json", "pubmedqa/ori_pqal.json")
    (tmp_path / "raw").mkdir()
    for file in (test, labelled):
        (tmp_path / "raw" / file.name).write_bytes(file.read_bytes())
    edition, _ = build_set("PubMedQA500Retrieval", tmp_path / "raw", tmp_path / "data")
    assert edition.counts == {"queries": 500, "corpus": 1000, "qrels": 500}
