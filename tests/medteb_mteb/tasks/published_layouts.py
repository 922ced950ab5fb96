"""Folders in the layouts of retrieval sets on the Hub, with made-up content."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import yaml
from tests.conftest import DOCUMENTS, QRELS, QUERIES, write_jsonl

if TYPE_CHECKING:
    from pathlib import Path


def write_published(folder: Path) -> Path:
    """A folder in the layout of CMIRB's and BEIR's sets on the Hub; their default table is the qrels."""
    write_jsonl(folder / "corpus.jsonl", [{"id": k, "text": t} for k, t in DOCUMENTS.items()])
    write_jsonl(folder / "queries.jsonl", [{"id": k, "text": t} for k, t in QUERIES.items()])
    rows = [{"q_id": q, "p_id": d, "score": s} for q, row in QRELS.items() for d, s in row.items()]
    write_jsonl(folder / "qrels" / "test.jsonl", rows)
    files = {
        "default": ("test", "qrels/test.jsonl"),
        "corpus": ("corpus", "corpus.jsonl"),
        "queries": ("queries", "queries.jsonl"),
    }
    configs = [
        {"config_name": name, "data_files": [{"split": split, "path": path}]}
        for name, (split, path) in files.items()
    ]
    header = yaml.safe_dump({"license": "apache-2.0", "language": ["zh"], "configs": configs})
    (folder / "README.md").write_text(f"---\n{header}---\n\nPaper\n", encoding="utf-8")
    return folder


def write_pushed(folder: Path, split: str, *, reranking: bool) -> Path:
    """A folder as `push_to_hub` of mteb's tasks leaves it on the Hub: Parquet by configuration and split."""
    pairs = [(q, d, s) for q, row in QRELS.items() for d, s in row.items()]
    tables = {
        "corpus": [{"id": k, "text": t, "title": ""} for k, t in DOCUMENTS.items()],
        "queries": [{"id": k, "text": t} for k, t in QUERIES.items()],
        "qrels": [{"query-id": q, "corpus-id": d, "score": s} for q, d, s in pairs],
    }
    if reranking:
        tables["top_ranked"] = [{"query-id": q, "corpus-ids": sorted(DOCUMENTS)} for q in QUERIES]
    configs = []
    for name, rows in tables.items():
        (folder / name).mkdir(parents=True)
        pd.DataFrame(rows).to_parquet(folder / name / f"{split}-00000-of-00001.parquet", index=False)
        configs.append({"config_name": name, "data_files": [{"split": split, "path": f"{name}/{split}-*"}]})
    (folder / "README.md").write_text(f"---\n{yaml.safe_dump({'configs': configs})}---\n", encoding="utf-8")
    return folder
