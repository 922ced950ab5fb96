from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from mar_st.data import read_source
from mar_st.mining import BM25, Retrieved
from mar_st.mining.retrievers import best
from mar_st.recipes.schema import Data
from medteb_mteb.commands.round_trip import round_trip as round_trip_command
from medteb_mteb.curation.files.folder import read_json
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.training import RoundTrip, round_trip

LETTERS = "头疼发热吃什么药好呢感冒咳嗽怎么办高血压医生"


class Table:
    """A retriever whose scores depend on query and document alone, many of them equal."""

    name = "table"

    def __init__(self, stop=None):
        self.stop, self.prepared, self.asked = stop, 0, []

    def identity(self):
        return {"kind": "table"}

    def prepare(self, queries, corpus):
        self.prepared += 1
        self.queries, self.corpus = queries, corpus

    def scores(self, query, corpus):
        return np.array([random.Random(f"{query}\0{text}").randrange(40) for text in corpus], dtype=float)

    def search(self, rows, k, also):
        if self.stop is not None and len(self.asked) >= self.stop:
            raise KeyboardInterrupt
        self.asked += rows
        documents = np.full((len(rows), k), -1)
        for place, row in enumerate(rows):
            order = best(self.scores(self.queries[row], self.corpus), k)
            documents[place, : len(order)] = order
        return Retrieved(documents, np.zeros(documents.shape), [np.empty(0)] * len(rows))

    def score(self, rows, documents):
        raise AssertionError


def texts(number, seed):
    rng = random.Random(seed)
    drawn = {}
    while len(drawn) < number:
        drawn["".join(rng.choices(LETTERS, k=rng.randint(8, 16)))] = None
    return list(drawn)


@pytest.fixture
def pairs(tmp_path, write):
    """Sixty pairs of fifty queries, with ids; ten queries have two documents."""
    queries, documents = texts(50, 1), texts(60, 2)
    rows = [
        {"query": queries[n % 50], "positive": documents[n], "query-id": f"q{n}", "document-id": f"d{n}"}
        for n in range(60)
    ]
    return write(tmp_path / "pairs.jsonl", rows)


def naive_rank(table, row, rows, corpus):
    """Rank of a row's document in the whole ranking, its query's other documents left out."""
    others = {r["positive"] for r in rows if r["query"] == row["query"]} - {row["positive"]}
    scores = table.scores(row["query"], corpus)
    ranked = [corpus[place] for place in sorted(range(len(corpus)), key=lambda p: (-scores[p], p))]
    return [text for text in ranked if text not in others].index(row["positive"]) + 1


def test_the_kept_rows_equal_those_of_a_full_ranking(pairs, tmp_path, rows_of):
    report = round_trip(
        pairs, tmp_path / "out", Table(), RoundTrip(depth=9, top=25), shard=7, show_progress=False
    )
    rows, table = rows_of(pairs), Table()
    corpus = list(dict.fromkeys(row["positive"] for row in rows))
    ranks = [naive_rank(table, row, rows, corpus) for row in rows]
    kept, dropped = rows_of(tmp_path / "out/pairs.jsonl"), rows_of(tmp_path / "out/dropped.jsonl")
    assert [(r["query-id"], r["positives"], r["ranks"]) for r in kept] == [
        (row["query-id"], [row["positive"]], [rank])
        for row, rank in zip(rows, ranks, strict=True)
        if rank <= 9
    ]
    assert [(r["query-id"], r["document-id"], r["rank"], r["reason"]) for r in dropped] == [
        (row["query-id"], row["document-id"], rank if rank <= 25 else None,
         "beyond-depth" if rank <= 25 else "not-found")
        for row, rank in zip(rows, ranks, strict=True)
        if rank > 9
    ]  # fmt: skip
    assert 3 < len(kept) < 40
    assert (report.read, report.kept) == (60, len(kept))
    assert report.dropped == {
        "beyond-depth": sum(9 < rank <= 25 for rank in ranks),
        "not-found": sum(rank > 25 for rank in ranks),
    }
    assert report.ranks == {str(k): sum(rank <= k for rank in ranks) for k in (1, 3, 5, 10, 20)}
    manifest = read_json(tmp_path / "out/manifest.json")
    assert sorted(manifest["files"]) == ["dropped.jsonl", "pairs.jsonl"]


def test_a_negative_is_drawn_from_the_best_without_positives(pairs, tmp_path, rows_of):
    how = RoundTrip(depth=60, negatives=1, top=60, seed=1)
    round_trip(pairs, tmp_path / "out", Table(), how, show_progress=False)
    rows = rows_of(tmp_path / "out/triples.jsonl")
    given = rows_of(pairs)
    known = {row["query"]: {r["positive"] for r in given if r["query"] == row["query"]} for row in given}
    drawn = [(row["query"], *row["negatives"]) for row in rows]
    assert len(drawn) == 60
    assert all(len(row) == 2 and row[1] not in known[row[0]] for row in drawn)
    # Rows of one query get the same; another seed draws others.
    assert len(set(drawn)) == 50
    round_trip(pairs, tmp_path / "other", Table(), RoundTrip(60, 1, 60, 2), shard=9, show_progress=False)
    others = [(row["query"], *row["negatives"]) for row in rows_of(tmp_path / "other/triples.jsonl")]
    assert sum(one == other for one, other in zip(drawn, others, strict=True)) < 10
    # Only documents within the requested ranks are drawn.
    round_trip(pairs, tmp_path / "top", Table(), RoundTrip(3, 1, 3), show_progress=False)
    table, corpus = Table(), list(dict.fromkeys(row["positive"] for row in given))
    for row in rows_of(tmp_path / "top/triples.jsonl"):
        scores = table.scores(row["query"], corpus)
        ranked = [corpus[place] for place in best(scores, 10) if corpus[place] not in known[row["query"]]]
        assert row["negatives"][0] in ranked[:3]


def test_other_positives_of_a_query_take_no_rank_and_never_become_negatives(tmp_path, write, rows_of):
    rows = [
        {"query": "感冒多喝水", "positive": "感冒多喝水"},
        {"query": "感冒多喝水", "positive": "感冒要多喝水", "negatives": ["感冒多喝水", "感冒喝水的次数"]},
        {"query": "感冒多喝水", "positive": "口渴时喝水就够了"},
    ]
    write(tmp_path / "rows.jsonl", rows)
    report = round_trip(
        tmp_path / "rows.jsonl", tmp_path / "out", BM25(), RoundTrip(depth=1, top=1), show_progress=False
    )
    # The second is second to the first alone, and the third is behind a document that is not a positive.
    assert [row["positives"] for row in rows_of(tmp_path / "out/pairs.jsonl")] == [["感冒多喝水"]]
    (kept,) = rows_of(tmp_path / "out/triples.jsonl")
    assert (kept["positives"], kept["ranks"]) == (["感冒要多喝水"], [1])
    assert kept["negatives"] == ["感冒喝水的次数"]
    assert report.dropped == {"not-found": 1}


@pytest.mark.thorough
@pytest.mark.parametrize("stop", [1, 14, 50])
def test_resumed_equals_uninterrupted(pairs, tmp_path, content, stop):
    options = {"shard": 7, "show_progress": False}
    how = RoundTrip(depth=9, negatives=2, top=25)
    round_trip(pairs, tmp_path / "whole", Table(), how, **options)
    with pytest.raises(KeyboardInterrupt):
        round_trip(pairs, tmp_path / "out", Table(stop), how, **options)
    again = Table()
    round_trip(pairs, tmp_path / "out", again, how, **options)
    assert len(again.asked) == 60 - -(-stop // 7) * 7
    assert content(tmp_path / "out") == content(tmp_path / "whole")
    finished = Table()
    report = round_trip(pairs, tmp_path / "out", finished, how, **options)
    assert (finished.prepared, report.read) == (0, 60)
    with pytest.raises(BuildError, match="step round-trip with other settings"):
        round_trip(pairs, tmp_path / "out", Table(), RoundTrip(depth=8), **options)


def test_rows_keep_their_other_fields(tmp_path, write, rows_of):
    rows = [
        {"query": "感冒多喝水", "positives": ["感冒要多喝水", "完全无关的一段"], "negatives": ["糖尿病"],
         "instruction": "找出答案", "source": "写的", "query-id": 1},
        {"query": "高血压饮食", "positives": ["感冒与休息"], "query-id": 2},
    ]  # fmt: skip
    report = round_trip(
        write(tmp_path / "rows.jsonl", rows[:1]), tmp_path / "out", BM25(), show_progress=False
    )
    (kept,) = rows_of(tmp_path / "out/triples.jsonl")
    assert kept == {**rows[0], "positives": ["感冒要多喝水"], "ranks": [1]}
    assert rows_of(tmp_path / "out/dropped.jsonl") == [
        {
            "query": "感冒多喝水",
            "positive": "完全无关的一段",
            "query-id": 1,
            "reason": "not-found",
            "rank": None,
        }
    ]
    assert (report.read, report.kept, report.rows["kept"]) == (2, 1, 1)
    # A row that loses all is only among the dropped.
    round_trip(write(tmp_path / "rest.jsonl", rows[1:]), tmp_path / "none", BM25(), show_progress=False)
    assert not (tmp_path / "none/pairs.jsonl").exists()
    assert read_json(tmp_path / "none/manifest.json")["kept"] == 0


def test_a_corpus_makes_it_harder(tmp_path, write, rows_of):
    pair = {"query": "高血压饮食", "positive": "高血压患者宜低盐。", "document-id": "d"}
    write(tmp_path / "pairs.jsonl", [pair])
    write(tmp_path / "corpus.jsonl", [{"_id": f"c{i}", "text": f"高血压饮食第{i}条"} for i in range(3)])
    alone = round_trip(tmp_path / "pairs.jsonl", tmp_path / "a", BM25(), show_progress=False)
    report = round_trip(
        tmp_path / "pairs.jsonl", tmp_path / "b", BM25(), documents=tmp_path / "corpus.jsonl",
        show_progress=False,
    )  # fmt: skip
    assert (alone.kept, report.kept, report.rows["documents"]) == (1, 0, 4)
    assert rows_of(tmp_path / "b/dropped.jsonl")[0]["rank"] == 4


@pytest.mark.parametrize("settings", [{"depth": 0}, {"depth": 101}, {"negatives": 101}, {"negatives": -1}])
def test_impossible_settings_are_refused(settings):
    with pytest.raises(BuildError, match="depth must be between 1 and top"):
        RoundTrip(**settings)


@pytest.mark.thorough
def test_the_command_takes_a_model_and_writes_rows_that_mar_reads(command, tmp_path, write, monkeypatch):
    import mar_st

    model = Path(str(mar_st.__file__)).parent / "models" / "mar-mini"
    monkeypatch.chdir(tmp_path)
    subjects = ["感冒发烧", "高血压", "糖尿病", "偏头痛", "胃酸过多"]
    rows = [{"query": f"{s}吃什么药", "positive": f"{s}患者可遵医嘱服用药物。"} for s in subjects]
    write(tmp_path / "pairs.jsonl", rows)
    args = ["pairs.jsonl", "out", "-r", model, "--negatives", "1", "-q"]
    code, out, _ = command(round_trip_command, *args)
    assert code == 0
    assert "5 of 5 pairs kept (100.0%), 5 rows" in out
    assert "5 negatives; 0 rows without any" in out
    source = read_source(Data(name="mined", path="out", prompt="", negatives=1), 42)
    assert [(t.query, t.positives) for t in source.triples] == [(r["query"], (r["positive"],)) for r in rows]
    assert all(len(t.negatives) == 1 for t in source.triples)
    code, again, _ = command(round_trip_command, *args)
    assert (code, again) == (0, out)
