"""Any folder as a task: what is read, what is refused, and that mteb scores it."""

from __future__ import annotations

import gzip
import json
import logging
import os
import shutil

import mteb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conftest import read_jsonl, write_jsonl, write_judged

from mar_st.errors import MarError
from medteb_mteb.editions import read_provenance, write_manifest
from medteb_mteb.folders.content import read_folder
from medteb_mteb.folders.layout import FolderError, inspect_folder
from medteb_mteb.folders.tasks import load_into, task_from_folder

MAIN_SCORES = {
    "Retrieval": "ndcg_at_10",
    "Reranking": "map_at_1000",
    "STS": "cosine_spearman",
    "PairClassification": "max_ap",
    "Classification": "accuracy",
    "Clustering": "v_measure",
}


def append(path, text):
    with path.open("ab") as stream:
        stream.write(text if isinstance(text, bytes) else text.encode())


def problems_of(folder):
    with pytest.raises(FolderError) as caught:
        read_folder(folder)
    return caught.value


def card(folder, **header):
    (folder / "README.md").write_text(f"---\n{json.dumps(header)}\n---\n", encoding="utf-8")


@pytest.mark.parametrize("kind", list(MAIN_SCORES))
def test_a_folder_of_every_type_is_scored_by_mteb(make_folder, kind):
    folder = make_folder(kind)
    task = task_from_folder(folder)
    assert (task.metadata.name, task.metadata.type) == (folder.name, kind)
    assert task.metadata.main_score == MAIN_SCORES[kind]
    assert type(task)().metadata.revision == read_folder(folder).revision == task.metadata.revision
    result = mteb.evaluate(mteb.get_model("bm25-char-bigram"), task, cache=None, show_progress_bar=False)
    assert 0 <= result.task_results[0].get_score() <= 1


def test_the_content_is_that_of_the_files(make_folder):
    data = read_folder(make_folder("Reranking")).retrieval
    assert data.corpus[0] == {"id": "d1", "title": "", "text": data.corpus[0]["text"]}
    assert [query["id"] for query in data.queries] == ["q1", "q2", "q3"]
    assert data.qrels["q2"] == {"d2": 2, "d3": 1}
    assert data.top_ranked["q1"] == ["d6", "d5", "d4", "d3", "d2", "d1"]
    records = read_folder(make_folder("Classification")).records
    assert sorted({row["label"] for row in records["test"]}) == [0, 1, 2]


@pytest.mark.parametrize(
    ("kind", "file", "text", "expected"),
    [
        ("Retrieval", "corpus.jsonl", b'{"_id": "d9", "text": "\xe4\xb8"}\n', "corpus.jsonl:7"),
        ("Retrieval", "corpus.jsonl", '{"_id": "d9",\n', "corpus.jsonl:7"),
        ("Retrieval", "corpus.jsonl", '{"_id": "d1", "text": "x"}\n', "first in corpus.jsonl:1)"),
        ("Retrieval", "corpus.jsonl", '{"_id": "d9", "text": " "}\n', "corpus.jsonl:7: empty"),
        ("Retrieval", "corpus.jsonl", '{"id": null, "text": "x"}\n', "corpus.jsonl:7: _id must be"),
        ("Retrieval", "corpus.jsonl", '{"_id": "d9"}\n', "columns text are missing"),
        ("Retrieval", "queries.jsonl", '{"_id": "q9", "text": "x"}\n', "'q9' has no judgement"),
        ("Retrieval", "qrels/test.tsv", "q1\tdX\t1\n", "corpus-id 'dX' is not in the corpus"),
        ("Retrieval", "qrels/test.tsv", "qX\td1\t1\n", "query-id 'qX' is not in the queries"),
        ("Retrieval", "qrels/test.tsv", "q1\td2\t0.5\n", "score must be a whole number"),
        ("Retrieval", "qrels/test.tsv", "q1\td1\t1\n", "judged twice"),
        ("Reranking", "top_ranked.jsonl", '{"query-id": "q1", "corpus-ids": ["d1"]}\n', "has two lists"),
        ("STS", "test.jsonl", '{"sentence1": "a", "sentence2": "b", "score": "x"}\n', "a finite"),
        ("STS", "test.jsonl", '{"sentence1": "", "sentence2": "b", "score": 1}\n', "non-empty"),
        ("PairClassification", "test.jsonl", '{"sentence1": "a", "sentence2": "b", "label": 2}\n', "0 or 1"),
        ("Classification", "test.jsonl", '{"text": "x", "label": "neu"}\n', "'neu' does not occur"),
    ],
)  # fmt: skip
def test_each_problem_is_reported_with_its_place(make_folder, kind, file, text, expected):
    folder = make_folder(kind)
    append(folder / file, text)
    assert expected in str(problems_of(folder))


def test_all_problems_are_listed_at_once_and_one_mistake_does_not_hide_others(make_folder):
    folder = make_folder("Retrieval")
    append(folder / "corpus.jsonl", "".join(f'{{"_id": "e{i}", "text": ""}}\n' for i in range(30)))
    append(folder / "queries.jsonl", '{"_id": "q9", "text": "x"}\n')
    error = str(problems_of(folder))
    assert ": 31 problems\n" in error
    assert error.count("empty") == 5
    assert "'q9' has no judgement" in error
    assert "and 25 more" in error


def test_a_query_needs_a_positive_and_a_list(make_folder):
    folder = make_folder("Reranking")
    write_judged(folder, [("q1", "d1", 1), ("q2", "d2", 0), ("q3", "d4", 1)])
    write_jsonl(folder / "top_ranked.jsonl", read_jsonl(folder / "top_ranked.jsonl")[:1])
    text = str(problems_of(folder))
    assert "'q2' has no positive document" in text
    assert "'q3' has no top_ranked list" in text


@pytest.mark.parametrize("form", ["trec", "jsonl", "c-mteb"])
def test_qrels_are_read_in_other_forms(make_folder, form):
    folder = make_folder("Retrieval")
    expected = read_folder(folder).retrieval.qrels
    pairs = [(q, d, score) for q, row in expected.items() for d, score in row.items()]
    (folder / "qrels" / "test.tsv").unlink()
    if form == "trec":
        (folder / "qrels" / "test.trec").write_text("".join(f"{q} 0 {d} {s}\n" for q, d, s in pairs))
    else:
        names = ("q_id", "p_id", "score") if form == "c-mteb" else ("query-id", "corpus-id", "score")
        write_jsonl(folder / "qrels" / "test.jsonl", [dict(zip(names, one, strict=True)) for one in pairs])
    assert read_folder(folder).retrieval.qrels == expected


def test_tables_of_a_clinic_are_read(make_folder):
    folder = make_folder("Retrieval")
    expected = read_folder(folder).retrieval
    tables = {name: read_jsonl(folder / f"{name}.jsonl") for name in ("corpus", "queries")}
    judged = [(q, d, s) for q, row in expected.qrels.items() for d, s in row.items()]
    tables["qrels"] = [dict(zip(("query-id", "corpus-id", "score"), one, strict=True)) for one in judged]
    shutil.rmtree(folder / "qrels")
    for name, rows in tables.items():
        lines = [",".join(map(str, row)) for row in (rows[0], *(one.values() for one in rows))]
        (folder / f"{name}.jsonl").unlink(missing_ok=True)
        (folder / f"{name}.csv.gz").write_bytes(gzip.compress("\r\n".join(lines).encode("gb18030")))
    assert read_folder(folder).retrieval == expected


@pytest.mark.parametrize("name", ["README.md", "manifest.json", "provenance.json", "corpus.jsonl"])
def test_a_pipe_in_the_place_of_a_file_is_refused(make_folder, name):
    folder = make_folder("Retrieval")
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with pytest.raises(MarError, match=name.partition(".")[0]):
        read_provenance(folder) if name == "provenance.json" else read_folder(folder)


def test_parquet_shards_and_files_declared_by_the_card_are_read(make_folder):
    folder = make_folder("Retrieval")
    expected = read_folder(folder).retrieval
    rows = read_jsonl(folder / "corpus.jsonl")
    (folder / "corpus.jsonl").unlink()
    (folder / "corpus").mkdir()
    for number, part in enumerate((rows[:3], rows[3:])):
        pq.write_table(pa.Table.from_pylist(part), folder / f"corpus/test-0000{number}-of-00002.parquet")
    (folder / "queries.jsonl").rename(folder / "asked.jsonl")
    files = [{"split": "test", "path": "asked.jsonl"}]
    card(folder, configs=[{"config_name": "queries", "data_files": files}])
    assert read_folder(folder).retrieval == expected


@pytest.mark.parametrize(
    "path", ["../outside.jsonl", "/etc/passwd", "link.jsonl", "absent-*.jsonl", "x" * 300]
)
def test_declared_files_must_be_inside_and_there(make_folder, tmp_path, path):
    folder = make_folder("STS")
    (tmp_path / "outside.jsonl").write_text("{}\n")
    (folder / "link.jsonl").symlink_to(tmp_path / "outside.jsonl")
    card(folder, configs=[{"config_name": "default", "data_files": [{"split": "test", "path": path}]}])
    with pytest.raises(FolderError):
        inspect_folder(folder)


def test_two_forms_of_one_table_are_refused(make_folder):
    folder = make_folder("STS")
    (folder / "test.tsv").write_text("sentence1\tsentence2\tscore\na\tb\t1\n")
    with pytest.raises(FolderError, match="hold the same table"):
        read_folder(folder)


def test_queries_of_another_split_are_left_out(make_folder):
    folder = make_folder("Retrieval")
    append(folder / "queries.jsonl", '{"_id": "q9", "text": "x"}\n')
    (folder / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq9\td1\t1\n")
    assert [query["id"] for query in read_folder(folder).retrieval.queries] == ["q1", "q2", "q3"]
    assert [query["id"] for query in read_folder(folder, "dev").retrieval.queries] == ["q9"]


def test_judged_pairs_are_negatives_or_disputed(make_folder):
    folder = make_folder("Retrieval")
    pairs = "query-id\tcorpus-id"
    (folder / "labels.tsv").write_text(
        f"{pairs}\tscore\nq1\td2\t0\nq1\tgone\t0\nq1\td3\t0\nq1\td1\t0\nq1\td4\t-1\n"
    )
    (folder / "grades.tsv").write_text(f"{pairs}\tgrade\nq2\td5\tC\nq2\td2\tS\n")
    (folder / "disputed.tsv").write_text(f"{pairs}\nq1\td5\nq1\td2\n")
    judged = read_folder(folder).retrieval.judged
    assert judged.negatives == {"q1": {"d2", "d3"}, "q2": {"d5"}}
    assert judged.disputed == {"q1": {"d5"}}  # d2 was decided
    assert (judged.contradictions, judged.dangling) == (1, 1)


def test_settings_of_the_card_reach_the_metadata(make_folder):
    folder = make_folder("STS")
    settings = {"name": "Mine", "main_score": "cosine_pearson", "prompt": "比较"}
    card(folder, language=["zh", "en"], license="CC-BY-4.0", medteb=settings)
    metadata = task_from_folder(folder).metadata
    assert (metadata.name, metadata.main_score, metadata.prompt) == ("Mine", "cosine_pearson", "比较")
    assert metadata.eval_langs == ["cmn-Hans", "eng-Latn"]
    assert metadata.license == "cc-by-4.0"


@pytest.mark.parametrize(
    "settings",
    [
        {"main_score": "ndcg_at_10"},
        {"domains": ["Medicine"]},
        {"languages": ["chinese"]},
        {"name": "a/b"},
        {"typ": "STS"},
        {"type": "Sts"},
        {"prompt": 3},
        {"type": "Retrieval"},
    ],
)
def test_settings_that_mteb_cannot_take_are_refused(make_folder, settings):
    folder = make_folder("STS")
    card(folder, medteb=settings)
    with pytest.raises(FolderError):
        task_from_folder(folder)


@pytest.mark.parametrize(
    "text", ["---\na: [1\n---\n", "---\n- a\n---\n", b"---\n\xff\n---\n", "---\nconfigs: 3\n---\n"]
)
def test_malformed_cards_are_refused(make_folder, text):
    folder = make_folder("STS")
    (folder / "README.md").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(MarError, match=r"README.md"):
        task_from_folder(folder)


def test_the_revision_follows_what_changes_scores_and_a_manifest_pins_it(make_folder):
    folder = make_folder("Retrieval")
    first = task_from_folder(folder).metadata.revision
    card(folder, medteb={"description": "x"})
    assert task_from_folder(folder).metadata.revision == first
    card(folder, medteb={"prompt": "x"})
    assert task_from_folder(folder).metadata.revision != first
    fields = {"name": "e", "version": "1", "licence": "mit", "counts": {}}
    edition = write_manifest(folder, task="Named", prompt="x", **fields)
    task = task_from_folder(folder)
    assert (task.metadata.name, task.metadata.revision) == ("Named", edition.digest)
    card(folder, medteb={"prompt": "y"})
    with pytest.raises(FolderError, match="prompt"):
        task_from_folder(folder)
    append(folder / "corpus.jsonl", '{"_id": "d9", "text": "x"}\n')
    with pytest.raises(MarError, match=r"corpus.jsonl"):
        task_from_folder(folder)


def test_data_that_changes_between_making_and_loading_is_refused(make_folder):
    folder = make_folder("Retrieval")
    task = task_from_folder(folder)
    append(folder / "corpus.jsonl", '{"_id": "d9", "text": "x"}\n')
    with pytest.raises(ValueError, match="changed after the task was created"):
        task.load_data()


def test_a_query_that_is_a_document_finds_itself_unless_the_card_says_otherwise(make_folder, caplog):
    folder = make_folder("Retrieval")
    text = read_jsonl(folder / "queries.jsonl")[0]["text"]
    append(folder / "corpus.jsonl", json.dumps({"_id": "q1", "text": text}) + "\n")

    def run():
        task = task_from_folder(folder)
        model = mteb.get_model("bm25-char-bigram")
        result = mteb.evaluate(model, task, cache=None, show_progress_bar=False).task_results[0]
        return task.metadata.revision, result.scores["test"][0]["mrr_at_10"]

    with caplog.at_level(logging.WARNING):
        found = run()
    assert "1 queries are documents of the corpus" in caplog.text
    caplog.clear()
    card(folder, medteb={"ignore_identical_ids": True})
    with caplog.at_level(logging.WARNING):
        ignored = run()
    assert "documents of the corpus" not in caplog.text
    assert ignored[0] != found[0]
    assert ignored[1] > found[1]


def test_load_into_names_columns_as_the_task_does_and_refuses_other_types(make_folder):
    pairs = make_folder("PairClassification")
    task = task_from_folder(pairs)
    load_into(task, pairs)
    assert task.dataset["test"].column_names == ["sentence1", "sentence2", "labels"]
    with pytest.raises(FolderError, match="is of type STS, but"):
        load_into(task, read_folder(make_folder("STS")))


@pytest.mark.parametrize("kind", ["absent", "empty", "no corpus"])
def test_folders_without_data_are_refused(make_folder, tmp_path, kind):
    folder = tmp_path / "absent"
    if kind == "empty":
        folder.mkdir()
    elif kind == "no corpus":
        folder = make_folder("Retrieval")
        (folder / "corpus.jsonl").unlink()
    with pytest.raises(FolderError):
        read_folder(folder)
