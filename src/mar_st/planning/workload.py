"""Workload of a stage: rows, steps, and the texts of an optimiser step with their lengths."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mar_st.planning.backbones import POSITION_IDS_ONLY
from mar_st.planning.lengths import entry_stats, padded_length, tokens_of
from mar_st.recipes.rules import CONTEXT_TEXTS, averages, reads_documents
from mar_st.recipes.schema import AlignStage, JointStage, RetroMAEStage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mar_st.planning.backbones import Shape
    from mar_st.recipes.schema import Data, Recipe, Side, Stage


#: Roles of texts that an align stage takes.
ALIGN_ROLES = {"all": ("query", "document"), "queries": ("query",), "documents": ("document",)}


@dataclass(frozen=True)
class Column:
    """Texts of one side in an optimiser step, over all devices.

    Attributes:
        side: The encoder of the texts.
        rows: Number of texts.
        length: Tokens per text, with padding.
        mean: Tokens per text without padding.
        read: Whether their vectors are stored; these texts are encoded before the first step.
    """

    side: Side
    rows: int
    length: float
    mean: float
    read: bool = False


@dataclass(frozen=True)
class Group:
    """Rows that make batches together.

    Attributes:
        entry: The data entry of the rows.
        rows: Number of rows; `None` if neither data nor recipe give it.
        columns: Texts of a batch.
        queries: Whether single texts are queries.
    """

    entry: Data
    rows: float | None
    columns: tuple[Column, ...]
    queries: bool = False


class Workload:
    """Rows and lengths of a recipe's data, read once.

    Args:
        recipe: The recipe.
        shapes: Shapes of its encoders.
        world: Number of devices that share a batch.

    Raises:
        MarError: Data exist but cannot be read.
    """

    def __init__(self, recipe: Recipe, shapes: Mapping[Side, Shape], world: int) -> None:
        self.recipe, self.shapes, self.world = recipe, shapes, world
        self.stats = {entry.name: entry_stats(entry) for entry in recipe.data}
        self._how: set[str] = set()
        self._lengths: dict[tuple[Side, str, bool, bool], list[int] | None] = {}
        self._tokenizers: dict[Side, Callable[[str], int]] = {}

    def groups(self, stage: Stage, entries: Sequence[Data]) -> list[Group]:
        """Return the rows that a stage makes of its data entries."""
        kept = 1 - getattr(stage, "token_dropout", 0.0)
        return [
            replace(group, columns=tuple(self._without(column, kept) for column in group.columns))
            for group in self._groups(stage, entries)
        ]

    def _without(self, column: Column, kept: float) -> Column:
        """Return a column with only a share of its tokens, if hidden tokens cost nothing."""
        if self.shapes[column.side].config["model_type"] not in POSITION_IDS_ONLY:
            return column
        return replace(column, length=column.length * kept, mean=column.mean * kept)

    def _groups(self, stage: Stage, entries: Sequence[Data]) -> list[Group]:
        if not isinstance(stage, AlignStage | RetroMAEStage):
            return [self._pairs(stage, entry) for entry in entries]
        groups = []
        for entry in entries:
            stats = self.stats[entry.name]
            if isinstance(stage, RetroMAEStage):
                known = [rows for rows in (stats.queries, stats.documents) if rows is not None]
                column = self.column("query", entry, None, stage.batch_size, stage, bare=True)
                groups.append(Group(entry, sum(known) if known else None, (column,)))
                continue
            kinds: tuple[tuple[Side, float | None], ...] = (
                ("query", stats.queries),
                ("document", stats.documents),
            )
            for role, rows in kinds:
                if rows == 0 or role not in ALIGN_ROLES[stage.texts] or entry.role not in (None, role):
                    continue
                column = self.column("query", entry, role == "query", stage.batch_size, stage)
                weighted = None if rows is None else rows * entry.weight
                groups.append(Group(entry, weighted, (column, *self._second(stage)), role == "query"))
        return groups

    def _second(self, stage: AlignStage) -> tuple[Column, ...]:
        """Return the second texts of an alignment's rows, drawn from the documents of its data."""
        if len(stage.text_weights) < 2:
            return ()
        entries = self._with_documents(stage)
        return tuple(self.column("query", entry, False, stage.batch_size, stage) for entry in entries[:1])

    def _with_documents(self, stage: AlignStage) -> list[Data]:
        entries = self.recipe.data_of(stage)
        return [e for e in entries if e.role in (None, "document") and self.stats[e.name].documents != 0]

    def texts(self, stage: Stage, groups: Sequence[Group]) -> list[tuple[Data, bool, float]]:
        """Return the distinct texts of a stage: data entry, whether they are queries, how many."""
        counted = []
        if isinstance(stage, AlignStage):
            counted = [
                (group.entry, group.queries, (group.rows or 0.0) / group.entry.weight) for group in groups
            ]
            if len(stage.text_weights) > 1:
                entries = self._with_documents(stage)
                counted += [(entry, False, self.stats[entry.name].documents or 0.0) for entry in entries]
            return counted
        for group in groups:
            stats = self.stats[group.entry.name]
            counted += [
                (group.entry, True, stats.queries or 0.0),
                (group.entry, False, stats.documents or 0.0),
            ]
        return [part for part in counted if part[2]]

    def averaged(self, stage: Stage) -> tuple[float, float]:
        """Count the texts over which a stage averages hidden states of the document encoder.

        Returns:
            Number of texts (0 if none are averaged) and the mean number of tokens.
        """
        query = self.recipe.query
        if query is None or query.context_means is None or not averages(self.recipe, stage):
            return 0.0, 0.0
        entries = [entry for entry in self.recipe.data if entry.name in query.context_means]
        numbers = [self.stats[entry.name].queries or 0.0 for entry in entries]
        total = sum(numbers)
        if not total:
            return 0.0, 0.0
        means = [self.column("document", entry, True, 1, stage).mean for entry in entries]
        tokens = sum(number * mean for number, mean in zip(numbers, means, strict=True)) / total
        return min(total, float(CONTEXT_TEXTS)), tokens

    def _pairs(self, stage: Stage, entry: Data) -> Group:
        stats, batch = self.stats[entry.name], stage.batch_size
        rows = stats.pairs if entry.positives == "all" else stats.triples
        negatives = getattr(stage, "negatives", None)
        negatives = entry.negatives if negatives is None else negatives
        first: Side = "query"
        other: Side = "query" if entry.symmetric else "document"
        if not isinstance(stage, JointStage):
            first = other = stage.side  # type: ignore[union-attr]
        documents = self.column(other, entry, entry.symmetric, batch * (1 + negatives), stage)
        if reads_documents(stage, self.recipe.data_of(stage)):  # from stored vectors, no token is encoded
            documents = replace(documents, read=True)
        columns = (self.column(first, entry, True, batch, stage), documents)
        return Group(entry, None if rows is None else rows * entry.weight, columns)

    def steps(self, stage: Stage, groups: Sequence[Group]) -> tuple[int | None, list[str]]:
        """Return the optimiser steps: whole batches per epoch, of each group or of all rows, times epochs."""
        if stage.max_steps is not None:
            return stage.max_steps, []
        missing = dict.fromkeys(group.entry.name for group in groups if group.rows is None)
        if missing:
            return None, [f"rows of {', '.join(missing)} are not known: no data there and no expected_rows"]
        rows = [group.rows for group in groups if group.rows is not None]
        if stage.batches == "mixed":
            rows = [sum(rows)]
        per_epoch = sum(int(value) // stage.batch_size for value in rows)
        return math.ceil(per_epoch * stage.epochs), []

    def column(
        self, side: Side, entry: Data, of_query: bool | None, rows: int, stage: Stage, *, bare: bool = False
    ) -> Column:
        """Return the texts of a data entry going through one side: its queries, its documents, both (`None`).

        `bare` texts have no prompt in front.
        """
        backbone = getattr(self.recipe, side)
        lengths = self._lengths_of(side, entry, of_query, bare)
        if not lengths:
            return Column(side, rows, float(backbone.max_length), float(backbone.max_length))
        together = max(1, stage.batch_size // self.world)
        padded = padded_length(lengths, together, stage.length_groups)
        return Column(side, rows, padded, sum(lengths) / len(lengths))

    def _lengths_of(self, side: Side, entry: Data, of_query: bool | None, bare: bool) -> list[int] | None:
        if of_query is None:
            parts = [self._lengths_of(side, entry, kind, bare) or [] for kind in (True, False)]
            return [*parts[0], *parts[1]]
        key = (side, entry.name, of_query, bare)
        if key not in self._lengths:
            stats = self.stats[entry.name]
            texts = stats.query_texts if of_query else stats.document_texts
            if not texts:
                self._lengths[key] = None
            else:
                if side not in self._tokenizers:
                    sample = [t for s in self.stats.values() for t in (*s.query_texts, *s.document_texts)]
                    self._tokenizers[side], how = tokens_of(getattr(self.recipe, side), self.recipe, sample)
                    self._how.add(f"{side} lengths: {how}")
                prompt = self.recipe.prompts.get(entry.prompt if of_query else "document", "")
                prompt = "" if bare else prompt
                self._lengths[key] = [self._tokenizers[side](prompt + text) for text in texts]
        return self._lengths[key]

    def notes(self, entries: Sequence[Data]) -> list[str]:
        """Return notes on how the lengths of some entries were determined."""
        blind = [entry.name for entry in entries if not self.stats[entry.name].sampled]
        notes = [f"lengths of {', '.join(blind)}: max_length, as the data are not available"] if blind else []
        return notes + (sorted(self._how) if len(blind) < len(entries) else [])
