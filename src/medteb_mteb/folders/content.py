"""Reads the content of a data folder into memory, and lists all of its problems at once."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from mar_st.data.rows import Row, read_rows
from mar_st.data.trec import trec_qrels
from mar_st.errors import MarError
from mar_st.text.values import as_date, as_grade, as_id, as_number, as_text, is_document, writable
from medteb_mteb.folders.layout import (
    DISPUTED,
    JUDGED_COLUMNS,
    QRELS_CONFIGS,
    TREC_SUFFIXES,
    FolderError,
    Layout,
    Problems,
    config_files,
    config_splits,
    inspect_folder,
)
from medteb_mteb.measures import Judged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from medteb_mteb.folders.layout import TaskType

Qrels = dict[str, dict[str, int]]
Records = list[dict[str, Any]]
#: Texts and their places, by id.
Texts = dict[str, tuple[str, dict[str, str]]]

_QRELS_COLUMNS = ("query-id", "corpus-id", "score")
#: Columns of qrels in data sets made for C-MTEB.
_C_MTEB = {"q_id": "query-id", "p_id": "corpus-id"}
#: The judges' grades: positive or negative.
_LETTERS = {**dict.fromkeys("SA", 1.0), **dict.fromkeys("BCD", 0.0)}


@dataclass(frozen=True)
class RetrievalData:
    """Corpus, queries, qrels and, for reranking, the candidates of one split.

    Attributes:
        corpus: Documents as `{"id", "title", "text"}`, in file order; the title may be empty.
        queries: Queries of this split as `{"id", "text"}`, in file order.
        qrels: Query id -> document id -> score; every query has at least one score above 0.
        top_ranked: Query id -> candidate document ids in file order, or None for retrieval.
        judged: Other pairs that were judged.
        query_dates: Date (`2026-10-05`) or month (`2026-10`) of each query that has one, by id.
        corpus_dates: The same of documents.
    """

    corpus: list[dict[str, str]]
    queries: list[dict[str, str]]
    qrels: Qrels
    top_ranked: dict[str, list[str]] | None
    judged: Judged = field(default_factory=Judged)
    query_dates: dict[str, str] = field(default_factory=dict)
    corpus_dates: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskFolder:
    """The checked content of one folder.

    Attributes:
        layout: Paths of the tables, and the content of card and manifest.
        type: Task type, as named by mteb.
        revision: sha256 (hex) that identifies the data; see `Layout.revision`.
        retrieval: Content of a retrieval or reranking folder, else None.
        records: Rows by split of any other folder, else empty; see `_labelled`.
    """

    layout: Layout
    type: TaskType
    revision: str
    retrieval: RetrievalData | None
    records: dict[str, Records]

    @property
    def judged(self) -> Judged:
        """Return the judged pairs of rankings; a query's own document is disputed if it is to be left out."""
        data = self.retrieval
        if data is None or not self.layout.settings.ignore_identical_ids:
            return Judged() if data is None else data.judged
        own = {query: data.judged.disputed.get(query, frozenset()) | {query} for query in data.qrels}
        return replace(data.judged, disputed=own)


def read_folder(path: Path | str, split: str = "test", *, pinned: bool = True) -> TaskFolder:
    """Check a folder in the Hub layout and read it, straight from its files.

    Args:
        path: The folder.
        split: The split to evaluate.
        pinned: Whether the manifest counts; see `inspect_folder`.

    Raises:
        FolderError: With the problems found, each with file and line.
    """
    layout = inspect_folder(path, split, pinned=pinned)
    problems = Problems(layout.path)
    kind = detect_type(layout)
    if "corpus" in layout.tables:
        data = collect_retrieval(layout, problems)
        problems.raise_if_any()
        return TaskFolder(layout, kind, layout.revision(), data, {})
    return TaskFolder(layout, kind, layout.revision(), None, _labelled(layout, kind, problems))


def detect_type(layout: Layout) -> TaskType:
    """Return the task type of a folder, from its declaration, its files, or the columns of its first row.

    Raises:
        FolderError: No type fits, or the declared type does not fit the files.
    """
    declared = layout.settings.type
    if "corpus" in layout.tables:
        detected: TaskType = "Reranking" if "top_ranked" in layout.tables else "Retrieval"
        if declared not in (None, detected):
            message = f"the type is declared as {declared}, but the files are those of {detected}"
            raise FolderError(layout.path, [message])
        return detected
    if declared in ("Retrieval", "Reranking"):
        raise FolderError(layout.path, [f"a {declared} folder needs corpus, queries and qrels"])
    if declared is not None:
        return declared
    problems = Problems(layout.path)
    first = next(table_rows(layout.tables["rows"], problems), None)
    problems.raise_if_any()
    columns = first.values.keys() if first else set[str]()
    fitting = [kind for kind, needed in _COLUMNS.items() if needed.keys() <= columns]
    if len(fitting) != 1:
        wanted = "; ".join(f"{name}: {', '.join(needed)}" for name, needed in _COLUMNS.items())
        message = (
            f"the columns {', '.join(columns) or 'none'} fit no single task type ({wanted}). Rename them, or "
            "declare the type in the README header: `medteb: {type: ...}`"
        )
        raise FolderError(layout.path, [message])
    return fitting[0]


def table_rows(
    files: Iterable[Path], problems: Problems, columns: Iterable[str] = (), *, may_be_empty: bool = False
) -> Iterator[Row]:
    """Yield the rows of one table, which may be cut into several files.

    Args:
        files: The files.
        problems: Receives unreadable files, files without rows, and rows without one of the columns.
        columns: Columns that every row needs; rows without them are left out.
        may_be_empty: Whether a file may have no rows.
    """
    for file in files:
        empty = not may_be_empty
        try:
            for row in trec_qrels(file) if file.suffix in TREC_SUFFIXES else read_rows(file):
                empty = False
                values = {_C_MTEB.get(key, key): value for key, value in row.values.items()}
                if missing := [column for column in columns if column not in values]:
                    got = ", ".join(row.values) or "none"
                    message = f"columns {', '.join(missing)} are missing; got {got}"
                    problems.add(row.place, "columns", message)
                else:
                    yield Row(row.place, values)
        except MarError as error:
            empty = False
            place, _, message = str(error).partition(": ")
            problems.add(place, "form", message or "cannot be read")
        if empty:
            problems.add(str(file), "form", "the file holds no rows")


def collect_retrieval(layout: Layout, problems: Problems) -> RetrievalData:
    """Read the tables of a retrieval or reranking folder, and record the problems found.

    Queries that are judged only in another split's qrels belong to that split and are left out.
    """
    corpus, queries = (_texts(layout.tables[role], problems) for role in ("corpus", "queries"))
    qrels = _qrels(layout.tables["qrels"], problems, queries, corpus)
    elsewhere = _judged_elsewhere(layout)
    for query, (place, _) in queries.items():
        if query in qrels:
            if not any(score > 0 for score in qrels[query].values()):
                message = f"query {query!r} has no positive document (no qrels score above 0)"
                problems.add(place, "positives", message)
        elif query not in elsewhere:
            problems.add(place, "judged", f"query {query!r} has no judgement in the qrels")
    top_ranked = None
    if "top_ranked" in layout.tables:
        lists = _top_ranked(layout.tables["top_ranked"], problems, queries, corpus)
        for query in qrels.keys() & queries.keys() - lists.keys():
            problems.add(queries[query][0], "candidates", f"query {query!r} has no top_ranked list")
        top_ranked = {query: lists[query] for query in qrels if query in lists}
    return RetrievalData(
        corpus=[
            {"id": key, "title": text["title"], "text": text["text"]} for key, (_, text) in corpus.items()
        ],
        queries=[{"id": key, "text": text["text"]} for key, (_, text) in queries.items() if key in qrels],
        qrels=qrels,
        top_ranked=top_ranked,
        judged=_judged(layout.tables.get("judged", []), problems, qrels, queries, corpus),
        query_dates={
            key: text["date"] for key, (_, text) in queries.items() if text["date"] and key in qrels
        },
        corpus_dates={key: text["date"] for key, (_, text) in corpus.items() if text["date"]},
    )


def _texts(files: list[Path], problems: Problems) -> Texts:
    texts: Texts = {}
    for place, values in table_rows(files, problems, ("text",)):
        key, text, title = as_id(values.get("_id", values.get("id"))), values["text"], values.get("title")
        if key is None:
            problems.add(place, "id", "_id must be non-empty text")
        elif key in texts:
            problems.add(place, "duplicate", f"duplicate _id {key!r} (first in {texts[key][0]})")
        else:
            if not isinstance(title, str | None) or not is_document(text, title):
                problems.add(place, "text", f"empty or unusable text: {_short(text)}")
            given = values.get("date") or ""
            if given and as_date(given) is None:
                problems.add(place, "date", f"date must be like 2026-10-05 or 2026-10, got {_short(given)}")
            fields = {"title": writable(str(title or "")), "text": writable(str(text or ""))}
            texts[key] = place, {**fields, "date": as_date(given) or ""}
    return texts


def _qrels(files: list[Path], problems: Problems, queries: Texts, corpus: Texts) -> Qrels:
    qrels: Qrels = {}
    for place, values in table_rows(files, problems, _QRELS_COLUMNS[:2]):
        query, document = as_id(values["query-id"]), as_id(values["corpus-id"])
        given = values.get("score", 1 if len(values) == 2 else None)  # two columns list positives
        score = as_grade(given)
        if query is None or document is None:
            problems.add(place, "id", "query-id and corpus-id must be non-empty text")
            continue
        if query not in queries:
            problems.add(place, "query", f"query-id {query!r} is not in the queries")
        if document not in corpus:
            problems.add(place, "document", f"corpus-id {document!r} is not in the corpus")
        if score is None:
            message = f"score must be a whole number, got {_short(given)}"
            problems.add(place, "score", message)
        elif document in qrels.get(query, {}):
            problems.add(place, "duplicate", f"({query!r}, {document!r}) is judged twice")
        else:
            qrels.setdefault(query, {})[document] = score
    return qrels


def _judged_elsewhere(layout: Layout) -> set[str | None]:
    """Return the ids of the queries judged in other splits: files in `qrels/`, or as the card declares."""
    files = [path for path in (layout.path / "qrels").glob("[!.]*") if path.is_file()]
    for config in QRELS_CONFIGS:
        for split in config_splits(layout.path, config):
            with contextlib.suppress(FolderError):  # a download of one split lacks the others' files
                files += config_files(layout.path, config, split)
    others = dict.fromkeys(file for file in files if file not in layout.tables["qrels"])
    rows = table_rows(others, Problems(layout.path), ("query-id",))
    return {as_id(row.values["query-id"]) for row in rows}


def _top_ranked(files: list[Path], problems: Problems, queries: Texts, corpus: Texts) -> dict[str, list[str]]:
    lists: dict[str, list[str]] = {}
    for place, values in table_rows(files, problems, ("query-id", "corpus-ids")):
        query, given = as_id(values["query-id"]), values["corpus-ids"]
        ids = [key for one in given if (key := as_id(one)) is not None] if isinstance(given, list) else []
        if query is None or query not in queries or query in lists:
            problems.add(place, "query", f"query-id {query!r} is not in the queries, or has two lists")
        elif not ids or len(ids) < len(given):
            message = f"corpus-ids must be a non-empty list of ids, got {_short(given)}"
            problems.add(place, "list", message)
        else:
            for document, times in Counter(ids).items():
                if document not in corpus or times > 1:
                    wrong = "is listed twice" if document in corpus else "is not in the corpus"
                    problems.add(place, "document", f"corpus-id {document!r} of {query!r} {wrong}")
            lists[query] = ids
    return lists


def _judged(files: list[Path], problems: Problems, qrels: Qrels, queries: Texts, corpus: Texts) -> Judged:
    """Return the judged negatives and the disputed pairs of a retrieval folder.

    Negatives are the qrels' zeros (as for `trec_eval`, a grade below 0 means in the pool and not judged), the
    zeros of `labels.tsv` and the letters below A of `grades.tsv`.
    """
    negatives = {q: {d for d, score in row.items() if score == 0} for q, row in qrels.items()}
    disputed: dict[str, set[str]] = {}
    contradictions = dangling = 0
    for file in files:
        for query, document, positive in _pairs(file, problems):
            if query not in queries or document not in corpus:
                dangling += 1
            elif query not in qrels:  # of another split
                continue
            elif file.name == DISPUTED:
                disputed.setdefault(query, set()).add(document)
            elif positive != (qrels[query].get(document, 0) > 0):
                contradictions += 1
            elif not positive:
                negatives[query].add(document)
    for query, documents in disputed.items():
        # A pair with a label is decided, even if an older list calls it disputed.
        documents -= negatives[query] | {d for d, score in qrels[query].items() if score > 0}
    return Judged(_frozen(negatives), _frozen(disputed), contradictions, dangling)


def _frozen(sets: Mapping[str, set[str]]) -> dict[str, frozenset[str]]:
    return {key: frozenset(values) for key, values in sets.items() if values}


def _pairs(file: Path, problems: Problems) -> Iterator[tuple[str, str, bool]]:
    """Yield query, document, and True if the pair is positive."""
    column = JUDGED_COLUMNS[file.name]
    for place, values in table_rows([file], problems, may_be_empty=True):
        query, document = as_id(values["query-id"]), as_id(values["corpus-id"])
        value = values.get(column)
        score = _LETTERS.get(str(value)) if column == "grade" else as_number(value) if column else 0.0
        if query is None or document is None or score is None:
            wanted = {"grade": f", and a grade among {', '.join(_LETTERS)}", "score": ", and a number"}
            problems.add(place, "pair", f"expected two ids{wanted.get(column, '')}")
        elif score >= 0:
            yield query, document, score > 0


def _labelled(layout: Layout, kind: TaskType, problems: Problems) -> dict[str, Records]:
    """Return the rows of the evaluated split and, for classification, of the train split.

    They are: STS `sentence1, sentence2, score` (float); pair classification `sentence1, sentence2, label`
    (0/1); classification `text, label` (0..K-1 in the order of the sorted labels); clustering `sentences,
    labels`.
    """
    files = {layout.split: layout.tables["rows"]}
    if kind == "Classification":
        if "train" not in layout.tables:
            raise FolderError(layout.path, ["classification needs a train split beside the evaluated one"])
        files["train"] = layout.tables["train"]
    records: dict[str, Records] = {split: [] for split in files}
    for split, tables in files.items():
        for place, values in table_rows(tables, problems, _COLUMNS[kind]):
            record = {column: read(values[column]) for column, read in _COLUMNS[kind].items()}
            records[split].append(record)
            for column in (column for column, value in record.items() if value is None):
                expected = _EXPECTED[_COLUMNS[kind][column]]
                problems.add(place, "record", f"{column} must be {expected}, got {_short(values[column])}")
    problems.raise_if_any()
    _check_labels(kind, layout, records, problems)
    problems.raise_if_any()
    return records


def _check_labels(kind: TaskType, layout: Layout, records: dict[str, Records], problems: Problems) -> None:
    rows, place = records[layout.split], str(layout.tables["rows"][0])
    column = [*_COLUMNS[kind]][-1]
    if kind == "Classification":
        known = sorted({row[column] for row in records["train"]})
        rank = {label: number for number, label in enumerate(known)}
        if unseen := sorted({row[column] for row in rows} - set(known)):
            problems.add(place, "unseen", f"label {_short(unseen[0])} does not occur in the train split")
        if len(known) < 2:
            problems.add(str(layout.tables["train"][0]), "classes", "at least two classes must occur")
        for row in (row for split_rows in records.values() for row in split_rows):
            row[column] = rank.get(row[column])
    elif len({row[column] for row in rows}) < 2:
        problems.add(place, "constant", f"at least two values of {column} must occur")


def _label(value: Any) -> str | None:
    """Return a class label, a whole number or text, as text."""
    return as_id(int(value) if isinstance(value, float) and value.is_integer() else value)


def _binary(value: Any) -> int | None:
    label = as_number(int(value) if isinstance(value, bool) else value)
    return int(label) if label in (0.0, 1.0) else None


#: Columns of each type, and what reads their values: `None` if a value cannot be used.
_COLUMNS: dict[TaskType, dict[str, Callable[[Any], Any]]] = {
    "STS": {"sentence1": as_text, "sentence2": as_text, "score": as_number},
    "PairClassification": {"sentence1": as_text, "sentence2": as_text, "label": _binary},
    "Classification": {"text": as_text, "label": _label},
    "Clustering": {"sentences": as_text, "labels": _label},
}
_EXPECTED: dict[Callable[[Any], Any], str] = {
    as_text: "non-empty text",
    as_number: "a finite number",
    _binary: "0 or 1",
    _label: "a whole number or non-empty text",
}


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
