"""Raw files of a folder, in the forms in which their sources publish them, and what is built of them."""

from __future__ import annotations

import csv
import hashlib
import heapq
import io
import json
import re
import tarfile
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import yaml

from mar_st.errors import MarError
from mar_st.files import finished_folder, read_json, sha256, write_json, write_text
from medteb_mteb.editions import Edition, load_edition, write_manifest
from medteb_mteb.tasks.english import COLUMNS, FOLDER, english_tasks
from medteb_mteb.tasks.tables import table as table_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

SEED = 42


class Raw:
    """A folder of raw files.

    Attributes:
        used: sha256 of the files that were read, by path in the folder.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise MarError(f"{folder}: no such folder; give the folder of the raw files.")
        self.folder = folder.resolve()
        self.used: dict[str, str] = {}

    def find(self, pattern: str, needed: str = "") -> list[Path]:
        """Return the matching files anywhere in the folder, sorted by path; they count as read.

        Args:
            pattern: File name; may contain `*`.
            needed: What the file is and where it comes from. If given, finding no file is an error.
        """
        paths = sorted(path for path in self.folder.rglob(pattern) if path.is_file())
        if needed and not paths:
            raise MarError(f"{self.folder} has no {pattern}: {needed}.")
        self.used |= {path.relative_to(self.folder).as_posix(): sha256(path) for path in paths}
        return paths

    def one(self, pattern: str, needed: str) -> Path:
        """Return the only file that matches a name."""
        paths = self.find(pattern, needed)
        if len(paths) > 1:
            raise MarError(
                f"{self.folder} has several {pattern} ({paths[0].name}, {paths[1].name}); keep one."
            )
        return paths[0]

    def members(self, archives: str, pattern: str) -> Iterator[tuple[str, bytes]]:
        """Yield path and content of files, sorted by path: of the archive, else of the folder.

        Args:
            archives: Pattern of the archive's name.
            pattern: Regular expression of the paths.
        """
        found = self.find(archives)
        if found:
            yield from unpacked(found[0].name, found[0].read_bytes(), pattern)
            return
        for path in sorted(self.folder.rglob("*")):
            name = path.relative_to(self.folder).as_posix()
            if path.is_file() and re.search(pattern, name):
                yield name, path.read_bytes()


def unpacked(name: str, content: bytes, pattern: str) -> list[tuple[str, bytes]]:
    """Return sorted path and content of the files of an archive that match; nothing touches the disk."""
    files: dict[str, bytes] = {}
    if zipfile.is_zipfile(io.BytesIO(content)):
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            files = {one: packed.read(one) for one in packed.namelist() if re.search(pattern, one)}
    else:
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            for member in tar:
                inside = tar.extractfile(member) if re.search(pattern, member.name) else None
                if inside is not None:
                    files[member.name.removeprefix("./")] = inside.read()
    if not files:
        raise MarError(f"{name} has no file like {pattern}.")
    return sorted(files.items())


def parse_xml(data: bytes, what: str) -> ET.Element:
    """Return the root of an XML document; one that declares entities is refused."""
    if b"<!ENTITY" in data:
        raise MarError(f"{what} declares entities; it is refused.")
    try:
        return ET.fromstring(data)  # noqa: S314 -- without declarations nothing expands
    except ET.ParseError as error:
        raise MarError(f"{what} is not valid XML ({error}).") from None


def in_one_line(text: Any) -> str:
    """Return a text without line breaks and repeated blanks; what is no text counts as empty."""
    return " ".join(text.split()) if isinstance(text, str) else ""


def clean(text: Any) -> str:
    """Return a text with its paragraphs, each line without outer or repeated blanks."""
    lines = text.replace("\r\n", "\n").split("\n") if isinstance(text, str) else []
    return re.sub(r"\n{3,}", "\n\n", "\n".join(map(in_one_line, lines))).strip()


class Draw:
    """Draws a number of items from a stream of unknown length, ranked by a digest of seed and text.

    So a smaller draw is a subset of a larger one, and equal texts count once.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._seen: set[int] = set()
        self._heap: list[tuple[int, int, Any]] = []  # the largest digest first, so that it is dropped first

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, text: str, item: Any) -> None:
        """Add an item, identified by a text."""
        digest = hashlib.sha256(f"{SEED}\0{text}".encode("utf-8", "surrogatepass")).digest()
        lot = int.from_bytes(digest[:16], "big")
        if lot not in self._seen:
            self._seen.add(lot)
            heapq.heappush(self._heap, (-lot, len(self._seen), item))
            if len(self._heap) > self.most:
                heapq.heappop(self._heap)

    def items(self, number: int | None = None) -> list[Any]:
        """Return the drawn items in the order of the stream, at most `number`."""
        drawn = heapq.nlargest(number or self.most, self._heap, key=lambda one: one[0])
        return [item for _, _, item in sorted(drawn, key=lambda one: one[1])]


@dataclass
class Built:
    """A data set made of raw files.

    Attributes:
        type: Type of the task, as named by mteb.
        licence: Licence stated by the source; `not specified` if it states none.
        note: Description of the data and their differences from the published ones.
        queries: Texts by id, in order.
        corpus: Title and text by id, in order.
        qrels: Grades by query and document.
        candidates: Documents to rerank, by query; empty for retrieval.
        rows: Rows of a task that is neither retrieval nor reranking.
        prompt: Instruction for queries.
        left_out: Number of records left out, by reason.
        options: Options of the build.
    """

    type: str
    licence: str
    note: str
    queries: Mapping[str, str] = field(default_factory=dict)
    corpus: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    qrels: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    candidates: Mapping[str, Sequence[str]] = field(default_factory=dict)
    rows: Sequence[Mapping[str, Any]] = ()
    prompt: str = ""
    left_out: Mapping[str, int] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)


def write_edition(task: str, built: Built, out: Path, raw: Raw) -> Edition:
    """Write a set as the edition `out/<task>` in the Hub layout, and return it."""
    if not built.rows and not (built.queries and built.corpus and built.qrels):
        raise MarError(f"{task}: the raw files hold nothing to build from.")
    if (out / task).exists():
        raise MarError(f"{out / task} exists already. Delete it, or give another folder.")
    pairs = sum(map(len, built.qrels.values()))
    counts = {"queries": len(built.queries), "corpus": len(built.corpus), "qrels": pairs}
    if built.rows:
        counts = {"pairs": len(built.rows)}
    left_out = {reason: number for reason, number in built.left_out.items() if number}
    with finished_folder(out / task) as folder:
        if built.rows:
            _write_rows(folder / "test.jsonl", built.rows)
        else:
            corpus = ({"_id": k, "title": title, "text": text} for k, (title, text) in built.corpus.items())
            _write_rows(folder / "corpus.jsonl", corpus)
            _write_rows(folder / "queries.jsonl", ({"_id": k, "text": v} for k, v in built.queries.items()))
            lines = [f"{q}\t{d}\t{grade}" for q, row in built.qrels.items() for d, grade in row.items()]
            (folder / "qrels").mkdir()
            write_text(folder / "qrels/test.tsv", "\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n")
        if built.candidates:
            lists = ({"query-id": q, "corpus-ids": list(ids)} for q, ids in built.candidates.items())
            _write_rows(folder / "top_ranked.jsonl", lists)
        header = yaml.safe_dump({"language": "en", "license": built.licence, "pretty_name": task})
        numbers = ", ".join(f"{number:,} {kind}" for kind, number in {**counts, **left_out}.items())
        write_text(folder / "README.md", f"---\n{header}---\n# {task}\n\n{built.note}\n\n{numbers}.\n")
        ranking = built.type in ("Retrieval", "Reranking")
        write_manifest(
            folder,
            task=task,
            name="raw",
            version="1",
            licence=built.licence,
            counts=counts,
            type=built.type,
            languages=["eng-Latn"],
            domains=["Medical", "Written"],
            description=built.note,
            prompt={"query": built.prompt} if ranking else built.prompt,
            left_out=left_out,
            options=dict(built.options),
            made_from=dict(sorted(raw.used.items())),
        )
    return load_edition(out / task)


def _write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def write_snapshot(
    task: str, rows: Sequence[Mapping[str, Any]], out: Path, raw: Raw, differs: str, **more: Any
) -> Path:
    """Write a task's file into the snapshot `out/MedTEB-eng`, and what it was built of into its manifest."""
    if not rows:
        raise MarError(f"{task}: the raw files hold nothing to build from.")
    one, folder = english_tasks()[task], out / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    table = io.StringIO(newline="")
    writer = csv.writer(table, lineterminator="\n")
    writer.writerows([COLUMNS[one.type], *([row[name] for name in COLUMNS[one.type]] for row in rows)])
    path = folder / f"{task}.csv"
    write_text(path, table.getvalue(), private=one.needs == "credentials")
    stated = folder / "snapshot.json"
    manifest = read_json(stated) if stated.is_file() else {"tasks": {}}
    manifest["tasks"][task] = {
        "sha256": sha256(path),
        "rows": len(rows),
        "differs": differs,
        "licence": table_of("english")["licences"][one.source],
        "made_from": dict(sorted(raw.used.items())),
        **more,
    }
    write_json(stated, manifest)
    return path
