from __future__ import annotations

import math

import mteb
import numpy as np
import pytest
from datasets import Dataset
from tests.conftest import write_jsonl, write_judged
from torch.utils.data import DataLoader

from mar_st.text.words import character_bigrams
from medteb_mteb.folders.content import read_folder
from medteb_mteb.folders.tasks import task_from_folder
from medteb_mteb.models.bm25 import BM25Model, english_words, normalise, normalised_jieba_words

CORPUS = Dataset.from_list(
    [
        {"id": "a", "title": "", "text": "感冒发烧多喝水"},
        {"id": "b", "title": "糖尿病", "text": "控制主食，监测血糖。"},
        {"id": "c", "title": "", "text": "高血压按时服药，监测血压"},
        {"id": "d", "title": "", "text": "感冒发烧多喝水"},
    ]
)


def queries(*texts: str) -> Dataset:
    return Dataset.from_list([{"id": f"q{i}", "text": text} for i, text in enumerate(texts)])


def test_texts_are_normalised_and_split_into_tokens():
    assert normalise("Ｖitamin Ｃ，０.5g！") == "vitamin c 0 5g "
    assert character_bigrams("发烧 吃药。") == ["发烧", "烧吃", "吃药"]
    assert character_bigrams("痛") == ["痛"]
    assert character_bigrams("，。") == []
    assert normalised_jieba_words("糖尿病患者，能吃水果吗？") == ["糖尿病", "患者", "能", "吃水果", "吗"]


def test_search_ranks_by_score_and_ties_by_descending_id():
    model = BM25Model("char-bigram")
    model.index(CORPUS)
    results = model.search(queries("感冒发烧", "骨折", "监测血压", "糖尿病"), top_k=10)
    assert list(results["q0"]) == ["d", "a"]  # equal texts
    assert results["q0"]["d"] == results["q0"]["a"] > 0
    assert results["q1"] == {}
    assert list(results["q2"]) == ["c", "b"]
    assert list(results["q3"]) == ["b"]  # only the title says so
    assert list(model.search(queries("感冒发烧"), top_k=1)["q0"]) == ["d"]


def test_reranking_scores_exactly_the_candidates():
    model = BM25Model("char-bigram")
    model.index(CORPUS)
    results = model.search(queries("感冒发烧"), top_k=10, top_ranked={"q0": ["c", "d", "b"]})
    assert list(results["q0"]) == ["d", "c", "b"]  # those without a match stay
    with pytest.raises(KeyError):
        model.search(queries("感冒"), top_k=10, top_ranked={"q0": ["nowhere"]})


@pytest.mark.parametrize("name", ["bm25-jieba", "bm25-char-bigram", "bm25-english"])
def test_the_order_of_candidates_and_corpus_does_not_change_the_score(tmp_path, name):
    """No text shares a word with its query, so every candidate has the same score."""
    scores = []
    names = [f"d{i}" for i in range(8)]
    for number, listed in enumerate((names, names[::-1])):
        folder = tmp_path / str(number)
        write_jsonl(folder / "corpus.jsonl", [{"_id": one, "text": f"text {one}"} for one in listed])
        write_jsonl(folder / "queries.jsonl", [{"_id": "q", "text": "no such subject"}])
        write_jsonl(folder / "top_ranked.jsonl", [{"query-id": "q", "corpus-ids": listed}])
        write_judged(folder, [("q", "d2", 1)])
        task = task_from_folder(folder)
        results = mteb.evaluate(mteb.get_model(name), task, cache=None, show_progress_bar=False)
        scores.append(results.task_results[0].scores["test"][0]["map_at_1000"])
    assert scores == [0.16667, 0.16667]  # d2 is the sixth by descending id


def test_a_corpus_without_tokens_gives_no_hits_and_a_missing_one_an_error():
    model = BM25Model("char-bigram")
    with pytest.raises(RuntimeError, match="index"):
        model.search(queries("感冒"), top_k=3)
    model.index(Dataset.from_list([{"id": "a", "text": "。。"}]))
    assert model.search(queries("感冒"), top_k=3) == {"q0": {}}


def test_encode_gives_hashed_word_vectors():
    model = BM25Model("char-bigram")
    texts = ["感冒发烧", "发烧感冒感冒", "高血压", "。"]
    loader = DataLoader(Dataset.from_dict({"text": texts}), batch_size=2)
    vectors = model.encode(loader)
    assert vectors.shape == (4, 4096)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), [1, 1, 1, 0], atol=1e-6)
    # 感冒 冒发 发烧 against 发烧 烧感 感冒*2 冒感, weights 1 + ln(count)
    expected = (1 + 1 + math.log(2)) / math.sqrt(3 * (3 + (1 + math.log(2)) ** 2))
    similarity = model.similarity(vectors, vectors)
    assert float(similarity[0, 1]) == pytest.approx(expected, abs=1e-6)
    assert float(similarity[0, 2]) == pytest.approx(0, abs=1e-6)
    assert float(model.similarity_pairwise(vectors[:1], vectors[1:2])[0]) == pytest.approx(expected, abs=1e-6)
    np.testing.assert_array_equal(
        vectors[0], model.encode(DataLoader(Dataset.from_dict({"text": texts[:1]})))[0]
    )


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("cmedir-retrieval", 0.8105),
        ("cmedqa-retrieval", 0.1544),
        ("toyhom-retrieval", 0.3894),
        ("cmedir-rerank", 0.8107),
        ("cmedqa-rerank", 0.1557),
    ],
)
def test_agrees_with_the_reference_on_real_data(shared_data, name, reference):
    import pytrec_eval

    data = read_folder(shared_data / "eval" / name).retrieval
    model = BM25Model("char-bigram")
    model.index(Dataset.from_list(data.corpus))
    results = model.search(Dataset.from_list(data.queries), top_k=1000, top_ranked=data.top_ranked)
    measures = pytrec_eval.RelevanceEvaluator(data.qrels, {"ndcg_cut.10"}).evaluate(results)
    assert len(measures) == len(data.qrels)
    assert np.mean([m["ndcg_cut_10"] for m in measures.values()]) == pytest.approx(reference, abs=0.03)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Therapies of Diseases", ["therapy", "disease"]),
        ("Is it a virus, or gas?", ["virus", "gas"]),
        ("COVID-19 masks; analysis", ["covid", "19", "mask", "analysi"]),
        ("stress focus eyes movies", ["stress", "focus", "eye", "movy"]),
    ],
)
def test_english_words_lose_stop_words_and_plurals(text, expected):
    assert english_words(text) == expected
