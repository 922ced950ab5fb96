"""Cards of editions: a header that every reader understands, whatever the licence is called."""

from __future__ import annotations

import pytest

from medteb_mteb.curation.edition.card import named, write_card
from medteb_mteb.folders.layout import card_header

TASKS = ("MedTEBRetrieval", "MedTEBReranking", "MedTEBSTS")


def header(folder, licence, task="MedTEBSTS"):
    (folder / "README.md").write_text(write_card(task, "mini", licence, {"test": 3}), encoding="utf-8")
    return card_header(folder)


@pytest.mark.parametrize("task", TASKS)
def test_the_header_declares_the_files_of_the_task(tmp_path, task):
    content = header(tmp_path, "cc-by-4.0", task)
    files = [file["path"] for config in content["configs"] for file in config["data_files"]]
    expected = {
        "MedTEBRetrieval": {"qrels/test.tsv", "corpus.jsonl", "queries.jsonl"},
        "MedTEBReranking": {"qrels/test.tsv", "corpus.jsonl", "queries.jsonl", "top_ranked.jsonl"},
        "MedTEBSTS": {"test.jsonl"},
    }
    assert set(files) == expected[task]
    assert content["configs"][0]["config_name"] == "default"
    assert content["license"] == "cc-by-4.0"


@pytest.mark.parametrize(
    "licence",
    [
        "CC BY 4.0: research only",
        "other # ask us",
        "[none]",
        '"quoted"',
        "- dash",
        "no",
        "4.0",
        "2024-01-01",
        "null",
        "two\nlines",
        "---",
        "仅供研究：不得商用",
        "{a: b}",
        "*",
        "@x",
        " mit ",
        "back\\slash: \t",
    ],
)
def test_any_name_of_a_licence_is_read_back(tmp_path, licence):
    assert header(tmp_path, licence)["license"] == licence


@pytest.mark.parametrize("licence", ["cc-by-4.0", "mit", "other", "CC BY 4.0"])
def test_usual_licences_stand_there_unquoted(licence):
    assert f"\nlicense: {licence}\n" in write_card("MedTEBSTS", "mini", licence, {})


def test_numbers_and_sources_are_listed():
    sources = [{"name": "甲", "licence": "mit", "url": "https://a.org"}, {"name": "乙", "licence": ""}]
    card = write_card("MedTEBRetrieval", "clinic", "mit", {"queries": 3, "corpus": 12}, sources)
    assert "# MedTEBRetrieval, edition clinic\n" in card
    assert "\n| queries | 3 |\n| corpus | 12 |\n" in card
    assert "\n- 甲, mit, https://a.org\n- 乙\n" in card
    assert "Sources" not in write_card("MedTEBRetrieval", "clinic", "mit", {})


def test_the_manifest_names_sources_only_where_there_are_some():
    assert named([]) == {}
    assert named([{"name": "甲"}]) == {"sources": [{"name": "甲"}]}
