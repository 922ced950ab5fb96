"""Texts, a server of rule-based models that counts, and pipeline files."""

from __future__ import annotations

import json

import pytest
import rule_judges
import yaml
from tests.medteb_mteb.curation.diseases import DISEASES, SYNONYMS
from tests.medteb_mteb.curation.pipeline.build_steps import STEPS

from medteb_mteb.curation import pipeline as building

ASKED = ("不能吃什么", "怎么治疗", "会传染吗")
ANSWERS = ("患者不能吃辛辣油腻的东西。", "的治疗以休息和按时用药为主。", "一般不会传染给家人。", "是常见病。")
JUDGES = ("rule-words", "rule-generous", "rule-strict")


def rows(texts):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in texts)


class Counting(rule_judges.Endpoint):
    """Counts the questions."""

    def __init__(self):
        super().__init__()
        self.requests = 0

    async def answer(self, call):
        self.requests += call.path == "/v1/chat/completions"
        return await super().answer(call)


@pytest.fixture
def texts(tmp_path):
    queries = [
        {"_id": f"q{i}{j}", "text": d + a} for i, d in enumerate(DISEASES) for j, a in enumerate(ASKED)
    ]
    documents = [
        {"_id": f"d{i}{j}", "text": d + a} for i, d in enumerate(DISEASES) for j, a in enumerate(ANSWERS)
    ]
    (tmp_path / "queries.jsonl").write_text(rows(queries), encoding="utf-8")
    copy = {"_id": "copy", "text": documents[0]["text"]}
    (tmp_path / "documents.jsonl").write_text(rows([*documents, copy]), encoding="utf-8")


@pytest.fixture
def dictionary(tmp_path):
    """Writes a dictionary of the first terms: `dictionary(count)` -> its file."""

    def call(count):
        rows = [("origin", "replace"), *list(SYNONYMS.items())[:count]]
        lines = (f"{origin}\t{replace}\n" for origin, replace in rows)
        (tmp_path / "synonyms.tsv").write_text("".join(lines), encoding="utf-8")
        return "synonyms.tsv"

    return call


@pytest.fixture
def endpoint():
    return Counting()


@pytest.fixture
def server(endpoint):
    with rule_judges.serving(endpoint) as url:
        yield url


@pytest.fixture
def write(tmp_path, texts):
    """Writes a pipeline file, by default of the steps from texts to an edition."""

    def call(url="http://127.0.0.1:9/v1", *, steps=STEPS, name="pipeline.yaml", judge=None, **content):
        judges = [{"name": n, "model": n, "base_url": url, **(judge or {})} for n in JUDGES]
        path = tmp_path / name
        path.write_text(
            yaml.safe_dump({"judges": judges, "steps": steps, **content}, allow_unicode=True),
            encoding="utf-8",
        )
        return path

    return call


@pytest.fixture
def quiet():
    """Builds without a word."""

    def call(path, **options):
        return building.build(path, show_progress=False, say=lambda line: None, **options)

    return call


@pytest.fixture
def save(tmp_path):
    """Writes rows to a file beside the pipeline file, and gives its path."""

    def call(name, content):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(rows(content), encoding="utf-8")
        return path

    return call
