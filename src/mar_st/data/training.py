"""Training data: triples of texts, triples of ids beside a corpus, labelled pairs, or single texts.

Forms (`form` of a data entry; `auto` tells the first three apart by their columns):

- `triples`: rows with a query, positives and maybe hard negatives (see `QUERY`, `POSITIVES`, `NEGATIVES` and
  `negative_1`, `negative_2`, ...: the names of sentence-transformers, FlagEmbedding and Tevatron), optional
  `instruction` and `source`; or a folder `corpus.jsonl` (`_id`, `title`, `text`), `queries.jsonl` (`_id`,
  `text`), `triples.jsonl` (`query-id`, `positives`, `negatives`: lists of corpus ids), as written beside a
  built edition. Rows that repeat a query are not merged; a batch never holds two of them.
- `pairs`: rows with `sentence1`, `sentence2` and `score` (STS, 0 to 1) or `label` (1: the same meaning);
  pairs that share their first sentence become one triple, its positives those scored 0.5 or more; a sentence
  without any is left out.
- `nli`: rows with `premise`, `hypothesis`, `label`: entailed hypotheses are positives, contradicted ones hard
  negatives. Neutral rows and premises without an entailed hypothesis are left out (BMRetriever, section on
  fine-tuning data).
- `texts`: rows with `text`, and maybe `title`, which goes before it; in a folder, `queries.jsonl` or
  `corpus.jsonl`, as `role` says.

A document that answers a query in any row is not a negative of that query, and neither is a copy that differs
in case, width, blanks or punctuation.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import xxhash

from mar_st.data.corpus import texts_by_id
from mar_st.data.rows import HUB, Row, hub_dataset, locate, read_rows
from mar_st.data.sequences import TEXTS_SCHEMA, TRIPLES_SCHEMA, Texts, Triple, Triples, batches
from mar_st.errors import MarError
from mar_st.files import sha256
from mar_st.text.texts import join_document, normalise
from mar_st.text.values import as_id, as_number, as_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from mar_st.recipes.schema import Data, VocabularyCut

#: Columns of each part of a triple, in order of preference.
QUERY = ("query", "anchor")
POSITIVES = ("positive", "positives", "pos", "positive_passages")
NEGATIVES = ("negative", "negatives", "neg", "negative_passages")
TRIPLE_COLUMNS = (*QUERY, *POSITIVES, *NEGATIVES, "instruction", "source")

#: Columns that some form reads, besides `negative_1`, `negative_2`, ...
KNOWN_COLUMNS = (
    *TRIPLE_COLUMNS, "sentence1", "sentence2", "score", "label", "premise", "hypothesis", "text", "title",
)  # fmt: skip
_NUMBERED_NEGATIVE = re.compile(r"negative_([0-9]{1,9})")

#: Minimum score of a pair that counts as a positive.
MIN_POSITIVE_SCORE = 0.5

#: Labels of NLI data, by name and by the number that most data sets give them.
NLI_LABELS = {
    "entailment": "entailment", "neutral": "neutral", "contradiction": "contradiction",
    "0": "entailment", "1": "neutral", "2": "contradiction",
    "-1": "without a label", "-": "without a label",
}  # fmt: skip

#: Default template for a query with an instruction; the released models were trained with it.
INSTRUCTION_TEMPLATE = "<instruct>{instruction}\n<query>"

#: Settings of a data entry that decide which rows are read from its files.
CONTENT_SETTINGS = {"form", "columns", "where", "limit", "role", "instruction"}

#: Table of a folder that holds the rows of an entry, by its role.
TABLES = {"query": "queries", "document": "corpus", None: "triples"}

#: Reason why a negative is left out.
FALSE_NEGATIVES = "negatives that answer their query"


@dataclass(frozen=True)
class Source:
    """A data entry of a recipe with its rows: triples, or texts (form `texts`).

    Attributes:
        entry: The data entry.
        form: Resolved `form` of the entry.
        triples: Its triples.
        texts: Its texts, only for the form `texts`.
        left_out: Number of rows, triples, texts or negatives that were left out, by reason.
    """

    entry: Data
    triples: Sequence[Triple] = field(default_factory=list)
    texts: Sequence[str] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    form: str = "triples"

    def summary(self) -> str:
        """Return a line with the number of records and, by reason, of those left out."""
        what = f"{len(self.texts)} texts" if self.form == "texts" else f"{len(self.triples)} triples"
        reasons = ", ".join(f"{number} {reason}" for reason, number in self.left_out.items())
        return f"{what}; left out: {reasons}" if reasons else what


def read_source(entry: Data, seed: int = 0) -> Source:
    """Read a data entry of a recipe; `Source.left_out` counts unused rows by reason.

    Args:
        entry: Path, form, renamed columns, rows to keep (`where`), maximum number of rows (`limit`).
        seed: Seed of the draw if there are more rows than `limit`; their order is kept.

    Raises:
        MarError: No such source, unusable rows (see `read_rows`), a missing column, an unknown id, a triple
            without a positive, or no rows.
    """
    reader = _Reader(entry)
    form = entry.form if entry.form != "auto" else reader.form()
    schema = TEXTS_SCHEMA if form == "texts" else TRIPLES_SCHEMA
    read = {
        "triples": reader.triples, "pairs": reader.pairs, "nli": reader.nli, "texts": reader.texts,
    }[form]  # fmt: skip
    rows = pa.Table.from_batches(batches(read(), schema), schema)
    if schema is TRIPLES_SCHEMA and (before := int(Triples(rows).negatives.sum())):
        rows = Triples.of(_without_false_negatives(Triples(rows))).table
        if false := before - int(Triples(rows).negatives.sum()):
            reader.left_out[FALSE_NEGATIVES] = false
    if entry.limit is not None and len(rows) > entry.limit:
        reader.left_out["beyond the limit"] += len(rows) - entry.limit
        drawn = np.zeros(len(rows), dtype=bool)
        drawn[random.Random(seed).sample(range(len(rows)), entry.limit)] = True
        rows = rows.filter(pa.array(drawn))  # take() joins the chunks, of at most 2 GiB
    if not len(rows):
        condition = ", ".join(f"{column} in {list(values)}" for column, values in entry.where.items())
        what = "texts" if form == "texts" else "triples"
        raise MarError(f"{entry.path} holds no {what}{' with ' + condition if condition else ''}.")
    details: dict[str, Any] = {"form": form, "left_out": dict(reader.left_out)}
    if form == "texts":
        return Source(entry, texts=Texts(rows.column("text").chunks), **details)
    triples = Triples(rows)
    if triples.instructed and (triples.instructed < len(triples) or entry.symmetric or entry.prompt):
        raise MarError(
            f"{entry.path}: {triples.instructed} of {len(triples)} rows have an 'instruction', "
            "which replaces a prompt. Give one to all rows or none; in an entry that is symmetric or has a "
            "prompt, set instruction: '' to ignore that column."
        )
    return Source(entry, triples=triples, **details)


def data_digest(data: str | Data) -> str:
    """Return the sha256 of a data source: its files' names and contents, and an entry's settings of rows.

    Args:
        data: Path of the source, or a data entry.

    Raises:
        MarError: The source does not exist.
    """
    path = data if isinstance(data, str) else data.path
    content: list[Any] = []
    if path.startswith(HUB):
        table = "" if isinstance(data, str) else TABLES[data.role]
        content.append(hub_dataset(path, table)._fingerprint)
    else:
        root = locate(path)
        folder, files = (root.parent, [root]) if root.is_file() else (root, sorted(root.rglob("*")))
        content += [(file.relative_to(folder).as_posix(), sha256(file)) for file in files if file.is_file()]
    if not isinstance(data, str):
        content.append(data.model_dump(mode="json", include=CONTENT_SETTINGS, exclude_defaults=True))
    return _key(*content)


def vocabulary_cut(cut: VocabularyCut, data: Mapping[str, str]) -> dict[str, Any]:
    """Return what decides which pieces of a vocabulary are kept.

    Args:
        cut: Vocabulary setting of a backbone.
        data: Digest of the content of every data entry, by name.
    """
    return {"keep": cut.keep, "texts": [data.get(name) or data_digest(name) for name in cut.texts]}


def _key(*content: Any) -> str:
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _of_ids(entry: Data) -> bool:
    """Return True if an entry is a folder of triples of ids; `triples.jsonl` may also hold texts."""
    if entry.role is not None or entry.path.startswith(HUB) or not locate(entry.path).is_dir():
        return False
    first = next(read_rows(entry.path, table="triples"), None)
    return first is not None and "query-id" in first.values and "query" not in first.values


def _without_false_negatives(triples: Triples) -> Iterator[Triple]:
    """Yield the triples without negatives that answer their query in some row, and copies of these."""

    def key(query: str, text: str) -> int:
        return xxhash.xxh3_64_intdigest(f"{query}\0{normalise(text) or text}".encode())

    answers = {key(triple.query, text) for triple in triples for text in triple.positives}
    for triple in triples:
        negatives = tuple(text for text in triple.negatives if key(triple.query, text) not in answers)
        yield replace(triple, negatives=negatives)


class _Reader:
    """Converts the rows of a data entry, renamed and filtered, by form."""

    def __init__(self, entry: Data) -> None:
        self.entry = entry
        self.left_out: Counter[str] = Counter()
        for column in entry.columns:
            if column not in KNOWN_COLUMNS and not _NUMBERED_NEGATIVE.fullmatch(column):
                raise MarError(
                    f"data {entry.name}: 'columns' names {column!r}, which no form reads. They read "
                    f"{', '.join(KNOWN_COLUMNS)}."
                )

    @cached_property
    def first(self) -> dict[str, Any]:
        """Return the first row that is selected; an empty one if there is none."""
        none: dict[str, Any] = {}
        return next(_Reader(self.entry)._rows(lambda row: row), none)

    def form(self) -> str:
        """Return the kind of data, derived from the columns of the first row."""
        if _of_ids(self.entry):
            return "triples"
        if "premise" in self.first:
            return "nli"
        if "sentence1" in self.first:
            return "pairs"
        return "triples"

    def _rows(self, make: Callable[[dict[str, Any]], Any]) -> Iterator[Any]:
        """Yield what a function makes of the selected rows, given their renamed columns."""
        entry = self.entry
        theirs = set(entry.columns.values())  # one column may serve twice: a text paired with itself

        def selected(row: Row) -> Any:
            values = row.values
            for column in (*theirs, *entry.where):
                if column not in values:
                    raise MarError(f"has no column {column!r}; it has {', '.join(sorted(values))}.")
            if any(str(values[column]) not in kept for column, kept in entry.where.items()):
                self.left_out["not selected by 'where'"] += 1
                return None
            renamed = {column: value for column, value in values.items() if column not in theirs}
            return make(renamed | {ours: values[column] for ours, column in entry.columns.items()})

        made = read_rows(entry.path, selected, table=TABLES[entry.role])
        yield from (one for one in made if one is not None)

    def triples(self) -> Iterator[Triple]:
        """Yield the triples of texts or of ids."""
        if _of_ids(self.entry):
            yield from self._triples_of_ids()
            return
        template = INSTRUCTION_TEMPLATE if self.entry.instruction is None else self.entry.instruction

        yield from self._rows(lambda row: _triple(row, template))

    def _triples_of_ids(self) -> Iterator[Triple]:
        entry = self.entry
        if entry.columns or entry.where:
            raise MarError(
                f"{entry.path}: 'columns' and 'where' do not apply to rows of ids; leave them out."
            )
        texts = {name: texts_by_id(entry.path, name) for name in ("queries", "corpus")}

        def of(name: str, key: Any) -> str:
            text = texts[name].get(as_id(key) or "")
            if text is None:
                raise MarError(f"{key!r} is not an _id of a text in {name}.jsonl.")
            return text

        def make(row: Row) -> Triple:
            query, lists = (
                row.values.get("query-id"),
                [row.values.get(n) or [] for n in ("positives", "negatives")],
            )
            if query is None or not all(isinstance(ids, list) for ids in lists) or not lists[0]:
                raise MarError(
                    "needs 'query-id', 'positives' (a list of _ids of corpus.jsonl) and maybe 'negatives'."
                )
            positives, negatives = (tuple(of("corpus", key) for key in ids) for ids in lists)
            return Triple(of("queries", query), positives, negatives)

        yield from read_rows(entry.path, make, table="triples")

    def pairs(self) -> Iterator[Triple]:
        """Yield the triples of pairs with a score or a label."""

        def judged(row: dict[str, Any]) -> tuple[dict[str, Any], str, str, bool]:
            first, second = as_text(row.get("sentence1")), as_text(row.get("sentence2"))
            score = as_number(row.get("score", row.get("label")))
            if first is None or second is None or score is None:
                raise MarError(
                    "needs 'sentence1', 'sentence2' and a number 'score' (or 'label'); no text may be empty."
                )
            if not 0 <= score <= 1:
                raise MarError(f"the score is {score:g}; it should be from 0 to 1; divide it by its maximum.")
            return row, first, second, score >= MIN_POSITIVE_SCORE

        return self._grouped(self._rows(judged))

    def nli(self) -> Iterator[Triple]:
        """Yield the triples of premises and hypotheses."""

        def judged(row: dict[str, Any]) -> tuple[dict[str, Any], str, str, bool] | None:
            premise, hypothesis = as_text(row.get("premise")), as_text(row.get("hypothesis"))
            label = NLI_LABELS.get(str(row.get("label")).lower())
            if premise is None or hypothesis is None or label is None:
                raise MarError(
                    "needs 'premise', 'hypothesis' (not empty) and 'label': entailment, neutral or "
                    f"contradiction (or 0, 1, 2); the label is {row.get('label')!r}."
                )
            if label in ("neutral", "without a label"):
                self.left_out[label] += 1
                return None
            return row, premise, hypothesis, label == "entailment"

        return self._grouped(self._rows(judged))

    def _grouped(self, judged: Iterable[tuple[dict[str, Any], str, str, bool]]) -> Iterator[Triple]:
        """Yield one triple per first text: texts judged true are its positives, the rest its hard negatives.

        A second text that was judged both ways is a positive.
        """
        groups: dict[str, tuple[str, list[str], list[str]]] = {}
        for row, first, second, same in judged:
            if row.get("instruction") and self.entry.instruction != "":
                raise MarError(
                    f"{self.entry.path}: 'instruction' is not supported for pairs; set 'prompt' on the "
                    "entry, and instruction: '' to ignore that column."
                )
            group = groups.setdefault(first, (str(row.get("source") or ""), [], []))
            (group[1] if same else group[2]).append(second)
        for first, (source, positives, negatives) in groups.items():
            if positives:
                refused = dict.fromkeys(text for text in negatives if text not in positives)
                yield Triple(first, tuple(dict.fromkeys(positives)), tuple(refused), source=source)
            else:
                self.left_out["without a positive"] += 1

    def texts(self) -> Iterator[str]:
        """Yield single texts."""

        def make(row: dict[str, Any]) -> str:
            if as_text(row.get("text")) is None:
                raise MarError(f"needs a 'text' that is not empty; has {sorted(row)}.")
            return join_document({"text": row["text"], "title": row.get("title") or ""})

        yield from self._rows(make)


def _triple(row: dict[str, Any], template: str) -> Triple:
    """Return the triple of a row; a template puts its instruction before the query."""
    query = next((text for name in QUERY if (text := as_text(row.get(name)))), None)
    positives = _texts(row, POSITIVES)
    if query is None or not positives:
        wanted = QUERY if query is None else POSITIVES
        column = next((name for name in wanted if name in row), None)
        if column is None:
            raise MarError(f"needs 'query' and 'positive' (or 'positives'); has {sorted(row)}.")
        raise MarError(f"{column!r} should be a text that is not empty; it is {row[column]!r}.")
    negatives = _texts(row, NEGATIVES)
    if not negatives:
        numbers = sorted((int(m[1]), name) for name in row if (m := _NUMBERED_NEGATIVE.fullmatch(name)))
        negatives = tuple(text for _, name in numbers for text in _texts(row, (name,)))
    instruction = row.get("instruction") if template else None
    if instruction and not isinstance(instruction, str):  # NaN where a table had no value, for instance
        raise MarError(f"'instruction' should be a text or null; it is {instruction!r}.")
    before = template.replace("{instruction}", str(instruction)) if instruction else ""
    return Triple(query, positives, negatives, before, str(row.get("source") or ""))


def _texts(row: dict[str, Any], names: Sequence[str]) -> tuple[str, ...]:
    """Return the texts of the first column that has any: a text, or a list of texts or passages."""
    for name in names:
        value = row.get(name)
        if value:
            listed = value if isinstance(value, list | tuple) else [value]
            texts = [as_text(_passage(text)) for text in listed]
            if None in texts:
                raise MarError(f"{name!r} should hold texts that are not empty; it holds {value!r}.")
            return tuple(str(text) for text in texts)
    return ()


def _passage(value: Any) -> Any:
    """Return the text of a passage with its title; anything else unchanged."""
    if isinstance(value, dict) and isinstance(value.get("text"), str):
        return join_document({"text": value["text"], "title": value.get("title") or ""})
    return value
