"""Small inputs of the builder's commands in the working folder, and files of LLMs that nothing reaches."""

from __future__ import annotations

import json

import pytest
import yaml

SUBJECTS = ("感冒", "高血压", "糖尿病")
#: An address of this machine at which nothing answers.
NOWHERE = "http://127.0.0.1:1/v1"


def _needs_a_client(settings):
    if "budget_tokens" in settings:  # the test runs the command
        pytest.importorskip("openai", reason="without the client nothing can be asked")


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(name="write")
def _write():
    """Writes rows as JSON lines: `write(path, rows)`."""
    return write


@pytest.fixture
def rows_of():
    """Reads JSON lines."""

    def read(path):
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    return read


@pytest.fixture
def work(tmp_path, monkeypatch):
    """The working folder; neither journals nor vectors of the user are read."""
    for name in ("MEDTEB_ANSWERS", "MEDTEB_JOURNAL", "MAR_STORE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def pooled(work):
    """Three queries, six documents and pools of all documents."""
    write(work / "queries.jsonl", [{"_id": f"q{i}", "text": f"{s}怎么办"} for i, s in enumerate(SUBJECTS)])
    documents = [
        {"_id": f"d{i}{j}", "text": f"{s}患者{advice}"}
        for i, s in enumerate(SUBJECTS)
        for j, advice in enumerate(("应多休息，按时服药。", "不能吃辛辣油腻的东西。"))
    ]
    write(work / "documents.jsonl", documents)
    names = [row["_id"] for row in documents]
    pools = [{"query-id": f"q{i}", "corpus-ids": [*names[2 * i :], *names[: 2 * i]]} for i in range(3)]
    write(work / "pools.jsonl", pools)
    return work


@pytest.fixture
def llm(work):
    """Writes `llm.yaml`; with a budget of one token nothing is ever sent."""

    def make(**settings):
        _needs_a_client(settings)
        content = {"name": "writer", "model": "m", "base_url": NOWHERE, "price_in": 1.0, "price_out": 2.0}
        path = work / "llm.yaml"
        path.write_text(yaml.safe_dump({"llm": {**content, **settings}}), encoding="utf-8")
        return path

    return make


@pytest.fixture
def judges(work):
    """Writes `judges.yaml` of two judges."""

    def make(**settings):
        _needs_a_client(settings)
        entries = [
            {"name": name, "model": name, "base_url": NOWHERE, "price_in": price, **settings}
            for name, price in (("one", 1.0), ("two", 2.0))
        ]
        path = work / "judges.yaml"
        path.write_text(yaml.safe_dump({"judges": entries, "check_positives": False}), encoding="utf-8")
        return path

    return make


@pytest.fixture
def refused(medteb):
    """Runs a command that has to be refused with an error of one line; returns the line."""

    def call(*args):
        code, out, err = medteb(*args)
        lines = [line for line in err.splitlines() if line.startswith("medteb: error: ")]
        assert (code, out, len(lines)) == (2, "", 1)
        assert err.splitlines()[-1] == lines[0]
        return lines[0]

    return call
