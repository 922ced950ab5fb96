from __future__ import annotations

import json

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.editions import load_edition, write_manifest
from medteb_mteb.validate.datasheet import datasheet

ANONYMIZE = {"step": "anonymize", "settings": {"version": 7, "strict": True}}


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


@pytest.fixture
def edition(folder):
    sources = [{"name": "clinic", "licence": "cc-by-4.0"}, {"name": "web | pages"}]
    write_manifest(
        folder,
        task="MedTEBRetrieval",
        name="clinic",
        version="1.0.0",
        licence="cc-by-4.0",
        counts={"queries": 12},
        seed=42,
        sources=sources,
    )
    return load_edition(folder)


@pytest.fixture
def build(tmp_path):
    root = tmp_path / "build"
    pool = {
        "step": "pool",
        "settings": {"size": 100, "depth": 50},
        "retrievers": {"bm25": "bm25 char-bigram", "mar": {"model": "mar-mini"}},
    }
    judges = {
        "qwen": {"model": "qwen3", "variant": "q8", "prompt": "0123abcd", "temperature": 0.0},
        "learned": {"cross_encoder": "f00d"},
    }
    judge = {
        "step": "judge",
        "settings": judges,
        "already_anonymous": False,
        "before": {"queries": [ANONYMIZE], "documents": []},
    }
    for name, content in (("pool", pool), ("judged", judge)):
        write(root / name / "step.json", {"step": content["step"]})
        write(root / name / "manifest.json", content)
    answered = [
        {"date": "2026-11-01", "model": "qwen3-2507", "system_fingerprint": "fp_1", "pairs": 10},
        {"date": "2026-11-03", "model": "qwen3-2510", "pairs": 2},
    ]
    write(root / "judged/provenance.json", {"judges": {"qwen": {"answered": answered, "undated": 4}}})
    agreement = {"labels": {"krippendorff_alpha": [0.71, 0.6, 0.8], "gwet_ac1": [None, None, None]}}
    write(
        root / "labels/agreement.json",
        {"rule": "unanimous", "positive": ["S", "A"], "labels": {"positive": 1234}, "agreement": agreement},
    )
    write(root / "leakage.json", {"tests": 67, "leaks": 0, "training": {}})
    return root


def rows(page):
    """Cells of all rows of tables."""
    return [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]


def test_recorded_facts_are_on_the_sheet(edition, build):
    page = datasheet(edition, build)
    sheet_rows = rows(page)
    for row in (
        ["digest", edition.digest],
        ["size", "12 queries"],
        ["seed", "42"],
        ["licence of clinic", "cc-by-4.0"],
        ["version of the anonymiser", "7, strict"],
        ["bm25", "bm25 char-bigram", "50", "100"],
        ["days on which LLMs answered (UTC)", "2026-11-01 to 2026-11-03"],
        [
            *("qwen", "qwen3", "qwen3-2507 (fp_1), qwen3-2510", "q8", "0.0", "0123abcd"),
            "2026-11-01 to 2026-11-03; of 4 pairs not recorded",
        ],
        ["learned", "f00d", *["not recorded"] * 5],
        ["rule", "unanimous; positive: S, A"],
        ["pairs", "1,234 positive"],
        ["krippendorff alpha", "0.71 [0.6, 0.8]"],
        ["gwet ac1", "not recorded"],
        ["training queries that are near-duplicates of them", "0"],
    ):
        assert row in sheet_rows
    assert "licence of web \\| pages | not recorded" in page  # a name is no table


def test_missing_facts_are_marked_as_not_recorded(edition):
    sheet_rows = rows(datasheet(edition))
    for row in (
        ["version of the anonymiser", "not recorded"],
        ["rule", "not recorded"],
        ["test queries in training sets", "not recorded"],
    ):
        assert row in sheet_rows
    assert ["not recorded"] * 7 in sheet_rows  # judges
    assert ["not recorded"] * 4 in sheet_rows  # retrievers


def test_an_edition_says_how_it_was_made_without_its_build(edition, build):
    from medteb_mteb.curation.labels.provenance import provenance_of_judging

    content = {
        **provenance_of_judging(build / "judged"),
        "consensus": [{"rule": "majority", "positive": ["S"], "labels": {"positive": 3}, "agreement": {}}],
        "contamination": {"training queries compared": 9, "leakage": {"tests": 12, "leaks": 0}},
    }
    write(edition.path / "provenance.json", content)
    history = [{"version": "0.9.0", "digest": "abc", "changes": "2 pairs judged"}]
    manifest = {"task": "T", "name": "n", "version": "1", "licence": "mit", "counts": {}}
    write_manifest(edition.path, **manifest, history=history)
    sheet_rows = rows(datasheet(load_edition(edition.path)))
    for row in (
        ["days on which LLMs answered (UTC)", "2026-11-01 to 2026-11-03"],
        ["version of the anonymiser", "7, strict"],
        ["rule", "majority; positive: S"],
        ["training queries compared", "9"],
        ["0.9.0", "abc", "2 pairs judged"],
    ):
        assert row in sheet_rows


def test_folders_without_a_valid_build_are_refused(edition, build, tmp_path):
    with pytest.raises(BuildError, match="holds no step of a build"):
        datasheet(edition, tmp_path / "gone")
    (build / "judged/manifest.json").write_text("[]")
    with pytest.raises(BuildError, match=r"manifest\.json cannot be read as a JSON object"):
        datasheet(edition, build)
