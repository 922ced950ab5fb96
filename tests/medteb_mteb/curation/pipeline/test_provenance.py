"""An edition says where its texts and labels come from, in words and in Croissant."""

from __future__ import annotations

import json

import mlcroissant as mlc
import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.editions import load_edition, verify

HUATUO = {"name": "huatuo", "licence": "apache-2.0", "url": "https://example.org/huatuo"}
BOTH = {"queries": "queries", "documents": "documents"}
STEPS = [
    {"step": "anonymize", "name": "queries", "in": "queries.jsonl", "sources": [HUATUO]},
    {
        "step": "anonymize",
        "name": "anonymous",
        "in": "documents.jsonl",
        "sources": [HUATUO, {"name": "clinic", "licence": "cc-by-nc-4.0"}],
    },
    {"step": "dedup", "name": "documents", "in": "anonymous", "threshold": 0.9},
    {"step": "pool", **BOTH, "retrievers": ["bm25"], "size": 12, "depth": 20},
    {"step": "judge", **BOTH, "pools": "pool"},
    {"step": "consensus", "name": "labels", "in": "judge"},
    {
        "step": "assemble",
        "labels": "labels",
        **BOTH,
        "edition": "clinic",
        "licence": "cc-by-nc-4.0",
        "test": 0.4,
        "small": True,
    },
]
CLINIC = {"name": "clinic", "licence": "cc-by-nc-4.0"}


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.thorough
def test_a_build_describes_its_editions(write, quiet, server, tmp_path, medteb):
    build, data = tmp_path / "build", tmp_path / "build" / "data"
    assert quiet(write(server, steps=STEPS)).complete
    for folder in (data / "MedTEBRetrieval", data / "MedTEBReranking"):
        edition = load_edition(folder)
        verify(edition)
        assert edition.extra["sources"] == [CLINIC, HUATUO]
        provenance, described = read(folder / "provenance.json"), read(folder / "croissant.json")
        judges = {judge["name"]: judge for judge in provenance["judges"]}
        assert sorted(judges) == ["rule-generous", "rule-strict", "rule-words"]
        (answer,) = judges["rule-words"]["answered"]
        assert answer["model"] == "rule-words"
        assert answer["pairs"] == read(build / "judge" / "manifest.json")["pairs"]
        assert len(judges["rule-words"]["prompt"]) == 16
        assert provenance["retrievers"][0]["name"] == "bm25"
        assert (provenance["retrievers"][0]["depth"], provenance["retrievers"][0]["size"]) == (20, 12)
        assert provenance["anonymisers"][0]["strict"] is False
        assert provenance["consensus"][0]["rule"] == "unanimous"
        assert len(provenance["consensus"][0]["agreement"]["krippendorff_alpha"]) == 3
        leakage = provenance["contamination"]["leakage"]
        assert leakage["leaks"] == 0
        assert set(leakage["training"]) == {"assemble"}
        assert "examples" not in leakage["training"]["assemble"]
        # The same for programs; the reference implementation finds no error, and reads the tables by it.
        works = {work["name"]: work["license"] for work in described["sc:isBasedOn"]}
        assert works == {"clinic": "cc-by-nc-4.0", "huatuo": "https://www.apache.org/licenses/LICENSE-2.0"}
        assert described["rai:dataCollectionTimeFrame"] == [answer["date"]]
        assert any("rule-words" in tool for tool in described["rai:machineAnnotationTools"])
        assert "unanimous" in described["rai:dataAnnotationProtocol"][0]
        assert any("krippendorff_alpha" in line for line in described["rai:dataAnnotationAnalysis"])
        assert '"leaks": 0' in described["rai:dataLimitations"][0]
        dataset = mlc.Dataset(jsonld=str(folder / "croissant.json"))
        assert not dataset.metadata.issues.errors
        assert dataset.metadata.data_collection_timeframe
        assert next(iter(dataset.records("corpus")))
    code, page, err = medteb("edition", "datasheet", data / "MedTEBRetrieval")
    assert code == 0, err
    assert "| licence of huatuo | apache-2.0, https://example.org/huatuo |" in page
    judged = [line for line in page.splitlines() if line.startswith("| rule-")]
    assert all("not recorded" not in line.replace("| not recorded |", "|", 1) for line in judged)
    assert all(line.endswith(f"| {answer['date']} |") for line in judged)
    # Made again of what was paid for, every byte is the same.
    before = {p: p.read_bytes() for p in data.rglob("*") if p.is_file()}
    steps = [{**STEPS[0], "sources": [{**HUATUO, "url": ""}]}, *STEPS[1:]]
    with pytest.raises(BuildError, match="'queries' was made with other settings"):
        quiet(write(server, steps=steps))
    quiet(write(server, steps=STEPS))
    assert {p: p.read_bytes() for p in data.rglob("*") if p.is_file()} == before


@pytest.mark.thorough
def test_one_source_has_one_licence(write, quiet, server):
    steps = [{**STEPS[0], "sources": [{**HUATUO, "licence": "mit"}]}, *STEPS[1:]]
    with pytest.raises(BuildError, match=r"'huatuo' is given as .*mit.* and as .*apache-2\.0"):
        quiet(write(server, steps=steps))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            {"name": "a", "licence": "all rights reserved"},
            "is not a licence; give an identifier such as",
        ),
        ({"name": "a"}, "Field required"),
        ({"name": "a\nb", "licence": "mit"}, "one line of text"),
        ({"name": "a", "licence": "mit", "url": "here"}, "is not an address"),
        ({"name": "a", "licence": "mit", "licences": "x"}, "Extra inputs"),
    ],
)
def test_sources_are_checked(write, quiet, source, message):
    with pytest.raises(BuildError, match=message):
        quiet(write(steps=[{**STEPS[0], "sources": [source]}]))


def test_commands_take_sources_too(medteb, texts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = medteb(
        "anonymize", "queries.jsonl", "clean", "-q", "--source", "web=https://example.org/terms"
    )
    assert code == 0, err
    code, _, err = medteb("dedup", "clean", "few", "-q", "--source", "more=cc0-1.0")
    assert code == 0, err
    before = read(tmp_path / "few" / "manifest.json")
    assert before["sources"] == [{"name": "more", "licence": "cc0-1.0"}]
    assert before["before"][0]["sources"] == [{"name": "web", "licence": "https://example.org/terms"}]
    code, _, err = medteb("dedup", "clean", "other", "-q", "--source", "nameless")
    assert (code, "--source takes NAME=LICENCE" in err) == (2, True)
