from __future__ import annotations

import pytest
from tests.medteb_mteb.folders.tables import append, problems_of, rows_of, write_rows

from medteb_mteb.folders import read_folder

KINDS = ["Retrieval", "Reranking", "STS", "PairClassification", "Classification", "Clustering"]


@pytest.mark.parametrize("kind", KINDS)
def test_type_is_found_from_the_files(make_folder, kind):
    folder = read_folder(make_folder(kind))
    assert folder.type == kind
    assert folder.name == f"tiny-{kind.lower()}"


def test_retrieval_content_is_what_the_files_say(make_folder):
    data = read_folder(make_folder("Reranking")).retrieval
    assert [document["id"] for document in data.corpus] == [f"d{i}" for i in range(1, 7)]
    assert data.queries[0] == {"id": "q1", "text": "感冒发烧吃什么药"}
    assert data.qrels == {"q1": {"d1": 1}, "q2": {"d2": 2, "d3": 1}, "q3": {"d4": 1}}
    assert data.top_ranked["q3"] == ["d6", "d5", "d4", "d3", "d2", "d1"]


def test_class_labels_become_ranks_and_keep_their_names(make_folder):
    records = read_folder(make_folder("Classification")).records
    assert [row["label"] for row in records["test"]] == [0, 1, 2, 0, 1, 2]
    assert {row["label"]: row["label_text"] for row in records["train"]} == {
        0: "科室0",
        1: "科室1",
        2: "科室2",
    }


def test_tsv_parquet_and_jsonl_give_the_same(make_folder):
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = make_folder("Retrieval")
    expected = read_folder(folder).retrieval
    for name in ("corpus", "queries"):
        rows = rows_of(folder / f"{name}.jsonl")
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet")
        (folder / f"{name}.jsonl").unlink()
    qrels = [line.split("\t") for line in (folder / "qrels" / "test.tsv").read_text().splitlines()[1:]]
    rows = [{"query-id": q, "corpus-id": d, "score": float(s)} for q, d, s in qrels]
    pq.write_table(pa.Table.from_pylist(rows), folder / "qrels" / "test.parquet")
    (folder / "qrels" / "test.tsv").unlink()
    assert read_folder(folder).retrieval == expected


def test_tsv_numbers_are_numbers(make_folder):
    folder = make_folder("STS")
    rows = rows_of(folder / "test.jsonl")
    (folder / "test.jsonl").unlink()
    lines = ["sentence1\tsentence2\tscore"]
    lines += [f"{row['sentence1']}\t{row['sentence2']}\t{row['score']}" for row in rows]
    (folder / "test.tsv").write_text("\r\n".join(lines), encoding="utf-8")
    assert read_folder(folder).records["test"] == rows


# Each case: task type, file to append to, what to append, and where and what the error must say.
CASES = [
    ("Retrieval", "corpus.jsonl", '{"_id": "d1", "text": "又一篇"}\n', "corpus.jsonl:7: duplicate _id 'd1'"),
    ("Retrieval", "corpus.jsonl", '{"_id": "d9", "title": "", "text": " "}\n', "corpus.jsonl:7: empty"),
    ("Retrieval", "corpus.jsonl", '{"_id": "d9", "body": "x"}\n', "corpus.jsonl:7: columns text are missing"),
    ("Retrieval", "corpus.jsonl", '{"_id": "", "text": "x"}\n', "corpus.jsonl:7: _id must be"),
    ("Retrieval", "corpus.jsonl", b'{"_id": "d9", "text": "\xe4\xb8"}\n', "corpus.jsonl:7: not valid UTF-8"),
    ("Retrieval", "corpus.jsonl", '{"_id": "d9", "text": "\\ud800"}\n', "corpus.jsonl:7: empty or unusable"),
    ("Retrieval", "corpus.jsonl", '{"_id": "d9",\n', "corpus.jsonl:7: malformed JSON"),
    ("Retrieval", "corpus.jsonl", "[1]\n", "corpus.jsonl:7: expected a JSON object"),
    ("Retrieval", "corpus.jsonl", '{"_id": %s}\n' % ("9" * 5000), "corpus.jsonl:7: a number of more digits"),
    (
        "Retrieval",
        "queries.jsonl",
        '{"_id": "q9", "text": "问"}\n',
        "queries.jsonl:4: query 'q9' has no judge",
    ),
    ("Retrieval", "qrels/test.tsv", "q1\tdX\t1\n", "qrels/test.tsv:6: corpus-id 'dX' is not in the corpus"),
    ("Retrieval", "qrels/test.tsv", "qX\td1\t1\n", "qrels/test.tsv:6: query-id 'qX' is not in the queries"),
    ("Retrieval", "qrels/test.tsv", "q1\td2\t0.5\n", "qrels/test.tsv:6: score must be a whole number"),
    ("Retrieval", "qrels/test.tsv", "q1\td1\t1\n", "qrels/test.tsv:6: ('q1', 'd1') is judged twice"),
    ("Retrieval", "qrels/test.tsv", "q1 d2 1\n", "qrels/test.tsv:6: 1 tab-separated cells"),
    ("Reranking", "top_ranked.jsonl", '{"query-id": "q1", "corpus-ids": ["d1"]}\n', ":4: a second list"),
    (
        "Reranking",
        "top_ranked.jsonl",
        '{"query-id": "qX", "corpus-ids": ["d1"]}\n',
        ":4: query-id 'qX' is not",
    ),
    (
        "STS",
        "test.jsonl",
        '{"sentence1": "a", "sentence2": "b", "score": "3"}\n',
        "test.jsonl:7: score must be",
    ),
    (
        "STS",
        "test.jsonl",
        '{"sentence1": "a", "sentence2": "b", "score": NaN}\n',
        "test.jsonl:7: score must be",
    ),
    (
        "STS",
        "test.jsonl",
        '{"sentence1": "", "sentence2": "b", "score": 1}\n',
        "test.jsonl:7: sentence1 must",
    ),
    (
        "PairClassification",
        "test.jsonl",
        '{"sentence1": "a", "sentence2": "b", "label": 2}\n',
        ":8: label must",
    ),
    (
        "Classification",
        "test.jsonl",
        '{"text": "x", "label": "科室9"}\n',
        "test.jsonl:7: label '科室9' does not",
    ),
    ("Classification", "train.jsonl", '{"text": "x", "label": 3}\n', "mixes numbers and text"),
    (
        "Clustering",
        "test.jsonl",
        '{"sentences": ["a"], "labels": ["b"]}\n',
        "test.jsonl:7: some rows hold one",
    ),
    ("Clustering", "test.jsonl", '{"sentences": "a", "labels": null}\n', "test.jsonl:7: labels must be"),
]


@pytest.mark.parametrize(("kind", "file", "text", "expected"), CASES)
def test_each_problem_is_reported_with_file_and_line(make_folder, kind, file, text, expected):
    folder = make_folder(kind)
    append(folder / file, text)
    error = problems_of(folder)
    assert any(expected in problem for problem in error.problems), error.problems


def test_parquet_problems_name_the_row(make_folder):
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = make_folder("STS")
    rows = rows_of(folder / "test.jsonl")
    rows[2]["sentence2"] = ""
    pq.write_table(pa.Table.from_pylist(rows), folder / "test.parquet")
    (folder / "test.jsonl").unlink()
    assert problems_of(folder).problems == ["test.parquet:row 3: sentence2 must be non-empty text, got ''"]


def test_queries_need_a_positive(make_folder):
    folder = make_folder("Retrieval")
    qrels = folder / "qrels" / "test.tsv"
    qrels.write_text(qrels.read_text().replace("q3\td4\t1", "q3\td4\t0"))
    assert problems_of(folder).problems == [
        "queries.jsonl:3: query 'q3' has no positive document (no qrels score above 0)"
    ]


def test_queries_of_another_split_are_left_out(make_folder):
    folder = make_folder("Retrieval")
    append(folder / "queries.jsonl", '{"_id": "q9", "text": "训练用的问题"}\n')
    (folder / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\nq9\td5\t1\n")
    data = read_folder(folder).retrieval
    assert "q9" not in {query["id"] for query in data.queries}
    assert len(data.queries) == 3
    assert [query["id"] for query in read_folder(folder, "train").retrieval.queries] == ["q9"]


def test_top_ranked_candidates_must_exist_and_cover_every_query(make_folder):
    folder = make_folder("Reranking")
    rows = rows_of(folder / "top_ranked.jsonl")
    rows[0]["corpus-ids"] = ["d1", "dX", "d1"]
    write_rows(folder / "top_ranked.jsonl", rows[:2])
    assert problems_of(folder).problems == [
        "top_ranked.jsonl:1: corpus-id 'dX' of query 'q1' is not in the corpus",
        "top_ranked.jsonl:1: corpus-id 'd1' is listed twice for query 'q1'",
        "queries.jsonl:3: query 'q3' has no top_ranked list",
    ]


def test_two_forms_of_the_qrels_must_agree(make_folder):
    folder = make_folder("Retrieval")
    rows = [
        {"query-id": "q1", "corpus-id": "d1", "score": 1},
        {"query-id": "q2", "corpus-id": "d2", "score": 2},
        {"query-id": "q2", "corpus-id": "d3", "score": 1},
        {"query-id": "q3", "corpus-id": "d4", "score": 1},
    ]
    write_rows(folder / "qrels" / "test.jsonl", rows)
    read_folder(folder)
    rows[0]["corpus-id"] = "d6"
    write_rows(folder / "qrels" / "test.jsonl", rows)
    (problem,) = problems_of(folder).problems
    assert "differs from qrels/test.jsonl in 2 judgements" in problem


def test_many_problems_are_counted_and_the_rest_summed_up(make_folder):
    folder = make_folder("Retrieval")
    for number in range(30):
        append(folder / "qrels" / "test.tsv", f"q1\tmissing{number}\t1\n")
        append(folder / "corpus.jsonl", f'{{"_id": "e{number}", "text": ""}}\n')
    error = problems_of(folder)
    assert error.total == 60
    assert len(error.problems) == 10  # five of each kind, so that neither hides the other
    assert str(error).endswith("... and 50 more")


def test_documents_with_only_a_title_are_fine(make_folder):
    folder = make_folder("Retrieval")
    append(folder / "corpus.jsonl", '{"_id": "d9", "title": "只有标题", "text": ""}\n')
    assert read_folder(folder).retrieval.corpus[-1] == {"id": "d9", "title": "只有标题", "text": ""}


def test_numbers_as_ids_are_written_out(make_folder):
    folder = make_folder("Retrieval")
    append(folder / "corpus.jsonl", '{"_id": 17, "title": null, "text": "数字编号"}\n')
    append(folder / "qrels" / "test.tsv", "q1\t17\t1\n")
    assert read_folder(folder).retrieval.qrels["q1"]["17"] == 1


def test_other_files_of_the_folder_are_ignored(make_folder):
    folder = make_folder("Retrieval")
    before = read_folder(folder)
    write_rows(folder / "train" / "queries.jsonl", [{"broken": True}])
    (folder / "judged_negatives.tsv").write_text("anything\n")
    (folder / "grades.tsv").write_text("anything\n")
    after = read_folder(folder)
    assert (after.retrieval, after.revision) == (before.retrieval, before.revision)


@pytest.mark.parametrize(
    ("removed", "expected"),
    [
        ("queries.jsonl", "no queries for split 'test'"),
        ("qrels/test.tsv", "no qrels for split 'test'"),
    ],
)
def test_missing_tables_say_what_was_expected(make_folder, removed, expected):
    folder = make_folder("Retrieval")
    (folder / removed).unlink()
    assert expected in str(problems_of(folder))


def test_unusable_folders_are_refused(tmp_path, make_folder):
    assert "no such folder" in str(problems_of(tmp_path / "nowhere"))
    (tmp_path / "empty").mkdir()
    assert "found nothing" in str(problems_of(tmp_path / "empty"))
    write_rows(tmp_path / "odd" / "test.jsonl", [{"question": "x", "answer": "y"}])
    assert "fit no single task type" in str(problems_of(tmp_path / "odd"))
    folder = make_folder("Classification")
    (folder / "train.jsonl").unlink()
    assert "needs a train split" in str(problems_of(folder))
    folder = make_folder("Retrieval")
    (folder / "corpus.tsv").write_text("_id\ttext\nd1\tx\n")
    assert "hold the same table" in str(problems_of(folder))


def test_real_sets_are_read(shared_data):
    types = {folder.name: read_folder(folder).type for folder in sorted((shared_data / "eval").iterdir())}
    assert types == {
        "cmedir-rerank": "Reranking",
        "cmedir-retrieval": "Retrieval",
        "cmedqa-rerank": "Reranking",
        "cmedqa-retrieval": "Retrieval",
        "cmedqq-sts": "STS",
        "cmedtc-classification": "Classification",
        "cmedtc-clustering": "Clustering",
        "toyhom-retrieval": "Retrieval",
    }
