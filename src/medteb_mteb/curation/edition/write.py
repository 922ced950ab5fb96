"""Writing what belongs to the data of an edition: card, manifest and provenance.

The same data have the same bytes, so the same digest, on every platform and day.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic import Field

from mar_st.files import write_json
from medteb_mteb.curation.step import SEED, StepSettings, TestSize
from medteb_mteb.editions import PROVENANCE, write_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from medteb_mteb.editions import Edition

_TABLES = [("default", "qrels/test.tsv"), ("corpus", "corpus.jsonl"), ("queries", "queries.jsonl")]
#: Of each task: its tables for the header of the card, its category at the Hub, and what it holds.
_TASKS = {
    "MedTEBRetrieval": (
        _TABLES,
        "text-retrieval",
        "Queries, a corpus, and the documents that answer each query (`qrels/test.tsv`). `labels.tsv` has "
        "the documents judged not to answer as well, `disputed.tsv`, where there is one, the pairs that the "
        "judges do not agree on; all others were not judged.",
    ),
    "MedTEBReranking": (
        [*_TABLES, ("top_ranked", "top_ranked.jsonl")],
        "text-ranking",
        "For each query a list of candidates in random order (`top_ranked.jsonl`), positives and negatives "
        "drawn from what was judged.",
    ),
    "MedTEBSTS": (
        [("default", "test.jsonl")],
        "sentence-similarity",
        "Pairs of questions; 1 where they ask the same.",
    ),
}


class EditionSettings(StepSettings):
    """Options of a step that writes editions."""

    edition: str = Field(min_length=1, description="Name of the edition.")
    licence: str = Field(min_length=1, description="Licence of the data, e.g. cc-by-4.0.")
    version: str = Field("1.0.0", description="Version of the edition.")
    test: TestSize = Field(
        0.2, description="Number of test queries, or their share if below 1; the others become training data."
    )


def write_edition(
    settings: EditionSettings,
    task: str,
    counts: Mapping[str, int],
    statistics: Mapping[str, Any],
    provenance: Mapping[str, Any],
    **extra: Any,
) -> Edition:
    """Write card, manifest and `provenance.json` of an edition whose data files exist in the step's folder.

    Args:
        settings: Options of the step.
        task: `MedTEBRetrieval`, `MedTEBReranking` or `MedTEBSTS`, also the name of its folder.
        counts: Number of records by kind.
        statistics: Numbers for card and manifest.
        provenance: How it was made, see `medteb_mteb.editions`.
        **extra: Further fields of the manifest.
    """
    folder, sources = settings.out / task, list(provenance.get("sources", []))
    card = _card(task, settings, {**counts, **statistics}, sources)
    (folder / "README.md").write_bytes(card.encode())
    named = {"sources": sources} if sources else {}
    edition = write_manifest(
        folder,
        task=task,
        name=settings.edition,
        version=settings.version,
        licence=settings.licence,
        counts=counts,
        statistics=dict(statistics),
        seed=SEED,
        **extra,
        **named,
    )
    write_provenance(folder, provenance)
    return edition


def write_provenance(folder: Path, provenance: Mapping[str, Any]) -> None:
    """Write `provenance.json` of an edition, which is outside its digest."""
    content = {"schema_version": 1, **{key: value for key, value in provenance.items() if value}}
    write_json(folder / PROVENANCE, content)


def _card(
    task: str, settings: EditionSettings, numbers: Mapping[str, Any], sources: Sequence[Mapping[str, Any]]
) -> str:
    """Return the README.md of an edition: the header for the Hub, what it holds, and its numbers."""
    tables, category, about = _TASKS[task]
    quoted = json.dumps(settings.licence, ensure_ascii=False)
    configs = "\n".join(
        f"- config_name: {config}\n  data_files:\n  - split: test\n    path: {path}"
        for config, path in tables
    )
    header = (
        f"---\nlanguage:\n- zh\nlicense: {quoted}\ntask_categories:\n- {category}\n"
        f"tags:\n- medical\n- mteb\nconfigs:\n{configs}\n---\n"
    )
    listed = "".join(f"- {one['name']}, {one['licence']}\n" for one in sources)
    of_texts = f"\n## Sources of the texts\n\n{listed}" if listed else ""
    rows = "".join(f"| {name} | {value} |\n" for name, value in numbers.items())
    title = f"# {task}, edition {settings.edition}"
    return f"{header}\n{title}\n\n{about}\n{of_texts}\n## Statistics\n\n| | |\n|---|---|\n{rows}"
