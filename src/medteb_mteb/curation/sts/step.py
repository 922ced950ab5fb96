"""Synonym STS, from a dictionary and queries to an edition and training rows."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from mar_st.errors import MarError
from mar_st.options import Argument
from mar_st.text.values import as_text
from medteb_mteb.curation.edition.write import EditionSettings, write_edition
from medteb_mteb.curation.files.layout import write_rows
from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.files.records import Text
from medteb_mteb.curation.lineage import provenance_of
from medteb_mteb.curation.llm.client import object_schema
from medteb_mteb.curation.llm.settings import PrivateSettings, WriterSettings
from medteb_mteb.curation.llm.template import template
from medteb_mteb.curation.llm.tolerant import Rejected, json_object
from medteb_mteb.curation.step import SEED, Counts, Estimate, Input, Step, tokens_of
from medteb_mteb.curation.sts.checks import POSITIVE, REWRITE_KINDS, check
from medteb_mteb.curation.sts.select import (
    DictionaryEntry,
    SwappedQuery,
    bounds,
    read_dictionary,
    select,
)
from medteb_mteb.curation.sts.split import QuerySplit, split_by_entry
from medteb_mteb.curation.training.rows import AgainstSettings, Rows, training_queries

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from medteb_mteb.curation.llm.client import Prompt

TASK = "MedTEBSTS"
#: The published schema (MAR paper, synonym STS), in our own words.
_SCHEMA = object_schema({kind: {"type": "string"} for kind in REWRITE_KINDS})
_REWRITE = template(__file__, "user", schema=_SCHEMA, languages=("zh",))


class StsSettings(WriterSettings, PrivateSettings, AgainstSettings, EditionSettings):
    """Options of `medteb sts`."""

    dictionary: Annotated[Path, Argument(), Input("file")] = Field(
        description="Dictionary of synonyms: rows with origin and replace."
    )
    queries: Annotated[Path, Argument(), Input("texts")] = Field(description="Queries.")
    per_entry: int | None = Field(None, ge=1, description="Maximum number of queries of a dictionary entry.")
    training: Annotated[tuple[Path, ...], Input("triples", "pairs", "alignment", earlier="training")] = Field(
        (), description="Training data of models; the test has no near-duplicates of their queries."
    )


@dataclass(frozen=True, slots=True)
class _Rewritten:
    """A query with its rewrites by kind, and the reason by kind for unusable ones."""

    candidate: SwappedQuery
    rewrites: Mapping[str, str]
    dropped: Mapping[str, str]

    @property
    def good(self) -> dict[str, str]:
        return {kind: self.rewrites[kind] for kind in REWRITE_KINDS if kind not in self.dropped}


def sts(settings: StsSettings) -> Counts:
    """Have an LLM rewrite queries, and write an STS edition and training rows.

    For each query that has a term of the dictionary the LLM writes three questions, which are checked; a test
    query is paired with one of them, drawn at random, a training query with all. The edition is
    `OUT/MedTEBSTS`; `OUT/train` has the training rows, and `rewrites.jsonl` and `dropped.jsonl` the outcome
    of every query.
    """
    terms, others = read_dictionary(settings.dictionary), Rows()
    texts = list(read_texts(settings.queries))
    candidates, number = select(texts, terms, others, per_entry=settings.per_entry), len(texts)
    if not candidates:
        reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(others.dropped.items()))
        raise MarError(
            f"None of {number} queries can be rewritten ({reasons}). Give a dictionary whose 'origin' terms "
            "occur in the queries."
        )
    settings.refuse_private(queries=[one.query for one in candidates])
    # Whether a test is possible at all is known before anything is paid.
    queries = {one.query.id: [one.query.full] for one in candidates}
    entries = {one.query.id: one.entry.pair for one in candidates}
    split = partial(
        split_by_entry,
        test=settings.test,
        training_queries=[query for path in settings.training for query in training_queries(path)],
        held_out=settings.held_out(),
    )
    split(entries, queries, whole=set(queries))
    prompts = [render(one) for one in candidates]
    generation = settings.ask(prompts, _REWRITE.version, read_rewrites, "sts")
    rows = [
        _Rewritten(one, rewrites, check(one, rewrites, terms.terms))
        for one in candidates
        if (rewrites := generation.answers.get(one.query.id)) is not None
    ]
    outcomes = {kind: Counter(row.dropped.get(kind, "good") for row in rows) for kind in REWRITE_KINDS}
    details: dict[str, Any] = {
        "queries": number,
        "dropped": dict(sorted(others.dropped.items())),
        "rewrites": {kind: dict(sorted(counts.items())) for kind, counts in outcomes.items()},
        **generation.counts(),
    }
    provenance = settings.provenance(_REWRITE.version, generation)
    if generation.stopped:
        return Counts(0, details=details, stopped=generation.stopped, provenance=provenance)
    usable = {row.candidate.query.id: row for row in rows if row.good}
    sides = split(
        {name: entries[name] for name in usable},
        {name: [row.candidate.query.full, *row.good.values()] for name, row in usable.items()},
        whole={name for name, row in usable.items() if not row.dropped},
    )
    by_id = {row.candidate.query.id: row for row in rows}
    training = _write_training(settings.out / "train", [by_id[name] for name in sides.train])
    statistics = {"queries": number, "queries rewritten": len(rows), "training queries": len(sides.train)}
    statistics |= {f"in neither part, {reason}": n for reason, n in Counter(sides.left_out.values()).items()}
    drawn = _write_edition(settings, by_id, sides, statistics, provenance)
    _write_log(settings.out, rows, sides, drawn)
    for one in candidates:
        if one.query.id in generation.failed:
            others.drop(one.query.to_json(), f"failed-{generation.failed[one.query.id]}")
    others.write(settings.out, "dropped")
    details |= {"test": len(drawn), "triples": training, "statistics": statistics}
    return Counts(len(drawn), details=details, provenance=provenance)


def render(candidate: SwappedQuery) -> Prompt:
    """Render the prompt for a query; its key is the query's id."""
    query, (low, high) = candidate.query.full, bounds(candidate.query.full)
    fields = {
        "origin": candidate.entry.origin,
        "replace": candidate.entry.replace,
        "query_pairs": {"origin": query, "replace": candidate.swapped},
    }
    texts = {"content": json.dumps(fields, ensure_ascii=False, indent=1)}
    tokens = 30 + 3 * tokens_of(query)
    return _REWRITE.prompt(candidate.query.id, "zh", texts, tokens, about=(query,), low=low, high=high)


def read_rewrites(prompt: Prompt, content: str) -> dict[str, str]:
    """Return the rewrites of an answer by kind; their quality is not checked here.

    Raises:
        Rejected: `no-json`, `missing-key`, `extra-key` or `no-text`.
    """
    del prompt
    answer = json_object(content)
    if not set(REWRITE_KINDS) <= set(answer):
        raise Rejected("missing-key")
    if len(answer) > len(REWRITE_KINDS):
        raise Rejected("extra-key")
    texts = {kind: as_text(answer[kind]) for kind in REWRITE_KINDS}
    if not all(texts.values()):
        raise Rejected("no-text")
    return {kind: text.strip() for kind, text in texts.items() if text}


def draw(query: str) -> str:
    """Return the kind of rewrite for a test query, which depends only on the query's id."""
    return random.Random(f"{SEED} sts {query}").choice(REWRITE_KINDS)


def _write_training(folder: Path, rows: Sequence[_Rewritten]) -> int:
    """Write `sts.jsonl`, all good rewrites of each training query, and return its number of rows.

    A query without a negative goes to `sts-pairs.jsonl`; one without a positive is left out.
    """
    files = Rows()
    for row in rows:
        good = row.good
        if positive := good.pop(POSITIVE, ""):
            example = {"query": row.candidate.query.full, "positives": [positive]}
            files.add_example(example, list(good.values()), ("sts", "sts-pairs"))
    files.write(folder)
    return files.number("sts")


def _write_edition(
    settings: StsSettings,
    rows: Mapping[str, _Rewritten],
    sides: QuerySplit,
    statistics: Mapping[str, int],
    provenance: Mapping[str, Any],
) -> dict[str, str]:
    """Write `MedTEBSTS`, each test query with one of its rewrites; return the kind by query id."""
    drawn = {name: draw(name) for name in sides.test}
    kinds = Counter(drawn.values())
    if not 0 < kinds[POSITIVE] < len(drawn):
        raise MarError(
            f"Of {len(drawn)} test pairs {kinds[POSITIVE]} are positives, so no correlation exists. Give "
            "more queries, raise test, or check the dropped pairs."
        )
    pairs = [
        {
            "sentence1": rows[name].candidate.query.full,
            "sentence2": rows[name].rewrites[kind],
            "score": 1.0 if kind == POSITIVE else 0.0,
        }
        for name, kind in drawn.items()
    ]
    counts = {"test": write_rows(settings.out / TASK / "test.jsonl", pairs)}
    numbers = {**{f"test pairs, {kind}": kinds[kind] for kind in REWRITE_KINDS}, **statistics}
    made = {**provenance_of([settings.queries]), **provenance}
    # The main score counts also where the folder is scored as a task of its own.
    write_edition(settings, TASK, counts, numbers, made, main_score="cosine_pearson")
    return drawn


def _write_log(out: Path, rows: Sequence[_Rewritten], sides: QuerySplit, drawn: Mapping[str, str]) -> None:
    """Write `rewrites.jsonl`: every rewritten query, its rewrites and their use."""
    side = {**dict.fromkeys(sides.test, "test"), **dict.fromkeys(sides.train, "train"), **sides.left_out}
    contents = []
    for row in rows:
        query, entry = row.candidate.query, row.candidate.entry
        content: dict[str, Any] = {"query-id": query.id, "query": query.full, "origin": entry.origin}
        content |= {"replace": entry.replace, **row.rewrites}
        content |= {"dropped": dict(row.dropped)} if row.dropped else {}
        content |= {"use": side.get(query.id, "none")}
        content |= {"drawn": drawn[query.id]} if query.id in drawn else {}
        contents.append(content)
    write_rows(out / "rewrites.jsonl", contents)


def _estimate(settings: StsSettings, sizes: Mapping[str, Estimate]) -> Estimate:
    """Estimate the requests from the mean length, as if every query had a term."""
    queries = sizes["queries"]
    query = queries.mean_text
    like = SwappedQuery(Text("x", query), DictionaryEntry("字" * 4, "词" * 4), query)
    return settings.estimate(render(like), queries.rows, queries.rows)


STS = Step(
    "sts", StsSettings, sts, "editions", estimate=_estimate, trains=True, asks=True, version=_REWRITE.version
)
