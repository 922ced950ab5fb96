"""Provenance and Croissant beside an edition, and the leakage report that a build adds to them."""

from __future__ import annotations

import json

import pytest

from medteb_mteb.curation.edition.describe import add_leakage, describe, gathered
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.files.sources import TextSource
from medteb_mteb.editions import load_edition, write_manifest

HUATUO = TextSource(name="huatuo", licence="apache-2.0")
LEAKAGE = {
    "tests": 3,
    "leaks": 1,
    "training": {"triples": {"queries": 9, "leaks": 1, "examples": ["感冒吃什么药 ~ Task:q1"]}},
}
REPORT = {"tests": 3, "leaks": 1, "training": {"triples": {"queries": 9, "leaks": 1}}}


@pytest.fixture
def edition(make_folder):
    folder = make_folder("Retrieval", "data/Task")
    return write_manifest(folder, task="Task", name="n", version="1", licence="mit", counts={"queries": 3})


def provenance_of(edition):
    return json.loads((edition.path / "provenance.json").read_text(encoding="utf-8"))


def test_a_description_is_beside_the_data_and_not_part_of_its_digest(edition):
    describe(edition, {"sources": [HUATUO.to_json()], "judges": [], "consensus": None})
    assert provenance_of(edition) == {"schema_version": 1, "sources": [HUATUO.to_json()]}
    described = json.loads((edition.path / "croissant.json").read_text(encoding="utf-8"))
    assert [work["name"] for work in described["sc:isBasedOn"]] == ["huatuo"]
    assert load_edition(edition.path).digest == edition.digest
    assert described["identifier"] == f"sha256:{edition.digest}"


def test_a_leakage_report_joins_the_editions_without_its_texts(edition):
    describe(edition, {"judges": [{"name": "a"}], "contamination": {"training": "none"}})
    add_leakage(edition.path.parent, LEAKAGE)
    assert provenance_of(edition) == {
        "schema_version": 1,
        "judges": [{"name": "a"}],
        "contamination": {"training": "none", "leakage": REPORT},
    }
    assert "感冒" not in (edition.path / "croissant.json").read_text(encoding="utf-8")
    assert "leakage" in (edition.path / "croissant.json").read_text(encoding="utf-8")
    before = (edition.path / "provenance.json").stat().st_mtime_ns
    add_leakage(edition.path.parent, LEAKAGE)
    assert (edition.path / "provenance.json").stat().st_mtime_ns == before


def test_an_edition_without_provenance_gets_none(edition):
    add_leakage(edition.path.parent, LEAKAGE)
    assert not (edition.path / "provenance.json").exists()


@pytest.mark.parametrize("recorded", [None, [], "none", 3])
def test_a_report_replaces_what_is_no_object(edition, recorded):
    content = {"schema_version": 1, "contamination": recorded}
    (edition.path / "provenance.json").write_text(json.dumps(content))
    add_leakage(edition.path.parent, LEAKAGE)
    assert provenance_of(edition)["contamination"] == {"leakage": REPORT}


def step_folder(folder, **manifest):
    folder.mkdir()
    (folder / "step.json").write_text("{}")
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_sources_and_anonymisers_of_all_texts_are_gathered_once(tmp_path):
    settings = {"version": "2", "strict": True}
    sources = [HUATUO.to_json(), {"name": "clinic", "licence": "cc-by-4.0"}]
    queries = step_folder(tmp_path / "q", step="anonymize", settings=settings, sources=sources[:1])
    documents = step_folder(tmp_path / "d", step="anonymize", settings=settings, sources=sources)
    content = gathered([queries, documents], [HUATUO])
    assert content == {
        "sources": [{"name": "clinic", "licence": "cc-by-4.0"}, HUATUO.to_json()],
        "anonymisers": [{"version": "2", "strict": True}],
    }
    assert gathered([tmp_path / "raw.jsonl"], []) == {"anonymisers": []}
    with pytest.raises(BuildError, match="'huatuo' is given as"):
        gathered([queries], [TextSource(name="huatuo", licence="mit")])
