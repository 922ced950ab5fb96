"""A small set of texts, judges over it, and servers on loopback."""

from __future__ import annotations

import importlib.util
import json
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import fault_server as faults
import pytest
from tests.conftest import write_jsonl

from medteb_mteb.curation.judge.judges import Judges
from medteb_mteb.curation.judge.judging import grade_pools
from medteb_mteb.curation.judge.material import PooledSettings, read_material
from medteb_mteb.curation.judge.prompt import CONTROLS, ECHOES

if TYPE_CHECKING:
    from pathlib import Path

# Without the openai client there is nothing to test.
collect_ignore_glob = [] if importlib.util.find_spec("openai") else ["test_*.py"]

SUBJECTS = ["高血压", "糖尿病", "偏头痛", "胃溃疡", "过敏性鼻炎", "痛风"]
INTENTS = ["饮食禁忌", "用药注意", "复查频率", "运动建议"]


@dataclass
class Source:
    """Files of a judging."""

    folder: Path

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.jsonl"

    def rows(self, name: str) -> list[dict]:
        return [json.loads(line) for line in self.path(name).read_text("utf-8").splitlines()]

    def write(self, name: str, rows: list[dict]) -> Path:
        return write_jsonl(self.path(name), rows)

    @property
    def pairs(self) -> int:
        return sum(len(row["corpus-ids"]) for row in self.rows("pools"))

    def judged(self, judges, out="out", *, journal=None, already_anonymous=True):
        """Report of a judging of these files."""
        inputs = {name: self.path(name) for name in ("queries", "documents", "pools")}
        settings = PooledSettings(out=self.folder / out, already_anonymous=already_anonymous, **inputs)
        material = read_material(settings)
        path = self.folder / f"{journal or out}.sqlite"
        return grade_pools(material, judges, self.folder / out, path)

    def result(self, out="out", name="judgements") -> list[dict]:
        return [json.loads(line) for line in (self.folder / out / f"{name}.jsonl").open(encoding="utf-8")]

    def content(self, out="out") -> list[bytes]:
        """The files that must be the same however often a run was interrupted."""
        return [
            (self.folder / out / f"{name}.jsonl").read_bytes() for name in ("judgements", "failed", "places")
        ]


@pytest.fixture
def make_source(tmp_path):
    """Makes queries, documents that share more or fewer words with them, and pools of all documents."""

    def make(queries: int = 3, documents: int = 12) -> Source:
        source = Source(tmp_path)
        query_rows = [
            {"_id": f"q{i}", "text": f"{SUBJECTS[i % 6]}患者的{INTENTS[i // 6 % 4]}第{i}问"}
            for i in range(queries)
        ]
        texts = [f"{SUBJECTS[i % 5]}患者{INTENTS[i % 4]}第{i}条。" for i in range(documents)]
        document_rows = [
            {"_id": f"d{i:03}", "title": SUBJECTS[i % 6], "text": text} for i, text in enumerate(texts)
        ]
        names = [row["_id"] for row in document_rows]
        source.write("queries", query_rows)
        source.write("documents", document_rows)
        source.write("pools", [{"query-id": row["_id"], "corpus-ids": names} for row in query_rows])
        return source

    return make


@pytest.fixture
def make_server():
    """Starts an endpoint; gives its address."""
    with ExitStack() as stack:
        yield lambda endpoint: stack.enter_context(faults.rules.serving(endpoint))


@pytest.fixture
def endpoint():
    """An endpoint of the rule-based judges that does as it is told; see `fault_server`."""
    return lambda **options: faults.FaultEndpoint(controls=(*CONTROLS, *ECHOES), **options)


@pytest.fixture
def judges_of():
    def make(url: str, *models: str, **settings) -> Judges:
        shared = {name: settings.pop(name) for name in Judges.model_fields if name in settings}
        # Its requests depend on the grades; tests that are about it switch it on.
        shared = {"check_positives": False} | shared
        common = {"base_url": url, "timeout": 20, "passages": 4, "concurrency": 8, "backoff": 0.01} | settings
        entries = [{"name": m.removeprefix("rule-"), "model": m, **common} for m in models or ("rule-words",)]
        return Judges.model_validate({"judges": entries, **shared})

    return make
