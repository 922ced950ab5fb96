"""Small texts written by hand, and an LLM that sorts them."""

from __future__ import annotations

import importlib.util
import json
import random

import pytest
from fault_server import rules
from llm_server import llm_at

from medteb_mteb.curation.training.triples import TRIPLES

# Without the openai client nothing can be asked.
collect_ignore_glob = [] if importlib.util.find_spec("openai") else ["test_triples*.py"]

SUBJECTS = ["感冒", "高血压", "糖尿病", "偏头痛", "湿疹", "痛风"]
ENDINGS = ["不能吃什么", "怎么治疗", "会传染吗"]
ANSWERS = ["患者不能吃辛辣油腻的东西。", "的治疗以休息和按时用药为主。", "一般不会传染给家人。"]


@pytest.fixture
def given(tmp_path, write):
    """Queries, documents and pools of all documents; the best ranked are of the query's own subject."""
    numbers = [(i, j) for i in range(6) for j in range(3)]
    queries = [{"_id": f"q{i}{j}", "text": SUBJECTS[i] + ENDINGS[j]} for i, j in numbers]
    documents = [{"_id": f"d{i}{j}", "text": SUBJECTS[i] + ANSWERS[j]} for i, j in numbers]
    names = [row["_id"] for row in documents]
    pools = [{"query-id": f"q{i}{j}", "corpus-ids": [*names[3 * i :], *names[: 3 * i]]} for i, j in numbers]
    rows = {"queries": queries, "documents": documents, "pools": pools}
    return {name: write(tmp_path / f"{name}.jsonl", one) for name, one in rows.items()}


def sort(messages, left_out=0.0):
    """Says that the document with the query's subject and the right ending answers it."""
    question = rules.read_prompt(messages, "document")
    right = {f"{s}{e}": f"{s}{a}" for s in SUBJECTS for e, a in zip(ENDINGS, ANSWERS, strict=True)}
    lists = {"positive_document": [], "negative_document": []}
    for key, text in question.passages.items():
        if random.Random(question.query + text).random() >= left_out:
            answers = text == right.get(question.query)
            lists["positive_document" if answers else "negative_document"].append(key)
    return json.dumps(lists)


@pytest.fixture
def make(given, run_step):
    """Makes triples of these texts."""
    return lambda url, out="out", llm=None, **options: run_step(
        TRIPLES, out, **(given | {"llm": llm_at(url, **(llm or {}))} | options)
    )
