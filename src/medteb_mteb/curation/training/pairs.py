"""Alignment sets: queries and documents that are each paired with themselves (MAR paper, Stage I data).

The files hold single texts. The `align` stage of a recipe pairs each text with itself, and the other texts of
the batch are its negatives, so a text must not occur twice.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from mar_st.errors import MarError
from mar_st.text.texts import text_digest
from medteb_mteb.curation.files.layout import write_rows
from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.step import Counts, Estimate, Input, Step
from medteb_mteb.curation.training.rows import TEST_QUERY, AgainstSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from medteb_mteb.curation.files.records import Text

#: Names that the `texts` form of a recipe's data looks for in a folder.
FILES = {"query": "queries.jsonl", "document": "corpus.jsonl"}


class PairsSettings(AgainstSettings):
    """Options of `medteb pairs`."""

    queries: Annotated[tuple[Path, ...], Input("texts")] = Field((), description="Sources of queries.")
    documents: Annotated[tuple[Path, ...], Input("texts")] = Field((), description="Sources of documents.")


def alignment_sets(settings: PairsSettings) -> Counts:
    """Write `queries.jsonl` and `corpus.jsonl`, each text once, source by source.

    Of equal texts (title and text) of a role the first stays; a text may be both a query and a document.
    `dropped.jsonl` names the others. Rows have `_id`, `title` if there is one, `text`, and `source`, the
    source's number.
    """
    if not settings.queries and not settings.documents:
        raise MarError("Alignment sets need queries or documents; give --queries or --documents.")
    dropped: list[dict[str, Any]] = []
    reports: list[dict[str, Any]] = []
    kept = {}
    for role, sources in (("query", settings.queries), ("document", settings.documents)):
        if sources:
            rows = _rows(role, sources, settings, dropped, reports)
            kept[role] = write_rows(settings.out / FILES[role], rows)
    write_rows(settings.out / "dropped.jsonl", dropped)
    details = {"kept": kept, "sources": reports}
    return Counts(sum(kept.values()), queries=kept.get("query", 0), details=details)


def _rows(
    role: str,
    sources: Sequence[Path],
    settings: PairsSettings,
    dropped: list[dict[str, Any]],
    reports: list[dict[str, Any]],
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a role's file; no document stays in memory."""
    seen: set[bytes] = set()
    for number, source in enumerate(sources):
        counts: Counter[str] = Counter()
        texts: Iterable[Text] = read_texts(source)
        leaks: dict[int, str] = {}
        if role == "query" and settings.against:
            texts = list(texts)
            leaks = settings.held_out().leaks([text.full for text in texts])
        for place, text in enumerate(texts):
            # The probability that two of 10 million texts have the same 16 bytes is below 1e-24.
            key = text_digest(text.full)
            reason = "duplicate" if key in seen else TEST_QUERY if place in leaks else ""
            seen.add(key)
            if reason:
                dropped.append({"_id": text.id, "role": role, "source": number, "reason": reason})
            else:
                row = text.to_json()
                yield {n: row[n] for n in ("_id", "title", "text") if n in row} | {"source": number}
            counts[reason or "kept"] += 1
        reports.append({"role": role, "source": source.name, **counts})


def _estimate(settings: PairsSettings, sizes: Mapping[str, Estimate]) -> Estimate:
    """Assume that every text is kept."""
    del settings
    given = list(sizes.values())
    return Estimate(sum(size.rows for size in given), sum(size.tokens for size in given))


PAIRS = Step("pairs", PairsSettings, alignment_sets, "alignment", estimate=_estimate, trains=True)
