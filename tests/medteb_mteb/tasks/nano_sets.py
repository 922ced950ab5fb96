"""Writes tiny Nano sets in the published layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from medteb_mteb.tasks.nano import BM25, DENSE, HYBRID

if TYPE_CHECKING:
    from pathlib import Path

DISEASES = ["感冒", "高血压", "糖尿病", "胃炎", "骨折", "鼻炎"]


def tables(documents: int = 120) -> dict[str, dict[str, list]]:
    """Three queries over documents of six themes; the third query's positive is in no list but the hybrid's.

    Up to 100 documents, a hybrid list holds them all.
    """
    corpus = [f"{DISEASES[i % 6]}的第{i}条说明，注意休息，按时服药。" for i in range(documents)]
    ids = [f"d{i}" for i in range(documents)]
    queries = ["感冒吃什么药", "高血压注意什么", "糖尿病怎么办"]
    qrels = [("q0", "d0"), ("q0", "d6"), ("q1", "d1"), ("q2", ids[-1])]
    rest = ids[:-1]
    lists = {
        BM25: [rest, rest, rest],
        DENSE: [rest[::-1], rest[::-1], rest[::-1]],
        HYBRID: [rest[:100], rest[:100], [*rest[:100], ids[-1]]] if documents > 100 else [ids, ids, ids],
    }
    return {
        "corpus": {"_id": ids, "text": corpus},
        "queries": {"_id": ["q0", "q1", "q2"], "text": queries},
        "qrels": {"query-id": [q for q, _ in qrels], "corpus-id": [d for _, d in qrels]},
    } | {name: {"query-id": ["q0", "q1", "q2"], "corpus-ids": rows} for name, rows in lists.items()}


def write_split(folder: Path, split: str, content: dict[str, dict[str, list]] | None = None) -> Path:
    """Write a split; `CONFIGURATION/SPLIT.parquet` and a card that declares them, as published."""
    content = content or tables()
    for name, columns in content.items():
        path = folder / name / f"{split}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), path)
    configs = []
    for name in content:
        splits = sorted(path.stem for path in (folder / name).glob("*.parquet"))
        files = [{"split": one, "path": f"{name}/{one}.parquet"} for one in splits]
        configs.append({"config_name": name, "data_files": files})
    (folder / "README.md").write_text(f"---\n{yaml.safe_dump({'configs': configs})}---\n# Set\n")
    return folder


def write_set(folder: Path, splits: list[str], documents: int = 120) -> Path:
    for split in splits:
        write_split(folder, split, tables(documents))
    return folder
