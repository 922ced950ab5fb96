"""Modules that queries and documents go through."""

from __future__ import annotations

import pytest
import torch

from mar_st.model.routes import route
from tests.mar_st.stages.helpers import encoder, mar


@pytest.mark.parametrize("task", ["query", "document"])
def test_the_modules_of_a_route_give_the_vectors_of_the_model(task):
    model = mar()
    modules = route(model, task)
    features = model.preprocess(["头疼怎么办", "发热"], task=task)
    with torch.inference_mode():
        for module in modules:
            features = module(features)
        expected = model.encode(["头疼怎么办", "发热"], task=task, prompt="", convert_to_tensor=True)
    torch.testing.assert_close(features["sentence_embedding"], expected, rtol=0, atol=1e-6)


def test_both_routes_of_a_symmetric_model_are_its_modules():
    model = encoder()
    assert route(model, "query") == route(model, "document") == list(model.children())


def test_routes_of_a_mar_have_encoders_of_their_own():
    model = mar()
    query, document = (route(model, task)[0] for task in ("query", "document"))
    assert query is not document
    assert {type(module).__name__ for module in route(model, "query")}.isdisjoint({"Router"})
