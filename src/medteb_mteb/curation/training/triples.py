"""Triples (query, positives, negatives) of pools, by two-list judging (MAR paper, Table 23)."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import Field

from medteb_mteb.curation.judge.controls import CONTROLS
from medteb_mteb.curation.judge.injection import suspicious
from medteb_mteb.curation.judge.material import PooledSettings, read_material
from medteb_mteb.curation.judge.plan import cut
from medteb_mteb.curation.labels.grades import Label
from medteb_mteb.curation.llm.settings import WriterSettings
from medteb_mteb.curation.step import SEED, Counts, Estimate, Step, tokens_of
from medteb_mteb.curation.training.prompt import (
    DOCUMENT_TOKENS,
    PROMPT_TOKENS,
    prompt_version,
    read_lists,
    render,
)
from medteb_mteb.curation.training.rows import TEST_QUERY, AgainstSettings, Rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from medteb_mteb.curation.judge.material import QueryGroup
    from medteb_mteb.curation.llm.client import Prompt
    from medteb_mteb.curation.llm.generate import Generation

#: Documents, and tokens of several documents, that a prompt has at most.
DOCUMENTS_PER_PROMPT, TOKENS_PER_PROMPT = 10, 16_000


class TriplesSettings(WriterSettings, PooledSettings, AgainstSettings):
    """Options of `medteb triples`."""

    depth: int = Field(50, ge=1, description="Number of top documents of a pool to judge. MAR used 50.")
    negatives: int = Field(15, ge=0, description="Maximum number of negatives, best first. MAR has 15.")


@dataclass(frozen=True, slots=True)
class _Batch:
    """The documents of a prompt in their order; `None` is the control document, which answers nothing."""

    documents: tuple[str | None, ...]
    prompt: Prompt

    def read(self, content: str) -> dict[int, int]:
        control = self.documents.index(None) if None in self.documents else None
        return read_lists(content, len(self.documents), control)


def make_triples(settings: TriplesSettings) -> Counts:
    """Have an LLM sort the documents of pools into two lists, and write what `mar train` reads.

    `triples.jsonl` has queries with negatives, `pairs.jsonl` those without, `labels.jsonl` all labels,
    `dropped.jsonl` queries that make neither, `failed.jsonl` prompts without a good answer.
    """
    rows = Rows()
    queries = list(read_material(settings, settings.depth).groups())
    leaks = settings.held_out().leaks([query.text for query in queries])
    batches: dict[str, list[_Batch]] = {}
    for row, query in enumerate(queries):
        dropped = {"query-id": query.ids[0], "query": query.text}
        for repeated in query.ids[1:]:
            rows.drop({**dropped, "query-id": repeated}, "repeated", query.ids[0])
        if row in leaks:
            rows.drop(dropped, TEST_QUERY, leaks[row])
        elif not query.documents:
            rows.drop(dropped, "no-candidates")
        else:
            batches[query.ids[0]] = list(_batches(query))
    by_key = {batch.prompt.key: batch for some in batches.values() for batch in some}
    generation = settings.ask(
        [batch.prompt for batch in by_key.values()],
        prompt_version(),
        lambda prompt, content: by_key[prompt.key].read(content),
        "triples",
    )
    if not generation.stopped:
        for query in queries:
            if query.ids[0] in batches:
                _add(rows, query, batches[query.ids[0]], generation, settings.negatives)
        rows.write(settings.out, "triples")
    number, suspects = sum(len(one.ids) for one in queries), sum(suspicious(one.text) for one in queries)
    note = f"{suspects} queries look as if they wanted to instruct an LLM; look at their triples."
    return Counts(
        rows.number("triples", "pairs"),
        details={"queries": number, **rows.details(), **generation.counts()},
        notes=(note,) * bool(suspects),
        stopped=generation.stopped,
        provenance=settings.provenance(prompt_version(), generation),
    )


def _batches(query: QueryGroup) -> Iterator[_Batch]:
    """Yield the prompts for a query: suspicious documents alone, the others together.

    The documents of a prompt and their order depend only on the texts.
    """
    texts = query.documents
    draw = random.Random(f"{SEED}\0{query.text}")
    # By text, so that other ids or another order of the pool do not make other prompts.
    order = sorted(texts, key=lambda name: hashlib.sha256(texts[name].encode()).digest())
    draw.shuffle(order)
    suspects = [name for name in order if suspicious(texts[name])]
    others = [name for name in order if name not in set(suspects)]
    sizes = [tokens_of(texts[name]) + DOCUMENT_TOKENS for name in others]
    room = TOKENS_PER_PROMPT - PROMPT_TOKENS - tokens_of(query.text) - DOCUMENT_TOKENS
    parts = [*([name] for name in suspects), *cut(others, sizes, DOCUMENTS_PER_PROMPT, room)]
    for number, part in enumerate(parts):
        shown: list[str | None] = list(part)
        sent = [texts[name] for name in part]
        if len(part) > 1 or part[0] in suspects:  # another one cannot affect the labels of others
            place = draw.randrange(len(part) + 1)
            shown.insert(place, None)
            sent.insert(place, draw.choice(CONTROLS))
        yield _Batch(tuple(shown), render(f"{query.ids[0]} {number}", query.text, sent))


def _add(
    rows: Rows,
    query: QueryGroup,
    batches: Sequence[_Batch],
    generation: Generation[dict[int, int]],
    most: int,
) -> None:
    """Add the rows of a query that was judged, with `most` negatives at most."""
    relevance: dict[str, int] = {}
    name = query.ids[0]
    for batch in batches:
        rows.counts["prompts"] += 1
        labels = generation.answers.get(batch.prompt.key)
        ids = [document for document in batch.documents if document is not None]
        if labels is None:
            reason = generation.failed[batch.prompt.key]
            rows.add("failed", {"query-id": name, "corpus-ids": ids, "reason": reason})
            continue
        rows.counts["unlabelled"] += len(ids) - len(labels)
        relevance.update({str(batch.documents[number]): label for number, label in labels.items()})
    ranked = [document for document in query.documents if document in relevance]
    for document in ranked:
        rows.add("labels", Label(name, document, relevance[document]).to_json())
    positives = [document for document in ranked if relevance[document]]
    negatives = [document for document in ranked if not relevance[document]][:most]
    if not positives:
        rows.drop({"query-id": name, "query": query.text}, "no-positive" if relevance else "no-answer")
        return
    row = {"query": query.text, "positives": [query.documents[one] for one in positives]}
    row |= {"query-id": name, "positive-ids": positives}
    row |= {"negative-ids": negatives} if negatives else {}
    rows.counts["positives"] += len(positives)
    rows.counts["negatives"] += len(negatives)
    rows.add_example(row, [query.documents[one] for one in negatives])


def _estimate(settings: TriplesSettings, sizes: Mapping[str, Estimate]) -> Estimate:
    """Estimate the requests from the mean lengths."""
    pools, documents, queries = (sizes[name] for name in ("pools", "documents", "queries"))
    each = min(settings.depth, -(-pools.rows // max(1, pools.queries)))
    text = "字" * -(-documents.tokens // max(1, documents.rows))
    shown = max(1, min(DOCUMENTS_PER_PROMPT, each, TOKENS_PER_PROMPT // (len(text) + 1)))
    # Every prompt may carry a control document.
    like = render("x 0", "字" * -(-queries.tokens // max(1, queries.rows)), [text] * (shown + 1))
    return settings.estimate(like, pools.queries * -(-each // shown), queries.rows)


TRIPLES = Step(
    "triples",
    TriplesSettings,
    make_triples,
    "triples",
    estimate=_estimate,
    trains=True,
    asks=True,
    version=prompt_version(),
)
