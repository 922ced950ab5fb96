"""The files of synonym STS: test pairs, training rows, and the outcome of every query."""

from __future__ import annotations

import json

import pytest

from mar_st.data import read_triples
from medteb_mteb.curation.files.records import BuildError, Text
from medteb_mteb.curation.sts.dictionary import DictionaryEntry
from medteb_mteb.curation.sts.select import SwappedQuery
from medteb_mteb.curation.sts.settings import StsSettings
from medteb_mteb.curation.sts.split import QuerySplit
from medteb_mteb.curation.sts.write import Rewritten, write_edition, write_log, write_training
from medteb_mteb.editions import verify
from medteb_mteb.folders import read_folder

KINDS = ("positive", "negative-1", "negative-2")
HOW = StsSettings("mini", "mit", test=20)


def rewritten(name, *, dropped=(), title=""):
    query = Text(name, f"{name}：高血压能喝酒吗", title)
    candidate = SwappedQuery(query, DictionaryEntry("高血压", "血压高"), f"{name}：血压高能喝酒吗")
    texts = {kind: f"{name}的{kind}" for kind in KINDS}
    return Rewritten(candidate, texts, dict.fromkeys(dropped, "same-intent"))


ROWS = [rewritten(f"q{i}") for i in range(30)]
SIDES = QuerySplit([f"q{i}" for i in range(20)], [f"q{i}" for i in range(20, 28)], {"q28": "near-test"})


def lines(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def edition(out, how=HOW, rows=ROWS, sides=SIDES, **record):
    return write_edition(out, rows, sides, how, {"queries": 30}, record, generator="medteb")


def test_each_test_query_is_paired_with_one_of_its_rewrites(tmp_path):
    drawn = edition(tmp_path)
    assert list(drawn) == SIDES.test
    assert set(drawn.values()) == set(KINDS)
    assert lines(tmp_path / "MedTEBSTS" / "test.jsonl") == [
        {
            "sentence1": f"{name}：高血压能喝酒吗",
            "sentence2": f"{name}的{kind}",
            "score": float(kind == "positive"),
        }
        for name, kind in drawn.items()
    ]


def test_the_folder_is_an_edition_of_sts_with_its_numbers(tmp_path):
    drawn = edition(tmp_path, sources=[{"name": "门诊", "licence": "mit"}])
    folder = read_folder(tmp_path / "MedTEBSTS")
    verify(folder.layout.edition)
    manifest = folder.layout.edition
    assert (folder.type, manifest.counts, manifest.extra["generator"]) == ("STS", {"test": 20}, "medteb")
    assert manifest.extra["sources"] == [{"name": "门诊", "licence": "mit"}]
    numbers = manifest.extra["statistics"]
    assert numbers["queries"] == 30
    assert [numbers[f"test pairs, {kind}"] for kind in KINDS] == [
        list(drawn.values()).count(kind) for kind in KINDS
    ]


def test_the_draw_of_a_query_does_not_depend_on_the_others(tmp_path):
    whole = edition(tmp_path / "whole")
    part = edition(tmp_path / "part", rows=ROWS[::-1], sides=QuerySplit(SIDES.test[5:], []))
    assert part == {name: kind for name, kind in whole.items() if name in part}
    other = edition(tmp_path / "other", StsSettings("mini", "mit", test=20, seed=1))
    assert other != whole


@pytest.mark.parametrize("probabilities", [(1e-9, 0.5, 0.5), (1 - 1e-9, 0.0, 1e-9)])
def test_a_test_of_one_label_is_refused_and_not_written(tmp_path, probabilities):
    how = StsSettings("mini", "mit", test=20, probabilities=probabilities)
    with pytest.raises(BuildError, match="so no correlation exists"):
        edition(tmp_path, how)
    assert list(tmp_path.iterdir()) == []


def test_good_rewrites_become_training_rows(tmp_path):
    rows = [
        rewritten("a"),
        rewritten("b", dropped=["negative-1"], title="题"),
        rewritten("c", dropped=["negative-1", "negative-2"]),
        rewritten("d", dropped=["positive"]),
    ]
    counts = write_training(tmp_path, rows)
    assert counts == {"triples": 2, "without a negative": 1, "without a positive": 1}
    triples = list(read_triples(str(tmp_path / "train" / "sts.jsonl")))
    assert [(one.query, one.positives, one.negatives) for one in triples] == [
        ("a：高血压能喝酒吗", ("a的positive",), ("a的negative-1", "a的negative-2")),
        ("题\nb：高血压能喝酒吗", ("b的positive",), ("b的negative-2",)),
    ]
    assert lines(tmp_path / "train" / "sts-pairs.jsonl") == [
        {"query": "c：高血压能喝酒吗", "positives": ["c的positive"]}
    ]


def test_without_training_rows_there_are_no_files(tmp_path):
    counts = write_training(tmp_path, [rewritten("d", dropped=["positive"])])
    assert counts == {"triples": 0, "without a negative": 0, "without a positive": 1}
    assert list(tmp_path.iterdir()) == []


def test_every_query_and_its_use_is_logged(tmp_path):
    drawn = {"q0": "negative-1"}
    rows = [ROWS[0], ROWS[20], ROWS[28], rewritten("q29", dropped=["positive"])]
    write_log(tmp_path, rows, SIDES, drawn, [{"_id": "x", "reason": "no-term"}])
    log = lines(tmp_path / "sts" / "rewrites.jsonl")
    assert [(row["query-id"], row["use"]) for row in log] == [
        ("q0", "test"), ("q20", "train"), ("q28", "near-test"), ("q29", "none"),
    ]  # fmt: skip
    assert log[0]["drawn"] == "negative-1"
    assert log[3]["dropped"] == {"positive": "same-intent"}
    assert [kind in row for row in log for kind in KINDS] == [True] * 12
    assert lines(tmp_path / "sts" / "dropped.jsonl") == [{"_id": "x", "reason": "no-term"}]
