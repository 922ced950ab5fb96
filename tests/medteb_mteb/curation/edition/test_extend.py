"""New versions of an edition: the same panel judges what new systems found, and nothing else changes."""

from __future__ import annotations

import json
import shutil

import pytest
import rule_judges
import yaml
from tests.medteb_mteb.curation.diseases import DISEASES

from medteb_mteb.curation.edition.extend import extend
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.files.run_file import RunFile
from medteb_mteb.curation.judge import Judges
from medteb_mteb.curation.labels.consensus import ConsensusRule
from medteb_mteb.curation.pipeline import build
from medteb_mteb.editions import load_edition, verify
from medteb_mteb.folders import read_folder

ASKED = ("不能吃什么", "怎么治疗")
TEXTS = ("患者不能吃辛辣油腻的东西。", "的治疗以休息和按时用药为主。", "怎么治疗要看轻重。", "是常见病。")


def write(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def lines(path):
    return path.read_text(encoding="utf-8").splitlines()


class Counting(rule_judges.Endpoint):
    """Counts what it is asked."""

    requests = 0

    async def answer(self, call):
        self.requests += 1
        return await super().answer(call)


@pytest.fixture(scope="module")
def endpoint():
    return Counting()


@pytest.fixture(scope="module")
def panel(endpoint):
    with rule_judges.serving(endpoint) as url:
        yield {"judges": [{"name": n, "model": n, "base_url": url} for n in ("rule-words", "rule-strict")]}


@pytest.fixture(scope="module")
def built(panel, tmp_path_factory):
    """A build with shallow pools, so that other systems find what was not judged."""
    root = tmp_path_factory.mktemp("built")
    write(
        root / "q.jsonl",
        ({"_id": f"q{i}{j}", "text": d + a} for i, d in enumerate(DISEASES) for j, a in enumerate(ASKED)),
    )
    write(
        root / "d.jsonl",
        ({"_id": f"d{i}{j}", "text": d + a} for i, d in enumerate(DISEASES) for j, a in enumerate(TEXTS)),
    )
    far = {f"q{i}{j}": {f"d{(i + 5) % 12}3": 1.0} for i in range(len(DISEASES)) for j in range(len(ASKED))}
    (root / "far.json").write_text(json.dumps(far))
    both = {"queries": "q.jsonl", "documents": "d.jsonl"}
    steps = [
        {"step": "pool", **both, "retrievers": ["bm25", "far.json"], "size": 4, "depth": 3},
        {"step": "judge", **both, "pools": "pool"},
        {"step": "consensus", "name": "labels", "in": "judge", "rule": "weighted", "share": 0.6},
        {
            "step": "assemble",
            "labels": "labels",
            **both,
            "edition": "clinic",
            "licence": "mit",
            "test": 0.9,
            "small": True,
            "corpus": "all",
        },
    ]
    content = {"already_anonymous": True, "judges": panel["judges"], "steps": steps}
    (root / "build.yaml").write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
    assert build(root / "build.yaml", show_progress=False, say=lambda line: None).complete
    return root / "build" / "data" / "MedTEBRetrieval"


@pytest.fixture
def system(built, tmp_path):
    """A system that finds a document of another disease, then those of the same one, last one first."""

    def make(name="new"):
        queries = [json.loads(line)["_id"] for line in lines(built / "queries.jsonl")]
        documents = [json.loads(line)["_id"] for line in lines(built / "corpus.jsonl")]
        run = {
            query: {
                f"d{(int(query[1:-1]) + 7) % 12}0": 5.0,
                **{f"d{query[1:-1]}{kind}": float(kind) for kind in range(4)},
            }
            for query in queries
        }
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(run))
        return RunFile(path, queries, documents)

    return make


@pytest.fixture
def go(built, panel, tmp_path):
    def call(retrievers, out="out", judges=panel, folder=built, **options):
        return extend(
            folder,
            tmp_path / out,
            retrievers,
            Judges.model_validate(judges),
            already_anonymous=True,
            show_progress=False,
            say=lambda line: None,
            **options,
        )

    return call


def test_a_new_version_adds_labels_and_changes_none(built, go, system, endpoint):
    old = load_edition(built)
    extended = go([system()], depth=5)
    new = extended.edition
    verify(new)
    assert (old.version, new.version) == ("1.0.0", "1.1.0")
    assert new.digest != old.digest
    for name in ("corpus.jsonl", "queries.jsonl"):
        assert new.files[name] == old.files[name]
    for name in ("qrels/test.tsv", "labels.tsv"):
        before = lines(built / name)
        assert lines(new.path / name)[: len(before)] == before
    # Every document of the system has been judged now, and nothing else has.
    counts = extended.change.counts
    assert sum(counts.values()) == extended.change.pairs > 0
    assert len(lines(new.path / "labels.tsv")) - len(lines(built / "labels.tsv")) == (
        counts["positive"] + counts["negative"]
    )
    assert new.counts["qrels"] == old.counts["qrels"] + counts["positive"]
    assert extended.before["new"].judged < extended.after["new"].judged == 1.0
    assert extended.after["new"].ndcg == pytest.approx(extended.after["new"].condensed)
    # The labels are those of the edition's own rule.
    data = read_folder(new.path).retrieval
    judged = [json.loads(line) for line in lines(new.path.parent / "judged" / "judgements.jsonl")]
    grades = {}
    for row in judged:
        grades.setdefault((row["query-id"], row["corpus-id"]), {})[row["judge"]] = row["grade"]
    rule = ConsensusRule("weighted", share=0.6)
    for (query, document), given in grades.items():
        relevance = rule.label(query, document, given, sorted(given)).relevance
        if relevance is None:
            assert document in data.judged.disputed[query]
        else:
            assert data.qrels[query].get(document, 0) == relevance
    # The history names the version before; the provenance has both judgings.
    (entry,) = new.extra["history"]
    assert (entry["version"], entry["digest"]) == ("1.0.0", old.digest)
    assert entry["changes"] == {
        "version": "1.1.0", "systems": ["new"], "depth": 5, "pairs judged": extended.change.pairs, **counts,
    }  # fmt: skip
    provenance = json.loads((new.path / "provenance.json").read_text(encoding="utf-8"))
    assert [answer.get("version") for answer in provenance["judges"][0]["answered"]] == [None, "1.1.0"]
    assert [one.get("version") for one in provenance["retrievers"]] == [None, None, "1.1.0"]
    assert "1.1.0: 1.0.0 and" in (new.path / "README.md").read_text(encoding="utf-8")
    # Run again, nothing is asked, and every byte is the same.
    number, before = endpoint.requests, {p.name: p.read_bytes() for p in new.path.rglob("*") if p.is_file()}
    again = go([system()], depth=5)
    assert endpoint.requests == number
    assert {p.name: p.read_bytes() for p in again.edition.path.rglob("*") if p.is_file()} == before


@pytest.mark.thorough
def test_links_out_of_an_edition_are_not_copied(built, go, system, tmp_path):
    (tmp_path / "secret").write_text("secret")
    strange = tmp_path / "strange" / built.name
    shutil.copytree(built, strange)
    (strange / "NOTES.md").symlink_to(tmp_path / "secret")
    new = go([system()], depth=5, folder=strange).edition
    assert not (new.path / "NOTES.md").exists()
    assert (new.path / "README.md").is_file()


@pytest.mark.thorough
def test_versions_follow_each_other(go, system):
    first = go([system()], "first", depth=1).edition
    second = go([system()], "second", folder=first.path, depth=5, version="2.0.0")
    assert [one["version"] for one in second.edition.extra["history"]] == ["1.0.0", "1.1.0"]
    assert second.edition.extra["history"][1]["digest"] == first.digest
    both = go([system()], "both", depth=5).edition
    for name in ("qrels/test.tsv", "labels.tsv"):
        assert sorted(lines(second.edition.path / name)) == sorted(lines(both.path / name))
    nothing = go([system()], "third", folder=second.edition.path, depth=5)
    assert nothing.edition is None
    assert nothing.judging is None
    with pytest.raises(BuildError, match=r"There is a version '1\.0\.0' of this edition already"):
        go([system()], "fourth", folder=second.edition.path, depth=5, version="1.0.0")


def test_another_panel_is_refused(panel, go, system):
    other = {"judges": [panel["judges"][0]]}
    with pytest.raises(BuildError, match="was judged by rule-strict, rule-words, not rule-words"):
        go([system()], judges=other)
    warm = {"judges": [{**one, "temperature": 0.7} for one in panel["judges"]]}
    with pytest.raises(BuildError, match=r"had temperature 0\.0, now it has 0\.7\. Labels of two panels"):
        go([system()], judges=warm)
    extended = go([system()], judges=other, other_panel=True, depth=5, rule=ConsensusRule("majority"))
    provenance = json.loads((extended.edition.path / "provenance.json").read_text(encoding="utf-8"))
    assert [one["rule"] for one in provenance["consensus"]] == ["weighted", "majority"]


def test_editions_that_cannot_be_extended_are_refused(built, go, system, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(built, folder)
    (folder / "provenance.json").unlink()
    with pytest.raises(BuildError, match="does not say by which rule"):
        go([system()], folder=folder)
    with pytest.raises(BuildError, match="does not say who judged it"):
        go([system()], folder=folder, rule=ConsensusRule("majority"))
    with pytest.raises(BuildError, match="the candidates of reranking are fixed"):
        go([system()], folder=built.parent / "MedTEBReranking")


@pytest.mark.parametrize("out", ["data/MedTEBRetrieval", "data/MedTEBRetrieval/new", "data"])
def test_an_edition_is_not_extended_in_place(built, go, system, tmp_path, out):
    folder = tmp_path / "data" / "MedTEBRetrieval"
    shutil.copytree(built, folder)
    with pytest.raises(BuildError, match="is part of the input"):
        go([system()], folder=folder, out=out)
    verify(load_edition(folder))
    assert load_edition(folder).digest == load_edition(built).digest


@pytest.mark.thorough
def test_the_command_prints_scores_before_and_after(built, panel, system, tmp_path, medteb, monkeypatch):
    monkeypatch.chdir(tmp_path)
    system()
    (tmp_path / "judges.yaml").write_text(yaml.safe_dump(panel))
    arguments = ("edition", "extend", built, "out", "-r", "other=new.json", "--judges", "judges.yaml")
    options = ("--depth", "5", "--already-anonymous", "-q")
    code, out, err = medteb(*arguments, *options)
    assert code == 0, err
    assert "other" in out
    assert "before" in out
    assert "after" in out
    assert "version 1.1.0, revision" in out
    code, out, err = medteb(*arguments[:2], out and "out/MedTEBRetrieval", "later", *arguments[4:], *options)
    assert (code, "no new version was written" in out) == (0, True)
    code, _, err = medteb(*arguments[:3], "private", *arguments[4:], "-q")
    assert (code, "anonym" in err) == (2, True)
    page = medteb("edition", "datasheet", "out/MedTEBRetrieval")[1]
    assert "## Earlier versions" in page
