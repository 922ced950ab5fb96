from __future__ import annotations

import pytest
from sentence_transformers import SentenceTransformer

from mar_st.evaluation.tasks import Task, TaskData, encode_texts
from mar_st.model.mar import MAR

TASK = Task(name="faq", path="faq")


def _data(kind, task=TASK):
    return TaskData(task, kind, "map", "")


@pytest.fixture
def model(encoder_folder):
    return SentenceTransformer(str(encoder_folder), device="cpu")


@pytest.mark.parametrize(
    ("prompts", "kind", "role", "expected"),
    [
        ({"query": "感冒", "Retrieval": "胃", "Retrieval-query": "头痛"}, "retrieval", "query", "头痛"),
        ({"query": "感冒", "Retrieval": "胃"}, "retrieval", "query", "胃"),
        ({"query": "感冒", "Reranking": "胃"}, "retrieval", "query", "感冒"),
        ({"document": "感冒", "Reranking-document": "胃"}, "rerank", "document", "胃"),
        ({"document": "感冒", "Reranking": "胃"}, "rerank", "document", "胃"),
        ({"passage": "感冒"}, "retrieval", "document", "感冒"),
        ({"query": "感冒", "STS": "胃"}, "sts", None, "胃"),
        ({"query": "感冒"}, "sts", None, ""),
    ],
)
def test_the_prompt_is_the_one_of_the_type_and_the_role(model, prompts, kind, role, expected):
    text = "高血压"
    model.prompts = {}
    wanted = model.encode([expected + text])
    model.prompts = prompts
    vectors = encode_texts(model, [text], _data(kind), role)
    assert vectors.numpy() == pytest.approx(wanted, abs=1e-6)


def test_without_a_fitting_prompt_plain_models_use_their_default_and_routes_use_none(model):
    model.prompts = {"query": "感冒"}
    model.default_prompt_name = "query"
    vectors = encode_texts(model, ["高血压"], _data("sts"), None)
    assert vectors.numpy() == pytest.approx(model.encode(["感冒高血压"], prompt=""), abs=1e-6)
    routed = MAR.from_pretrained("mar-mini", device="cpu")
    routed.prompts = {"query": "感冒"}
    vectors = encode_texts(routed, ["高血压"], _data("sts"), None)
    assert vectors.numpy() == pytest.approx(routed.encode(["高血压"], task="query", prompt=""), abs=1e-6)
