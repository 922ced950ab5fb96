"""Tables of retrieval and reranking folders, whole and broken."""

from __future__ import annotations

import json

import pytest
from tests.medteb_mteb.folders.tables import append, problems_of, rows_of, write_rows

from medteb_mteb.folders import inspect_folder, read_folder
from medteb_mteb.folders.problems import Problems
from medteb_mteb.folders.retrieval import collect_retrieval


def collected(folder):
    """The data and the problems of a folder that may be broken."""
    problems = Problems(folder)
    return collect_retrieval(inspect_folder(folder, check_manifest=False), problems), problems.shown


def test_qrels_of_c_mteb_and_of_trec_are_those_of_the_hub(make_folder):
    folder = make_folder("Retrieval")
    expected = read_folder(folder).retrieval
    lines = (folder / "qrels" / "test.tsv").read_text().splitlines()[1:]
    (folder / "qrels" / "test.tsv").unlink()
    rows = [dict(zip(("q_id", "p_id", "score"), line.split("\t"), strict=True)) for line in lines]
    write_rows(folder / "qrels" / "test.jsonl", [{**row, "score": int(row["score"])} for row in rows])
    assert read_folder(folder).retrieval == expected
    (folder / "qrels" / "test.jsonl").unlink()
    trec = [f"{row['q_id']} 0 {row['p_id']} {row['score']}\n" for row in rows]
    (folder / "qrels" / "test.trec").write_text("".join(trec))
    assert read_folder(folder).retrieval == expected


@pytest.mark.parametrize("score", ["0.5", "nan", "1_0", str(2**31), "", "one"])
def test_a_score_is_a_whole_number_of_32_bits(make_folder, score):
    folder = make_folder("Retrieval")
    append(folder / "qrels" / "test.tsv", f"q1\td2\t-1\nq1\td3\t{2**31 - 1}\nq1\td4\t2.0\n")
    assert read_folder(folder).retrieval.qrels["q1"] == {"d1": 1, "d2": -1, "d3": 2**31 - 1, "d4": 2}
    append(folder / "qrels" / "test.tsv", f"q1\td5\t{score}\n")
    assert problems_of(folder).problems == [f"qrels/test.tsv:9: score must be a whole number, got {score!r}"]


def test_ids_that_are_written_alike_are_one_id(make_folder):
    folder = make_folder("Retrieval")
    append(
        folder / "corpus.jsonl",
        '{"_id": 7, "text": "a"}\n{"_id": "7", "text": "b"}\n{"id": "07", "text": "c"}\n',
    )
    assert problems_of(folder).problems == ["corpus.jsonl:8: duplicate _id '7' (first in corpus.jsonl:7)"]


def test_a_missing_header_of_the_qrels_is_suspected(make_folder):
    folder = make_folder("Retrieval")
    qrels = folder / "qrels" / "test.tsv"
    qrels.write_text("".join(qrels.read_text().splitlines(keepends=True)[1:]))
    message = "columns query-id, corpus-id, score are missing; got q1, d1, 1 (is the header line missing?)"
    assert any(message in problem for problem in problems_of(folder).problems)


@pytest.mark.parametrize(
    ("row", "kept"),
    [
        ({"text": "\ud800"}, {"title": "", "text": "?"}),
        ({"title": "\udfff题", "text": "文"}, {"title": "?题", "text": "文"}),
        ({"text": None}, {"title": "", "text": ""}),
        ({"text": " "}, {"title": "", "text": " "}),
    ],
)
def test_a_text_that_utf8_cannot_hold_is_a_problem_and_does_not_stop_a_report(make_folder, row, kept):
    folder = make_folder("Retrieval")
    append(folder / "corpus.jsonl", json.dumps({"_id": "d9", **row}) + "\n")
    data, (problem,) = collected(folder)
    assert problem.startswith("corpus.jsonl:7: empty or unusable text: ")
    assert data.corpus[-1] == {"id": "d9", **kept}


def test_a_candidate_list_is_read_in_its_order_and_only_for_judged_queries(make_folder):
    folder = make_folder("Reranking")
    append(folder / "queries.jsonl", '{"_id": "q9", "text": "问"}\n')
    append(folder / "top_ranked.jsonl", '{"query-id": "q9", "corpus-ids": ["d2", "d1"]}\n')
    (folder / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq9\td1\t1\n")
    assert set(read_folder(folder).retrieval.top_ranked) == {"q1", "q2", "q3"}
    assert read_folder(folder, "dev").retrieval.top_ranked == {"q9": ["d2", "d1"]}


@pytest.mark.parametrize("config", ["default", "qrels"])
def test_queries_of_other_declared_splits_are_left_out(make_folder, config):
    folder = make_folder("Retrieval")
    expected = read_folder(folder).retrieval
    (folder / "data").mkdir()
    (folder / "qrels" / "test.tsv").rename(folder / "data" / "test-0.tsv")
    (folder / "data" / "train-0.tsv").write_text("query-id\tcorpus-id\tscore\nq9\td1\t1\n")
    splits = [{"split": name, "path": f"data/{name}-*"} for name in ("train", "test", "dev")]
    card = {"configs": [{"config_name": config, "data_files": splits}]}
    (folder / "README.md").write_text(f"---\n{json.dumps(card)}\n---\n")
    append(folder / "queries.jsonl", '{"_id": "q9", "text": "问"}\n')
    assert read_folder(folder).retrieval == expected
    append(folder / "queries.jsonl", '{"_id": "q10", "text": "问"}\n')
    assert problems_of(folder).problems == ["queries.jsonl:5: query 'q10' has no judgement in the qrels"]


@pytest.mark.parametrize("ids", [[], "d1", None, [None], [["d1"]], [""], {"d1": 1}, [1.5]])
def test_candidates_are_a_list_of_ids(make_folder, ids):
    folder = make_folder("Reranking")
    rows = rows_of(folder / "top_ranked.jsonl")
    write_rows(folder / "top_ranked.jsonl", [{**rows[0], "corpus-ids": ids}, *rows[1:]])
    assert problems_of(folder).problems == [
        f"top_ranked.jsonl:1: corpus-ids must be a non-empty list of ids, got {ids!r}",
        "queries.jsonl:1: query 'q1' has no top_ranked list",
    ]
