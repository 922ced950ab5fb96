"""Running a step that turns texts into texts, shard by shard, so that a killed run continues.

In the step's folder, `records-00000.jsonl` holds what it kept of the first shard, `dropped-00000.jsonl` what
it dropped, with the reason, and `.shard-00000.json` the counts of the finished shard.
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from pydantic import Field
from tqdm.auto import tqdm

from mar_st.files import read_record, write_json
from mar_st.options import Argument, Switch
from medteb_mteb.curation.files.layout import write_rows
from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.files.records import Dropped, Text
from medteb_mteb.curation.step import Counts, Input, StepSettings, tokens_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

TEXTS_PER_SHARD = 10_000


class TextsSettings(StepSettings):
    """Options of a step that turns texts into texts."""

    source: Annotated[Path, Argument("IN"), Input("texts")] = Field(
        alias="in",
        description="Texts: a file or folder with columns _id, text and, optionally, title and date.",
    )
    columns: Annotated[dict[str, str], Switch("--column")] = Field(
        default_factory=dict, description="FIELD=COLUMN of id, text, title or date; may be repeated."
    )


class TextWork(Protocol):
    """Work on texts: texts in, texts out, each dropped one with a reason."""

    name: str

    def restore(self, kept: Sequence[Text]) -> None:
        """Take the kept texts of a shard that an earlier run has finished, in the order of the shards."""

    def __call__(self, texts: Sequence[Text]) -> Iterable[Text | Dropped]:
        """Process the texts of the next shard: return one `Text` or `Dropped` for each, in their order."""


def run_step(work: TextWork, settings: TextsSettings, shard: int = TEXTS_PER_SHARD) -> Counts:
    """Run work over the texts of a source, within the run of a step; a killed run continues.

    All rows are checked before the first is processed.

    Args:
        work: The work.
        settings: Source and folder.
        shard: Texts per shard.

    Raises:
        MarError: The source has unusable rows.
    """
    folder, source, columns = settings.out, settings.source, settings.columns
    folder.mkdir(parents=True, exist_ok=True)
    dropped: Counter[str] = Counter()
    total = sum(1 for _ in read_texts(source, columns, dropped=dropped))
    texts = read_texts(source, columns, dropped=Counter())  # the copies are counted already
    read, kept, tokens = total + dropped.total(), 0, 0
    with tqdm(total=total, desc=work.name, unit="texts", disable=None) as bar:
        for number in range(total // shard + 1):
            part = list(islice(texts, shard))
            marker = folder / f".shard-{number:05d}.json"
            records = folder / f"records-{number:05d}.jsonl"
            counts = read_record(marker)
            if counts is None:
                counts = _shard(list(work(part)), records, folder / f"dropped-{number:05d}.jsonl")
                write_json(marker, counts)
            else:
                work.restore(_kept(records))
            kept, tokens = kept + counts["kept"], tokens + counts["tokens"]
            dropped.update(counts["dropped"])
            bar.update(len(part))
    details = {"read": read, "kept": kept, "dropped": dict(sorted(dropped.items()))}
    return Counts(kept, tokens, details=details)


def _shard(outcome: Sequence[Text | Dropped], records: Path, dropped: Path) -> dict[str, Any]:
    """Write the outcome of a shard, and return its counts."""
    kept = [item for item in outcome if isinstance(item, Text)]
    left_out = [item for item in outcome if isinstance(item, Dropped)]
    write_rows(records, (text.to_json() for text in kept))
    if left_out:
        write_rows(dropped, (item.to_json() for item in left_out))
    return {
        "kept": len(kept),
        "tokens": sum(tokens_of("\n".join(filter(None, text.fields))) for text in kept),
        "dropped": Counter(item.reason for item in left_out),
    }


def _kept(records: Path) -> list[Text]:
    rows = [json.loads(line) for line in records.read_text(encoding="utf-8").split("\n") if line]
    return [Text(row.pop("_id"), **row) for row in rows]
