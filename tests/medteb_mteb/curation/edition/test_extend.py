"""New versions of an edition: the same panel judges what new systems found, and nothing else changes."""

from __future__ import annotations

import json

import pytest
import rule_judges
import yaml
from tests.conftest import write_jsonl
from tests.medteb_mteb.curation.diseases import DISEASES

from mar_st.errors import MarError
from medteb_mteb.curation.build import BuildSettings, build
from medteb_mteb.curation.edition.extend import ExtendSettings, as_text, extend
from medteb_mteb.editions import load_edition, verify

ASKED = ("不能吃什么", "怎么治疗")
TEXTS = ("患者不能吃辛辣油腻的东西。", "的治疗以休息和按时用药为主。", "怎么治疗要看轻重。", "是常见病。")


def lines(path):
    return path.read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def panel():
    with rule_judges.serving(rule_judges.Endpoint()) as url:
        yield [{"name": name, "model": name, "base_url": url} for name in ("rule-words", "rule-strict")]


@pytest.fixture(scope="module")
def built(panel, tmp_path_factory):
    """A build with shallow pools, so that other systems find what was not judged."""
    root = tmp_path_factory.mktemp("built")
    for name, endings in (("q", ASKED), ("d", TEXTS)):
        texts = {f"{name}{i}{j}": d + end for i, d in enumerate(DISEASES) for j, end in enumerate(endings)}
        write_jsonl(root / f"{name}.jsonl", [{"_id": key, "text": text} for key, text in texts.items()])
    far = {f"q{i}{j}": {f"d{(i + 5) % 12}3": 1.0} for i in range(len(DISEASES)) for j in range(len(ASKED))}
    (root / "far.json").write_text(json.dumps(far))
    both = {"queries": "q.jsonl", "documents": "d.jsonl"}
    steps = [
        {"step": "pool", **both, "retrievers": ["bm25", "far.json"], "size": 4, "depth": 3},
        {"step": "judge", **both, "pools": "pool"},
        {"step": "consensus", "name": "labels", "in": "judge", "rule": "majority"},
        {"step": "assemble", "labels": "labels", **both, "edition": "clinic", "licence": "mit"},
    ]
    content = {"already_anonymous": True, "judges": panel, "small": True, "test": 0.9, "steps": steps}
    (root / "build.yaml").write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
    assert not build(BuildSettings(file=root / "build.yaml"))["stopped"]
    return root / "build" / "data" / "MedTEBRetrieval"


@pytest.fixture
def go(built, panel, tmp_path):
    """Extends the edition by a system that finds a document of another disease, and all of the same one."""
    queries = [json.loads(line)["_id"] for line in lines(built / "queries.jsonl")]
    run = {query: {f"d{query[1:-1]}{kind}": float(kind) for kind in range(4)} for query in queries}
    for query, scores in run.items():
        scores[f"d{(int(query[1:-1]) + 7) % 12}0"] = 5.0
    (tmp_path / "new.json").write_text(json.dumps(run))

    def call(folder=built, judges=panel, **options):
        given = {"edition": str(folder), "out": tmp_path / "out", "judges": judges, "depth": 5}
        given |= {"retrievers": (str(tmp_path / "new.json"),), "already_anonymous": True, **options}
        return extend(ExtendSettings.model_validate(given))

    return call


def test_a_new_version_adds_labels_and_changes_none(built, go, tmp_path):
    old, report = load_edition(built), go()
    new = load_edition(tmp_path / "out" / "MedTEBRetrieval")
    verify(new)
    assert (old.version, new.version, report["edition"]["digest"]) == ("1.0.0", "1.1.0", new.digest)
    for name in ("corpus.jsonl", "queries.jsonl"):
        assert new.files[name] == old.files[name]
    for name in ("qrels/test.tsv", "labels.tsv"):
        before = lines(built / name)
        assert lines(new.path / name)[: len(before)] == before
    # Every document of the system has been judged now, and nothing else has.
    change = report["change"]
    assert sum(change[key] for key in ("positive", "negative", "disputed")) == change["pairs judged"] > 0
    added = len(lines(new.path / "labels.tsv")) - len(lines(built / "labels.tsv"))
    assert added == change["positive"] + change["negative"]
    assert new.counts["qrels"] == old.counts["qrels"] + change["positive"]
    # The labels are those of the edition's own rule, and the history says so.
    rules = json.loads((new.path / "provenance.json").read_text())["consensus"]
    assert [(one["rule"], one.get("version")) for one in rules] == [("majority", None), ("majority", "1.1.0")]
    assert new.extra["history"][0]["digest"] == old.digest
    assert "version 1.1.0" in as_text(report)
    # All is judged then: there is nothing to extend.
    again = go(folder=new.path, out=tmp_path / "again")
    assert again["edition"] is None
    assert "no new version" in as_text(again)


def test_labels_of_two_panels_do_not_mix(built, go, panel, tmp_path):
    with pytest.raises(MarError, match="other-panel"):
        go(judges=panel[:1])
    with pytest.raises(MarError, match="part of the edition"):
        go(out=built / "inside")
    with pytest.raises(MarError, match="not an edition of retrieval"):
        go(folder=built.parent / "MedTEBReranking")
    assert not (tmp_path / "out" / "MedTEBRetrieval").exists()
