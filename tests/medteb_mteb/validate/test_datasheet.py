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


def test_what_was_recorded_is_there(edition, build):
    page = datasheet(edition, build)
    found = rows(page)
    for row in (
        ["digest", edition.digest],
        ["size", "12 queries"],
        ["seed", "42"],
        ["licence of clinic", "cc-by-4.0"],
        ["version of the anonymiser", "7, strict"],
        ["bm25", "bm25 char-bigram", "50", "100"],
        ["qwen", "qwen3", "q8", "0.0", "0123abcd", "not recorded"],
        ["learned", "f00d", *["not recorded"] * 4],
        ["rule", "unanimous; positive: S, A"],
        ["pairs", "1,234 positive"],
        ["krippendorff alpha", "0.71 [0.6, 0.8]"],
        ["gwet ac1", "not recorded"],
        ["training queries that are near-duplicates of them", "0"],
    ):
        assert row in found
    assert "licence of web \\| pages | not recorded" in page  # a name is no table


def test_what_nobody_recorded_says_so(edition):
    found = rows(datasheet(edition))
    for row in (
        ["version of the anonymiser", "not recorded"],
        ["rule", "not recorded"],
        ["test queries in training sets", "not recorded"],
    ):
        assert row in found
    assert ["not recorded"] * 6 in found  # judges
    assert ["not recorded"] * 4 in found  # retrievers


def test_builds_that_are_none(edition, build, tmp_path):
    with pytest.raises(BuildError, match="holds no step of a build"):
        datasheet(edition, tmp_path / "gone")
    (build / "judged/manifest.json").write_text("[]")
    with pytest.raises(BuildError, match=r"manifest\.json cannot be read as a JSON object"):
        datasheet(edition, build)
