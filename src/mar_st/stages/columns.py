"""Columns of training data: those that a data entry asks for, and those of documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mar_st.data import to_dataset, with_negatives
from mar_st.stages.samplers import text_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from datasets import Dataset

    from mar_st.data import Source


def read_columns(source: Source, seed: int) -> Dataset:
    """Return the columns that a data entry of the recipe asks for, see `mar_st.data.to_dataset`.

    Premises of NLI data without a contradiction are left out if negatives are asked for.
    """
    entry, triples = source.entry, source.triples
    if entry.negatives and source.form == "nli" and entry.missing_negatives == "refuse":
        triples = with_negatives(triples, entry.name)
    return to_dataset(
        triples,
        negatives=entry.negatives,
        positives=entry.positives,
        seed=seed,
        weight=entry.weight,
        missing_negatives=entry.missing_negatives,
    )


def document_columns(
    data: Mapping[str, Dataset], router_mapping: Mapping[str, Mapping[str, str]]
) -> dict[str, list[str]]:
    """Return the document columns by dataset: those of the document route, else all texts after the first.

    If there are routes, columns without a route are only for the samplers and are not encoded.
    """
    result = {}
    for name, dataset in data.items():
        routes = router_mapping[name]
        texts = [column for column in text_columns(dataset) if column in routes or not routes]
        documents = [column for column in texts if routes.get(column) == "document"]
        result[name] = documents or texts[1:] or texts
    return result
