"""Training rows of judged queries: triples, pairs, and queries left out with a reason."""

from __future__ import annotations

import pytest

from medteb_mteb.curation.llm import Prompt
from medteb_mteb.curation.training.answer import Lists
from medteb_mteb.curation.training.plan import Batch, QueryCandidates, TwoLists
from medteb_mteb.curation.training.rows import ShardRows, TripleWriter

TEXTS = {f"d{number}": f"文档{number}" for number in range(20)}


def added(answers, failed=None, documents=None, parts=None, rows=None, query="q", **settings):
    """The rows of one query.

    Args:
        answers: Answer by number of the prompt.
        failed: Reason by number of a failed prompt.
        documents: Candidates, best ranked first.
        parts: Documents of each prompt; `None` is the control document.
    """
    documents = documents or ("d0", "d1", "d2", "d3")
    parts = parts or [documents]
    batches = [
        Batch(str(number), query, tuple(part), Prompt(str(number), "", "", {}, 1))
        for number, part in enumerate(parts)
    ]
    rows = rows or ShardRows()
    TripleWriter(TEXTS, TwoLists(**settings)).add(
        rows,
        QueryCandidates(query, "痛风能喝酒吗", tuple(documents)),
        batches,
        {str(number): lists for number, lists in answers.items()},
        {str(number): reason for number, reason in (failed or {}).items()},
    )
    return rows


def filled(rows):
    return {name for name, some in rows.files.items() if some}


def test_the_documents_of_all_prompts_make_one_triple_in_the_order_of_the_pool():
    parts = [("d3", None, "d1"), ("d2", "d0")]
    rows = added({0: Lists((2,), (0,)), 1: Lists((1,), (0,))}, parts=parts)
    assert rows.files["triples"] == [
        {
            "query": "痛风能喝酒吗",
            "positives": ["文档0", "文档1"],
            "negatives": ["文档2", "文档3"],
            "query-id": "q",
            "positive-ids": ["d0", "d1"],
            "negative-ids": ["d2", "d3"],
        }
    ]
    labels = [(row["corpus-id"], row["relevance"]) for row in rows.files["labels"]]
    assert labels == [("d0", 1), ("d1", 1), ("d2", 0), ("d3", 0)]
    assert filled(rows) == {"triples", "labels"}
    assert (rows.counts["prompts"], rows.counts["triples"], rows.counts["positives"]) == (2, 1, 2)


def test_a_query_without_negatives_is_a_pair():
    rows = added({0: Lists((0, 1), (), (2, 3))})
    (pair,) = rows.files["pairs"]
    assert pair["positive-ids"] == ["d0", "d1"]
    assert not {"negatives", "negative-ids"} & set(pair)
    assert filled(rows) == {"pairs", "labels"}
    assert (rows.counts["pairs"], rows.counts["triples"], rows.counts["unlabelled"]) == (1, 0, 2)


@pytest.mark.parametrize(
    ("answers", "failed", "reason", "labels"),
    [
        ({0: Lists((), (0, 1))}, {1: "no-json"}, "no-positive", 2),
        ({}, {0: "no-json", 1: "both"}, "no-answer", 0),
    ],
)
def test_a_query_without_a_positive_is_dropped_with_the_reason(answers, failed, reason, labels):
    rows = added(answers, failed, parts=[("d0", "d1"), ("d2", "d3")])
    assert rows.files["dropped"] == [{"query-id": "q", "query": "痛风能喝酒吗", "reason": reason}]
    assert rows.counts[f"dropped:{reason}"] == 1
    assert len(rows.files["labels"]) == labels
    assert not {"triples", "pairs"} & filled(rows)


def test_a_failed_prompt_is_listed_without_its_control_document_and_the_others_count():
    rows = added({1: Lists((0,), (1,))}, {0: "control"}, parts=[("d2", None, "d3"), ("d0", "d1")])
    assert rows.files["failed"] == [{"query-id": "q", "corpus-ids": ["d2", "d3"], "reason": "control"}]
    assert rows.counts["failed:control"] == 1
    (triple,) = rows.files["triples"]
    assert (triple["positive-ids"], triple["negative-ids"]) == (["d0"], ["d1"])


def test_negatives_beyond_the_limit_are_the_worst_ranked_ones_or_a_draw():
    documents = tuple(TEXTS)
    answer = {0: Lists((4,), tuple(number for number in range(20) if number != 4))}

    def negatives(**settings):
        rows = added(answer, documents=documents, **settings)
        assert rows.counts["negatives"] + rows.counts["negatives beyond the limit"] == 19
        return rows.files["triples"][0]["negative-ids"]

    assert negatives(negatives=5) == ["d0", "d1", "d2", "d3", "d5"]
    drawn = negatives(negatives=5, choose="random")
    assert drawn == negatives(negatives=5, choose="random")
    assert drawn == sorted(drawn, key=documents.index)
    draws = {
        tuple(names)
        for seed in range(5)
        for names in [negatives(negatives=5, choose="random", seed=seed)]
        if len(set(names)) == 5
    }
    assert len(draws) == 5
    assert "d4" not in {name for names in draws for name in names}
    assert negatives(negatives=19, choose="random") == negatives(negatives=30)


def test_rows_of_a_shard_add_up_over_its_queries():
    rows = added({0: Lists((0,), (1,))}, query="a")
    added({0: Lists((), (0,))}, query="b", rows=rows)
    rows.drop("c", "湿疹", "repeated", "a")
    assert [row["query-id"] for row in rows.files["triples"]] == ["a"]
    assert rows.files["dropped"][1:] == [
        {"query-id": "c", "query": "湿疹", "reason": "repeated", "detail": "a"}
    ]
    assert {name: n for name, n in rows.counts.items() if name.startswith("dropped:")} == {
        "dropped:no-positive": 1,
        "dropped:repeated": 1,
    }
