"""Prompts that two encoders were saved with, as prompts of one model."""

from __future__ import annotations

import json

import pytest

from mar_st.model.prompts import PROMPT_NAMES, PUBLISHED_PROMPTS, source_prompts

OWN = {"query": "检索：", "STS": "语义："}


@pytest.fixture
def saved(tmp_path):
    """Writes what sentence-transformers saves of a model with prompts; returns the folder."""

    def write(name, prompts):
        folder = tmp_path / name
        folder.mkdir()
        kind = "sentence_transformers.models.Transformer"
        listing = [{"idx": 0, "name": "0", "path": "", "type": kind}]
        (folder / "modules.json").write_text(json.dumps(listing), encoding="utf-8")
        config = {"prompts": prompts, "default_prompt_name": None}
        (folder / "config_sentence_transformers.json").write_text(json.dumps(config), encoding="utf-8")
        return str(folder)

    return write


@pytest.mark.parametrize(
    ("query", "document", "expected"),
    [
        (OWN, {}, {**OWN, "document": ""}),
        ({}, OWN, {**OWN, "document": ""}),
        ({"query": "问："}, OWN, {"query": "问：", "document": ""}),
        (OWN, {"query": "问：", "document": "文："}, {**OWN, "document": "文："}),
        ({**OWN, "document": "文："}, {}, {**OWN, "document": ""}),
        ({}, {"document": "文："}, {**PUBLISHED_PROMPTS, "document": "文："}),
        ({}, {}, None),
        ({"query": ""}, {"document": ""}, None),
    ],
)
def test_prompts_of_queries_and_documents_are_those_of_their_own_encoder(saved, query, document, expected):
    assert source_prompts(saved("query", query), saved("document", document)) == expected


def test_encoders_with_random_weights_or_of_transformers_have_no_prompts(saved, query_source, tmp_path):
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "config.json").write_text("{}", encoding="utf-8")
    assert source_prompts(query_source, str(tmp_path / "plain")) is None
    assert source_prompts(query_source, saved("document", OWN)) == {**OWN, "document": ""}


def test_every_task_has_a_published_prompt_in_the_format_of_the_authors():
    assert set(PROMPT_NAMES.values()) == set(PUBLISHED_PROMPTS)
    for prompt in PUBLISHED_PROMPTS.values():
        assert prompt.startswith("<instruct>")
        assert prompt.endswith(".\n<query>")
    assert len(set(PUBLISHED_PROMPTS.values())) == len(PUBLISHED_PROMPTS)
