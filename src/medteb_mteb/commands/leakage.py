"""`medteb leakage`: has a model seen a test?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from mar_st.errors import MarError
from mar_st.options import Argument, Settings, Switch

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LeakageSettings", "as_text", "leakage"]


class LeakageSettings(Settings):
    """Options of `medteb leakage`."""

    folder: Annotated[Path, Argument()] = Field(
        description="Retrieval or reranking folder in the Hub layout."
    )
    training: Annotated[tuple[Path, ...], Switch("--training")] = Field(
        min_length=1, description="Training set: file or folder; may be repeated."
    )
    threshold: float = Field(
        0.6, gt=0, le=1, description="Similarity from which two texts count as near-duplicates."
    )


def leakage(settings: LeakageSettings) -> dict[str, Any]:
    """Look for test queries and documents in training sets.

    Only documents that are relevant to a test query are searched for.
    """
    from medteb_mteb.curation.texts.split import overlap  # lazy: numpy
    from medteb_mteb.curation.training import training_texts  # lazy: numpy
    from medteb_mteb.folders import read_folder  # lazy: mteb

    data = read_folder(settings.folder).retrieval
    if data is None:
        raise MarError(f"{settings.folder} is not a retrieval or reranking folder.")
    relevant = {name for row in data.qrels.values() for name, score in row.items() if score > 0}
    documents = [row for row in data.corpus if row["id"] in relevant]
    return overlap(
        [row["text"] for row in data.queries],
        [f"{row['title']}\n{row['text']}" if row["title"] else row["text"] for row in documents],
        [text for path in settings.training for text in training_texts(path)],
        settings.threshold,
    )


def as_text(report: Mapping[str, Any]) -> str:
    """Return the report as text."""
    lines = [
        f"queries: {report['queries']:,}, of which equal {report['equal']:,}, "
        f"near-duplicates {report['near']:,}",
        f"relevant documents: {report['documents']:,}, of which equal {report['equal_documents']:,}",
    ]
    return "\n".join([*lines, *(f"  {query!r} ~ {other!r}" for query, other in report["examples"])])
