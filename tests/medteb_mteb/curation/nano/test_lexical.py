from __future__ import annotations

import bm25s
import jieba
import numpy as np
import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.nano.lexical import bm25_lists, choose_tokens, raw_jieba_words, regex_words

CORPUS = {
    "a": "感冒发烧应多喝温水，注意休息。",
    "b": "糖尿病患者应控制主食，少吃甜食。",
    "c": "高血压需要长期服用降压药，不可自行停药。",
    "d": "胃酸过多引起的胃痛可以服用奥美拉唑。",
}


@pytest.mark.thorough
def test_words_are_jiebas_with_case_and_punctuation():
    text = "Vitamin C能治感冒吗？ 能！"
    assert raw_jieba_words(text) == list(jieba.cut(text))
    assert {"Vitamin", " ", "？"} <= set(raw_jieba_words(text))
    assert raw_jieba_words("感冒" * 3000) == raw_jieba_words("感冒" * 2000) + raw_jieba_words("感冒" * 1000)
    assert regex_words("Type-2 Diabetes?") == ["type", "2", "diabetes"]


def test_scores_are_bm25s_by_robertson():
    queries = {"q": "感冒发烧怎么休息", "r": "药"}
    index = bm25s.BM25(k1=1.5, b=0.75, method="robertson")
    index.index([raw_jieba_words(text) for text in CORPUS.values()], show_progress=False)
    lists = bm25_lists(CORPUS, queries, "jieba", 4)
    for query, text in queries.items():
        scores = dict(zip(CORPUS, index.get_scores(raw_jieba_words(text)), strict=True))
        ranked = [scores[document] for document in lists[query]]
        assert ranked == sorted(scores.values(), reverse=True)
    assert lists["q"][0] == "a"


def test_lists_are_filled_and_ties_do_not_depend_on_the_order_of_documents():
    many = {f"d{i}": f"第{i}条" for i in range(50)} | CORPUS
    shuffled = dict(np.random.default_rng(0).permutation(list(many.items())).tolist())
    queries = {"q": "糖尿病", "none": "呵呵"}
    lists = bm25_lists(many, queries, "jieba", 20)
    assert lists == bm25_lists(shuffled, queries, "jieba", 20)
    assert lists["q"][0] == "b"
    assert {len(row) for row in lists.values()} == {20}
    assert lists["none"] != sorted(lists["none"])


def test_how_texts_are_cut_follows_the_language():
    assert choose_tokens(["zh"], ["plain"]) == choose_tokens(["cmn-Hans"], ["plain"]) == "jieba"
    assert choose_tokens(["pl"], ["感冒"]) == "regex"
    for languages in ([], ["zh", "ja"], ["multilingual"]):
        assert choose_tokens(languages, ["感冒怎么办"] * 20 + ["flu"] * 2) == "jieba"
        assert choose_tokens(languages, ["what is flu"] * 20) == "regex"


def test_other_ways_to_cut_are_refused():
    with pytest.raises(BuildError, match="jieba or regex; got 'bigram'"):
        bm25_lists(CORPUS, {"q": "药"}, "bigram", 3)
    with pytest.raises(BuildError, match="No document has a word"):
        bm25_lists({"a": "？"}, {"q": "药"}, "regex", 3)
