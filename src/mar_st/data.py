"""Reading training data: triples of texts, triples of ids beside a corpus, or scored sentence pairs.

Three forms are read:

- a JSONL file with one object per line: `query`, `positive` or `positives`, optional `negative` or
  `negatives` (a string or a list each), optional `instruction` and `source`, which are carried along;
- a folder `corpus.jsonl` (`_id`, `title`, `text`), `queries.jsonl` (`_id`, `text`), `triples.jsonl`
  (`query-id`, `positives`, `negatives`: lists of corpus ids), as written beside a built edition;
- a JSONL file of scored pairs, `sentence1`, `sentence2`, `score` (STS, 0 to 1): pairs that share their first
  sentence become one triple, its positives those scored 0.5 or more; a sentence without any is left out.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mar_st.errors import MarError
from mar_st.model import join_document

if TYPE_CHECKING:
    from collections.abc import Iterator

    from datasets import Dataset

    from mar_st.schema import Data


#: Scored pairs from here on count as positives.
SAME_MEANING = 0.5


class DataError(MarError):
    """Training data that cannot be used; the message names file and line."""


@dataclass(frozen=True)
class Triple:
    """A query with the texts that answer it and texts that look so but do not."""

    query: str
    positives: tuple[str, ...]
    negatives: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """A data entry of a recipe with what was read for it: triples, or texts (form `texts`)."""

    entry: Data
    triples: list[Triple] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)


def locate(name: str) -> Path:
    """Path of a data source; `package:medteb_mteb/FOLDER` means data packaged with an installed package.

    Raises:
        DataError: Nothing is there.
    """
    if not name.startswith("package:"):
        path = Path(name).expanduser()
        if not path.exists():
            raise DataError(f"No training data at {path}. Give a JSONL file or a folder with triples.jsonl.")
        return path
    package, _, inner = name.removeprefix("package:").partition("/")
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise DataError(f"The data {name} belongs to the package {package}, which is not installed.")
    root = Path(spec.origin).parent
    # In a wheel the data lie inside the package, in a checkout at the top of the repository.
    for candidate in (root / "_tasks" / inner, root.parent.parent / "tasks" / inner):
        if candidate.exists():
            return candidate
    raise DataError(f"The installed {package} has no data {inner}; reinstall it.")


def read_triples(name: str) -> list[Triple]:
    """Read all triples of a source.

    Args:
        name: JSONL file, folder, or `package:` name, see `locate`.

    Raises:
        DataError: Bad JSON, a missing column, an unknown id, or a triple without a positive; the message
            names file and line.
    """
    path = locate(name)
    triples = list(_from_folder(path) if path.is_dir() else _from_file(path))
    if not triples:
        raise DataError(f"{path} holds no triples.")
    return triples


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    if not path.is_file():
        raise DataError(
            f"{path} is missing; training data need corpus.jsonl, queries.jsonl and triples.jsonl."
        )
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise DataError(f"{path}:{number}: not a JSON object ({error}).") from error
            if not isinstance(row, dict):
                raise DataError(f"{path}:{number}: expected a JSON object, got {type(row).__name__}.")
            yield number, row


def _texts(row: dict[str, Any], *names: str) -> tuple[str, ...]:
    for name in names:
        value = row.get(name)
        if value:
            return (value,) if isinstance(value, str) else tuple(value)
    return ()


def _from_file(path: Path) -> Iterator[Triple]:
    _, first = next(_rows(path), (0, {}))
    if "sentence1" in first:
        yield from _from_pairs(path)
        return
    for number, row in _rows(path):
        query, positives = row.get("query"), _texts(row, "positive", "positives", "pos")
        if not isinstance(query, str) or not query or not positives:
            raise DataError(
                f"{path}:{number}: needs 'query' and 'positive' (or 'positives'); has {sorted(row)}."
            )
        yield Triple(query, positives, _texts(row, "negative", "negatives", "neg"))


def _from_pairs(path: Path) -> Iterator[Triple]:
    groups: dict[str, tuple[list[str], list[str]]] = {}
    for number, row in _rows(path):
        first, second, score = row.get("sentence1"), row.get("sentence2"), row.get("score")
        if not first or not second or not isinstance(score, int | float):
            raise DataError(f"{path}:{number}: needs 'sentence1', 'sentence2' and a number 'score'.")
        groups.setdefault(first, ([], []))[0 if score >= SAME_MEANING else 1].append(second)
    for first, (positives, negatives) in groups.items():
        if positives:
            yield Triple(first, tuple(positives), tuple(negatives))


def _from_folder(path: Path) -> Iterator[Triple]:
    def texts(file: str) -> dict[str, str]:
        return {str(row["_id"]): join_document(row) for _, row in _rows(path / file)}

    corpus, queries = texts("corpus.jsonl"), texts("queries.jsonl")
    listing = path / "triples.jsonl"
    for number, row in _rows(listing):
        try:
            yield Triple(
                queries[str(row["query-id"])],
                tuple(corpus[str(key)] for key in row["positives"]),
                tuple(corpus[str(key)] for key in row.get("negatives", ())),
            )
        except KeyError as error:
            raise DataError(f"{listing}:{number}: {error} is no column or no known id.") from error


def to_dataset(
    triples: list[Triple], *, negatives: int, seed: int, positives: Literal["one", "all"] = "all"
) -> Dataset:
    """One row per (query, positive) with `negatives` hard negatives each, drawn with a seed.

    Args:
        triples: The data.
        negatives: Hard negatives per row; drawn with replacement where a triple has fewer.
        seed: Seed of the draw.
        positives: A row for each positive of a query, or for one drawn from them.

    Returns:
        A dataset with string columns `query`, `positive`, `negative_1` ... `negative_n`.

    Raises:
        DataError: Negatives are asked for and a triple has none.
    """
    from datasets import Dataset

    rng = random.Random(seed)
    names = [f"negative_{index + 1}" for index in range(negatives)]
    columns: dict[str, list[str]] = {name: [] for name in ("query", "positive", *names)}
    for triple in triples:
        if negatives and not triple.negatives:
            raise DataError(
                f"The query {triple.query[:30]!r} has no negatives but {negatives} are asked for."
            )
        kept = triple.positives if positives == "all" else (rng.choice(triple.positives),)
        for positive in kept:
            if len(triple.negatives) >= negatives:
                drawn = rng.sample(triple.negatives, negatives)
            else:
                drawn = rng.choices(triple.negatives, k=negatives)
            columns["query"].append(triple.query)
            columns["positive"].append(positive)
            for name, text in zip(names, drawn, strict=True):
                columns[name].append(text)
    return Dataset.from_dict(columns)


def distinct_texts(triples: list[Triple]) -> tuple[list[str], list[str]]:
    """All distinct queries and all distinct documents of the data, in order of first occurrence."""
    queries = list(dict.fromkeys(triple.query for triple in triples))
    documents = list(dict.fromkeys(text for t in triples for text in (*t.positives, *t.negatives)))
    return queries, documents
