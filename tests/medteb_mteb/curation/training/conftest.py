"""Small texts written by hand, an LLM that sorts them, and commands run as their program runs them."""

from __future__ import annotations

import importlib.util
import json
import random
from pathlib import Path

import pytest
import typer
from fault_server import rules
from llm_server import llm_at

from medteb_mteb.curation.training import make_triples

# Without the openai client nothing can be asked.
collect_ignore_glob = [] if importlib.util.find_spec("openai") else ["test_triples*.py", "test_mar_train.py"]


def write(path: Path, rows: list[dict]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def rows_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def content(folder: Path) -> dict[str, bytes]:
    """Everything in a finished folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


@pytest.fixture(name="write")
def _write():
    return write


@pytest.fixture(name="rows_of")
def _rows_of():
    return rows_of


@pytest.fixture(name="content")
def _content():
    return content


@pytest.fixture
def command(capsys):
    """Runs a command function: `command(function, *arguments) -> (exit code, stdout, stderr)`."""

    def call(function, *arguments):
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        app.command()(function)
        code = app([str(argument) for argument in arguments], standalone_mode=False) or 0
        out, err = capsys.readouterr()
        return code, out, err

    return call


SUBJECTS = ["感冒", "高血压", "糖尿病", "偏头痛", "湿疹", "痛风"]
ENDINGS = ["不能吃什么", "怎么治疗", "会传染吗"]
ANSWERS = ["患者不能吃辛辣油腻的东西。", "的治疗以休息和按时用药为主。", "一般不会传染给家人。"]


@pytest.fixture
def given(tmp_path):
    """Queries, documents and pools of all documents; the best ranked are of the query's own subject."""
    write(
        tmp_path / "queries.jsonl",
        [
            {"_id": f"q{i}{j}", "text": f"{s}{e}"}
            for i, s in enumerate(SUBJECTS)
            for j, e in enumerate(ENDINGS)
        ],
    )
    write(
        tmp_path / "documents.jsonl",
        [
            {"_id": f"d{i}{j}", "text": f"{s}{a}"}
            for i, s in enumerate(SUBJECTS)
            for j, a in enumerate(ANSWERS)
        ],
    )
    names = [f"d{i}{j}" for i in range(6) for j in range(3)]
    write(
        tmp_path / "pools.jsonl",
        [
            {"query-id": f"q{i}{j}", "corpus-ids": [*names[3 * i :], *names[: 3 * i]]}
            for i in range(6)
            for j in range(3)
        ],
    )
    return tuple(tmp_path / f"{name}.jsonl" for name in ("queries", "documents", "pools"))


def sort(messages, left_out=0.0):
    """Says that the document with the query's subject and the right ending answers it."""
    question = rules.read_prompt(messages, "document")
    lists = {"positive_document": [], "negative_document": []}
    for key, text in question.passages.items():
        answers = any(
            text == f"{s}{a}" and question.query == f"{s}{e}"
            for s in SUBJECTS
            for e, a in zip(ENDINGS, ANSWERS, strict=True)
        )
        if random.Random(question.query + text).random() >= left_out:
            lists["positive_document" if answers else "negative_document"].append(key)
    return json.dumps(lists)


def make(given, out, url, how=None, **options):
    llm = llm_at(url, **options.pop("llm", {}))
    options = {"already_anonymous": True, "show_progress": False} | options
    return make_triples(*given, out, llm, how, **options)


@pytest.fixture(name="sort")
def _sort():
    return sort


@pytest.fixture(name="make")
def _make():
    return make
