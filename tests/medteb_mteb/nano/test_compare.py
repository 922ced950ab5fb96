from __future__ import annotations

import dataclasses

import pytest
from tests.medteb_mteb.nano.sets import write_set, write_split

from medteb_mteb.folders import FolderError
from medteb_mteb.nano import compare
from medteb_mteb.nano.compare import compare_set, compare_split
from medteb_mteb.nano.layout import read_split
from medteb_mteb.nano.measures import score_rankings
from medteb_mteb.nano.table import BM25, DENSE, HYBRID, NanoSplit, PublishedList, published_sets


def as_published(data) -> NanoSplit:
    """Return the figures that a card of this data would have."""
    lists = {}
    for name, rows in data.lists.items():
        scores = score_rankings(rows, data.qrels)
        lengths = [len(row) for row in rows.values()]
        lists[name] = PublishedList(
            scores.ndcg_at_10,
            scores.hit_at_10,
            scores.recall_micro_at_100,
            min(lengths),
            max(lengths),
            sum(lengths) / len(lengths),
        )
    return dataclasses.replace(
        published_sets()["NanoCMTEB"].splits["medical"],
        queries=3,
        documents=120,
        positives=4,
        most_positives=2,
        queries_with_several=1,
        query_mean_chars=sum(map(len, data.queries.values())) / 3,
        document_mean_chars=sum(map(len, data.corpus.values())) / 120,
        safeguards=1,
        lists=lists,
    )


def test_every_figure_of_a_card_is_compared(tmp_path):
    data = read_split(write_split(tmp_path / "NanoCMTEB", "medical"), "medical")
    card = as_published(data)
    rows = list(compare_split(data, "NanoCMTEB", card))
    assert all(row.agrees and row.published is not None for row in rows)
    assert len(rows) == 5 + 2 + 3 * 6 + 1
    for changed in (
        {"safeguards": 0},
        {"queries": 2},
        {"query_mean_chars": 18.0},
        {"lists": card.lists | {BM25: dataclasses.replace(card.lists[BM25], ndcg_at_10=0.5)}},
        {"lists": card.lists | {DENSE: dataclasses.replace(card.lists[DENSE], recall_micro_at_100=1.0)}},
        {"lists": card.lists | {HYBRID: dataclasses.replace(card.lists[HYBRID], mean_length=100.0)}},
        {"lists": card.lists | {BM25: dataclasses.replace(card.lists[BM25], shortest=1)}},
        {"lists": card.lists | {DENSE: dataclasses.replace(card.lists[DENSE], longest=1)}},
    ):
        rows = compare_split(data, "NanoCMTEB", dataclasses.replace(card, **changed))
        assert sum(not row.agrees for row in rows) == 1


def test_a_tolerance_is_for_scores(tmp_path):
    data = read_split(write_split(tmp_path / "NanoCMTEB", "medical"), "medical")
    card = as_published(data)
    near = dataclasses.replace(card.lists[BM25], ndcg_at_10=card.lists[BM25].ndcg_at_10 + 2e-4)
    card = dataclasses.replace(card, lists=card.lists | {BM25: near})
    assert not all(row.agrees for row in compare_split(data, "NanoCMTEB", card, tolerance=1e-4))
    assert all(row.agrees for row in compare_split(data, "NanoCMTEB", card))


def test_a_set_is_found_by_name_or_folder(tmp_path, monkeypatch):
    folder = write_set(tmp_path / "NanoCMTEB", ["medical", "own"])
    monkeypatch.setenv("MEDTEB_DATA", str(tmp_path))
    by_name, by_folder = list(compare_set("NanoCMTEB")), list(compare_set(str(folder)))
    assert by_name == by_folder
    medical = [row for row in by_name if row.split == "medical"]
    assert next(row for row in medical if row.figure == "documents").published == 10_000
    assert not all(row.agrees for row in medical)
    assert all(row.agrees and row.published is None for row in by_name if row.split == "own")
    with pytest.raises(FolderError, match="no such folder, and no published set; these are NanoCMTEB, Nano"):
        list(compare_set(str(tmp_path / "absent")))


def test_a_folder_without_a_split_is_refused(tmp_path):
    (tmp_path / "corpus.jsonl").write_text('{"_id": "d", "text": "x"}\n', encoding="utf-8")
    with pytest.raises(FolderError, match="no Nano split"):
        list(compare_set(str(tmp_path)))


def test_the_command_prints_figures_that_differ(tmp_path, medteb):
    folder = write_set(tmp_path / "NanoCMTEB", ["medical"])
    code, out, _ = medteb("nano", "check", folder)
    assert code == 1
    assert "NanoCMTEB/medical  documents: 120 (published 10000)  DIFFERS" in out
    code, out, _ = medteb("nano", "check", write_set(tmp_path / "Own", ["s"]))
    assert code == 0
    assert "Own/s  safeguards: 1 (not published)" in out


def test_an_unreachable_set_says_where_to_put_a_copy(monkeypatch, medteb):
    def offline(*args):
        raise ConnectionError("Couldn't reach the Hub")

    monkeypatch.delenv("MEDTEB_DATA", raising=False)
    monkeypatch.setattr(compare, "load_hub", offline)
    code, _, error = medteb("nano", "check", "NanoCMTEB")
    assert code == 2
    assert error.startswith("medteb: error: NanoCMTEB, split ")
    assert "Couldn't reach the Hub" in error
    assert "hf download --repo-type dataset hakari-bench/NanoCMTEB --local-dir NanoCMTEB" in error


@pytest.mark.network
@pytest.mark.parametrize("name", ["NanoCMTEB", "NanoMedical"])
def test_the_published_data_have_the_published_figures(name, monkeypatch, online):
    monkeypatch.delenv("MEDTEB_DATA", raising=False)
    rows = list(compare_set(name))
    assert [row.to_text() for row in rows if not row.agrees] == []
