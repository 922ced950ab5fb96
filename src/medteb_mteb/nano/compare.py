"""Compares a Nano set with the published figures: sizes, lengths, and the scores of its candidate lists."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medteb_mteb.abstasks.local_copy import fetch_failed
from medteb_mteb.editions import DATA_VARIABLE
from medteb_mteb.folders.problems import FolderError
from medteb_mteb.nano.layout import load_hub, read_split, splits_of
from medteb_mteb.nano.measures import TOLERANCE, score_rankings
from medteb_mteb.nano.table import HYBRID, published_sets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from medteb_mteb.nano.layout import NanoData
    from medteb_mteb.nano.table import NanoSplit

__all__ = ["Compared", "compare_set", "compare_split"]

#: Published mean lengths are rounded to six decimals.
_ROUNDING = 1e-6
#: The figures of a list that were published.
_SCORES = ("ndcg_at_10", "hit_at_10", "recall_micro_at_100")


@dataclass(frozen=True)
class Compared:
    """One figure.

    Attributes:
        set: Name of the set.
        split: Name of the split.
        figure: Name of the compared figure.
        published: The published value; None if there is none.
        found: The value computed from this data.
        agrees: True if the two are equal within the tolerance, or if nothing was published.
    """

    set: str
    split: str
    figure: str
    published: float | None
    found: float
    agrees: bool

    def to_json(self) -> dict[str, Any]:
        """Return the fields."""
        return asdict(self)

    def to_text(self) -> str:
        """Return a line."""
        known = "not published" if self.published is None else f"published {self.published:.10g}"
        verdict = "" if self.agrees else "  DIFFERS"
        return f"{self.set}/{self.split}  {self.figure}: {self.found:.10g} ({known}){verdict}"


def compare_set(name: str, tolerance: float = TOLERANCE) -> Iterator[Compared]:
    """Compare every split of a set.

    Args:
        name: Name of a published set, or a folder. A published set is read from `$MEDTEB_DATA` if it is
            there, else from the Hub.
        tolerance: Maximum difference of scores that count as equal.

    Raises:
        DataUnavailableError: The Hub does not give a published set.
        FolderError: The data are missing or invalid.
    """
    sets = published_sets()
    root = os.environ.get(DATA_VARIABLE)
    local = Path(root).expanduser() / name if root and name in sets else Path(name)
    if name in sets and not local.is_dir():
        nano = sets[name]
        for split in nano.splits.values():
            yield from compare_split(_of_hub(name, nano.hub, split), name, split, tolerance)
        return
    if not local.is_dir():
        raise FolderError(local, [f"no such folder, and no published set; these are {', '.join(sets)}"])
    known = sets[local.resolve().name].splits if local.resolve().name in sets else {}
    splits = splits_of(local)
    if not splits:
        raise FolderError(
            local,
            ["no Nano split: its card declares no split with corpus, queries and qrels; "
             "`medteb build nano` writes one"],
        )  # fmt: skip
    for one in splits:
        data = read_split(local, one)
        yield from compare_split(data, local.resolve().name, known.get(one), tolerance)


def _of_hub(name: str, hub: str, split: NanoSplit) -> NanoData:
    try:
        return load_hub(hub, split.name, "main", split.lists)
    except FolderError:
        raise
    except Exception as error:  # offline, blocked, withdrawn: the Hub client has a dozen types for it
        raise fetch_failed(f"{name}, split {split.name},", hub, name, error) from error


def compare_split(
    data: NanoData, name: str, published: NanoSplit | None, tolerance: float = TOLERANCE
) -> Iterator[Compared]:
    """Compare one split.

    Args:
        data: The split.
        name: Name of the set.
        published: The published figures of the split, or None.
        tolerance: Maximum difference of scores that count as equal.
    """

    def row(figure: str, measured: float, expected: float | None, within: float = 0.0) -> Compared:
        agrees = expected is None or abs(measured - expected) <= within
        return Compared(name, data.split, figure, expected, measured, agrees)

    positives = [len(documents) for documents in data.qrels.values()]
    mean = {
        "query_mean_chars": sum(map(len, data.queries.values())) / len(data.queries),
        "document_mean_chars": sum(map(len, data.corpus.values())) / len(data.corpus),
    }
    exact = {
        "queries": len(data.queries),
        "documents": len(data.corpus),
        "positives": sum(positives),
        "most_positives": max(positives),
        "queries_with_several": sum(number > 1 for number in positives),
    }
    for figure, number in exact.items():
        yield row(figure, number, getattr(published, figure, None))
    for figure, value in mean.items():
        yield row(figure, value, getattr(published, figure, None), _ROUNDING)
    for list_name, rows in data.lists.items():
        expected = published.lists.get(list_name) if published else None
        scores = score_rankings(rows, data.qrels)
        for figure in _SCORES:
            yield row(
                f"{list_name} {figure}", getattr(scores, figure), getattr(expected, figure, None), tolerance
            )
        lengths = [len(documents) for documents in rows.values()]
        for figure, length in (("shortest", min(lengths)), ("longest", max(lengths))):
            yield row(f"{list_name} {figure}", length, getattr(expected, figure, None))
        mean_length = sum(lengths) / len(lengths)
        yield row(f"{list_name} mean_length", mean_length, getattr(expected, "mean_length", None), _ROUNDING)
        if list_name == HYBRID:
            safeguards = sum(
                not set(documents[:100]).intersection(data.qrels[q]) for q, documents in rows.items()
            )
            yield row("safeguards", safeguards, getattr(published, "safeguards", None))
