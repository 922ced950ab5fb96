"""Fetching whole sources: complete, continued after a kill, frozen."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from tests.medteb_mteb.curation.relatives.api_server import (
    STUDIES,
    Answer,
    Apis,
    serving,
    twice,
)
from tests.medteb_mteb.curation.relatives.fetch.fetching import ME, content, fetch

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives import build_snapshot_task
from medteb_mteb.curation.relatives.fetch import fetch_source, web

DESCRIPTIONS = "clinical_trials_officialTitle_vsdetailedDescription"
FEVER = "classification_wiki_pain_vs_fever_dataset"
DISEASES = "pairclassification_wiki_diseases_dataset"
TERMS = "classification_pmc_diagnostic_vs_therapeutic_dataset"


@pytest.mark.parametrize(
    ("name", "tasks", "responses"),
    [
        ("clinical-trials", [], 3),
        # Pain in 3 lists of two, its subcategories in 1 and 1, Fever in 2; pages 101 to 104 and 201 to 203.
        ("wikipedia", [FEVER], 3 + 2 + 2 + 7),
        ("pmc", [TERMS], 2 + 3 + 2),
        ("pubmed", [], 2),
        # Lists of the category, of its subcategory, and of the one below that; pages 301 to 303.
        ("wikipedia", [DISEASES], 1 + 2 + 1 + 3),
        ("biorxiv", [], 3),
        ("medrxiv", [], 1),
    ],
)
def test_a_source_is_fetched_once(apis, tmp_path, name, tasks, responses):
    report = fetch(apis, name, tmp_path / "a", tasks=tasks)
    assert (report["responses"], report["requested"]) == (responses, responses)
    assert twice(apis) == {}
    again = fetch(apis, name, tmp_path / "a", tasks=tasks)
    assert (again["requested"], again["fetched_before"], again["sha256"]) == (0, True, report["sha256"])
    assert len(apis.requests) == responses
    names = {path.name for path in (tmp_path / "a").iterdir()}
    assert names == {"fetched.json", "responses", ".lock"}


def test_the_list_records_requests_without_secrets(apis, tmp_path, monkeypatch):
    monkeypatch.setenv("NCBI_API_KEY", "s3cret")
    fetch(apis, "pubmed", tmp_path / "a")
    text = (tmp_path / "a" / "fetched.json").read_text()
    assert "s3cret" not in text
    assert ME not in text
    assert all(
        "api_key=s3cret" in target and "email=me%40example.org" in target for target, _ in apis.requests
    )
    first = json.loads(text)["responses"][0]
    assert first["url"] == (
        "https://eutils.ncbi.nlm.nih.gov/entrez/eutils/esearch.fcgi"
        "?db=pubmed&term=medicine&retmode=json&retstart=0&retmax=1000"
    )


def test_a_killed_fetch_continues_and_gives_the_same_bytes(apis, tmp_path):
    fetch(apis, "wikipedia", tmp_path / "whole", tasks=[FEVER])
    whole = len(apis.requests)
    with serving(Apis()) as other:
        command = ["build", "fetch", "wikipedia", tmp_path / "cut", "--contact", ME, "--address", other.url]
        program = [sys.executable, "-m", "medteb_mteb.cli", *command, "-t", FEVER, "--per-second", "100"]
        process = subprocess.Popen(program)
        other.before = lambda number: process.kill() if number == whole // 2 else None
        assert process.wait(120) == -9
        other.before = lambda _: None
        assert 1 < len(list((tmp_path / "cut" / "responses").iterdir())) < whole
        assert not (tmp_path / "cut" / "fetched.json").exists()
        report = fetch(other, "wikipedia", tmp_path / "cut", tasks=[FEVER])
        assert report["requested"] < report["responses"]
        assert len(twice(other)) <= 1  # the one that the kill cut off
    assert content(tmp_path / "cut") == content(tmp_path / "whole")


@pytest.mark.parametrize("damage", ["torn line", "no line", "changed body", "body gone"])
def test_files_torn_by_a_power_cut_are_fetched_again(apis, tmp_path, damage):
    fetch(apis, "clinical-trials", tmp_path / "whole")
    apis.faults["/studies"] = []
    before = apis.answer
    asked = len(apis.requests)
    apis.answer = lambda target: before(target) if len(apis.requests) < asked + 3 else Answer(b"", 404)
    with pytest.raises(BuildError, match="status 404"):
        fetch(apis, "clinical-trials", tmp_path / "cut")
    apis.answer = before
    listing = tmp_path / "cut" / "fetched.part"
    lines = listing.read_text().splitlines(keepends=True)
    assert len(lines) == 3
    body = tmp_path / "cut" / "responses" / json.loads(lines[-1])["file"]
    if damage == "torn line":
        listing.write_text("".join(lines[:-1]) + lines[-1][:40])
    elif damage == "no line":
        listing.write_text("".join(lines[:-1]))
    elif damage == "changed body":
        body.write_bytes(body.read_bytes()[:-10])
    else:
        body.unlink()
    assert fetch(apis, "clinical-trials", tmp_path / "cut")["requested"] == 2
    assert content(tmp_path / "cut") == content(tmp_path / "whole")


def test_a_folder_of_another_fetch_is_refused(apis, tmp_path):
    fetch(apis, "clinical-trials", tmp_path / "a")
    with pytest.raises(BuildError, match="complete fetch of another extent"):
        fetch(apis, "clinical-trials", tmp_path / "a", most=5)
    with pytest.raises(BuildError, match=r"fetched\.json is of 'clinical-trials'; expected pubmed"):
        fetch(apis, "pubmed", tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine.txt").write_text("x")
    with pytest.raises(BuildError, match=r"is not empty \(mine\.txt\)"):
        fetch(apis, "pubmed", tmp_path / "b")
    apis.faults["/esearch.fcgi"] = [Answer(b"", 404)]
    with pytest.raises(BuildError, match="404"):
        fetch(apis, "pubmed", tmp_path / "c")
    with pytest.raises(BuildError, match="holds responses of another fetch"):
        fetch(apis, "pubmed", tmp_path / "c", most=5)


def test_a_wiki_that_lags_is_waited_for(apis, tmp_path, monkeypatch):
    slept = []
    monkeypatch.setattr(web.time, "sleep", slept.append)
    apis.faults["/w/api.php"] = [Answer(json.dumps({"error": {"code": "maxlag", "lag": 9}}).encode())]
    fetch(apis, "wikipedia", tmp_path / "a", tasks=[FEVER])
    assert max(slept) == 5


@pytest.mark.parametrize(
    "body",
    [
        b"<html><body>down</body></html>",
        b"<PubmedArticleSet><PubmedArticle>",
        b"<eFetchResult><ERROR>x</ERROR></eFetchResult>",
    ],
    ids=["page", "cut", "error"],
)
def test_an_answer_without_articles_is_requested_again(apis, tmp_path, body, monkeypatch):
    monkeypatch.setattr(web.time, "sleep", lambda _: None)
    apis.faults["/efetch.fcgi"] = [Answer(body)]
    fetch(apis, "pubmed", tmp_path / "a")
    assert len(apis.requests) == 3


def test_unknown_names_are_one_clear_error(tmp_path, monkeypatch):
    monkeypatch.delenv("MEDTEB_CONTACT", raising=False)
    with pytest.raises(
        BuildError, match="No source 'x'; sources are clinical-trials, wikipedia, pmc, pubmed, biorxiv, m"
    ):
        fetch_source("x", tmp_path / "a")
    with pytest.raises(BuildError, match=f"{FEVER!r} is not made of pmc"):
        fetch_source("pmc", tmp_path / "a", tasks=[FEVER])
    with pytest.raises(BuildError, match=r"Give a contact address \(--contact, or \$MEDTEB_CONTACT\)"):
        fetch_source("pmc", tmp_path / "a")


def test_the_server_of_the_tests_gives_all_studies(apis, tmp_path):
    fetch(apis, "clinical-trials", tmp_path / "a")
    bodies = [json.loads(path.read_bytes()) for path in (tmp_path / "a" / "responses").iterdir()]
    assert sum(len(body["studies"]) for body in bodies) == STUDIES


@pytest.mark.network
@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("clinical-trials", f"retrieval_{DESCRIPTIONS}"),
        ("wikipedia", FEVER),
        ("pmc", TERMS),
        ("pubmed", "retrieval_pubmed_retrieval"),
        ("biorxiv", "retrieval_biorxiv_dataset"),
        ("medrxiv", "retrieval_medrxiv_dataset"),
    ],
)
def test_the_real_servers_answer_as_documented(tmp_path, name, task):
    if not os.environ.get("MEDTEB_CONTACT"):
        pytest.skip("the operators ask for a contact: set MEDTEB_CONTACT")
    report = fetch_source(name, tmp_path / "raw", tasks=[task], most=20)
    assert report["responses"] == report["requested"]
    _, built, _ = build_snapshot_task(task, tmp_path / "raw", tmp_path / "data")
    assert built["rows"] > 4
