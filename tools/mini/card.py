"""Dataset cards of the packaged tasks: a YAML header for the Hub, then a description of the data."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from tools.mini.wording import card_wording

if TYPE_CHECKING:
    from collections.abc import Mapping

LICENCE = "apache-2.0"
_CONFIGS: dict[str, list[tuple[str, str, str]]] = {
    "MedTEBRetrieval": [
        ("default", "test", "qrels/test.tsv"),
        ("corpus", "test", "corpus.jsonl"),
        ("queries", "test", "queries.jsonl"),
    ],
    "MedTEBReranking": [
        ("default", "test", "qrels/test.tsv"),
        ("corpus", "test", "corpus.jsonl"),
        ("queries", "test", "queries.jsonl"),
        ("top_ranked", "test", "top_ranked.jsonl"),
    ],
    "MedTEBSTS": [("default", "train", "train.jsonl"), ("default", "test", "test.jsonl")],
}
_CATEGORY = {
    "MedTEBRetrieval": "text-retrieval",
    "MedTEBReranking": "text-ranking",
    "MedTEBSTS": "sentence-similarity",
}


def measured() -> dict[str, Any]:
    """Return the baselines recorded by ``python -m tools.mini.measure``."""
    text = files(__package__).joinpath("measured.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def write_card(task: str, counts: Mapping[str, int], statistics: Mapping[str, object], tables: str) -> str:
    """Return the README.md of one task."""
    prose = card_wording()
    parts = [_header(task, prose["first_line"]), f"# {task}, mini edition\n", prose["about"][task]]
    parts.append(_statistics(counts, statistics))
    if task in prose["grades"]:
        parts += [prose["scale"], prose["grades"][task]]
    parts += [prose["making"].format(tables=tables), prose["baselines"], _table(measured().get(task, {}))]
    return "\n".join(parts)


def _header(task: str, first_line: str) -> str:
    configs: dict[str, list[str]] = {}
    for name, split, path in _CONFIGS[task]:
        configs.setdefault(name, []).append(f"  - split: {split}\n    path: {path}")
    listed = "\n".join(
        f"- config_name: {name}\n  data_files:\n" + "\n".join(entries) for name, entries in configs.items()
    )
    return (
        f"---\nlanguage:\n- zh\nlicense: {LICENCE}\ntask_categories:\n- {_CATEGORY[task]}\n"
        f"tags:\n- medical\n- synthetic\n- mteb\nconfigs:\n{listed}\n---\n\n{first_line}\n"
    )


def _statistics(counts: Mapping[str, int], statistics: Mapping[str, object]) -> str:
    named = {name.replace("_", " "): value for name, value in counts.items()}
    return "## Statistics\n\n" + _table({**named, **statistics})


def _table(rows: Mapping[str, object]) -> str:
    return "| | |\n|---|---|\n" + "".join(f"| {name} | {value} |\n" for name, value in rows.items())
