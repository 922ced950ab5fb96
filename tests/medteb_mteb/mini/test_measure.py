"""Baselines of the cards: BM25 and bigram overlap, and the program that measures them."""

from __future__ import annotations

import json
import sys

import pytest

from medteb_mteb.mini import measure as measure_module
from medteb_mteb.mini.card import measured
from medteb_mteb.mini.measure import (
    average_precision,
    bm25_scores,
    main,
    measure,
    measure_reranking,
    measure_retrieval,
    measure_sts,
    ndcg_at_10,
    nonblank_jieba_words,
)
from medteb_mteb.mini.negatives import bigrams

DOCUMENTS = {"d4": "头疼发烧", "d1": "头疼怎么办", "d3": "咳嗽有痰", "d2": "发烧吃什么药"}
QUERIES = {"q1": "头疼怎么办呢", "q2": "咳嗽有痰吗"}


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture
def small(tmp_path):
    """A small edition: `small(**relevant)` writes the three tasks with the relevant documents by query."""

    def build(**relevant):
        for task in ("MedTEBRetrieval", "MedTEBReranking"):
            folder = tmp_path / "out" / task
            write(folder / "corpus.jsonl", [{"_id": n, "title": "", "text": t} for n, t in DOCUMENTS.items()])
            write(folder / "queries.jsonl", [{"_id": n, "text": t} for n, t in QUERIES.items()])
            lines = [f"{query}\t{name}\t1\n" for query, names in relevant.items() for name in names]
            (folder / "qrels").mkdir(exist_ok=True)
            (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))
        lists = [{"query-id": query, "corpus-ids": ["d2", "d3", "d4"]} for query in QUERIES]
        write(tmp_path / "out" / "MedTEBReranking" / "top_ranked.jsonl", lists)
        pairs = [("头疼怎么办", "头疼怎么办", 1.0), ("头疼怎么办", "发烧吃药", 0.0), ("咳嗽", "咳嗽", 1.0)]
        keys = ("sentence1", "sentence2", "score")
        sts = [dict(zip(keys, pair, strict=True)) for pair in pairs]
        write(tmp_path / "out" / "MedTEBSTS" / "test.jsonl", sts)
        return tmp_path / "out"

    return build


@pytest.mark.slow
def test_bm25_is_in_the_window(packaged):
    pytest.importorskip("bm25s")
    pytest.importorskip("jieba")
    ndcg = measure_retrieval(packaged / "MedTEBRetrieval", nonblank_jieba_words)
    assert 0.35 <= ndcg <= 0.60
    # Another version of jieba may cut a few words differently.
    assert ndcg == pytest.approx(measured()["MedTEBRetrieval"]["nDCG@10 of BM25 over jieba words"], abs=0.003)


@pytest.mark.slow
def test_recorded_baselines_are_those_of_the_packaged_data(packaged):
    for task, numbers in measure(packaged).items():
        assert numbers == pytest.approx(measured()[task], abs=0.003)


def test_measures_of_known_rankings_have_the_expected_values():
    assert ndcg_at_10(["a", "b", "c"], {"a"}) == 1.0
    assert ndcg_at_10(["x", "a"], {"a"}) == pytest.approx(0.63093, abs=1e-5)
    assert average_precision(["x", "a", "b"], {"a", "b"}) == pytest.approx((1 / 2 + 2 / 3) / 2)


def test_every_document_is_ranked_and_equal_scores_by_id(small):
    pytest.importorskip("bm25s")
    ranked = bm25_scores(small(q1=["d1"], q2=["d3"]) / "MedTEBRetrieval", bigrams)
    assert [name for name, _ in ranked["q1"]] == ["d1", "d4", "d2", "d3"]
    assert [name for name, _ in ranked["q2"]] == ["d3", "d1", "d2", "d4"]
    assert [score for _, score in ranked["q2"][1:]] == [0.0, 0.0, 0.0]


def test_baselines_are_means_over_the_queries(small):
    pytest.importorskip("bm25s")
    best = small(q1=["d1"], q2=["d3"])
    assert measure_retrieval(best / "MedTEBRetrieval", bigrams) == 1.0
    half = small(q1=["d1"], q2=["d1"])  # d1 is the second of q2
    assert measure_retrieval(half / "MedTEBRetrieval", bigrams) == pytest.approx((1 + 0.63093) / 2, abs=1e-5)
    # Of the candidates d2, d3 and d4 the first of q1 is d4, and d4 is the last of q2.
    listed = small(q1=["d4"], q2=["d4"])
    assert measure_reranking(listed / "MedTEBReranking", bigrams) == pytest.approx((1 + 1 / 3) / 2)


def test_overlap_of_equal_and_different_sentences_follows_their_labels(small):
    assert measure_sts(small(q1=["d1"], q2=["d3"]) / "MedTEBSTS") == pytest.approx(1.0)


def test_the_program_prints_the_baselines_and_records_them_on_request(small, tmp_path, monkeypatch, capsys):
    pytest.importorskip("bm25s")
    out = small(q1=["d1"], q2=["d3", "d4"])
    monkeypatch.setattr(measure_module, "nonblank_jieba_words", list)  # without a dictionary to load
    monkeypatch.setattr(measure_module, "__file__", str(tmp_path / "measure.py"))
    monkeypatch.setattr(sys, "argv", ["measure", str(out)])
    main()
    printed = json.loads(capsys.readouterr().out)
    assert printed == measure(out)
    assert {task: set(numbers) for task, numbers in printed.items()} == {
        task: set(numbers) for task, numbers in measured().items()
    }
    assert not (tmp_path / "measured.json").exists()
    monkeypatch.setattr(sys, "argv", ["measure", "--record", str(out)])
    main()
    assert (tmp_path / "measured.json").read_text("utf-8") == capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["measure", "--record"])
    with pytest.raises(SystemExit, match=r"usage: python -m medteb_mteb\.mini\.measure OUT"):
        main()
