"""Training sets: rows by file, their settings, and the queries of tests, which are kept out of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from mar_st.data.rows import read_rows
from mar_st.errors import MarError
from medteb_mteb.curation.files.layout import write_rows
from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.lineage import STEP_FILE
from medteb_mteb.curation.step import Input, StepSettings
from medteb_mteb.curation.texts.near_duplicates import QUERY_SIMILARITY, near_duplicates
from medteb_mteb.folders.content import read_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

#: Training sets of a folder.
_TRAINING_FILES = (
    "triples.jsonl", "pairs.jsonl", "sts.jsonl", "sts-pairs.jsonl", "queries.jsonl", "corpus.jsonl",
)  # fmt: skip


@dataclass(frozen=True)
class HeldOut:
    """Texts that a model will be tested on.

    Attributes:
        texts: The queries; for a data set of sentence pairs, both sentences.
        names: Origin of each text, for messages: the source and an id or a row.
        threshold: Minimum Jaccard similarity of near-duplicates, see `near_duplicates`.
    """

    texts: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    threshold: float = QUERY_SIMILARITY

    def leaks(self, queries: Sequence[str]) -> dict[int, str]:
        """Return, by row of each query that is a near-duplicate of a test's, the most similar one's name."""
        best: dict[int, tuple[float, int]] = {}
        for row, other, similarity in near_duplicates(queries, self.texts, threshold=self.threshold):
            if row not in best or similarity > best[row][0]:
                best[row] = similarity, other
        return {row: f"{self.names[other]} {similarity:.4f}" for row, (similarity, other) in best.items()}


def read_held_out(sources: Sequence[str | Path], threshold: float = QUERY_SIMILARITY) -> HeldOut:
    """Return the queries of editions, of other folders in the Hub layout, or of files of queries.

    Args:
        sources: An edition's folder (retrieval, reranking, STS, pairs), a folder of editions, or any source
            of `read_texts`.
        threshold: See `HeldOut`.

    Raises:
        MarError: A source is unusable.
        FolderError: Rows are unusable; each is listed with file and line.
    """
    texts: list[str] = []
    names: list[str] = []
    for source in sources:
        for name, text in _read(source):
            texts.append(text)
            names.append(f"{Path(str(source)).name}:{name}")
    return HeldOut(tuple(texts), tuple(names), threshold)


def training_queries(source: str | Path) -> list[str]:
    """Return the queries of training data: triples, pairs, sets of `medteb pairs`, or a folder of them.

    Args:
        source: A file or folder that `mar train` reads, a folder that a step wrote, or one with training sets
            in its `train`. Folders with documents alone have no queries.

    Raises:
        MarError: The data cannot be read, or rows are unusable.
    """
    return [query for query, _ in _rows(Path(source)) if query is not None]


def training_texts(source: str | Path) -> list[str]:
    """Return all texts of training data, documents and negatives included; see `training_queries`.

    Raises:
        MarError: The data cannot be read, or rows are unusable.
    """
    return [text for query, others in _rows(Path(source)) for text in (query, *others) if text is not None]


def _rows(path: Path) -> Iterator[tuple[str | None, Sequence[str]]]:
    """Yield query and other texts of each row of training data."""
    if path.is_dir():
        inner = path / "train" if (path / "train").is_dir() else path
        if files := [file for name in _TRAINING_FILES if (file := inner / name).is_file()]:
            for file in files:
                yield from _rows(file) if file.stat().st_size else ()
            return
        if (path / STEP_FILE).is_file() or any(path.glob("*/manifest.json")):
            return
    from mar_st.data.training import read_source  # lazy: transformers
    from mar_st.recipes.schema import Data  # lazy: pydantic

    # In any form and place that `mar train` reads.
    if _holds_texts(path):
        entry = Data(name="training", path=str(path), prompt="", form="texts", role="query")
        for text in read_source(entry, 0).texts:
            yield (None, [text]) if path.name == "corpus.jsonl" else (text, ())
        return
    for triple in read_source(Data(name="training", path=str(path), prompt=""), 0).triples:
        yield triple.query, (*triple.positives, *triple.negatives)


def _holds_texts(path: Path) -> bool:
    """Return True if a file holds single texts, as an alignment set does."""
    if path.suffix != ".jsonl" or not path.is_file():
        return False
    first = next(iter(read_rows(path)), None)
    return first is not None and "text" in first.values and "query" not in first.values


def _read(source: str | Path) -> list[tuple[str, str]]:
    """Return names and texts of a test."""
    path = Path(source)
    if path.is_dir():
        names = {file.name.partition(".")[0] for file in path.iterdir()}
        if names & {"qrels", "test"}:  # the Hub layout
            return _of_folder(path)
        editions = sorted(file.parent for file in path.glob("*/manifest.json"))
        if editions:
            return [(f"{edition.name}/{name}", text) for edition in editions for name, text in _read(edition)]
    return [(text.id, text.full) for text in read_texts(source)]


def _of_folder(folder: Path) -> list[tuple[str, str]]:
    content = read_folder(folder)
    if content.retrieval is not None:
        return [(row["id"], row["text"]) for row in content.retrieval.queries]
    rows = content.records[content.layout.split]
    columns = [name for name in ("sentence1", "sentence2", "text") if name in rows[0]]
    if not columns:
        raise MarError(f"{folder} holds no queries and no pairs of sentences; give a file of its queries.")
    return [(f"row {number}", row[name]) for number, row in enumerate(rows, 1) for name in columns]


#: Why a row is dropped: its query is a near-duplicate of one that models are tested on.
TEST_QUERY = "test-query"


class AgainstSettings(StepSettings):
    """Options of a step that writes training data."""

    against: Annotated[tuple[Path, ...], Input("editions", "texts", earlier="tests")] = Field(
        (), description="Editions or queries that models will be tested on; near-duplicates are dropped."
    )

    def held_out(self) -> HeldOut:
        """Return the queries of the tests."""
        return read_held_out(self.against)


class Rows:
    """Rows of the files of a training set, by file, and further counts."""

    def __init__(self) -> None:
        self.files: dict[str, list[dict[str, Any]]] = {}
        self.counts: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()

    def add(self, name: str, row: dict[str, Any]) -> None:
        """Add a row to `NAME.jsonl`."""
        self.files.setdefault(name, []).append(row)

    def add_example(
        self, row: Mapping[str, Any], negatives: Sequence[str], files: tuple[str, str] = ("triples", "pairs")
    ) -> None:
        """Add a row of query and positives to the first of two files, or without negatives to the second.

        A stage with hard negatives refuses rows without any.
        """
        more = {"negatives": list(negatives)} if negatives else {}
        self.add(files[not negatives], {**row, **more})

    def drop(self, row: Mapping[str, Any], reason: str, detail: str = "") -> None:
        """Add a row to `dropped.jsonl`."""
        self.dropped[reason] += 1
        self.add("dropped", {**row, "reason": reason, **({"detail": detail} if detail else {})})

    def drop_leaks(self, name: str, tests: HeldOut) -> None:
        """Drop the rows of a file whose query is a near-duplicate of a test's."""
        rows = self.files.pop(name, [])
        leaks = tests.leaks([row["query"] for row in rows])
        for place, row in enumerate(rows):
            if place in leaks:
                self.drop(row, TEST_QUERY, leaks[place])
            else:
                self.add(name, row)

    def number(self, *names: str) -> int:
        """Return the number of rows of some files."""
        return sum(len(self.files.get(name, ())) for name in names)

    def write(self, folder: Path, *names: str) -> None:
        """Write the files, those without rows only if they are named."""
        for name in dict.fromkeys((*names, *self.files)):
            write_rows(folder / f"{name}.jsonl", self.files.get(name, ()))

    def details(self) -> dict[str, Any]:
        """Return the counts, and the number of dropped rows by reason."""
        return {**dict(sorted(self.counts.items())), "dropped": dict(sorted(self.dropped.items()))}
