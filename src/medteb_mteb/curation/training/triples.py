"""Triples (query, positives, negatives) of pools, by two-list judging (MAR paper, Table 23)."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from mar_st.options import Argument
from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.judge.controls import CONTROLS
from medteb_mteb.curation.judge.injection import suspicious
from medteb_mteb.curation.judge.material import read_pools
from medteb_mteb.curation.labels.grades import Label
from medteb_mteb.curation.llm import refuse_private, tokens_of
from medteb_mteb.curation.llm.step import WriterSettings, check_key
from medteb_mteb.curation.step import Counts, Estimate, Input, Step, Volume
from medteb_mteb.curation.training.prompt import (
    DOCUMENT_TOKENS,
    PROMPT_TOKENS,
    Lists,
    prompt_version,
    read_lists,
    render,
)
from medteb_mteb.curation.training.rows import TEST_QUERY, AgainstSettings, Rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from medteb_mteb.curation.llm import Generation, Prompt

__all__ = ["TRIPLES", "TriplesSettings", "make_triples"]


class TriplesSettings(WriterSettings, AgainstSettings):
    """Options of `medteb triples`."""

    queries: Annotated[Path, Argument(), Input("texts")] = Field(description="Queries.")
    documents: Annotated[Path, Argument(), Input("texts")] = Field(description="Documents.")
    pools: Annotated[Path, Argument(), Input("pools")] = Field(description="Pools of documents.")
    depth: int = Field(50, ge=1, description="Number of top documents of a pool to judge. MAR used 50.")
    documents_per_prompt: int = Field(10, ge=1, description="Maximum number of documents of a prompt.")
    prompt_tokens: int = Field(
        16_000, ge=2 * PROMPT_TOKENS, description="Maximum tokens of a prompt of several documents."
    )
    control_rate: float = Field(
        1.0, ge=0, le=1, description="Share of prompts with a control document, which answers nothing."
    )
    negatives: int = Field(15, ge=0, description="Maximum number of negatives, best first. MAR has 15.")
    seed: int = Field(42, description="Seed of all random choices.")


@dataclass(frozen=True, slots=True)
class _Query:
    """A query with the documents to judge for it, best ranked first; one of equal texts."""

    id: str
    text: str
    documents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Batch:
    """The documents of a prompt in their order; `None` is the control document."""

    documents: tuple[str | None, ...]
    prompt: Prompt

    @property
    def control(self) -> int | None:
        return self.documents.index(None) if None in self.documents else None


class _Material:
    """Queries of distinct texts with the best documents of their pools."""

    def __init__(self, settings: TriplesSettings, *, private: bool) -> None:
        self.settings = settings
        queries = {text.id: text for text in read_texts(settings.queries)}
        documents = {text.id: text for text in read_texts(settings.documents)}
        pools = read_pools(settings.pools, queries, documents)
        self.pools = {query: names[: settings.depth] for query, names in pools.items()}
        wanted = dict.fromkeys(name for names in self.pools.values() for name in names)
        if not private:
            refuse_private(
                {
                    "queries": [queries[name] for name in self.pools],
                    "documents": [documents[name] for name in wanted],
                }
            )
        self.texts = {name: documents[name].full for name in wanted}
        self.ids: dict[str, list[str]] = {}
        for query in self.pools:
            self.ids.setdefault(queries[query].full, []).append(query)

    @cached_property
    def queries(self) -> list[_Query]:
        """Return one query of each text, with the documents of all of them."""
        queries = []
        for text, ids in self.ids.items():
            distinct: dict[str, str] = {}
            for name in (name for query in ids for name in self.pools[query]):
                distinct.setdefault(self.texts[name], name)
            queries.append(_Query(ids[0], text, tuple(distinct.values())))
        return queries

    @cached_property
    def leaks(self) -> dict[int, str]:
        """Return the rows of queries that are near-duplicates of a test's."""
        return self.settings.held_out().leaks([query.text for query in self.queries])

    def batches(self, query: _Query) -> Iterator[_Batch]:
        """Yield the prompts for a query: suspicious documents alone, the others together.

        The documents of a prompt and their order depend only on the texts and the seed.
        """
        settings = self.settings
        draw = random.Random(f"{settings.seed}\0{query.text}")
        # By text, so that other ids or another order of the pool do not make other prompts.
        order = sorted(query.documents, key=lambda name: hashlib.sha256(self.texts[name].encode()).digest())
        draw.shuffle(order)
        suspects = [name for name in order if suspicious(self.texts[name])]
        parts = [([name], True) for name in suspects]
        parts += [
            # A document alone cannot affect the labels of others.
            (part, len(part) > 1 and draw.random() < settings.control_rate)
            for part in self._cut(query.text, [name for name in order if name not in set(suspects)])
        ]
        for number, (part, controlled) in enumerate(parts):
            shown: list[str | None] = list(part)
            texts = [self.texts[name] for name in part]
            if controlled:
                place, control = draw.randrange(len(part) + 1), draw.choice(CONTROLS)
                shown.insert(place, None)
                texts.insert(place, control)
            yield _Batch(tuple(shown), render(f"{query.id} {number}", query.text, texts))

    def _cut(self, query: str, order: list[str]) -> Iterator[list[str]]:
        fixed = PROMPT_TOKENS + tokens_of(query) + DOCUMENT_TOKENS
        part: list[str] = []
        size = fixed
        for name in order:
            tokens = tokens_of(self.texts[name]) + DOCUMENT_TOKENS
            full = len(part) == self.settings.documents_per_prompt
            if part and (full or size + tokens > self.settings.prompt_tokens):
                yield part
                part, size = [], fixed
            part.append(name)
            size += tokens
        if part:
            yield part

    def prompts(self) -> Iterator[Prompt]:
        """Yield all prompts."""
        for row, query in enumerate(self.queries):
            if row not in self.leaks:
                yield from (batch.prompt for batch in self.batches(query))


def make_triples(settings: TriplesSettings) -> Counts:
    """Have an LLM sort the documents of pools into two lists, and write what `mar train` reads.

    `triples.jsonl` has queries with negatives, `pairs.jsonl` those without, `labels.jsonl` all labels,
    `dropped.jsonl` queries that make neither, `failed.jsonl` prompts without a good answer.
    """
    material = _Material(settings, private=settings.already_anonymous)
    batches = {
        batch.prompt.key: batch
        for row, query in enumerate(material.queries)
        if row not in material.leaks
        for batch in material.batches(query)
    }

    def read(prompt: Prompt, content: str) -> Lists:
        batch = batches[prompt.key]
        return read_lists(content, len(batch.documents), batch.control)

    generation = settings.ask([batch.prompt for batch in batches.values()], prompt_version(), read, "triples")
    rows = Rows()
    if generation.complete:
        for row, query in enumerate(material.queries):
            for repeated in material.ids[query.text][1:]:
                rows.drop({"query-id": repeated, "query": query.text}, "repeated", query.id)
            if row in material.leaks:
                rows.drop({"query-id": query.id, "query": query.text}, TEST_QUERY, material.leaks[row])
            elif not query.documents:
                rows.drop({"query-id": query.id, "query": query.text}, "no-candidates")
            else:
                _add(rows, query, material, generation, settings)
        rows.write(settings.out, "triples")
    suspects = sum(suspicious(query.text) for query in material.queries)
    note = f"{suspects} queries look as if they wanted to instruct an LLM; look at their triples."
    return Counts(
        rows.number("triples", "pairs"),
        details={"queries": len(material.pools), **rows.details(), **generation.counts()},
        notes=(note,) * bool(suspects),
        stopped=generation.stopped,
        provenance=settings.provenance(prompt_version(), generation),
    )


def _add(
    rows: Rows,
    query: _Query,
    material: _Material,
    generation: Generation[Lists],
    settings: TriplesSettings,
) -> None:
    """Add the rows of a query that was judged."""
    relevance: dict[str, int] = {}
    answered = False
    for batch in material.batches(query):
        key, names = batch.prompt.key, batch.documents
        rows.counts["prompts"] += 1
        if key in generation.failed:
            ids = [name for name in names if name is not None]
            rows.add("failed", {"query-id": query.id, "corpus-ids": ids, "reason": generation.failed[key]})
            continue
        lists, answered = generation.answers[key], True
        rows.counts["unlabelled"] += len(lists.missing)
        for value, numbers in ((1, lists.positive), (0, lists.negative)):
            relevance.update({str(names[number]): value for number in numbers})
    ranked = [name for name in query.documents if name in relevance]
    for name in ranked:
        rows.add("labels", Label(query.id, name, relevance[name]).to_json())
    positives = [name for name in ranked if relevance[name]]
    if not positives:
        reason = "no-positive" if answered else "no-answer"
        rows.drop({"query-id": query.id, "query": query.text}, reason)
        return
    row = _triple(
        query, positives, [name for name in ranked if not relevance[name]], material.texts, settings
    )
    rows.counts["positives"] += len(positives)
    rows.counts["negatives"] += len(row.get("negatives", ()))
    # A stage with hard negatives refuses rows without any.
    rows.add("triples" if "negatives" in row else "pairs", row)


def _triple(
    query: _Query,
    positives: list[str],
    negatives: list[str],
    texts: Mapping[str, str],
    settings: TriplesSettings,
) -> dict[str, Any]:
    negatives = negatives[: settings.negatives]
    row: dict[str, Any] = {"query": query.text, "positives": [texts[name] for name in positives]}
    if negatives:
        row["negatives"] = [texts[name] for name in negatives]
    row |= {"query-id": query.id, "positive-ids": positives}
    return row | ({"negative-ids": negatives} if negatives else {})


def _estimate(settings: TriplesSettings, volumes: Mapping[str, Volume]) -> Estimate:
    """Estimate the requests from the mean lengths."""
    pools, documents, queries = (volumes[name] for name in ("pools", "documents", "queries"))
    each = min(settings.depth, -(-pools.rows // max(1, pools.queries)))
    text = "字" * -(-documents.tokens // max(1, documents.rows))
    shown = max(1, min(settings.documents_per_prompt, each, settings.prompt_tokens // (len(text) + 1)))
    # Every prompt may carry a control document.
    like = render("x 0", "字" * -(-queries.tokens // max(1, queries.rows)), [text] * (shown + 1))
    return settings.estimate(like, pools.queries * -(-each // shown), queries.rows)


TRIPLES = Step(
    "triples",
    TriplesSettings,
    make_triples,
    "triples",
    estimate=_estimate,
    check=check_key,
    trains=True,
    asks=True,
    version=prompt_version(),
)
