"""Tiny hand-written editions that replace the packaged ones."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.medteb_mteb.tasks.snapshots import write_snapshot

from medteb_mteb.cli import main
from medteb_mteb.editions import write_manifest

REPOSITORY = Path(__file__).resolve().parents[2]

DOCUMENTS = [
    "感冒发烧应多喝温水，注意休息，体温超过38.5度可口服退烧药。",
    "糖尿病患者应控制主食，少吃甜食，定期监测血糖。",
    "高血压需要长期服用降压药，不可自行停药。",
    "胃酸过多引起的胃痛可以在医生指导下服用奥美拉唑。",
    "偏头痛发作时可口服布洛芬缓解疼痛。",
    "小儿腹泻要及时补充口服补液盐，防止脱水。",
]
QUERIES = ["感冒发烧了怎么办", "血糖高不能吃什么", "血压高的药能停吗"]
PAIRS = [
    ("小孩发烧怎么办", "小孩发热怎么办", 1),
    ("小孩发烧怎么办", "小孩发热会烧坏脑子吗", 0),
    ("心梗怎么急救", "心肌梗死怎么急救", 1),
    ("心梗怎么急救", "心梗要花多少钱", 0),
    ("头疼吃什么药", "头痛吃什么药", 1),
]


def write_rows(path: Path, rows: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def write_retrieval(folder: Path, *, candidates: list[str] | None = None) -> None:
    """A retrieval folder, or a reranking one with the same candidates for every query."""
    rows = [{"_id": f"d{i}", "title": "", "text": text} for i, text in enumerate(DOCUMENTS)]
    write_rows(folder / "corpus.jsonl", rows)
    write_rows(folder / "queries.jsonl", [{"_id": f"q{i}", "text": text} for i, text in enumerate(QUERIES)])
    qrels = [f"q{i}\td{i}\t1" for i in range(len(QUERIES))]
    (folder / "qrels").mkdir(exist_ok=True)
    (folder / "qrels/test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *qrels]) + "\n")
    if candidates:
        lists = [{"query-id": f"q{i}", "corpus-ids": candidates} for i in range(len(QUERIES))]
        write_rows(folder / "top_ranked.jsonl", lists)


def write_edition(root: Path, task: str, **fields) -> None:
    folder = root / task
    if task == "MedTEBSTS":
        rows = [{"sentence1": a, "sentence2": b, "score": score} for a, b, score in PAIRS]
        write_rows(folder / "test.jsonl", rows)
    else:
        every = [f"d{i}" for i in range(len(DOCUMENTS))]
        write_retrieval(folder, candidates=every if task == "MedTEBReranking" else None)
    fields = {"name": "mini", "version": "0.0.1", "licence": "CC-BY-4.0", "counts": {}} | fields
    write_manifest(folder, task=task, **fields)


@pytest.fixture
def data_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A MEDTEB_DATA folder with a tiny edition of each packaged task."""
    root = tmp_path / "data"
    for task in ("MedTEBRetrieval", "MedTEBReranking", "MedTEBSTS"):
        write_edition(root, task)
    monkeypatch.setenv("MEDTEB_DATA", str(root))
    return root


@pytest.fixture
def snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes the named tasks of English MedTEB."""

    def write(*names):
        folder = write_snapshot(tmp_path / "data", list(names))
        monkeypatch.setenv("MEDTEB_DATA", str(tmp_path / "data"))
        return folder

    return write


@pytest.fixture
def retrieval_folder():
    """Writes a retrieval (or, with candidates, a reranking) folder without a manifest."""
    return write_retrieval


@pytest.fixture
def edition():
    """Writes a tiny edition of a packaged task below a root."""
    return write_edition


@pytest.fixture
def medteb(monkeypatch, capsys):
    """Runs the command in this process: `medteb("run", ...) -> (exit code, stdout, stderr)`."""

    def call(*args):
        monkeypatch.setattr(sys, "argv", ["medteb", *map(str, args)])
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        return stop.value.code or 0, out, err

    return call
