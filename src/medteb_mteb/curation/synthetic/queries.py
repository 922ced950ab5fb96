"""Synthetic queries: an LLM writes queries that a document answers; the pairs are training data.

BMRetriever generated its synthetic queries with gpt-3.5-turbo-1106 and does not publish the prompt; this one
is ours.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from mar_st.errors import MarError
from mar_st.options import Argument
from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.judge.injection import remarks
from medteb_mteb.curation.llm.client import STRINGS_SCHEMA, object_schema, version_of
from medteb_mteb.curation.llm.settings import PrivateSettings, WriterSettings
from medteb_mteb.curation.llm.template import template
from medteb_mteb.curation.step import SEED, Counts, Estimate, Input, Step
from medteb_mteb.curation.synthetic.checks import QueryCheck, strings_of
from medteb_mteb.curation.synthetic.forms import FORMS, Language, draw_forms
from medteb_mteb.curation.training.rows import AgainstSettings, Rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from medteb_mteb.curation.files.records import Text
    from medteb_mteb.curation.llm.client import Prompt

_SCHEMA = object_schema({"queries": STRINGS_SCHEMA})
_QUERIES = template(__file__, "queries", system="queries-system", schema=_SCHEMA)
#: Tokens of the longest requested query and the JSON around it.
_TOKENS_PER_QUERY = 100
VERSION = version_of(_QUERIES.version, *(text for form in FORMS.values() for text in form.described.values()))
#: Characters, without blanks, that a document has at least, and characters of it in a prompt at most.
SHORTEST, LONGEST = 20, 4000


class QuerySettings(WriterSettings, PrivateSettings, AgainstSettings):
    """Options of `medteb synthesize-queries`."""

    documents: Annotated[Path, Argument(), Input("texts")] = Field(description="Documents.")
    language: Language = Field("zh", description="Language of the queries.")
    per_document: int = Field(1, ge=1, le=20, description="Number of queries per document.")
    sample: int | None = Field(None, ge=1, description="Maximum number of documents, sampled.")


def synthesize_queries(settings: QuerySettings) -> Counts:
    """Have an LLM write queries for documents, check them, and write the pairs.

    `pairs.jsonl` has the queries with their documents, `dropped.jsonl` dropped queries and documents with the
    reason, `failed.jsonl` documents without a usable answer. With a larger sample only the added documents
    cost.
    """
    rows = Rows()
    chosen = _chosen(settings, rows)
    settings.refuse_private(documents=chosen)
    prompts = [_prompt(document, settings) for document in chosen]
    generation = settings.ask(prompts, VERSION, strings_of("queries"), "queries")
    if not generation.stopped:
        for document in chosen:
            if document.id in generation.answers:
                _take(document, generation.answers[document.id], settings, rows)
            else:
                rows.add("failed", {"document-id": document.id, "reason": generation.failed[document.id]})
        rows.drop_leaks("pairs", settings.held_out())
        rows.write(settings.out, "pairs", "dropped")
    return Counts(
        rows.number("pairs"),
        details={"documents": len(chosen), **rows.details(), **generation.counts()},
        notes=remarks((document.full[:LONGEST] for document in chosen), "documents"),
        stopped=generation.stopped,
        provenance=settings.provenance(VERSION, generation),
    )


def _chosen(settings: QuerySettings, rows: Rows) -> list[Text]:
    """Return the documents to send, in their order; count the others."""
    by_text: dict[str, Text] = {}
    for document in read_texts(settings.documents):
        if len("".join(document.full.split())) < SHORTEST:
            rows.drop({"document-id": document.id}, "short-document")
        elif document.full in by_text:
            rows.drop({"document-id": document.id}, "same-document", by_text[document.full].id)
        else:
            by_text[document.full] = document
    chosen = list(by_text.values())
    if settings.sample is not None and settings.sample < len(chosen):
        # Ranked by digest, not drawn: a larger sample contains the smaller one, so only the rest costs.
        ranks = sorted(range(len(chosen)), key=lambda i: _rank(chosen[i]))
        rows.counts["not sampled"] = len(chosen) - settings.sample
        chosen = [chosen[i] for i in sorted(ranks[: settings.sample])]
    if not chosen:
        raise MarError(f"No document of {settings.documents} has {SHORTEST} characters, enough to ask about.")
    return chosen


def _rank(document: Text) -> bytes:
    return hashlib.sha256(f"{SEED}\0{document.full}".encode("utf-8", "surrogatepass")).digest()


def _forms(document: Text, settings: QuerySettings) -> tuple[str, ...]:
    return draw_forms(settings.per_document, f"{SEED}\0{document.full}")


def _prompt(document: Text, settings: QuerySettings) -> Prompt:
    forms = _forms(document, settings)
    return query_prompt(document.id, document.full, forms, settings.language)


def query_prompt(key: str, text: str, forms: Sequence[str], language: Language) -> Prompt:
    """Return the prompt for one document.

    Args:
        key: Key of the prompt.
        text: The document; its first `LONGEST` characters are shown.
        forms: Form of each query, see `FORMS`.
        language: Language of the queries.
    """
    lines = "\n".join(f"{n}. {FORMS[form].described[language]}" for n, form in enumerate(forms, 1))
    tokens = 10 + _TOKENS_PER_QUERY * len(forms)
    shown = {"text": text[:LONGEST]}
    return _QUERIES.prompt(key, language, shown, tokens, about=(text,), count=len(forms), forms=lines)


def _take(document: Text, answer: Sequence[str], settings: QuerySettings, rows: Rows) -> None:
    """Add the checked pairs of a document to `rows`."""
    if not answer:
        rows.drop({"document-id": document.id}, "nothing-to-ask")
        return
    check = QueryCheck(document.full, settings.language)
    forms = _forms(document, settings)
    rows.counts["missing"] += max(0, len(forms) - len(answer))
    for number, query in enumerate(answer):
        row = {"query": query, "query-id": f"{document.id}-q{number}", "document-id": document.id}
        if number >= len(forms):
            rows.drop(row, "too-many")
            continue
        row["form"] = forms[number]
        reason, detail = check(query, forms[number])
        if reason:
            rows.drop(row, reason, detail)
            continue
        rows.add("pairs", {**row, "positive": document.full, "source": "synthetic-queries"})


def _estimate(settings: QuerySettings, sizes: Mapping[str, Estimate]) -> Estimate:
    """Estimate the requests from the mean length, as if every document were sent."""
    documents = sizes["documents"]
    number = min(documents.rows, settings.sample or documents.rows)
    forms = tuple(FORMS)[:1] * settings.per_document
    like = query_prompt("x", documents.mean_text, forms, settings.language)
    return settings.estimate(like, number, number * settings.per_document)


SYNTHESIZE_QUERIES = Step(
    "synthesize-queries",
    QuerySettings,
    synthesize_queries,
    "pairs",
    estimate=_estimate,
    result_file="pairs.jsonl",
    trains=True,
    asks=True,
    version=VERSION,
)
