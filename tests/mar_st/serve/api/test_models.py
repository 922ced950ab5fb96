"""Tests of the names of models, which say whether texts are queries or documents."""

from __future__ import annotations

import pytest

from mar_st.serve.api.models import model_entry, requested_side, served_models
from mar_st.serve.api.requests import EmbeddingsRequest
from mar_st.serve.errors import ApiError


@pytest.mark.parametrize("name", ["fake", "medteb/mar-mini", "my-document", ""])
def test_every_served_name_chooses_its_side(name):
    assert served_models(name, queries=True, documents=False) == [name]
    queries, documents = served_models(name, queries=True, documents=True)
    assert served_models(name, queries=False, documents=True) == [documents]
    assert requested_side(EmbeddingsRequest(input="x", model=queries), name) == "query"
    assert requested_side(EmbeddingsRequest(input="x", model=documents), name) == "document"


@pytest.mark.parametrize(
    ("request_fields", "side"),
    [
        ({}, "query"),
        ({"input_type": "document"}, "document"),
        ({"model": "fake", "input_type": "document"}, "document"),
        ({"model": "fake", "input_type": "query"}, "query"),
        ({"model": "fake-document", "input_type": "document"}, "document"),
    ],
)
def test_the_input_type_chooses_the_side_where_the_name_leaves_it_open(request_fields, side):
    assert requested_side(EmbeddingsRequest(input="x", **request_fields), "fake") == side


def test_queries_for_the_document_model_are_refused():
    contradiction = EmbeddingsRequest(input="x", model="fake-document", input_type="query")
    with pytest.raises(ApiError, match="Send queries to 'fake'") as refused:
        requested_side(contradiction, "fake")
    assert (refused.value.status, refused.value.param) == (400, "input_type")


@pytest.mark.parametrize("model", ["", "Fake", "fake ", "fake-documents", "fake-document-document", "秘密"])
def test_other_names_are_unknown_and_not_repeated(model):
    with pytest.raises(ApiError, match="'fake' for queries") as refused:
        requested_side(EmbeddingsRequest(input="x", model=model), "fake")
    assert (refused.value.status, refused.value.code) == (404, "model_not_found")
    assert "秘密" not in refused.value.body().decode()


def test_only_an_encoder_with_a_name_is_named_in_an_entry():
    assert "query_encoder" not in model_entry("fake", None)
    assert model_entry("fake", "query-lookup") == {
        **model_entry("fake", None),
        "query_encoder": "query-lookup",
    }
