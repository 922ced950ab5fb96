"""Triples (query, positives, negatives) of pools, by two-list judging (MAR paper, Table 23)."""

from __future__ import annotations

import hashlib
import json
import random
import unicodedata
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import Field

from medteb_mteb.curation.judge.injection import defused, delimiter, remarks, suspicious
from medteb_mteb.curation.judge.material import PooledSettings, read_material
from medteb_mteb.curation.judge.plan import cut
from medteb_mteb.curation.judge.prompt import CONTROLS
from medteb_mteb.curation.labels.grades import Label
from medteb_mteb.curation.llm.client import Prompt, object_schema, prompt_text, version_of
from medteb_mteb.curation.llm.settings import WriterSettings
from medteb_mteb.curation.llm.tolerant import Rejected, json_object
from medteb_mteb.curation.step import SEED, Counts, Estimate, Step, tokens_of
from medteb_mteb.curation.training.rows import TEST_QUERY, AgainstSettings, Rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from medteb_mteb.curation.judge.material import QueryGroup
    from medteb_mteb.curation.llm.generate import Generation

#: Keys of the answer, as published.
POSITIVE_CLASS, NEGATIVE_CLASS = "positive_document", "negative_document"

SYSTEM = prompt_text(__file__, "system").strip()
TEMPLATE = prompt_text(__file__, "user")
DOCUMENT_TEMPLATE = prompt_text(__file__, "document").strip()

#: Tokens of a prompt without its texts, and of the delimiters and the id of a document.
PROMPT_TOKENS = tokens_of(SYSTEM) + tokens_of(TEMPLATE)
DOCUMENT_TOKENS = tokens_of(DOCUMENT_TEMPLATE) + 10
#: Tokens of an answer per document: its id, quoted and with a comma.
TOKENS_PER_ID = 6
#: Tokens of the rest of an answer: its two keys and the brackets.
TOKENS_AROUND = 20


def _ids(count: int) -> tuple[str, ...]:
    """Return the ids of the documents of a prompt, as published: `doc-1`, `doc-2`, ..."""
    return tuple(f"doc-{number}" for number in range(1, count + 1))


def prompt_version() -> str:
    """Return the digest (16 hex digits) of the prompt without its texts, and of the answer's form."""
    return version_of(SYSTEM, TEMPLATE, DOCUMENT_TEMPLATE, json.dumps(_schema(_ids(1)), sort_keys=True))


def _schema(ids: Sequence[str]) -> dict[str, Any]:
    """Return the JSON schema of an answer: two lists of ids, nothing else."""
    id_list = {"type": "array", "items": {"type": "string", "enum": list(ids)}}
    return object_schema({POSITIVE_CLASS: id_list, NEGATIVE_CLASS: id_list})


def render(key: str, query: str, documents: Sequence[str]) -> Prompt:
    """Return the prompt for a query and some documents; the same texts in the same order give the same words.

    Args:
        key: Key of the prompt.
        query: The query.
        documents: Texts in the order of the prompt.
    """
    shown = (defused(query), *map(defused, documents))
    request = hashlib.sha256("\0".join((query, *documents)).encode("utf-8", "surrogatepass")).digest()
    word = delimiter(request, shown)
    ids = _ids(len(documents))
    user = TEMPLATE.format(
        count=len(documents),
        word=word,
        query=shown[0],
        documents="\n".join(
            DOCUMENT_TEMPLATE.format(word=word, key=name, text=text)
            for name, text in zip(ids, shown[1:], strict=True)
        ),
    )
    return Prompt(
        key, SYSTEM, user, _schema(ids), TOKENS_AROUND + TOKENS_PER_ID * len(ids), texts=(query, *documents)
    )


def read_lists(content: str, count: int, control: int | None = None) -> dict[int, int]:
    """Return 1 or 0 for the documents of a prompt, by number from 0: whether they answer the query.

    Documents in neither list, and the control document, are left out. An id that is repeated in a list counts
    once. An answer with a document that was not asked for, or with one in both lists, is rejected as a whole.

    Args:
        content: Answer of the LLM.
        count: Number of documents of the prompt.
        control: Number of the document that answers nothing, if there is one.

    Raises:
        Rejected: `no-json`; `missing-key`: a list is missing; `no-list`: a value is not a list of texts;
            `invented`: an id that was not given; `both`: an id in both lists; `nothing`: every document is
            missing; `control`: the control document is in the positive list.
    """
    answer = json_object(content)
    positive, negative = (_numbers(answer, key, _ids(count)) for key in (POSITIVE_CLASS, NEGATIVE_CLASS))
    if positive & negative:
        raise Rejected("both")
    if control in positive:
        raise Rejected("control")
    labels = dict.fromkeys(positive, 1) | dict.fromkeys(negative - {control}, 0)
    if not labels:
        raise Rejected("nothing")
    return labels


def _numbers(answer: dict[str, Any], key: str, ids: Sequence[str]) -> frozenset[int]:
    if key not in answer:
        raise Rejected("missing-key")
    listed = answer[key]
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise Rejected("no-list")
    known = {name: number for number, name in enumerate(ids)}
    # Ids come with blanks, in capitals or in full width, and mean the same.
    names = [unicodedata.normalize("NFKC", name).strip().lower() for name in listed]
    if any(name not in known for name in names):
        raise Rejected("invented")
    return frozenset(known[name] for name in names)


#: Documents, and tokens of several documents, that a prompt has at most.
DOCUMENTS_PER_PROMPT, TOKENS_PER_PROMPT = 10, 16_000


class TriplesSettings(WriterSettings, PooledSettings, AgainstSettings):
    """Options of `medteb triples`."""

    depth: int = Field(50, ge=1, description="Number of top documents of a pool to judge. MAR used 50.")
    negatives: int = Field(15, ge=0, description="Maximum number of negatives, best first. MAR has 15.")


#: The documents of a prompt in their order; `None` is the control document, which answers nothing.
_Batch: TypeAlias = "tuple[Prompt, tuple[str | None, ...]]"


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
    prompts = [prompt for some in batches.values() for prompt, _ in some]
    shown = {prompt.key: documents for some in batches.values() for prompt, documents in some}
    generation = settings.ask(prompts, prompt_version(), partial(_read, shown), "triples")
    if not generation.stopped:
        for query in queries:
            if query.ids[0] in batches:
                _add(rows, query, batches[query.ids[0]], generation, settings.negatives)
        rows.write(settings.out, "triples")
    number = sum(len(one.ids) for one in queries)
    return Counts(
        rows.number("triples", "pairs"),
        details={"queries": number, **rows.details(), **generation.counts()},
        notes=remarks((one.text for one in queries), "queries"),
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
        yield render(f"{query.ids[0]} {number}", query.text, sent), tuple(shown)


def _read(shown: Mapping[str, Sequence[str | None]], prompt: Prompt, content: str) -> dict[int, int]:
    documents = shown[prompt.key]
    return read_lists(content, len(documents), documents.index(None) if None in documents else None)


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
    for prompt, documents in batches:
        rows.counts["prompts"] += 1
        labels = generation.answers.get(prompt.key)
        ids = [document for document in documents if document is not None]
        if labels is None:
            reason = generation.failed[prompt.key]
            rows.add("failed", {"query-id": name, "corpus-ids": ids, "reason": reason})
            continue
        rows.counts["unlabelled"] += len(ids) - len(labels)
        relevance.update({str(documents[number]): label for number, label in labels.items()})
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
    text = documents.mean_text
    shown = max(1, min(DOCUMENTS_PER_PROMPT, each, TOKENS_PER_PROMPT // (len(text) + 1)))
    # Every prompt may carry a control document.
    like = render("x 0", queries.mean_text, [text] * (shown + 1))
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
