from __future__ import annotations

import json
import math

import mteb
import pytest
import torch
from scipy import stats as scipy_stats
from sentence_transformers import SentenceTransformer

from mar_st.errors import MarError
from mar_st.evaluation.tasks import Task, load_task, score, score_vectors
from medteb_mteb.folders.tasks import task_from_folder
from tests.conftest import write_jsonl, write_judged


@pytest.fixture(scope="module")
def model(encoder_folder):
    return SentenceTransformer(str(encoder_folder), device="cpu")


def _ranking(model, queries, documents):
    """Document ids of every query, best first, by encode alone."""
    scores = model.encode(list(queries.values())) @ model.encode(list(documents.values())).T
    ids = list(documents)
    return {q: [ids[i] for i in (-row).argsort()] for q, row in zip(queries, scores, strict=True)}


def _ndcg(ranked, graded, k):
    def dcg(gains):
        return sum(gain / math.log2(place + 1) for place, gain in enumerate(gains[:k], 1))

    return dcg([graded.get(document, 0) for document in ranked]) / dcg(sorted(graded.values(), reverse=True))


#: Each from a ranking, the grades of its relevant documents, and the places of these, which count from 1.
METRICS = {
    "map": lambda ranked, graded, places: sum(n / p for n, p in enumerate(places, 1)) / len(places),
    "mrr": lambda ranked, graded, places: 1 / places[0],
    "recall@1": lambda ranked, graded, places: (1 in places) / len(places),
    "p@1": lambda ranked, graded, places: float(1 in places),
    "ndcg@3": lambda ranked, graded, places: _ndcg(ranked, graded, 3),
    "ndcg@10": lambda ranked, graded, places: _ndcg(ranked, graded, 10),
}


@pytest.mark.parametrize("metric", METRICS)
def test_retrieval_is_scored_per_query_by_the_definition_of_the_metric(model, make_folder, metric):
    data = load_task(Task(name="faq", path=str(make_folder("Retrieval")), metric=metric))
    assert (data.type, data.metric, data.items) == ("retrieval", metric, ["q1", "q2", "q3"])
    expected = []
    for query, ranked in _ranking(model, data.queries, data.corpus).items():
        graded = data.qrels[query]
        places = [place for place, document in enumerate(ranked, 1) if document in graded]
        expected.append(METRICS[metric](ranked, graded, places))
    assert score(model, data) == pytest.approx(expected, abs=1e-6)
    assert data.scores([expected, expected]).per_seed() == pytest.approx([sum(expected) / 3] * 2)


def test_retrieval_is_scored_by_ndcg_unless_a_metric_is_named(make_folder):
    assert load_task(Task(name="faq", path=str(make_folder("Retrieval")))).metric == "ndcg@10"


def test_a_query_that_is_a_document_leaves_its_own_ranking_if_the_card_says_so(model, make_folder):
    folder = make_folder("Retrieval")
    data = load_task(Task(name="faq", path=str(folder)))
    query = next(iter(data.queries))
    with (folder / "corpus.jsonl").open("a", encoding="utf-8") as lines:
        lines.write(json.dumps({"_id": query, "title": "", "text": data.queries[query]}) + "\n")
    own = load_task(Task(name="faq", path=str(folder)))
    (folder / "README.md").write_text("---\nmedteb: {ignore_identical_ids: true}\n---\n", encoding="utf-8")
    ignored = load_task(Task(name="faq", path=str(folder)))
    assert ignored.digest != own.digest
    assert score(model, ignored)[0] == score(model, data)[0] > score(model, own)[0]


def test_reranking_ranks_its_candidates_alone(model, make_folder):
    folder = make_folder("Reranking")
    whole = score(model, load_task(Task(name="rerank", path=str(folder))))
    rows = [{"query-id": q, "corpus-ids": ids} for q, ids in (("q1", ["d1"]), ("q2", ["d4"]), ("q3", ["d4"]))]
    write_jsonl(folder / "top_ranked.jsonl", rows)
    data = load_task(Task(name="rerank", path=str(folder)))
    assert (data.type, data.metric, set(data.corpus)) == ("rerank", "map", {"d1", "d4"})
    assert score(model, data) == [1.0, 0.0, 1.0] != whole


def test_sts_keeps_the_predicted_similarities(model, make_folder):
    data = load_task(Task(name="sts", path=str(make_folder("STS"))))
    values = score(model, data)
    first, second = (model.encode([pair[i] for pair in data.pairs]) for i in (0, 1))
    assert values == pytest.approx((first * second).sum(axis=1).tolist(), abs=1e-6)
    expected = scipy_stats.pearsonr(values, data.gold).statistic
    assert data.scores([values]).per_seed() == pytest.approx([expected])
    ranked = load_task(Task(name="sts", path=data.task.path, metric="spearman"))
    assert ranked.scores([values]).kind == "spearman"


@pytest.mark.parametrize("prompts", [{"any": "感冒"}, {"any": "感冒", "STS": "胃"}])
def test_sts_takes_the_default_prompt_as_in_mteb(encoder_folder, make_folder, prompts):
    folder = make_folder("STS")
    prompted = SentenceTransformer(
        str(encoder_folder), device="cpu", prompts=prompts, default_prompt_name="any"
    )
    data = load_task(Task(name="t", path=str(folder)))
    result = mteb.evaluate(prompted, task_from_folder(folder), cache=None, show_progress_bar=False)
    expected = result.task_results[0].scores["test"][0]["pearson"]
    assert data.scores([score(prompted, data)]).per_seed()[0] == pytest.approx(expected, abs=1e-5)
    plain = SentenceTransformer(str(encoder_folder), device="cpu")
    assert data.scores([score(plain, data)]).per_seed()[0] != pytest.approx(expected, abs=1e-5)


def test_packaged_tasks_are_found_by_name():
    data = load_task(Task(name="sts", path="MedTEBSTS"))
    assert (data.type, len(data.items)) == ("sts", 1000)
    assert data.digest == load_task(Task(name="sts", path="package:medteb_mteb/MedTEBSTS")).digest


def test_the_digest_follows_data_and_settings(make_folder):
    folder = make_folder("Retrieval")
    before = load_task(Task(name="t", path=str(folder))).digest
    assert load_task(Task(name="t", path=str(folder), metric="map")).digest != before
    qrels = folder / "qrels" / "test.tsv"
    qrels.write_text(qrels.read_text(encoding="utf-8").replace("q1\td1\t1", "q1\td2\t1"), encoding="utf-8")
    assert load_task(Task(name="t", path=str(folder))).digest != before


@pytest.mark.parametrize(
    ("kind", "file", "line"),
    [
        ("Retrieval", "corpus.jsonl", "{"),
        ("Retrieval", "corpus.jsonl", '{"_id": "d1", "text": "twice"}'),
        ("Retrieval", "corpus.jsonl", '{"_id": "d9", "text": ""}'),
        ("Retrieval", "corpus.jsonl", '{"_id": "d9", "text": "x", "title": [1]}'),
        ("Retrieval", "queries.jsonl", '{"text": "x"}'),
        ("Retrieval", "queries.jsonl", '{"_id": "q9", "text": "", "title": "t"}'),
        ("Retrieval", "qrels/test.tsv", "q1\tnowhere\t1"),
        ("Retrieval", "qrels/test.tsv", "nobody\td1\t1"),
        ("Reranking", "top_ranked.jsonl", '{"query-id": "q1", "corpus-ids": ["d1"]}'),  # a second list
        ("Reranking", "top_ranked.jsonl", '{"query-id": "q9", "corpus-ids": ["d1"]}'),
        ("Reranking", "top_ranked.jsonl", '{"query-id": "q1", "corpus-ids": "d1"}'),
        ("STS", "test.jsonl", '{"sentence1": "a"}'),
        ("STS", "test.jsonl", '{"sentence1": "a", "sentence2": "b", "score": NaN}'),
        ("STS", "test.jsonl", '{"sentence1": "a", "sentence2": "b", "score": "1"}'),
        ("STS", "test.jsonl", '{"sentence1": "a", "sentence2": "b", "label": 1}'),
    ],
)
def test_broken_data_are_named(make_folder, kind, file, line):
    path = make_folder(kind) / file
    path.write_text(path.read_text(encoding="utf-8") + line + "\n", encoding="utf-8")
    number = len(path.read_text(encoding="utf-8").splitlines())
    with pytest.raises(MarError, match=rf"{path.name}:{number}: "):
        load_task(Task(name="t", path=str(path.parents[file.count("/")])))


@pytest.mark.parametrize("ids", [["d1", "x"], ["d1", True], ["d1", "d1"], []])
def test_an_unusable_list_of_candidates_is_named(make_folder, ids):
    folder = make_folder("Reranking")
    write_jsonl(folder / "top_ranked.jsonl", [{"query-id": "q1", "corpus-ids": ids}])
    with pytest.raises(MarError, match=r"top_ranked\.jsonl:1: "):
        load_task(Task(name="t", path=str(folder)))


def test_a_document_may_be_a_title_alone_and_numbers_are_ids(tmp_path):
    write_jsonl(tmp_path / "corpus.jsonl", [{"_id": 0, "title": "t", "text": ""}])
    write_jsonl(tmp_path / "queries.jsonl", [{"_id": 7, "title": "no", "text": "y"}])
    write_judged(tmp_path, [(7, 0, 1)])
    data = load_task(Task(name="t", path=str(tmp_path)))
    assert (data.corpus, data.queries, data.qrels) == ({"0": "t\n"}, {"7": "y"}, {"7": {"0": 1}})


def test_invalid_tasks_are_refused(make_folder, tmp_path):
    with pytest.raises(MarError, match="'pearson' is not a metric of retrieval tasks"):
        load_task(Task(name="t", path=str(make_folder("Retrieval")), metric="pearson"))
    with pytest.raises(MarError, match="'map' is not a metric of sts tasks"):
        load_task(Task(name="t", path=str(make_folder("STS")), metric="map"))
    for path in ("nowhere", "./nowhere", "package:medteb_mteb/nowhere"):
        with pytest.raises(MarError, match=f"No task at {path}. Give a folder"):
            load_task(Task(name="t", path=path))
    (tmp_path / "empty").mkdir()
    with pytest.raises(MarError, match="is not a task"):
        load_task(Task(name="t", path=str(tmp_path / "empty")))


def test_stored_vectors_are_scored_on_the_device_of_the_queries(make_folder):
    """A study reads stored documents on the CPU, while a model on a GPU gives its queries there."""
    data = load_task(Task(name="faq", path=str(make_folder("Retrieval"))))
    devices = []

    def similarity(queries, documents):
        devices.append((queries.device.type, documents.device.type))
        return torch.zeros(len(queries), len(documents))

    queries = torch.zeros(len(data.queries), 4, device="meta")
    score_vectors(data, queries, torch.zeros(len(data.corpus), 4), similarity)
    assert devices == [("meta", "meta")]
