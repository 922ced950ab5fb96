"""Builds of a few steps of which the last one is looked at, and what these read."""

from __future__ import annotations

import json

import pytest

from medteb_mteb.curation import pipeline as building
from medteb_mteb.curation.pipeline.registry import registered


@pytest.fixture
def parsed():
    """A step with these options, as in a pipeline file."""
    return lambda **options: registered()[options["step"]].model_validate(options)


@pytest.fixture
def made(write, quiet):
    """Builds these steps; gives the result of the last one and its folder."""

    def call(*steps, **content):
        report = quiet(write(steps=[*steps], **content))
        last = report.steps[-1]
        assert report.complete, last.stopped
        return last.result, report.out / last.name

    return call


@pytest.fixture
def planned(write):
    """The forecast of the last of these steps."""

    def call(*steps, **content):
        return building.forecast(write(steps=[*steps], **content)).steps[-1]

    return call


@pytest.fixture
def rows_of():
    """The rows of a JSONL file."""
    return lambda path: [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def files_of():
    """Files of a folder by name, except the lock and what says when it was made."""
    kept = (".lock", "provenance.json", "croissant.json")

    def call(folder):
        return {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file() and path.name not in kept
        }

    return call


@pytest.fixture
def llm():
    """A model of the rule-based server; at its default address nothing answers."""

    def call(model, url="http://127.0.0.1:9/v1", **settings):
        return {"name": model, "model": f"rule-{model}", "base_url": url, **settings}

    return call


@pytest.fixture
def synonyms(dictionary):
    """The file of a dictionary with terms of half of the queries."""
    return dictionary(6)


@pytest.fixture
def labelled(texts, save):
    """The file of a label for each query and each document of its disease: the first one answers."""
    diseases, asked, answers = 12, 3, 4
    rows = [
        {"query-id": f"q{i}{j}", "corpus-id": f"d{i}{k}", "relevance": int(j == k)}
        for i in range(diseases)
        for j in range(asked)
        for k in range(answers)
    ]
    save("labels.jsonl", rows)
    return "labels.jsonl"
