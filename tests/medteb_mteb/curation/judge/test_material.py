"""Texts to judge: what is read, and what is judged once."""

from __future__ import annotations

import json

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.judge.material import JudgingMaterial, QueryGroup, read_material
from medteb_mteb.folders import FolderError


@pytest.fixture
def read(make_input):
    """Reads a small input after `change(input)`."""

    def call(change=lambda source: None, **options):
        source = make_input(2, 3)
        change(source)
        return read_material(*source.paths, **{"already_anonymous": True} | options)

    return call


def test_equal_texts_are_one_query_and_one_document():
    material = JudgingMaterial(
        {"a": "头痛", "b": "头痛", "c": "发热"},
        {"1": "多喝水。", "2": "多喝水。", "3": "多休息。"},
        {"a": ("1", "3"), "c": ("2", "1"), "b": ("2",)},
    )
    assert list(material.groups()) == [QueryGroup("a", ("1", "3")), QueryGroup("c", ("2",))]
    assert material.pairs == 5
    assert material.digests["q", "a"] == material.digests["q", "b"] != material.digests["q", "c"]


def test_gold_texts_are_those_of_the_query_that_are_not_beside_it():
    documents = {"1": "多喝水。", "2": "多休息。"}
    gold = {"a": ["多喝水。", "退烧药。"], "b": ["退烧药。", "冷敷。"], "gone": ["别的。"]}
    material = JudgingMaterial({"a": "发热", "b": "发热", "c": "咳嗽"}, documents, {"a": ("1", "2")}, gold)
    assert material.gold_beside("a", ["2"]) == sorted(["多喝水。", "退烧药。", "冷敷。"])
    assert material.gold_beside("b", ["1"]) == sorted(["退烧药。", "冷敷。"])
    assert material.gold_beside("c", ["1"]) == []


def test_only_texts_of_the_pools_are_read(read):
    def fewer(source):
        source.rewrite("pools", [{"query-id": "q1", "corpus-ids": ["d002", "d000"]}])

    material = read(fewer)
    assert (set(material.queries), set(material.documents)) == ({"q1"}, {"d000", "d002"})
    assert material.pools == {"q1": ("d002", "d000")}
    assert material.documents["d000"].startswith("高血压\n")  # the title is judged, too


def test_gold_documents_may_be_outside_the_pools(read, tmp_path):
    gold = tmp_path / "gold.jsonl"
    gold.write_text(json.dumps({"query-id": "q0", "corpus-ids": ["d002"]}), encoding="utf-8")

    def without(source):
        source.rewrite("pools", [{"query-id": "q0", "corpus-ids": ["d000"]}])

    material = read(without, gold=gold)
    assert set(material.documents) == {"d000"}
    assert [text.splitlines()[0] for text in material.gold_beside("q0", ["d000"])] == ["偏头痛"]


def test_private_texts_are_refused_unless_they_are_declared_anonymous(read):
    with pytest.raises(BuildError, match=r"2 of 2 queries and 3 of 3 documents .* not been anonymised"):
        read(already_anonymous=False)


def test_a_repeated_id_is_refused(read):
    def repeat(source):
        source.rewrite("documents", [*source.rows("documents"), {"_id": "d001", "text": "另一段"}])

    with pytest.raises(FolderError, match=r"documents\.jsonl:4: the id 'd001' is taken"):
        read(repeat)
