"""A built set as an edition: all of it or nothing, and never over another one."""

from __future__ import annotations

import dataclasses
import json

import pytest
import yaml

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives.write import BuiltSet, write_built
from medteb_mteb.editions import verify
from medteb_mteb.folders import read_folder

BUILT = BuiltSet(
    task="DrugBankRetrieval",
    type="Retrieval",
    licence="https://example.org/terms: all",
    note="Names of drugs.",
    queries={"q1": "Aspirin", "q2": "Insulin\u2028"},
    corpus={"d1": ("", "It thins blood."), "d2": ("Insulin", "It lowers\nsugar.")},
    qrels={"q1": {"d1": 1}, "q2": {"d2": 2, "d1": 0}},
    prompt="Given a drug, retrieve passages",
    left_out={"repeated queries": 3, "repeated documents": 0},
    options={"grades": "lower"},
)
USED = {"z.xml": "0" * 64, "a.xml": "1" * 64}


def names(folder):
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def test_a_set_is_read_back_from_its_edition(tmp_path):
    edition, before = write_built(BUILT, tmp_path, USED)
    verify(edition)
    data = read_folder(edition.path).retrieval
    assert {row["id"]: row["text"] for row in data.queries} == BUILT.queries
    assert {row["id"]: (row["title"], row["text"]) for row in data.corpus} == BUILT.corpus
    assert data.qrels == BUILT.qrels
    assert edition.counts == {"queries": 2, "corpus": 2, "qrels": 3}
    assert edition.extra["left_out"] == {"repeated queries": 3}
    assert list(edition.extra["made_from"]) == ["a.xml", "z.xml"]
    assert not before
    assert names(tmp_path) == ["DrugBankRetrieval"]


def test_the_card_names_licence_counts_and_raw_files(tmp_path):
    edition, _ = write_built(BUILT, tmp_path, USED)
    _, header, text = (edition.path / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    assert yaml.safe_load(header)["license"] == BUILT.licence
    assert "2 queries, 2 corpus, 3 qrels. Left out: 3 repeated queries. Options: grades=lower." in text
    assert text.index("`a.xml` 111") < text.index("`z.xml` 000")


def test_a_set_written_again_is_the_same_and_another_one_is_refused(tmp_path):
    first, _ = write_built(BUILT, tmp_path, USED)
    again, before = write_built(BUILT, tmp_path, dict(reversed(USED.items())))
    assert (again.digest, before) == (first.digest, True)
    for change in ({"queries": BUILT.queries | {"q1": "ASA"}}, {"options": {"grades": "higher"}}):
        with pytest.raises(BuildError, match=r"holds another edition \(raw 1, .*Give another folder"):
            write_built(dataclasses.replace(BUILT, **change), tmp_path, USED)
    verify(first)
    assert names(tmp_path) == ["DrugBankRetrieval"]


def test_candidates_are_written_for_reranking_and_pairs_as_one_table(tmp_path):
    candidates = {"q1": ["d2", "d1"], "q2": ["d2", "d1"]}
    reranking = dataclasses.replace(BUILT, task="R", type="Reranking", candidates=candidates)
    edition, _ = write_built(reranking, tmp_path, USED)
    assert read_folder(edition.path).retrieval.top_ranked == candidates
    rows = ({"sentence1": "甲", "sentence2": "b", "score": 1.5},)
    edition, _ = write_built(BuiltSet("S", "STS", "mit", "Pairs.", rows=rows), tmp_path, USED)
    assert [json.loads(line) for line in (edition.path / "test.jsonl").read_text("utf-8").splitlines()] == [
        *rows
    ]
    assert edition.counts == {"pairs": 1}


@pytest.mark.parametrize("empty", ["queries", "corpus", "qrels"])
def test_a_set_with_nothing_to_score_is_refused(tmp_path, empty):
    with pytest.raises(BuildError, match="the raw files hold nothing to build from"):
        write_built(dataclasses.replace(BUILT, **{empty: {}}), tmp_path, USED)
    assert names(tmp_path) == []


@pytest.mark.parametrize("key", ["", " ", "d\t1", "d\n1", "d1\r"])
@pytest.mark.parametrize("kind", ["queries", "corpus"])
def test_an_id_that_the_qrels_cannot_hold_is_refused(tmp_path, key, kind):
    texts = {key: "x" if kind == "queries" else ("", "x")}
    with pytest.raises(BuildError, match=r"the id '.*' is empty, or has a tab or a line break"):
        write_built(dataclasses.replace(BUILT, **{kind: getattr(BUILT, kind) | texts}), tmp_path, USED)
    assert names(tmp_path) == []


def test_a_set_that_cannot_be_written_leaves_nothing_behind(tmp_path):
    broken = dataclasses.replace(BUILT, queries={**BUILT.queries, "q1": "As\ud800"})
    with pytest.raises(BuildError, match=r"queries\.jsonl cannot be written: line 1 would hold half of a"):
        write_built(broken, tmp_path, USED)
    assert names(tmp_path) == []
