"""Collating the rows of a batch into token tensors, with a record of the batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers.base.data_collator import DEFAULT_LABEL_COLUMNS
from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator

from mar_st.losses.columns import SPANS, spans_of
from mar_st.stages.samplers import SOURCE_COLUMN, BatchError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mar_st.stages.token_dropout import TokenDropout

#: Key of a collated batch that holds its `BatchRecord`.
RECORD_KEY = "record"


@dataclass(frozen=True)
class BatchRecord:
    """Composition of a batch, counted from the collated tensors before they leave the CPU.

    Attributes:
        sources: Data entry of each row.
        texts: Texts of each column, with the prompt if a batch mixes prompts.
        tokens: Number of tokens of each column, without padding and tokens that `token_dropout` hides.
        squares: Sum of the squared token counts of a column's texts, for the cost of attention.
        padded: Number of tokens of each column, with padding.
        routes: Route of each column, if the model has routes.
    """

    sources: list[str]
    texts: dict[str, list[str]]
    tokens: dict[str, int] = field(default_factory=dict)
    squares: dict[str, int] = field(default_factory=dict)
    padded: dict[str, int] = field(default_factory=dict)
    routes: dict[str, str] = field(default_factory=dict)


@dataclass
class RecordingCollator(SentenceTransformerDataCollator):
    """sentence-transformers' collator that also writes a `BatchRecord`, and takes rows of several datasets.

    Rows of several datasets need one route per column. Their prompts are put in front of the texts here, as
    the model's `preprocess` would do.

    Args:
        mixed: Whether a batch may hold rows of several datasets. In both cases, `prompts` and
            `router_mapping` are keyed by dataset and column.
        dropout: Hides tokens of the batch.
    """

    mixed: bool = False
    dropout: TokenDropout | None = None

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the tensors of a batch of rows."""
        sources = [row[SOURCE_COLUMN] for row in features]
        if self.mixed:
            features = [self._with_prompts(row) for row in features]
        batch = super().__call__([{k: v for k, v in row.items() if not _is_vector(k, v)} for row in features])
        vectors = [name for name, value in features[0].items() if _is_vector(name, value)]
        for name in vectors:  # before 6.2, sentence-transformers accepts only numbers as labels
            batch["label"] = torch.stack([row[name] for row in features])
        columns = [name for name in features[0] if name not in (SOURCE_COLUMN, *DEFAULT_LABEL_COLUMNS)]
        record = BatchRecord(sources, {column: [row[column] for row in features] for column in columns})
        for column in columns:
            if self.dropout is not None:
                self.dropout(batch, column, record.texts[column])
            _count(record, column, batch)
        batch[RECORD_KEY] = record
        return batch

    def _with_prompts(self, row: dict[str, Any]) -> dict[str, Any]:
        prompts: Any = self.prompts or {}
        own = prompts.get(row[SOURCE_COLUMN], {})
        return {column: own[column] + value if own.get(column) else value for column, value in row.items()}

    def _resolve_prompts(self, batch: dict[str, Any]) -> str | dict[str, str] | None:
        return {} if self.mixed else super()._resolve_prompts(batch)


def _is_vector(column: str, value: Any) -> bool:
    """Return True if a value is a label that is a tensor, such as the teacher's vector."""
    return column in DEFAULT_LABEL_COLUMNS and torch.is_tensor(value)


def _count(record: BatchRecord, column: str, batch: dict[str, Any]) -> None:
    """Count the tokens of a column, and add the spans of its texts to the batch."""
    mask, ends = batch.get(f"{column}_attention_mask"), batch.get(f"{column}_cu_seq_lens_q")
    if ends is not None:  # texts laid end to end, without padding
        lengths = torch.diff(ends).long()
        padded = int(lengths.sum())
    elif mask is not None:
        lengths = mask.sum(dim=1)
        padded = mask.numel()
    else:
        return
    if mask is not None and ends is None:
        batch[f"{column}_{SPANS}"] = spans_of(mask)
    record.tokens[column] = int(lengths.sum())
    record.squares[column] = int(lengths.square().sum())
    record.padded[column] = padded
    route = batch.get(f"{column}_task")
    if route is not None:
        record.routes[column] = route


def check_mixture(
    columns: Mapping[str, Sequence[str]],
    router_mapping: Mapping[str, Mapping[str, str]],
    *,
    stage: str,
    pooled_prompts: bool = True,
    prompts: Mapping[str, Mapping[str, str]] | None = None,
) -> None:
    """Refuse `batches: mixed` for datasets whose rows cannot share a batch.

    Args:
        columns: Columns of each dataset, labels included.
        router_mapping: Route of each column, by dataset.
        stage: Name of the stage, for the message.
        pooled_prompts: Whether the model pools over the prompt's tokens too, as all encoders here do.
        prompts: Prompt of each column, by dataset.

    Raises:
        BatchError: Columns, or routes of a column, differ between datasets, or pooling leaves prompts out.
    """
    (first, *others) = columns
    advice = "Use 'batches: one-source', or leave one of them out with 'data'."
    for other in others:
        if list(columns[first]) != list(columns[other]):
            raise BatchError(
                f"stage {stage}: 'batches: mixed' needs the same columns in all data; {first!r} has "
                f"{', '.join(columns[first])} and {other!r} has {', '.join(columns[other])}. "
                f"Give them the same number of negatives. {advice}"
            )
        for column in columns[first]:
            routes = [router_mapping.get(name, {}).get(column) for name in (first, other)]
            if routes[0] != routes[1]:
                raise BatchError(
                    f"stage {stage}: 'batches: mixed' needs one route per column; {column!r} goes to "
                    f"{routes[0]!r} for {first!r} and to {routes[1]!r} for {other!r}. {advice}"
                )
            texts = [(prompts or {}).get(name, {}).get(column, "") for name in (first, other)]
            if texts[0] != texts[1] and not pooled_prompts:
                raise BatchError(
                    f"stage {stage}: {first!r} and {other!r} have different prompts, which this model's "
                    f"pooling leaves out; a mixed batch does not allow that. {advice}"
                )
