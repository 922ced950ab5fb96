"""Editions and training triples of labels."""

from __future__ import annotations

import json

import mteb
import pytest
from tests.conftest import write_jsonl

from mar_st.errors import MarError
from medteb_mteb.curation.edition.assemble import ASSEMBLE, AssembleSettings
from medteb_mteb.curation.labels.grades import Label
from medteb_mteb.curation.step import perform
from medteb_mteb.editions import load_edition, verify
from medteb_mteb.folders.content import read_folder
from medteb_mteb.measures import means, score_queries

DISEASES = ["感冒", "高血压", "糖尿病", "偏头痛", "胃炎", "湿疹", "哮喘", "肺炎", "痛风", "贫血"]
QUERIES = {f"q{i}": f"得了{name}应该吃什么药好" for i, name in enumerate(DISEASES)}
DOCUMENTS = {
    f"d{i}{kind}": (name, f"{name}患者{text}")
    for i, name in enumerate(DISEASES)
    for kind, text in (("a", "可在医生指导下用药。"), ("b", "应注意饮食。"), ("c", "的病因尚不明确。"))
}
#: For each disease one positive, one negative, one pair that the judges disagree on.
LABELS = [
    label
    for i in range(len(DISEASES))
    for label in (
        Label(f"q{i}", f"d{i}a", 1),
        Label(f"q{i}", f"d{(i + 1) % 10}a", 0),
        Label(f"q{i}", f"d{i}c", None, "judges disagree"),
    )
]


@pytest.fixture
def make(tmp_path):
    """Assembles labels into a folder: `make("out", test=4)` -> the folder and the details of the report."""

    def call(out="out", labels=LABELS, queries=QUERIES, **options):
        documents = [{"_id": k, "title": title, "text": text} for k, (title, text) in DOCUMENTS.items()]
        options = {"edition": "clinic", "licence": "cc-by-4.0", "test": 4, "threshold": 0.8} | options
        settings = AssembleSettings(
            labels=write_jsonl(tmp_path / "labels.jsonl", [label.to_json() for label in labels]),
            queries=write_jsonl(tmp_path / "q.jsonl", [{"_id": k, "text": t} for k, t in queries.items()]),
            documents=write_jsonl(tmp_path / "d.jsonl", documents),
            out=tmp_path / out,
            **options,
        )
        return settings.out, perform(ASSEMBLE, settings)[0]["counts"]["details"]

    return call


def test_editions_hold_what_was_judged(make, rows_of):
    out, _ = make()
    retrieval, reranking = (load_edition(out / task) for task in ("MedTEBRetrieval", "MedTEBReranking"))
    assert (retrieval.counts["queries"], retrieval.counts["qrels"]) == (4, 4)
    assert (retrieval.licence, retrieval.name) == ("cc-by-4.0", "clinic")
    for edition in (retrieval, reranking):
        verify(edition)
        read_folder(edition.path)
    queries = {row["_id"] for row in rows_of(retrieval.path / "queries.jsonl")}
    corpus = {row["_id"] for row in rows_of(retrieval.path / "corpus.jsonl")}
    assert corpus == set(DOCUMENTS) - {f"d{query[1:]}c" for query in queries}
    for row in rows_of(reranking.path / "top_ranked.jsonl"):
        number = int(row["query-id"][1:])
        assert sorted(row["corpus-ids"]) == sorted([f"d{number}a", f"d{(number + 1) % 10}a"])
    judged = (retrieval.path / "labels.tsv").read_text().splitlines()
    assert sum(line.endswith("\t0") for line in judged) == 4
    assert "# MedTEBRetrieval, edition clinic" in (retrieval.path / "README.md").read_text()


def test_the_rest_trains_and_shares_nothing_with_the_test(make, rows_of):
    out, details = make()
    rows = rows_of(out / "train" / "triples.jsonl")
    assert details["training triples"] == len(rows) == 6
    test = {row["text"] for row in rows_of(out / "MedTEBRetrieval" / "queries.jsonl")}
    assert test.isdisjoint(row["query"] for row in rows)
    disease = rows[0]["query"][2:].removesuffix("应该吃什么药好")
    assert rows[0]["positives"] == [f"{disease}\n{disease}患者可在医生指导下用药。"]


def test_the_same_input_gives_the_same_bytes(make, content):
    assert content(make("a")[0]) == content(make("b")[0])


def test_near_duplicate_queries_stay_together(make):
    # Questions that differ in the disease alone are one cluster if that little counts.
    with pytest.raises(MarError, match="The test has 0 queries"):
        make(threshold=0.3)
    _, details = make(threshold=0.3, test=10)
    assert (details["editions"]["MedTEBRetrieval"]["queries"], details["training triples"]) == (10, 0)
    assert details["largest cluster"] > 1


#: Each disputed document answers another query, so it stays in the corpus.
ALSO_POSITIVE = [*LABELS, *(Label(f"q{i}", f"d{(i + 1) % 10}c", 1) for i in range(10))]


def test_documents_disputed_for_a_test_query_are_left_out(make):
    assert make("a")[1]["editions"]["MedTEBRetrieval"]["corpus"] == 26
    assert make("b", ALSO_POSITIVE, test=10)[1]["editions"]["MedTEBRetrieval"]["corpus"] == 30


def test_disputed_pairs_of_the_corpus_are_listed_and_left_out_when_scored(make):
    data = read_folder(make(labels=ALSO_POSITIVE, test=10)[0] / "MedTEBRetrieval").retrieval
    disputed = {query: set(names) for query, names in data.judged.disputed.items()}
    assert disputed == {query: {f"d{query[1:]}c"} for query in data.qrels}
    # A ranking that begins with the disputed document is not wrong about it.
    run = {
        query: dict.fromkeys(row, 1.0) | dict.fromkeys(disputed[query], 2.0)
        for query, row in data.qrels.items()
    }
    assert means(score_queries(data.qrels, data.judged, run).values()).ndcg == 1.0


def test_grades_are_kept_as_relevance(make):
    graded = [Label(label.query_id, label.document_id, label.relevance and 4) for label in LABELS]
    rows = (make(labels=graded)[0] / "MedTEBRetrieval" / "qrels" / "test.tsv").read_text().splitlines()
    assert {row.split("\t")[2] for row in rows[1:]} == {"4"}


def test_training_queries_do_not_come_back_in_the_test(make, tmp_path):
    rows = [{"query": query, "positives": ["x"]} for query in ("得了感冒应该吃什么药好呢", "完全不同的问题")]
    given = {"test": 10, "against": (str(write_jsonl(tmp_path / "triples.jsonl", rows)),)}
    assert make("a", small=True, **given)[1]["editions"]["MedTEBRetrieval"]["queries"] == 9


def test_queries_of_other_tests_are_not_trained_on(make, tmp_path):
    other = write_jsonl(tmp_path / "other.jsonl", [{"_id": k, "text": text} for k, text in QUERIES.items()])
    out, details = make(keep_away=(str(other),))
    assert (details["training triples"], details["training queries near another test"]) == (0, 6)
    assert (out / "train" / "triples.jsonl").read_bytes() == b""


def test_queries_without_a_positive_or_a_negative_are_counted(make, rows_of):
    labels = [one for one in LABELS if one not in (Label("q3", "d3a", 1), Label("q4", "d5a", 0))]
    _, details = make(labels=labels, test=10, small=True)
    assert details["queries without a positive"] == 1
    assert details["editions"]["MedTEBRetrieval"]["queries"] == 9
    assert details["editions"]["MedTEBReranking"]["queries"] == 8
    assert details["reranking queries without a negative"] == 1
    few = [one for one in LABELS if one.relevance != 0 or one.query_id in ("q1", "q2", "q3")]
    out, details = make("few", few, test=2)
    pairs = rows_of(out / "train" / "pairs.jsonl")
    assert len(pairs) + details["training triples"] == 8
    assert not any("negatives" in row for row in pairs)


def test_lists_hold_positives_and_negatives(make, rows_of):
    many = [Label("q0", name, int(name.endswith("a"))) for name in DOCUMENTS]
    out, _ = make(labels=many, test=0.9, small=True)
    (row,) = rows_of(out / "MedTEBReranking" / "top_ranked.jsonl")
    assert sorted(row["corpus-ids"]) == sorted(DOCUMENTS)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([Label("q0", "gone", 1)], "name 'gone'"),
        ([Label("q99", "d0a", 1)], "name 'q99'"),
        ([Label("q0", "d0a", 0)], "No query has a positive"),
    ],
)
def test_unusable_labels_are_refused(make, labels, message):
    with pytest.raises(MarError, match=message):
        make(labels=labels)


def test_a_test_much_smaller_than_asked_for_is_refused(make):
    for test in (300, 0.9):
        with pytest.raises(MarError, match="Judge more queries"):
            make(test=test)
    assert make(test=300, small=True)[1]["editions"]["MedTEBRetrieval"]["queries"] == 10


def test_provenance_is_beside_the_data_and_outside_the_digest(make):
    out, _ = make(sources={"my-site": "cc-by-4.0"})
    edition = load_edition(out / "MedTEBRetrieval")
    assert "provenance.json" not in edition.files
    provenance = json.loads((edition.path / "provenance.json").read_text())
    assert provenance["sources"] == [{"name": "my-site", "licence": "cc-by-4.0"}]
    assert provenance["contamination"]["training queries compared"] == 0


@pytest.mark.usefixtures("datasets_cache")
def test_mteb_scores_models_on_it(make, monkeypatch):
    out, _ = make()
    monkeypatch.setenv("MEDTEB_DATA", str(out))
    tasks = mteb.get_tasks(tasks=["MedTEBRetrieval", "MedTEBReranking"])
    result = mteb.evaluate(mteb.get_model("bm25-char-bigram"), tasks, cache=None)
    for one in result.task_results:
        assert one.dataset_revision == load_edition(out / one.task_name).digest
        assert float(one.get_score()) > 0.5
