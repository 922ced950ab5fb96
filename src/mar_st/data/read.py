"""Reading training data: triples of texts, triples of ids beside a corpus, labelled pairs, or single texts.

Forms (`form` of a data entry; `auto` tells the first four apart by their columns):

- `triples`: rows with a query, positives and maybe hard negatives, in any of the column names of
  `mar_st.data.triples`, optional `instruction` and `source`; or a folder `corpus.jsonl` (`_id`, `title`,
  `text`), `queries.jsonl` (`_id`, `text`), `triples.jsonl` (`query-id`, `positives`, `negatives`: lists of
  corpus ids), as written beside a built edition. Rows that repeat a query are not merged; a batch never holds
  two of them.
- `scored-pairs`: rows with `sentence1`, `sentence2`, `score` (STS, 0 to 1): pairs that share their first
  sentence become one triple, its positives those scored 0.5 or more; a sentence without any is left out.
- `labelled-pairs`: the same with `label`, 1 for the same meaning.
- `nli`: rows with `premise`, `hypothesis`, `label`: entailed hypotheses are positives, contradicted ones hard
  negatives. Neutral rows and premises without an entailed hypothesis are left out (BMRetriever, section on
  fine-tuning data).
- `texts`: rows with `text`, and maybe `title`, which goes before it; in a folder, `queries.jsonl` or
  `corpus.jsonl`, as `role` says.

Files are JSONL, CSV or TSV with a header (also gzipped), or Parquet, or a folder of Parquet shards or with a
`triples.jsonl`; `hub:ORG/NAME` is a data set of the Hub. Rows are checked one after another and held in Arrow
tables; from `MAPPED_BYTES` on the table is a file of the cache (`mar_st.data.cache`), made once for all
processes of a machine.
"""

from __future__ import annotations

import random
from collections import Counter
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mar_st.data.convert import converted
from mar_st.data.records import DataError, Source, Triple
from mar_st.data.rows import Position, file_rows, hub_data, hub_rows, json_rows, locate
from mar_st.data.sequences import TEXTS_SCHEMA, TRIPLES_SCHEMA, Texts, Triples
from mar_st.data.triples import TRIPLE_COLUMNS, ignored_columns, is_column, triple_of
from mar_st.text.texts import join_document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from mar_st.recipes.schema import Data


#: Minimum score of a pair that counts as a positive.
MIN_POSITIVE_SCORE = 0.5

#: Labels of NLI data, by name and by the number that most data sets give them.
NLI_LABELS = {
    "entailment": "entailment", "neutral": "neutral", "contradiction": "contradiction",
    "0": "entailment", "1": "neutral", "2": "contradiction",
    "-1": "without a label", "-": "without a label",
}  # fmt: skip


#: Columns that some form reads, besides `negative_1`, `negative_2`, ...
KNOWN_COLUMNS = (
    *TRIPLE_COLUMNS, "sentence1", "sentence2", "score", "label", "premise", "hypothesis", "text", "title",
)  # fmt: skip

#: Files of this size (bytes) or more are converted to a mapped table instead of one in memory.
MAPPED_BYTES = 2**26

#: Default template for a query with an instruction; the released models were trained with it.
INSTRUCTION_TEMPLATE = "<instruct>{instruction}\n<query>"


def read_triples(name: str) -> Triples:
    """Read all triples of a source whose columns determine its form; instructions of rows are left out.

    Args:
        name: File, folder, `package:` or `hub:` name.

    Raises:
        DataError: Invalid JSON, a missing column, an unknown id, or a triple without a positive; the message
            names file and line.
    """
    from mar_st.recipes.schema import Data  # lazy: pydantic

    return Triples.of(read_source(Data(name="data", path=name, instruction="")).triples)


def read_source(entry: Data, seed: int = 0) -> Source:
    """Read a data entry of a recipe; `Source.left_out` counts unused rows by reason.

    Args:
        entry: Path, form, renamed columns, rows to keep (`where`), maximum number of rows (`limit`).
        seed: Seed of the draw if there are more rows than `limit`; their order is kept.

    Raises:
        DataError: No such source, invalid JSON, a missing column, an unknown id, a triple without a positive,
            or no rows; the message names file and line.
    """
    rows = _Rows(entry)
    form = entry.form if entry.form != "auto" else rows.form()
    table, about, key = converted(
        rows,
        lambda: _READERS[form](rows),
        TEXTS_SCHEMA if form == "texts" else TRIPLES_SCHEMA,
        settings={
            "form": form,
            "role": entry.role,
            "columns": entry.columns,
            "where": {column: list(values) for column, values in entry.where.items()},
            "instruction": entry.instruction,
        },
        limit=entry.limit,
        draw=lambda number, kept: sorted(random.Random(seed).sample(range(number), kept)),
        seed=seed,
        large=MAPPED_BYTES,
    )
    if not table.num_rows:
        kind = "texts" if form == "texts" else "triples"
        condition = (
            f" with {', '.join(f'{c} in {list(v)}' for c, v in entry.where.items())}" if entry.where else ""
        )
        raise DataError(f"{entry.path} holds no {kind}{condition}.")
    details = {"form": form} | {name: about[name] for name in ("left_out", "ignored", "digest")}
    if form == "texts":
        return Source(entry, texts=Texts(table.column("text").chunks), **details)
    triples = Triples(table, key)
    _check_instructions(entry, triples)
    return Source(entry, triples=triples, **details)


def _check_instructions(entry: Data, triples: Triples) -> None:
    if not triples.instructed:
        return
    if triples.instructed < len(triples):
        raise DataError(
            f"{entry.path}: {triples.instructed} of {len(triples)} rows have an 'instruction'; give one to "
            "all or to none."
        )
    if entry.symmetric:
        raise DataError(
            f"{entry.path}: rows have an 'instruction', but the entry is symmetric. Set a prompt for both "
            "columns and instruction: ''."
        )
    if entry.prompt:
        raise DataError(
            f"{entry.path}: rows have an 'instruction', which replaces the prompt {entry.prompt!r}. "
            "Set prompt: ''."
        )


class _Rows:
    """Rows of a data entry with a place for messages, renamed and filtered."""

    def __init__(self, entry: Data) -> None:
        self.entry = entry
        self.left_out: Counter[str] = Counter()
        self.ignored: dict[str, str] = {}
        self.position = Position()
        for column in entry.columns:
            if not is_column(column) and column not in KNOWN_COLUMNS:
                near = get_close_matches(column, KNOWN_COLUMNS)
                hint = f" Did you mean {near[0]!r}?" if near else ""
                raise DataError(
                    f"data {entry.name}: 'columns' names {column!r}, which no form reads.{hint} They read "
                    f"{', '.join(KNOWN_COLUMNS)}."
                )
        self.path = None if entry.path.startswith("hub:") else locate(entry.path)

    @property
    def folder(self) -> Path | None:
        """Return the folder of an edition's triples, if it is one; `triples.jsonl` may also hold texts."""
        if self.path is None or not self.path.is_dir() or list(self.path.glob("*.parquet")):
            return None
        if not (self.path / "triples.jsonl").is_file():
            return self.path
        _, first = next(json_rows(self.path / "triples.jsonl"), (0, {}))
        return None if "query" in first else self.path

    @property
    def files(self) -> list[Path]:
        """Return the files that are read, in order; none of a data set of the Hub."""
        if self.path is None:
            return []
        folder = self.folder
        if folder is not None and self.entry.role is None:
            return [folder / name for name in ("corpus.jsonl", "queries.jsonl", "triples.jsonl")]
        if not self.path.is_dir():
            return [self.path]
        shards = sorted(self.path.glob("*.parquet"))
        texts = {"query": "queries.jsonl", "document": "corpus.jsonl", None: "triples.jsonl"}
        return shards or [self.path / texts[self.entry.role]]

    @cached_property
    def hub(self) -> Any:
        """Return the data set of the Hub."""
        return hub_data(self.entry.path)

    @property
    def size(self) -> int:
        """Return the bytes that are read; of a data set of the Hub, of its table."""
        if self.path is None:
            return int(self.hub.data.nbytes)
        return sum(file.stat().st_size for file in self.files if file.is_file())

    @property
    def name(self) -> str:
        """Return the name of the data, for messages."""
        return self.entry.path

    def form(self) -> str:
        """Return the kind of data, derived from the columns of the first row."""
        if self.folder is not None:
            return "triples"
        _, first = next(iter(self), ("", {}))
        self.left_out.clear()  # only the form was read
        self.position = Position()
        if "premise" in first:
            return "nli"
        if "sentence1" in first:
            return "scored-pairs" if "score" in first else "labelled-pairs"
        return "triples"

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        entry = self.entry
        if not entry.columns and not entry.where:
            yield from self._raw()
            return
        theirs = set(entry.columns.values())  # one column may serve twice: a text paired with itself
        for place, row in self._raw():
            missing = [column for column in (*entry.columns.values(), *entry.where) if column not in row]
            if missing:
                raise DataError(f"{place}: has no column {missing[0]!r}; it has {', '.join(sorted(row))}.")
            if all(str(row[column]) in values for column, values in entry.where.items()):
                kept = {column: value for column, value in row.items() if column not in theirs}
                yield place, kept | {ours: row[column] for ours, column in entry.columns.items()}
            else:
                self.left_out["not selected by 'where'"] += 1

    def _raw(self) -> Iterator[tuple[str, dict[str, Any]]]:
        if self.path is None:
            yield from hub_rows(self.entry.path, self.hub)
            return
        for file in self.files:
            yield from file_rows(file, self.position)


def _triples(rows: _Rows) -> Iterator[Triple]:
    if rows.folder is not None:
        entry = rows.entry
        if entry.columns or entry.where:
            raise DataError(
                f"{entry.path}: 'columns' and 'where' do not apply to rows of ids; leave them out."
            )
        yield from _from_folder(rows.folder)
        return
    template = INSTRUCTION_TEMPLATE if rows.entry.instruction is None else rows.entry.instruction
    for number, (place, row) in enumerate(rows):
        if number == 0:
            rows.ignored = ignored_columns(row)
        yield triple_of(place, row, template)


def _grouped(judged: Iterable[tuple[dict[str, Any], str, str, bool]], rows: _Rows) -> Iterator[Triple]:
    """Return one triple per first text: texts judged true are its positives, the rest its hard negatives.

    A second text that was judged both ways is a positive.
    """
    groups: dict[str, tuple[str, list[str], list[str]]] = {}
    for row, first, second, same in judged:
        if row.get("instruction") and rows.entry.instruction != "":
            raise DataError(
                f"{rows.entry.path}: 'instruction' is not supported for pairs; set 'prompt' on the entry, "
                "and instruction: '' to ignore that column."
            )
        group = groups.setdefault(first, (str(row.get("source") or ""), [], []))
        (group[1] if same else group[2]).append(second)
    for first, (source, positives, negatives) in groups.items():
        if positives:
            refused = dict.fromkeys(text for text in negatives if text not in positives)
            yield Triple(first, tuple(dict.fromkeys(positives)), tuple(refused), source=source)
        else:
            rows.left_out["without a positive"] += 1


def _pairs(rows: _Rows, label: str) -> Iterator[Triple]:
    def judged() -> Iterator[tuple[dict[str, Any], str, str, bool]]:
        for place, row in rows:
            first: Any = row.get("sentence1")
            second: Any = row.get("sentence2")
            score = _number(row.get(label))
            texts = isinstance(first, str) and isinstance(second, str)
            if not texts or not first or not second or not isinstance(score, int | float):
                raise DataError(
                    f"{place}: needs 'sentence1', 'sentence2' and a number {label!r}; no text may be empty."
                )
            if not 0 <= score <= 1 or (label == "label" and score not in (0, 1)):
                what = "0 or 1" if label == "label" else "from 0 to 1; divide it by its maximum"
                raise DataError(f"{place}: {label!r} is {score}; it should be {what}.")
            yield row, first, second, score >= MIN_POSITIVE_SCORE

    yield from _grouped(judged(), rows)


def _number(value: Any) -> Any:
    """Return the number that a field of a CSV file writes."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _nli(rows: _Rows) -> Iterator[Triple]:
    def judged() -> Iterator[tuple[dict[str, Any], str, str, bool]]:
        for place, row in rows:
            premise, hypothesis = row.get("premise"), row.get("hypothesis")
            label = str(row.get("label")).lower()
            if not premise or not hypothesis or label not in NLI_LABELS:
                raise DataError(
                    f"{place}: needs 'premise', 'hypothesis' (not empty) and 'label': entailment, neutral or "
                    f"contradiction (or 0, 1, 2); the label is {row.get('label')!r}."
                )
            if NLI_LABELS[label] in ("neutral", "without a label"):
                rows.left_out[NLI_LABELS[label]] += 1
            else:
                yield row, premise, hypothesis, NLI_LABELS[label] == "entailment"

    yield from _grouped(judged(), rows)


def _single(rows: _Rows) -> Iterator[str]:
    for place, row in rows:
        text = row.get("text")
        if not isinstance(text, str) or not text.strip():
            raise DataError(f"{place}: needs a 'text' that is not empty; has {sorted(row)}.")
        yield join_document({"text": text, "title": row.get("title") or ""})


_READERS: dict[str, Callable[[_Rows], Iterable[Any]]] = {
    "triples": _triples,
    "scored-pairs": lambda rows: _pairs(rows, "score"),
    "labelled-pairs": lambda rows: _pairs(rows, "label"),
    "nli": _nli,
    "texts": _single,
}


def _from_folder(path: Path) -> Iterator[Triple]:
    corpus, queries = (_texts_by_id(path / name) for name in ("corpus.jsonl", "queries.jsonl"))
    listing = path / "triples.jsonl"
    for number, row in json_rows(listing):
        place = f"{listing}:{number}"
        if row.get("query-id") is None:
            raise DataError(f"{place}: needs 'query-id' and 'positives'; has {sorted(row)}.")
        positives = _ids(place, row, "positives")
        if not positives:
            raise DataError(f"{place}: 'positives' should list at least one _id of corpus.jsonl.")
        yield Triple(
            _text_of(place, queries, row["query-id"], "queries.jsonl"),
            tuple(_text_of(place, corpus, key, "corpus.jsonl") for key in positives),
            tuple(_text_of(place, corpus, key, "corpus.jsonl") for key in _ids(place, row, "negatives")),
        )


def _texts_by_id(file: Path) -> dict[str, str]:
    texts: dict[str, str] = {}
    for number, row in json_rows(file):
        key, text = row.get("_id"), row.get("text")
        if key is None or not isinstance(text, str):
            raise DataError(f"{file}:{number}: needs an '_id' and a 'text'; has {sorted(row)}.")
        if str(key) in texts:
            raise DataError(f"{file}:{number}: the _id {str(key)!r} occurs twice; each text needs its own.")
        texts[str(key)] = join_document({"text": text, "title": row.get("title") or ""})
    return texts


def _ids(place: str, row: dict[str, Any], column: str) -> list[Any]:
    """Return the ids in a column; none if it is missing or null."""
    keys = row.get(column)
    if keys is None:
        return []
    if not isinstance(keys, list):
        raise DataError(f"{place}: {column!r} should be a list of ids; it is {keys!r}.")
    return keys


def _text_of(place: str, texts: dict[str, str], key: Any, file: str) -> str:
    text = texts.get(str(key))
    if text is None:
        raise DataError(f"{place}: {str(key)!r} is not an _id in {file}.")
    if not text.strip():
        raise DataError(f"{place}: the text of {str(key)!r} in {file} is empty.")
    return text
