"""`medteb build relatives`, `fetch` and `medte-pairs`: what is printed, and what is refused."""

from __future__ import annotations

import json

import pytest
from tests.medteb_mteb.curation.relatives.raw_samples import write_medquad, write_ontology

from medteb_mteb.editions import load_edition

ONTOLOGY, MEDQUAD = "DiseaseOntologyRetrieval", "retrieval_medquad_dataset"


@pytest.fixture(autouse=True)
def _no_contact_of_the_environment(monkeypatch):
    monkeypatch.delenv("MEDTEB_CONTACT", raising=False)


def test_a_set_is_built_and_a_second_run_keeps_it(medteb, work):
    write_ontology(work / "raw")
    args = ("build", "relatives", ONTOLOGY, "raw", "data")
    code, out, err = medteb(*args)
    assert (code, err) == (0, "")
    edition = load_edition(work / "data" / ONTOLOGY)
    first, *left_out, last = out.splitlines()
    assert first == f"{ONTOLOGY}  {edition.digest[:12]}  2 queries, 2 corpus, 2 qrels"
    assert sorted(left_out) == ["  left out: 1 obsolete terms", "  left out: 1 terms without a definition"]
    assert last == f"score models on it: MEDTEB_DATA=data medteb run -t {ONTOLOGY} -m MODEL"
    assert medteb(*args)[1].splitlines()[0] == f"{first}  (built before)"
    report = json.loads(medteb(*args, "--json")[1])
    assert (report["task"], report["digest"], report["counts"]) == (ONTOLOGY, edition.digest, edition.counts)
    assert report["built_before"]


def test_a_task_of_english_medteb_says_how_it_differs(medteb, work):
    write_medquad(work / "raw")
    args = ("build", "relatives", MEDQUAD, "raw", "data")
    code, out, err = medteb(*args)
    assert (code, err) == (0, "")
    report = json.loads(medteb(*args, "--json")[1])
    assert report["built_before"]
    assert out.splitlines() == [
        f"{MEDQUAD}  {report['sha256'][:12]}  {report['rows']} rows",
        f"  differs from the published data: {report['differs']}",
        f"score models on it: MEDTEB_DATA=data medteb run -t {MEDQUAD} -m MODEL",
    ]
    assert (work / "data" / "MedTEB-eng" / f"{MEDQUAD}.csv").is_file()


@pytest.mark.parametrize(
    "flag", [("--most", "3"), ("--journal", "j"), ("--dry-run",), ("--retry-failed",), ("--repair",)]
)
def test_options_of_an_llm_need_one(refused, work, flag):
    write_ontology(work / "raw")
    assert refused("build", "relatives", ONTOLOGY, "raw", "data", *flag) == (
        f"medteb: error: {flag[0]} is of no use without --llm FILE, the YAML file of an LLM"
    )
    assert not (work / "data").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("relatives", ONTOLOGY, "raw", "data", "-o", "grades"), "--option takes NAME=VALUE; got 'grades'"),
        (("relatives", ONTOLOGY, "raw", "data", "-o", "grades=all"), "grades"),
        (("relatives", "DiseaseOntologyRetrieva", "raw", "data"), f"Did you mean '{ONTOLOGY}'?"),
        (("relatives", ONTOLOGY, "absent", "data"), "absent"),
        (("relatives", ONTOLOGY, "raw", "data", "--llm", "llm.yaml"), "llm.yaml cannot be read"),
        (("fetch", "arxiv", "raw"), "No source 'arxiv'; sources are clinical-trials, wikipedia, pmc"),
        (("fetch", "pmc", "raw", "-t", MEDQUAD), f"'{MEDQUAD}' is not made of pmc"),
        (("fetch", "pmc", "fetched", "-q"), "Give a contact address (--contact, or $MEDTEB_CONTACT)"),
        (("fetch", "pmc", "fetched", "--most", "0"), "'--most'"),
        (("medte-pairs", "raw", "pairs"), "raw has none of the folders "),
        (("medte-pairs", "raw", "pairs", "--form", "book"), "form is one of paper, code; got 'book'"),
    ],
)
def test_unusable_input_is_refused(refused, work, args, message):
    write_ontology(work / "raw")
    assert message in refused("build", *args)
    assert not (work / "data").exists()
