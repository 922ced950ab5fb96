"""A small set of texts, judges over it, and servers on loopback."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import fault_server as faults
import pytest

from medteb_mteb.curation.judge import Judges
from medteb_mteb.curation.judge.controls import CONTROLS, ECHOES
from medteb_mteb.curation.judge.journal import JudgementJournal

if TYPE_CHECKING:
    from pathlib import Path

# Without the openai client there is nothing to test.
collect_ignore_glob = [] if importlib.util.find_spec("openai") else ["test_*.py"]

SUBJECTS = ["高血压", "糖尿病", "偏头痛", "胃溃疡", "过敏性鼻炎", "痛风"]
INTENTS = ["饮食禁忌", "用药注意", "复查频率", "运动建议"]


@dataclass
class Input:
    """Files of a judging."""

    folder: Path
    queries: Path
    documents: Path
    pools: Path

    @property
    def paths(self) -> tuple[Path, Path, Path]:
        return self.queries, self.documents, self.pools

    @property
    def pairs(self) -> int:
        rows = [json.loads(line) for line in self.pools.read_text("utf-8").splitlines()]
        return sum(len(row["corpus-ids"]) for row in rows)

    def rewrite(self, name: str, rows: list[dict]) -> None:
        write(getattr(self, name), rows)

    def rows(self, name: str) -> list[dict]:
        return [json.loads(line) for line in getattr(self, name).read_text("utf-8").splitlines()]


def write(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def texts(queries: int, documents: int) -> tuple[list[dict], list[dict], list[dict]]:
    """Queries, documents that share more or fewer words with them, and pools of all documents."""
    query_rows = [
        {"_id": f"q{i}", "text": f"{SUBJECTS[i % 6]}患者的{INTENTS[i // 6 % 4]}第{i}问"}
        for i in range(queries)
    ]
    document_rows = [
        {
            "_id": f"d{i:03}",
            "title": f"{SUBJECTS[i % 6]}",
            "text": f"{SUBJECTS[i % 5]}患者{INTENTS[i % 4]}第{i}条。",
        }
        for i in range(documents)
    ]
    pools = [{"query-id": q["_id"], "corpus-ids": [d["_id"] for d in document_rows]} for q in query_rows]
    return query_rows, document_rows, pools


@pytest.fixture
def make_input(tmp_path):
    def make(queries: int = 3, documents: int = 12) -> Input:
        made = Input(tmp_path, *(tmp_path / f"{name}.jsonl" for name in ("queries", "documents", "pools")))
        for path, rows in zip(made.paths, texts(queries, documents), strict=True):
            write(path, rows)
        return made

    return make


@pytest.fixture
def journal(tmp_path):
    """An open journal of judgements."""
    with JudgementJournal(tmp_path / "journal.sqlite") as opened:
        yield opened


@pytest.fixture
def make_server():
    """Starts an endpoint; gives its address."""
    from contextlib import ExitStack

    with ExitStack() as stack:

        def start(endpoint) -> str:
            return stack.enter_context(faults.rules.serving(endpoint))

        yield start


@pytest.fixture
def endpoint():
    """An endpoint of the rule-based judges that does as it is told; see `fault_server`."""

    def make(**options):
        return faults.FaultEndpoint(controls=(*CONTROLS, *ECHOES), **options)

    return make


@pytest.fixture
def judges_of():
    def make(url: str, *models: str, **settings) -> Judges:
        shared = {name: settings.pop(name) for name in Judges.model_fields if name in settings}
        # Its requests depend on the grades; tests that are about it switch it on.
        shared = {"check_positives": False} | shared
        common = {
            "base_url": url,
            "backoff": 0.01,
            "max_pause": 0.2,
            "timeout": 20,
            "passages": 4,
            "concurrency": 8,
        } | settings
        entries = [{"name": m.removeprefix("rule-"), "model": m, **common} for m in models or ("rule-words",)]
        return Judges.model_validate({"judges": entries, **shared})

    return make


def content(folder: Path) -> dict[str, bytes]:
    """Return the files that must be the same however often a run was interrupted."""
    return {
        name: (folder / name).read_bytes() for name in ("judgements.jsonl", "failed.jsonl", "manifest.json")
    }


@pytest.fixture(name="content")
def _content():
    return content
