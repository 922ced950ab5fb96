"""Reads and checks the rows of STS, pair classification, classification and clustering folders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mar_st.text.values import TsvCell, as_id, as_number, as_text
from medteb_mteb.folders.problems import short_repr
from medteb_mteb.folders.rows import Row, read_rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from medteb_mteb.folders.layout import Layout
    from medteb_mteb.folders.problems import Problems
    from medteb_mteb.folders.settings import TaskType

__all__ = ["guess_type", "read_labelled"]

Records = list[dict[str, Any]]

_COLUMNS: dict[TaskType, tuple[str, ...]] = {
    "STS": ("sentence1", "sentence2", "score"),
    "PairClassification": ("sentence1", "sentence2", "label"),
    "Classification": ("text", "label"),
    "Clustering": ("sentences", "labels"),
}


def guess_type(row: Row) -> TaskType | None:
    """Return the one task type whose columns a row has, or None if none or several fit."""
    fitting = [kind for kind, columns in _COLUMNS.items() if set(columns) <= set(row.values)]
    return fitting[0] if len(fitting) == 1 else None


def read_labelled(
    layout: Layout, kind: TaskType | None, problems: Problems
) -> tuple[TaskType, dict[str, Records]]:
    """Read the rows of the evaluated split and, for classification, of the train split.

    Returns:
        The task type and the records by split: STS ``sentence1, sentence2, score`` (float); pair
        classification ``sentence1, sentence2, label`` (0/1); classification ``text, label`` (0..K-1 in the
        order of the sorted labels, ``label_text`` with the original label); clustering ``sentences,
        labels`` (both text, or both lists of text).

    Raises:
        FolderError: With every problem found, each with file and line.
    """
    rows = read_rows(layout.tables["rows"], problems)
    if not rows:
        problems.raise_if_any()
    if kind is None:
        kind = guess_type(rows[0])
        if kind is None:
            wanted = "; ".join(f"{name}: {', '.join(columns)}" for name, columns in _COLUMNS.items())
            message = (
                f"the columns {', '.join(rows[0].values)} fit no single task type ({wanted}). Rename them, "
                "or declare the type in the README header: `medteb: {type: ...}`"
            )
            problems.add(rows[0].file, rows[0].line, "columns", message)
            problems.raise_if_any()
            raise AssertionError("unreachable")
    if kind in ("Retrieval", "Reranking"):
        problems.add(
            layout.tables["rows"][0], None, "type", f"a {kind} folder needs corpus, queries and qrels"
        )
        problems.raise_if_any()
    by_split = {layout.split: rows}
    if kind == "Classification":
        if "train" not in layout.tables:
            problems.add(
                layout.tables["rows"][0], None, "train", "classification needs a train split beside it"
            )
        by_split["train"] = read_rows(layout.tables.get("train", []), problems)
    by_split = {
        split: _with_columns(split_rows, _COLUMNS[kind], problems) for split, split_rows in by_split.items()
    }
    if kind == "STS":
        records = {split: _sts(split_rows, problems) for split, split_rows in by_split.items()}
    elif kind == "PairClassification":
        records = {split: _pairs(split_rows, problems) for split, split_rows in by_split.items()}
    elif kind == "Classification":
        records = _classes(by_split, layout.split, problems)
    else:
        records = {split: _clusters(split_rows, problems) for split, split_rows in by_split.items()}
    problems.raise_if_any()
    return kind, records


def _with_columns(rows: Iterable[Row], columns: tuple[str, ...], problems: Problems) -> list[Row]:
    good = []
    for row in rows:
        missing = [column for column in columns if column not in row.values]
        if missing:
            got = ", ".join(row.values) or "none"
            problems.add(
                row.file, row.line, "columns", f"columns {', '.join(missing)} are missing; got {got}"
            )
        else:
            good.append(row)
    return good


def _texts(row: Row, columns: tuple[str, ...], problems: Problems) -> dict[str, str] | None:
    texts = {column: as_text(row.values[column]) for column in columns}
    for column, text in texts.items():
        if text is None:
            message = f"{column} must be non-empty text, got {short_repr(row.values[column])}"
            problems.add(row.file, row.line, "text", message)
    return {column: text for column, text in texts.items() if text} if all(texts.values()) else None


def _sts(rows: list[Row], problems: Problems) -> Records:
    records: Records = []
    for row in rows:
        texts = _texts(row, ("sentence1", "sentence2"), problems)
        score = as_number(row.values["score"])
        if score is None:
            message = f"score must be a finite number, got {short_repr(row.values['score'])}"
            problems.add(row.file, row.line, "score", message)
        elif texts is not None:
            records.append({**texts, "score": score})
    if rows and len({record["score"] for record in records}) < 2:
        problems.add(rows[0].file, None, "constant", "every score is the same, so no correlation exists")
    return records


def _pairs(rows: list[Row], problems: Problems) -> Records:
    records: Records = []
    for row in rows:
        texts = _texts(row, ("sentence1", "sentence2"), problems)
        value = row.values["label"]
        label = as_number(int(value) if isinstance(value, bool) else value)
        if label not in (0.0, 1.0):
            message = f"label must be 0 or 1, got {short_repr(value)}"
            problems.add(row.file, row.line, "label", message)
        elif texts is not None:
            records.append({**texts, "label": int(label)})
    if rows and len({record["label"] for record in records}) < 2:
        problems.add(rows[0].file, None, "constant", "both labels, 0 and 1, must occur")
    return records


def _label(value: Any) -> int | str | None:
    """Return a class label as a whole number or as text; None if it is neither."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value  # as it is: a float has fewer digits
    number = as_number(value)
    if number is not None and number == int(number):
        return int(number)
    return as_text(value)


def _labels_of(rows: list[Row], column: str, problems: Problems) -> list[tuple[Row, int | str]]:
    """Return the rows with a usable label; the labels must be all whole numbers or all text."""
    labelled = [(row, _label(row.values[column])) for row in rows]
    for row, label in labelled:
        if label is None:
            got = short_repr(row.values[column])
            message = f"{column} must be a whole number or non-empty text, got {got}"
            problems.add(row.file, row.line, "label", message)
    good = [(row, label) for row, label in labelled if label is not None]
    if good and any(isinstance(row.values[column], TsvCell) for row, _ in good):
        # In TSV everything is text: numbers only if every label of the table is one.
        if not all(isinstance(label, int) for _, label in good):
            return [(row, str(row.values[column])) for row, _ in good]
        return good
    for row, label in good:
        if type(label) is not type(good[0][1]):
            first = f"{short_repr(good[0][1])} at line {good[0][0].line}"
            message = f"{column} {short_repr(label)} mixes numbers and text ({first})"
            problems.add(row.file, row.line, "mixed", message)
    return good


def _classes(by_split: dict[str, list[Row]], split: str, problems: Problems) -> dict[str, Records]:
    everything = [row for name in ("train", split) for row in by_split.get(name, [])]
    labelled = _labels_of(everything, "label", problems)
    problems.raise_if_any()  # below, labels are compared with one another
    train = {id(row) for row in by_split["train"]}
    known = {label for row, label in labelled if id(row) in train}
    rank = {label: index for index, label in enumerate(sorted(known, key=_sort_key))}
    if len(known) < 2 and by_split["train"]:
        problems.add(
            by_split["train"][0].file, None, "classes", "the train split must hold at least two classes"
        )
    names: dict[int | str, str] = {}
    records: dict[str, Records] = {name: [] for name in by_split}
    for row, label in labelled:
        if label not in rank:
            message = f"label {short_repr(label)} does not occur in the train split"
            problems.add(row.file, row.line, "unseen", message)
            continue
        given = row.values.get("label_text")
        name = str(label) if given in (None, "") else as_id(given)
        if name is None:
            message = f"label_text must be non-empty text, got {short_repr(given)}"
            problems.add(row.file, row.line, "label_text", message)
            continue
        if names.setdefault(label, name) != name:
            message = (
                f"label {short_repr(label)} is called {short_repr(name)} here and "
                f"{short_repr(names[label])} before"
            )
            problems.add(row.file, row.line, "name", message)
        texts = _texts(row, ("text",), problems)
        if texts is not None:
            target = "train" if id(row) in train else split
            records[target].append({**texts, "label": rank[label], "label_text": name})
    return records


def _sort_key(label: int | str) -> tuple[int, int | str]:
    return (0, label) if isinstance(label, int) else (1, label)


def _clusters(rows: list[Row], problems: Problems) -> Records:
    nested = [isinstance(row.values["sentences"], list) for row in rows]
    if any(nested) and not all(nested):
        row = rows[nested.index(not nested[0])]
        problems.add(row.file, row.line, "mixed", "some rows hold one text, others a list; use one form")
        return []
    if not any(nested):
        records: Records = []
        for row, label in _labels_of(rows, "labels", problems):
            texts = _texts(row, ("sentences",), problems)
            if texts is not None:
                records.append({**texts, "labels": str(label)})
        if rows and len({record["labels"] for record in records}) < 2:
            problems.add(rows[0].file, None, "constant", "at least two different labels must occur")
        return records
    return [record for row in rows if (record := _cluster_set(row, problems)) is not None]


def _cluster_set(row: Row, problems: Problems) -> dict[str, Any] | None:
    sentences, labels = row.values["sentences"], row.values["labels"]
    if not isinstance(labels, list) or len(labels) != len(sentences):
        count = len(labels) if isinstance(labels, list) else "no list of"
        problems.add(row.file, row.line, "lengths", f"{len(sentences)} sentences but {count} labels")
        return None
    usable = [_label(label) for label in labels]
    if None in usable or len({type(label) for label in usable}) != 1:
        problems.add(row.file, row.line, "label", "labels must be all whole numbers or all non-empty text")
    elif any(as_text(sentence) is None for sentence in sentences):
        position = next(i for i, sentence in enumerate(sentences) if as_text(sentence) is None)
        problems.add(row.file, row.line, "text", f"sentence {position + 1} of the row is empty or not text")
    elif len(set(usable)) < 2:
        problems.add(row.file, row.line, "constant", "at least two different labels must occur in a row")
    else:
        return {"sentences": list(sentences), "labels": [str(label) for label in usable]}
    return None
