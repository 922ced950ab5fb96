"""Dataset cards of built editions: header for the Hub, description of the data, counts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mar_st.files.yaml_text import YamlError, parse_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["named", "write_card"]

_TABLES = [("default", "qrels/test.tsv"), ("corpus", "corpus.jsonl"), ("queries", "queries.jsonl")]
_CONFIGS = {
    "MedTEBRetrieval": _TABLES,
    "MedTEBReranking": [*_TABLES, ("top_ranked", "top_ranked.jsonl")],
    "MedTEBSTS": [("default", "test.jsonl")],
}
_CATEGORY = {
    "MedTEBRetrieval": "text-retrieval",
    "MedTEBReranking": "text-ranking",
    "MedTEBSTS": "sentence-similarity",
}
_ABOUT = {
    "MedTEBRetrieval": "Queries, a corpus, and the documents that answer each query (`qrels/test.tsv`). "
    "`labels.tsv` has the documents judged not to answer as well, `disputed.tsv`, where there is one, the "
    "pairs that the judges do not agree on; all others were not judged.",
    "MedTEBReranking": "For each query a list of candidates in random order (`top_ranked.jsonl`), positives "
    "and negatives drawn from what was judged.",
    "MedTEBSTS": "Pairs of questions; 1 where they ask the same.",
}


def write_card(
    task: str,
    edition: str,
    licence: str,
    statistics: Mapping[str, Any],
    sources: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Return the README.md of an edition of a task.

    Args:
        task: `MedTEBRetrieval`, `MedTEBReranking` or `MedTEBSTS`.
        edition: Name of the edition.
        licence: Licence of the data.
        statistics: Rows of the table of numbers.
        sources: Name, licence and address of the texts' sources.
    """
    configs = "\n".join(
        f"- config_name: {name}\n  data_files:\n  - split: test\n    path: {path}"
        for name, path in _CONFIGS[task]
    )
    header = (
        f"---\nlanguage:\n- zh\nlicense: {_plain(licence)}\ntask_categories:\n- {_CATEGORY[task]}\n"
        f"tags:\n- medical\n- mteb\nconfigs:\n{configs}\n---\n"
    )
    rows = "".join(f"| {name} | {value} |\n" for name, value in statistics.items())
    title = f"# {task}, edition {edition}"
    return (
        f"{header}\n{title}\n\n{_ABOUT[task]}\n{_listed(sources)}\n## Statistics\n\n| | |\n|---|---|\n{rows}"
    )


def named(sources: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the manifest field that names the sources; empty without sources."""
    return {"sources": [dict(source) for source in sources]} if sources else {}


def _plain(licence: str) -> str:
    """Return a licence as a value of the header, quoted if YAML would read it as something else."""
    try:
        if parse_yaml(f"license: {licence}\n") == {"license": licence}:
            return licence
    except YamlError:
        pass
    return json.dumps(licence, ensure_ascii=False)


def _listed(sources: Sequence[Mapping[str, Any]]) -> str:
    if not sources:
        return ""
    lines = [
        "- " + ", ".join(str(source[key]) for key in ("name", "licence", "url") if source.get(key))
        for source in sources
    ]
    return "\n## Sources of the texts\n\n" + "\n".join(lines) + "\n"
