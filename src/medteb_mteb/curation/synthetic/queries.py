"""Synthetic queries: an LLM writes queries that a document answers; the pairs are training data.

The folder of a synthesis::

    step.json       identity of the folder: settings, the digest of the documents
    pairs.jsonl     query, positive, their ids, source, form of the query
    dropped.jsonl   dropped queries and documents, with the reason
    failed.jsonl    documents without a usable answer, with the reason
    report.json     report of the last run
    manifest.json   written last: counts, digests of the files, the earlier steps
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mar_st.text.normalisation import normalise
from medteb_mteb.curation.files.folder import alone, claim, lineage
from medteb_mteb.curation.files.read import MANIFEST, read_texts, source_digest
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.judge.injection import suspicious
from medteb_mteb.curation.llm import (
    LLM,
    Cost,
    added,
    answers_path,
    estimate_cost,
    load_llm,
    refuse_private,
    refuse_unanswered,
)
from medteb_mteb.curation.synthetic.answers import strings_of
from medteb_mteb.curation.synthetic.asking import Asking, portions
from medteb_mteb.curation.synthetic.checks import QueryCheck
from medteb_mteb.curation.synthetic.forms import DEFAULT_FORMS, draw_forms
from medteb_mteb.curation.synthetic.query_prompt import QUERIES_KEY, query_prompt, query_version
from medteb_mteb.curation.synthetic.report import SynthesisReport, SynthesisRows, finished, reported, written
from medteb_mteb.curation.training.leaks import HeldOut

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from medteb_mteb.curation.files.records import Text
    from medteb_mteb.curation.llm import Prompt
    from medteb_mteb.curation.synthetic.languages import Language

__all__ = ["PAIRS_FILE", "QuerySettings", "estimate_queries", "synthesize_queries"]

PAIRS_FILE = "pairs.jsonl"
STEP_NAME = "synthesize-queries"
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class QuerySettings:
    """Settings of synthetic queries.

    Attributes:
        language: Language of the queries.
        per_document: Number of queries per document.
        forms: Weight of each form of a query, see `FORMS`.
        shortest: Minimum characters of a document, without blanks; shorter ones are dropped.
        longest: Maximum characters of a document in a prompt; the pair has the whole document.
        sample: Maximum number of documents, sampled; a larger sample contains a smaller one. None: all.
        seed: Seed of the samples of documents and forms.
        source: Value of `source` in the rows.
        instruction: Task sentence of every row, for recipes that prepend one to queries; empty: none.
    """

    language: Language = "zh"
    per_document: int = 1
    forms: Mapping[str, float] = field(default_factory=lambda: dict(DEFAULT_FORMS))
    shortest: int = 20
    longest: int = 4000
    sample: int | None = None
    seed: int = 42
    source: str = "synthetic-queries"
    instruction: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.per_document <= 20:
            raise BuildError(f"Queries per document must be 1 to 20; got {self.per_document}.")
        if self.longest < 100:
            raise BuildError(f"A prompt must hold at least 100 characters of a document; got {self.longest}.")
        if self.sample is not None and self.sample < 1:
            raise BuildError(f"A sample must have at least one document; got {self.sample}.")

    def to_json(self) -> dict[str, Any]:
        """Return the settings as stored in the manifest."""
        return asdict(self)


def synthesize_queries(
    documents: str | Path,
    out: str | Path,
    llm: LLM | str | Path,
    settings: QuerySettings | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    journal: str | Path | None = None,
    held_out: HeldOut | None = None,
    already_anonymous: bool = False,
    retry_failed: bool = False,
    show_progress: bool = True,
) -> SynthesisReport:
    """Have an LLM write queries for documents, check them, and write the pairs.

    All answers are kept in the journal: a document is never paid for twice under the same settings, and with
    a larger sample only the added documents cost. When all answers are in the journal, the folder is written
    from it, with the same bytes after any number of interruptions.

    Args:
        documents: Documents, see `read_texts`.
        out: Folder to write.
        llm: The LLM, or its YAML file.
        settings: Settings of the synthesis.
        columns: See `read_texts`.
        journal: The journal, see `answers_path`.
        held_out: Queries that models will be tested on; near-duplicates of them are dropped.
        already_anonymous: Also send documents that were not processed by the anonymiser.
        retry_failed: Ask again for documents that failed in earlier runs.
        show_progress: Show a progress bar.

    Raises:
        BuildError: The documents are unusable or not anonymised, the API key is missing, the folder or the
            journal belongs to something else, is in use or cannot be written, or every prompt failed.
        FolderError: The documents have unusable rows.
    """
    settings, writer = settings or QuerySettings(), llm if isinstance(llm, LLM) else load_llm(llm)
    folder, path = Path(out), answers_path(out, journal)
    rows = SynthesisRows()
    chosen = _chosen(documents, columns, settings, rows)
    if not already_anonymous:
        refuse_private({"documents": chosen})
    writer.key()
    version = query_version(settings.language)
    identity = {
        "schema_version": SCHEMA_VERSION,
        "step": STEP_NAME,
        "settings": {"llm": writer.settings(version), **settings.to_json()},
        "input": source_digest(documents, columns),
        **({"against": held_out.digest()} if held_out and held_out.texts else {}),
    }
    with alone(folder):
        claim(folder, identity)
        if (folder / MANIFEST).is_file() and not retry_failed:
            return finished(folder, path, PAIRS_FILE)
        asking = Asking(writer, path, retry_failed=retry_failed, show_progress=show_progress)
        for portion in portions(chosen):
            prompts = [_prompt(document, settings) for document in portion]
            answers, failed = asking(prompts, version, strings_of(QUERIES_KEY), "queries")
            for document in portion:
                if document.id in answers:
                    _take(document, answers[document.id], settings, rows)
                elif document.id in failed:
                    rows.failed.append({"document-id": document.id, "reason": failed[document.id]})
            if asking.stopped:
                break
        if not asking.stopped:
            refuse_unanswered(len(chosen), asking.failed)
        rows.keep_away(held_out or HeldOut())
        _count(chosen, settings, rows)
        if not asking.stopped:
            written(
                folder,
                PAIRS_FILE,
                identity,
                rows,
                read=rows.details["documents"],
                before=lineage(documents),
                more={"already_anonymous": already_anonymous},
            )
        return reported(folder, path, PAIRS_FILE, rows, asking, _notes(rows))


def estimate_queries(
    documents: str | Path,
    out: str | Path,
    llm: LLM | str | Path,
    settings: QuerySettings | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    journal: str | Path | None = None,
    retry_failed: bool = False,
) -> Cost:
    """Estimate the requests and cost of `synthesize_queries`; nothing is sent, and no journal is created.

    Raises:
        BuildError: The documents or the journal are unusable.
        FolderError: The documents have unusable rows.
    """
    settings, writer = settings or QuerySettings(), llm if isinstance(llm, LLM) else load_llm(llm)
    chosen = _chosen(documents, columns, settings, SynthesisRows())
    path, version = answers_path(out, journal), query_version(settings.language)
    return added(
        estimate_cost(
            [_prompt(document, settings) for document in portion],
            writer,
            path,
            version=version,
            retry_failed=retry_failed,
        )
        for portion in portions(chosen)
    )


def _chosen(
    source: str | Path, columns: Mapping[str, str] | None, settings: QuerySettings, rows: SynthesisRows
) -> list[Text]:
    """Return the documents to send, in their order; count the others."""
    by_text: dict[str, Text] = {}
    number = 0
    for document in read_texts(source, columns):
        number += 1
        if len("".join(document.full.split())) < settings.shortest:
            rows.drop({"document-id": document.id}, "short-document")
        elif document.full in by_text:
            rows.drop({"document-id": document.id}, "same-document", by_text[document.full].id)
        else:
            by_text[document.full] = document
    rows.details["documents"] = number
    chosen = list(by_text.values())
    if settings.sample is not None and settings.sample < len(chosen):
        # Ranked by digest, not drawn: a larger sample contains the smaller one, so only the rest costs.
        ranks = sorted(range(len(chosen)), key=lambda i: _rank(chosen[i], settings.seed))
        kept = sorted(ranks[: settings.sample])
        rows.uncounted["not-sampled"] = len(chosen) - len(kept)
        chosen = [chosen[i] for i in kept]
    if not chosen:
        raise BuildError(
            f"None of the {number} documents of {source} has at least {settings.shortest} characters."
        )
    return chosen


def _rank(document: Text, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}\0{document.full}".encode("utf-8", "surrogatepass")).digest()


def _forms(document: Text, settings: QuerySettings) -> tuple[str, ...]:
    return draw_forms(settings.forms, settings.per_document, f"{settings.seed}\0{document.full}")


def _prompt(document: Text, settings: QuerySettings) -> Prompt:
    shown = document.full[: settings.longest]
    return query_prompt(document.id, shown, _forms(document, settings), settings.language)


def _take(document: Text, answer: Sequence[str], settings: QuerySettings, rows: SynthesisRows) -> None:
    """Add the checked pairs of a document to `rows`."""
    if not answer:
        rows.drop({"document-id": document.id}, "nothing-to-ask")
        return
    check = QueryCheck(document.full, settings.language)
    forms = _forms(document, settings)
    for number, query in enumerate(answer):
        row = {"query": query, "query-id": f"{document.id}-q{number}", "document-id": document.id}
        if number >= len(forms):
            rows.drop(row, "too-many")
            continue
        reason, detail = check(query, forms[number])
        if reason:
            rows.drop({**row, "form": forms[number]}, reason, detail)
            continue
        kept = {
            "query": query,
            "positive": document.full,
            "query-id": row["query-id"],
            "document-id": document.id,
            "source": settings.source,
            "form": forms[number],
        }
        rows.kept.append(kept | ({"instruction": settings.instruction} if settings.instruction else {}))
    if len(answer) < len(forms):
        rows.uncounted["missing"] += len(forms) - len(answer)


def _count(chosen: Sequence[Text], settings: QuerySettings, rows: SynthesisRows) -> None:
    by_query: dict[str, set[str]] = {}
    for row in rows.kept:
        by_query.setdefault(normalise(row["query"]), set()).add(row["document-id"])
    rows.details |= {
        "asked": len(chosen),
        "cut": sum(len(document.full) > settings.longest for document in chosen),
        "suspicious": sum(suspicious(document.full[: settings.longest]) for document in chosen),
        "shared": sum(len(documents) for documents in by_query.values() if len(documents) > 1),
    }


def _notes(rows: SynthesisRows) -> list[str]:
    notes = []
    if rows.details["suspicious"]:
        notes.append(
            f"{rows.details['suspicious']} documents look as if they wanted to instruct an LLM; each was "
            "alone in its prompt."
        )
    if rows.details["shared"]:
        notes.append(
            f"{rows.details['shared']} queries were written for more than one document; 'medteb round-trip' "
            "drops those that do not retrieve their document."
        )
    return notes
