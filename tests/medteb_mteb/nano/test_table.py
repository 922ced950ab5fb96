"""The published figures: against the task cards, against each other, and against the raw queries."""

from __future__ import annotations

import json
from pathlib import Path

import mteb
import pytest

from medteb_mteb.curation.nano.sample import select_queries
from medteb_mteb.nano.table import BM25, DENSE, HYBRID, published_sets

SOURCES = Path(__file__).resolve().parents[4] / "shared" / "data" / "sources"
SPLITS = [split for nano in published_sets().values() for split in nano.splits.values()]
LISTS = {BM25: "bm25", DENSE: "dense", HYBRID: "reranking_hybrid"}


def by_name(split):
    return f"{split.set}-{split.name}"


@pytest.fixture
def hakari():
    if not (SOURCES / "hakari").is_dir():
        pytest.skip(f"no task cards at {SOURCES / 'hakari'}")
    return SOURCES / "hakari"


@pytest.mark.parametrize("split", SPLITS, ids=by_name)
def test_figures_are_those_of_the_task_card(split, hakari):
    card = json.loads((hakari / split.set / f"{split.name}.json").read_text("utf-8"))["task_metadata"]
    assert card["dataset_id"] == published_sets()[split.set].hub
    assert card["language"] == split.language_as_published
    assert card["counts"] == {
        "queries": split.queries,
        "documents": split.documents,
        "positive_qrels": split.positives,
    }
    assert card["positives_per_query"]["max"] == split.most_positives
    assert card["positives_per_query"]["multi_positive_queries"] == split.queries_with_several
    assert card["text_stats_chars"] == {
        "query_mean": split.query_mean_chars,
        "document_mean": split.document_mean_chars,
    }
    for name, key in LISTS.items():
        theirs, ours = card["candidate_subsets"][key], split.lists[name]
        assert theirs["config"] == name
        assert ours.ndcg_at_10 == pytest.approx(theirs["ndcg_at_10"], abs=5e-11)  # printed with ten digits
        assert ours.hit_at_10 == theirs["hit_at_10"]
        assert ours.recall_micro_at_100 == theirs["recall_at_100"]
        assert (ours.shortest, ours.longest) == (theirs["candidate_count_min"], theirs["candidate_count_max"])
        assert ours.mean_length == theirs["candidate_count_mean"]
    assert split.safeguards == card["candidate_subsets"]["reranking_hybrid"]["safeguard_positive_rows"]
    assert [list(pair) for pair in split.examples] == [
        [example["query_id"], example["document_id"]] for example in card["examples"]
    ]


def test_every_card_is_in_the_table(hakari):
    cards = {f"{path.parent.name}-{path.stem}" for path in hakari.glob("*/*.json")}
    assert cards == {by_name(split) for split in SPLITS}


def test_the_sets_have_the_published_sizes():
    sets = published_sets()
    cmteb = list(sets["NanoCMTEB"].splits.values())
    assert len(cmteb) == 8
    assert sum(split.queries for split in cmteb) == 1600
    assert sum(split.documents for split in cmteb) == 80_000
    assert sum(split.positives for split in cmteb) == 3208
    assert len(sets["NanoMedical"].splits) == 10
    assert sum(split.queries for split in sets["NanoMedical"].splits.values()) == 1586


@pytest.mark.parametrize("split", SPLITS, ids=by_name)
def test_safeguards_follow_from_lengths_and_recall(split):
    hybrid = split.lists[HYBRID]
    size = min(100, split.documents)
    assert split.safeguards == pytest.approx(split.queries * (hybrid.mean_length - size))
    missed = split.positives * (1 - hybrid.recall_micro_at_100)
    assert missed == pytest.approx(round(missed), abs=1e-6)  # a whole number of positives was missed
    assert split.safeguards <= round(missed)
    if split.most_positives == 1:
        assert split.safeguards == round(missed)
    assert hybrid.longest == size + bool(split.safeguards)


def test_one_positive_per_query_gives_35_safeguards_in_medical():
    split = published_sets()["NanoCMTEB"].splits["medical"]
    assert split.safeguards == round(200 * (1 - 0.825)) == 35


@pytest.mark.parametrize("split", SPLITS, ids=by_name)
def test_sources_are_mtebs_tasks(split):
    source = mteb.get_task(split.task).metadata
    if split.source_revision is not None:
        assert source.dataset == {"path": split.source, "revision": split.source_revision}
        assert source.eval_splits == [split.source_split]
    else:
        assert split.source is None
    assert split.language in source.languages or split.language.split("-")[0] in source.languages


@pytest.mark.parametrize("name", ["medical", "ecom", "video"])
def test_the_first_queries_of_the_source_are_the_published_ones(name):
    folder = SOURCES / "multi-cpr" / name
    if not folder.is_dir():
        pytest.skip(f"no queries at {folder}")
    queries = [line.split("\t", 1) for line in (folder / "dev.query.txt").read_text("utf-8").splitlines()]
    rows = [line.split() for line in (folder / "qrels.dev.tsv").read_text("utf-8").splitlines()]
    qrels = [(query, document, float(score)) for query, _, document, score in rows]
    selected = select_queries(((key, text.strip()) for key, text in queries), qrels)
    split = published_sets()["NanoCMTEB"].splits[name]
    assert len(selected) == split.queries == 200
    assert sum(map(len, selected.values())) / 200 == pytest.approx(split.query_mean_chars, abs=1e-9)
    positives = [(query, document) for query, document, score in qrels if query in selected and score > 0]
    assert len(positives) == split.positives
    assert set(split.examples) <= set(positives)
    assert {"medical": 18.12, "ecom": 6.885, "video": 7.07}[name] == split.query_mean_chars
