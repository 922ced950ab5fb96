"""Tasks out of frozen responses: rows, labels, negatives."""

from __future__ import annotations

import csv
import json
import shutil

import numpy as np
import pytest
from tests.medteb_mteb.curation.relatives.api_server import LONG, Apis, serving

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives import build_pairs, build_snapshot_task, negatives, scraped
from medteb_mteb.curation.relatives import rows as rows_module
from medteb_mteb.curation.relatives.fetch import SOURCES, fetch_source
from medteb_mteb.english.table import english_tasks

FEVER = "classification_wiki_pain_vs_fever_dataset"
TERMS = "classification_pmc_diagnostic_vs_therapeutic_dataset"
DESCRIPTIONS = "clinical_trials_officialTitle_vsdetailedDescription"
OUTCOMES = "clinical_trials_officialTitle_vsprimaryOutcomes"


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    """A frozen folder per source."""
    folder = tmp_path_factory.mktemp("raw")
    with serving(Apis(zipped=True)) as apis:
        for name, tasks in (
            ("wikipedia", [FEVER]),
            ("pmc", [TERMS]),
            ("pubmed", []),
            ("clinical-trials", []),
            ("biorxiv", []),
            ("medrxiv", []),
        ):
            options = {"tasks": tasks, "contact": "https://example.org", "per_second": 100}
            fetch_source(name, folder / name, address=apis.url, **options)
    return folder


def build(raw, name, out, **options):
    path, entry, _ = build_snapshot_task(name, raw, out, options)
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream)), entry


def test_sections_of_pages_have_the_label_of_their_category(raw, tmp_path):
    rows, entry = build(raw / "wikipedia", FEVER, tmp_path)
    pages = {"Pain": (101, 102, 103, 104), "Fever": (201, 202)}  # 102 is in both, 203 is gone
    expected = [
        {"text": text, "label": label}
        for label, ids in pages.items()
        for page in ids
        for text in (f"Page {page}. {LONG.strip()}", f"Section {page}. {LONG.strip()}")
    ]
    assert rows == expected
    assert list(entry["made_from"]) == ["fetched.json"]
    assert entry["licence"] == "cc-by-sa-4.0"


def test_articles_have_the_label_of_their_term(raw, tmp_path):
    rows, _ = build(raw / "pmc", TERMS, tmp_path)
    texts = {row["text"]: row["label"] for row in rows}
    assert len(texts) == len(rows) == 60 - 3  # three of 1000 to 1059 have no text
    assert texts["Abstract of 1000."] == "diagnostic"
    assert texts["Intro 1002."] == "diagnostic"
    assert texts["Abstract of 1031."] == "diagnostic"  # both terms find it
    assert texts["Abstract of 1045."] == "therapeutic" if 1045 % 3 else True
    assert not any("1008" in text for text in texts)
    assert [row["label"] for row in rows] == sorted(row["label"] for row in rows)


def test_rows_beyond_the_published_number_are_dropped_at_random(raw, tmp_path, monkeypatch):
    monkeypatch.setattr(rows_module, "MAX_LABELLED_ROWS", 5)
    rows, _ = build(raw / "wikipedia", FEVER, tmp_path / "a")
    again, _ = build(raw / "wikipedia", FEVER, tmp_path / "b")
    assert len(rows) == 5
    assert rows == again


def test_titles_of_trials_have_the_text_of_their_study(raw, tmp_path):
    rows, _ = build(raw / "clinical-trials", f"retrieval_{DESCRIPTIONS}", tmp_path)
    assert len(rows) == 20  # of 25, five have no description
    assert rows[0] == {"query": "Trial 1 of drug 1", "corpus": "We give drug 1.\n\nArm 1."}
    rows, _ = build(raw / "clinical-trials", f"retrieval_{OUTCOMES}", tmp_path)
    assert rows[0] == {"query": "Trial 0 of drug 0", "corpus": "Pain 0 On scale 0\nSurvival"}
    assert len(rows) == 25


def test_pairs_have_a_near_text_of_another_study(raw, tmp_path):
    rows, entry = build(
        raw / "clinical-trials", f"pairclassification_{DESCRIPTIONS}", tmp_path, negatives="bm25"
    )
    assert [row["label"] for row in rows] == ["1", "0"] * 20
    right = {row["sentence1"]: row["sentence2"] for row in rows if row["label"] == "1"}
    wrong = {row["sentence1"]: row["sentence2"] for row in rows if row["label"] == "0"}
    assert right.keys() == wrong.keys()
    assert set(wrong.values()) <= set(right.values())
    assert not any(right[title] == wrong[title] for title in right)
    assert entry["options"] == {"negatives": "bm25"}


def test_pairs_by_vectors_take_the_nearest(raw, tmp_path, monkeypatch):
    def encode(texts):
        return np.array([[np.cos(len(text)), np.sin(len(text))] for text in texts], np.float32)

    monkeypatch.setattr(negatives, "_encode", encode)
    monkeypatch.setattr(scraped, "NEGATIVE_CANDIDATES", 1)
    rows, entry = build(raw / "clinical-trials", f"pairclassification_{DESCRIPTIONS}", tmp_path)
    assert entry["options"] == {"negatives": "all-MiniLM-L6-v2"}
    for right, wrong in zip(rows[::2], rows[1::2], strict=True):
        assert len(wrong["sentence2"]) == len(right["sentence2"])
        assert wrong["sentence2"] != right["sentence2"]


def test_titles_stand_for_the_questions_of_pubmed(raw, tmp_path):
    rows, entry = build(raw / "pubmed", "retrieval_pubmed_retrieval", tmp_path)
    assert rows[0] == {"query": "Title of 2000", "corpus": "Aim 2000. Found < 2000."}
    assert len(rows) == 30
    assert entry["differs"].startswith("titles in the place of GPT-4o's questions: another task")
    pairs, _ = build(
        raw / "pubmed", "pairclassification_pubmed_pair_classification", tmp_path, negatives="bm25"
    )
    assert len(pairs) == 60


def test_titles_stand_for_the_questions_of_preprints(raw, tmp_path):
    rows, entry = build(raw / "biorxiv", "retrieval_biorxiv_dataset", tmp_path)
    # Of eight preprints one has no abstract; the second version of another one is left out.
    assert [row["query"] for row in rows] == [f"A study of protein {i}" for i in (0, 1, 2, 3, 4, 6, 7)]
    assert rows[2]["corpus"] == "Protein 2 binds,\nversion 1."
    assert entry["differs"].startswith("titles in the place of GPT-4o's questions: another task")
    assert entry["licence"] == "each preprint has its own"
    rows, _ = build(raw / "medrxiv", "retrieval_medrxiv_dataset", tmp_path)
    assert len(rows) == 3
    with pytest.raises(BuildError, match=r"fetched\.json is of 'medrxiv'; expected biorxiv"):
        build(raw / "medrxiv", "retrieval_biorxiv_dataset", tmp_path / "other")


def test_a_snapshot_gives_the_same_bytes(raw, tmp_path):
    for place in ("a", "b"):
        build(raw / "wikipedia", FEVER, tmp_path / place)
    files = [(tmp_path / place / "MedTEB-eng").rglob("[!.]*") for place in ("a", "b")]
    first, second = ([path.read_bytes() for path in sorted(paths)] for paths in files)
    assert first == second
    assert len(first) == 2


def test_a_changed_response_is_found(raw, tmp_path):
    for path in (raw / "pubmed").rglob("*"):
        if path.is_file():
            copy = tmp_path / "raw" / path.relative_to(raw)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    (file,) = [path for path in (tmp_path / "raw").rglob("*.xml") if b"2000" in path.read_bytes()]
    file.write_bytes(file.read_bytes().replace(b"Aim", b"Ham"))
    with pytest.raises(BuildError, match=r"is not the response that fetched\.json lists; it was changed"):
        build(tmp_path / "raw", "retrieval_pubmed_retrieval", tmp_path / "data")


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "{",
        '{"format": "medteb-fetched", "version": 1, "extent": {}, "responses": [7], "source": "pubmed"}',
    ],
)
def test_a_damaged_list_is_one_clear_error(tmp_path, content):
    (tmp_path / "fetched.json").write_text(content)
    with pytest.raises(BuildError, match=r"fetched\.json is (damaged|not a list of responses)"):
        build(tmp_path, "retrieval_pubmed_retrieval", tmp_path / "data")


def test_responses_of_other_tasks_or_no_fetch_are_refused(raw, tmp_path):
    with pytest.raises(BuildError, match="holds no categories 'Cardiology'; it was fetched for other tasks"):
        build(raw / "wikipedia", "classification_wiki_core_medical_specialties_dataset", tmp_path)
    with pytest.raises(
        BuildError, match=r"no fetched\.json: complete responses, from `medteb build fetch pmc FOLDER`"
    ):
        build(tmp_path, TERMS, tmp_path / "data")
    with pytest.raises(BuildError, match=r"fetched\.json is of 'pubmed'; expected pmc"):
        build(raw / "pubmed", TERMS, tmp_path)


def test_a_category_without_pages_is_one_clear_error(tmp_path):
    name = "clustering_wiki_syndromes_dataset"
    with serving(Apis()) as apis:
        options = {"tasks": [name], "contact": "me@example.org", "per_second": 100}
        fetch_source("wikipedia", tmp_path / "raw", address=apis.url, **options)
    with pytest.raises(
        BuildError, match="nothing was found for Syndromes affecting blood, Syndromes affecting hea"
    ):
        build(tmp_path / "raw", name, tmp_path / "data")


def test_every_task_of_a_source_has_a_builder_and_its_texts_say_how_it_differs(
    medteb, monkeypatch, tmp_path, raw
):
    from medteb_mteb.curation.relatives import SNAPSHOT_TASKS

    fetched = [task for source in SOURCES.values() for task in source.tasks]
    assert len(fetched) == 11 + 3 + 4 + 2 + 2
    for task in fetched:
        assert SNAPSHOT_TASKS[task].differs.endswith("of the day when it was fetched")
    open_ones = {name for name, task in english_tasks().items() if task.needs == "network"}
    assert open_ones - SNAPSHOT_TASKS.keys() == set()


def test_two_commands_make_a_task_that_is_scored(medteb, monkeypatch, tmp_path):
    with serving(Apis()) as apis:
        place = ("--contact", "me@example.org", "--address", apis.url, "--per-second", "100")
        code, out, err = medteb("build", "fetch", "clinical-trials", tmp_path / "raw", *place)
        assert (code, err) == (0, "")
        assert out.startswith("clinical-trials  ")
        assert "3 responses" in out
        code, out, _ = medteb("build", "fetch", "clinical-trials", tmp_path / "raw", *place, "--json")
        assert json.loads(out)["fetched_before"]
    name = f"retrieval_{OUTCOMES}"
    code, out, err = medteb("build", "relatives", name, tmp_path / "raw", tmp_path / "data")
    assert (code, err) == (0, "")
    assert "25 rows" in out
    monkeypatch.setenv("MEDTEB_DATA", str(tmp_path / "data"))
    code, out, _ = medteb(
        "run", "-t", name, "-m", "bm25-english", "-q", "--json", "--output-folder", tmp_path / "results"
    )
    assert code == 0
    assert json.loads(out)["rows"][0]["scores"][name]["score"] > 0.1


def test_a_fetch_without_a_contact_is_refused(medteb, monkeypatch, tmp_path):
    monkeypatch.delenv("MEDTEB_CONTACT", raising=False)
    code, _, err = medteb("build", "fetch", "pmc", tmp_path / "raw")
    assert code == 2
    assert err.startswith("medteb: error: Give a contact address")


def test_the_pairs_of_medte_are_made_of_the_same_responses(raw, tmp_path):
    shutil.copytree(raw / "clinical-trials", tmp_path / "clinical-trials")
    report = build_pairs(tmp_path, tmp_path / "out")["clinical-trials"]
    assert report["pairs"] == 20
