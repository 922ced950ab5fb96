"""Prompts, an LLM's rule, and what reads its answers."""

from __future__ import annotations

import importlib.util
import json

import pytest

from medteb_mteb.curation.llm.client import Prompt
from medteb_mteb.curation.llm.generate import Job
from medteb_mteb.curation.llm.generate import ask as ask_all
from medteb_mteb.curation.llm.journal import Journal
from medteb_mteb.curation.llm.tolerant import Rejected, json_object

# Without the openai client there is nothing to test.
collect_ignore_glob = [] if importlib.util.find_spec("openai") else ["test_*.py"]

SCHEMA = {"type": "object", "properties": {"reply": {"type": "string"}}, "required": ["reply"]}


def prompts(count: int, variant: str = "") -> list[Prompt]:
    """Prompts of different words."""
    return [
        Prompt(f"p{i}{variant}", "你是医学编辑。", f"请改写第{i}问：高血压吃什么药", SCHEMA, 20, variant)
        for i in range(count)
    ]


def write(messages: list[dict]) -> str:
    """Return the LLM's answer."""
    return json.dumps({"reply": f"{messages[-1]['content']}，改写"}, ensure_ascii=False)


def read(prompt: Prompt, answer: str) -> str:
    """Parse an answer."""
    parsed = json_object(answer)
    if not isinstance(parsed.get("reply"), str):
        raise Rejected("missing-key")
    return parsed["reply"]


def expected(asked: list[Prompt]) -> dict[str, str]:
    """Return the expected answers."""
    return {prompt.key: f"{prompt.user}，改写" for prompt in asked}


@pytest.fixture
def ask(tmp_path):
    """Have an LLM answer prompts, into a journal of the test's own."""

    def run(asked, llm, *, journal=tmp_path / "answers.sqlite", version="1", read=read):
        with Journal(journal) as opened:
            return ask_all([Job(llm, asked, version, read)], opened, name="test")[0]

    return run
