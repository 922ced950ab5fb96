from __future__ import annotations

import dataclasses
import json

import mteb
import pytest

from mar_st.data import read_source
from mar_st.recipes.schema import Data
from medteb_mteb.curation.edition.assemble import Assembly, assemble
from medteb_mteb.curation.files.records import BuildError, Text
from medteb_mteb.curation.labels.grades import Label
from medteb_mteb.editions import verify
from medteb_mteb.folders import inspect_folder, read_folder
from medteb_mteb.measures.rankings import means, score_queries

DISEASES = ["感冒", "高血压", "糖尿病", "偏头痛", "胃炎", "湿疹", "哮喘", "肺炎", "痛风", "贫血"]
QUERIES = {f"q{i}": Text(f"q{i}", f"得了{name}应该吃什么药好") for i, name in enumerate(DISEASES)}
DOCUMENTS = {
    f"d{i}{kind}": Text(f"d{i}{kind}", f"{name}患者{text}", name)
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
HOW = Assembly("clinic", "cc-by-4.0", test=4, threshold=0.8)


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def files(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def built(tmp_path):
    return assemble(LABELS, QUERIES, DOCUMENTS, tmp_path / "out", HOW)


def test_editions_hold_what_was_judged(built, tmp_path):
    retrieval, reranking = (built.editions[task] for task in ("MedTEBRetrieval", "MedTEBReranking"))
    assert (retrieval.counts["queries"], retrieval.counts["qrels"]) == (4, 4)
    assert (retrieval.licence, retrieval.name) == ("cc-by-4.0", "clinic")
    for edition in built.editions.values():
        verify(edition)
        inspect_folder(edition.path)
    queries = {row["_id"] for row in lines(retrieval.path / "queries.jsonl")}
    disputed = {f"d{query[1:]}c" for query in queries}
    corpus = {row["_id"] for row in lines(retrieval.path / "corpus.jsonl")}
    assert corpus == set(DOCUMENTS) - disputed
    for row in lines(reranking.path / "top_ranked.jsonl"):
        number = int(row["query-id"][1:])
        assert sorted(row["corpus-ids"]) == sorted([f"d{number}a", f"d{(number + 1) % 10}a"])
    labels = (retrieval.path / "labels.tsv").read_text().splitlines()
    assert sum(line.endswith("\t0") for line in labels) == 4


def test_the_rest_trains_and_shares_nothing_with_the_test(built, tmp_path):
    source = read_source(
        Data(name="built", path=str(tmp_path / "out" / "train" / "triples.jsonl"), prompt=""), 0
    )
    assert built.triples == len(source.triples) == 6
    test = {row["text"] for row in lines(built.editions["MedTEBRetrieval"].path / "queries.jsonl")}
    assert test.isdisjoint(t.query for t in source.triples)
    (first, *_) = source.triples
    disease = first.query[2:].removesuffix("应该吃什么药好")
    assert first.positives == (f"{disease}\n{disease}患者可在医生指导下用药。",)
    assert len(first.negatives) == 1


def test_the_same_input_gives_the_same_bytes(built, tmp_path):
    assemble(LABELS, QUERIES, DOCUMENTS, tmp_path / "again", HOW)
    assert files(tmp_path / "again") == files(tmp_path / "out")
    changed = Assembly("clinic", "cc-by-4.0", test=4, threshold=0.8, seed=1)
    assemble(LABELS, QUERIES, DOCUMENTS, tmp_path / "other", changed)
    assert files(tmp_path / "other") != files(tmp_path / "out")


def test_near_duplicate_queries_stay_together(tmp_path):
    # Questions that differ in the disease alone are one cluster if that little counts.
    how = Assembly("c", "mit", test=4, threshold=0.3)
    with pytest.raises(BuildError, match="The test is empty"):
        assemble(LABELS, QUERIES, DOCUMENTS, tmp_path / "out", how)
    assert not (tmp_path / "out").exists()
    whole = assemble(
        LABELS, QUERIES, DOCUMENTS, tmp_path / "out", Assembly("c", "mit", test=10, threshold=0.3)
    )
    assert (whole.editions["MedTEBRetrieval"].counts["queries"], whole.triples) == (10, 0)
    assert whole.statistics["largest cluster"] > 1


@pytest.mark.parametrize(("corpus", "size"), [("all", 30), ("labelled", None), ("undisputed", 26)])
def test_the_corpus_follows_its_setting(tmp_path, corpus, size):
    how = Assembly("c", "mit", test=4, threshold=0.8, corpus=corpus)
    built = assemble(LABELS, QUERIES, DOCUMENTS, tmp_path / "out", how)
    edition = built.editions["MedTEBRetrieval"]
    if corpus == "labelled":
        rows = (edition.path / "labels.tsv").read_text().splitlines()[1:]
        size = len({row.split("\t")[1] for row in rows})
    assert edition.counts["corpus"] == size


def test_a_disputed_document_that_answers_another_query_stays(tmp_path):
    labels = [*LABELS, *(Label(f"q{i}", f"d{(i + 1) % 10}c", 1) for i in range(10))]
    how = Assembly("c", "mit", test=10, threshold=0.8)
    built = assemble(labels, QUERIES, DOCUMENTS, tmp_path / "out", how)
    assert built.editions["MedTEBRetrieval"].counts["corpus"] == 30


def test_disputed_pairs_of_the_corpus_are_listed_and_left_out_when_scored(tmp_path, built):
    assert not (
        built.editions["MedTEBRetrieval"].path / "disputed.tsv"
    ).exists()  # their documents are not there
    how = Assembly("c", "mit", test=4, threshold=0.8, corpus="all")
    edition = assemble(LABELS, QUERIES, DOCUMENTS, tmp_path / "all", how).editions["MedTEBRetrieval"]
    rows = (edition.path / "disputed.tsv").read_text().splitlines()
    judged = read_folder(edition.path).retrieval.judged
    assert len(rows) == 1 + 4 == 1 + len(judged.disputed)
    assert all(names == {f"d{query[1:]}c"} for query, names in judged.disputed.items())
    assert edition.to_manifest()["statistics"]["disputed pairs in the corpus"] == 4
    assert judged.known
    # A ranking that begins with the disputed document is not wrong about it.
    run = {query: {f"d{query[1:]}c": 2.0, f"d{query[1:]}a": 1.0} for query in judged.disputed}
    qrels = read_folder(edition.path).retrieval.qrels
    assert means(score_queries(qrels, judged, run).values()).ndcg == 1.0


def test_grades_are_kept_as_relevance(tmp_path):
    graded = [Label(label.query_id, label.document_id, label.relevance and 4) for label in LABELS]
    built = assemble(graded, QUERIES, DOCUMENTS, tmp_path / "out", HOW)
    rows = (built.editions["MedTEBRetrieval"].path / "qrels" / "test.tsv").read_text().splitlines()
    assert {row.split("\t")[2] for row in rows[1:]} == {"4"}


def test_training_queries_do_not_come_back_in_the_test(tmp_path):
    training = ["得了感冒应该吃什么药好呢", "完全不同的问题"]
    every = {"name": "c", "licence": "mit", "test": 10, "threshold": 0.8}
    built = assemble(LABELS, QUERIES, DOCUMENTS, tmp_path / "a", Assembly(**every), training_queries=training)
    assert built.editions["MedTEBRetrieval"].counts["queries"] == 9
    assert built.statistics["test queries near a training query"] == 1
    kept = Assembly(**every, leaks="keep")
    built = assemble(LABELS, QUERIES, DOCUMENTS, tmp_path / "b", kept, training_queries=training)
    assert built.editions["MedTEBRetrieval"].counts["queries"] == 10
    with pytest.raises(BuildError, match=r"1 test queries are near-duplicates .*得了感冒应该吃什么药好呢"):
        assemble(
            LABELS,
            QUERIES,
            DOCUMENTS,
            tmp_path / "d",
            Assembly(**every, leaks="fail"),
            training_queries=training,
        )


def test_the_title_of_a_query_counts_in_leaks_clusters_and_training_rows(tmp_path):
    titled = {name: Text(name, "谢谢", query.text) for name, query in QUERIES.items()}
    leaked = titled["q0"].full
    built = assemble(LABELS, titled, DOCUMENTS, tmp_path / "a", HOW, training_queries=[leaked])
    assert built.statistics["clusters of near-duplicate queries"] == 10
    rows = lines(tmp_path / "a" / "train" / "triples.jsonl")
    assert {row["query"] for row in rows} < {query.full for query in titled.values()}
    every = dataclasses.replace(HOW, test=10)
    built = assemble(LABELS, titled, DOCUMENTS, tmp_path / "b", every, training_queries=[leaked])
    assert built.statistics["test queries near a training query"] == 1


def test_queries_without_a_positive_or_a_negative_are_counted(tmp_path):
    labels = [label for label in LABELS if label != Label("q3", "d3a", 1) and label != Label("q4", "d5a", 0)]
    how = Assembly("c", "mit", test=10, threshold=0.8)
    built = assemble(labels, QUERIES, DOCUMENTS, tmp_path / "out", how)
    assert built.statistics["queries without a positive"] == 1
    assert built.statistics["reranking queries without a negative"] == 1
    assert built.editions["MedTEBRetrieval"].counts["queries"] == 9
    assert built.editions["MedTEBReranking"].counts["queries"] == 8


def test_training_queries_without_a_negative_have_a_file_of_their_own(tmp_path):
    labels = [label for label in LABELS if label.relevance != 0 or label.query_id in ("q1", "q2", "q3")]
    how = Assembly("c", "mit", test=1, threshold=0.8)
    built = assemble(labels, QUERIES, DOCUMENTS, tmp_path / "out", how)
    triples, pairs = (lines(tmp_path / "out" / "train" / f"{name}.jsonl") for name in ("triples", "pairs"))
    assert built.triples == len(triples)
    assert len(triples) + len(pairs) == 9
    assert all(row["negatives"] for row in triples)
    assert not any("negatives" in row for row in pairs)
    assert built.statistics["training queries without a negative"] == len(pairs)


def test_lists_hold_positives_and_negatives(tmp_path):
    many = [Label("q0", name, int(name.endswith("a"))) for name in DOCUMENTS]
    how = Assembly("c", "mit", test=1, list_size=12, list_positives=3)
    built = assemble(many, QUERIES, DOCUMENTS, tmp_path / "out", how)
    (row,) = lines(built.editions["MedTEBReranking"].path / "top_ranked.jsonl")
    assert len(row["corpus-ids"]) == 12
    assert sum(name.endswith("a") for name in row["corpus-ids"]) == 3
    with pytest.raises(BuildError, match="no place for negatives"):
        Assembly("c", "mit", list_size=5, list_positives=5)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([Label("q0", "gone", 1)], "name the document 'gone'"),
        ([Label("q99", "d0a", 1)], "name the query 'q99'"),
        ([Label("q0", "d0a", 0)], "No query has a positive"),
    ],
)
def test_unusable_labels_are_refused(tmp_path, labels, message):
    with pytest.raises(BuildError, match=message):
        assemble(labels, QUERIES, DOCUMENTS, tmp_path / "out", HOW)


def test_a_folder_in_use_is_refused(built, tmp_path):
    with pytest.raises(BuildError, match="is not empty"):
        assemble(LABELS, QUERIES, DOCUMENTS, tmp_path / "out", HOW)


@pytest.mark.usefixtures("datasets_cache")
def test_mteb_scores_models_on_it(tmp_path, built, monkeypatch):
    monkeypatch.setenv("MEDTEB_DATA", str(tmp_path / "out"))
    tasks = mteb.get_tasks(tasks=["MedTEBRetrieval", "MedTEBReranking"])
    result = mteb.evaluate(mteb.get_model("bm25-char-bigram"), tasks, cache=None)
    scores = [(r.task_name, r.dataset_revision, float(r.get_score())) for r in result.task_results]
    revisions = {task: edition.digest for task, edition in built.editions.items()}
    assert {(task, revision) for task, revision, _ in scores} == set(revisions.items())
    assert all(score > 0.5 for _, _, score in scores)


def test_a_test_much_smaller_than_asked_for_is_refused(tmp_path):
    few = Assembly("c", "mit", test=300, threshold=0.8)
    message = r"has 10 queries where 300 were requested: 10 of 10 judged .* difference of 0\.266 .*--small"
    with pytest.raises(BuildError, match=message):
        assemble(LABELS, QUERIES, DOCUMENTS, tmp_path / "few", few)
    assert not (tmp_path / "few" / "MedTEBRetrieval").exists()
    share = dataclasses.replace(few, test=0.9)
    with pytest.raises(BuildError, match=r"has 9 queries where at least 30 are expected: .*small: true"):
        assemble(LABELS, QUERIES, DOCUMENTS, tmp_path / "few", share)
    built = assemble(LABELS, QUERIES, DOCUMENTS, tmp_path / "small", dataclasses.replace(few, small=True))
    assert built.editions["MedTEBRetrieval"].counts["queries"] == 10
    (note,) = built.notes
    assert "With 10 test queries a difference of 0.266" in note
