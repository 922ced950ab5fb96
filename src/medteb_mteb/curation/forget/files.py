"""What is removed from files and folders: one function per kind; anything else is only searched.

Each function returns what it has removed, or would remove in a dry run, and finishes what an interrupted run
has begun. A file is written aside and renamed, and keeps its permissions.
"""

from __future__ import annotations

import gzip
import html
import json
import os
import re
import shutil
import sqlite3
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mar_st.data.lines import start_of
from mar_st.data.rows import is_rows, read_rows
from mar_st.errors import MarError
from mar_st.files import finished, read_json, read_record
from medteb_mteb.curation.lineage import STEP_FILE
from medteb_mteb.curation.llm.journal import Journal
from medteb_mteb.editions import MANIFEST_NAME
from medteb_mteb.folders.live import SLICES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from medteb_mteb.curation.forget.texts import Row, Texts

#: File of an unfinished `medteb forget`, with the texts that it looks for.
WORK_FILE = ".forget.json"
#: Files that have a function of their own, see `medteb_mteb.curation.forget.command`.
_RECORDS = (STEP_FILE, MANIFEST_NAME, SLICES, WORK_FILE)
#: Files that mark a folder as a model.
_MODEL_FILES = ("modules.json", "config.json")
_RUN_SUFFIXES = (".trec", ".run", ".qrels")
#: Columns of a line of TREC's runs and qrels, and those with the ids.
_RUN_COLUMNS, _ID_COLUMNS = (4, 6), (0, 2)
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


class Kind(NamedTuple):
    """A kind of file or folder.

    Attributes:
        name: Its name in the report.
        claims: Returns True for a file or folder of this kind.
        remove: Removes texts; its third argument is True in a dry run.
    """

    name: str
    claims: Callable[[Path], bool]
    remove: Callable[[Path, Texts, bool], int]


def units(roots: Iterable[Path]) -> Iterator[tuple[Path, Kind]]:
    """Yield the files and folders of a known kind below some folders; those of models are left alone."""
    for root in roots:
        for folder, folders, files in os.walk(root):
            here = Path(folder)
            kind = next((one for one in FOLDERS if one.claims(here)), None)
            if kind is not None:
                yield here, kind
            if kind is not None or any(name in _MODEL_FILES for name in files):
                folders.clear()
                continue
            folders.sort()
            for path in sorted(here / name for name in files if name not in _RECORDS):
                found = next((one for one in FILES if one.claims(path)), None)
                if found is not None and not path.is_symlink():
                    yield path, found


def texts_of(roots: Sequence[Path]) -> Iterator[tuple[Path, Row]]:
    """Yield the rows with texts below some folders: those of tables, and the documents of indexes."""
    from mar_st.index.folder import FolderIndex  # lazy: faiss

    for path, kind in units(roots):
        if kind.remove in (_table, _lines) or (kind.remove is _json and _is_array(path)):
            with suppress(MarError):  # the unusable rest of a file is searched by its bytes
                yield from ((path, row.values) for row in read_rows(path))
        elif kind.remove is _index:
            for segment in FolderIndex.connect(path).segments:
                entries = (segment.documents[row] for row in range(len(segment.documents)))
                yield from ((path, {"_id": one.id, "title": one.title, "text": one.text}) for one in entries)


def _is_index(path: Path) -> bool:
    return str((read_record(path / MANIFEST_NAME) or {}).get("format")) == "mar-index"


def _index(path: Path, texts: Texts, dry_run: bool) -> int:
    from mar_st.index.build import purge  # lazy: faiss

    return purge(path, sorted(texts.ids), dry_run=dry_run)


def _is_vectors(path: Path) -> bool:
    return (path / "shards").is_dir()


def _vectors(path: Path, texts: Texts, dry_run: bool) -> int:
    from mar_st.encode.folder import remove_vectors  # lazy: pyarrow

    count = remove_vectors(path, sorted(texts.ids), sorted(texts.digests), dry_run=dry_run)
    if not dry_run and (read_record(path / MANIFEST_NAME) or {}).get("count") == 0:
        shutil.rmtree(path)
    return count


def _is_journal(path: Path) -> bool:
    if path.suffix not in (".sqlite", ".db"):
        return False
    with (
        suppress(sqlite3.Error),
        closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db,
    ):
        return bool(db.execute("SELECT 1 FROM sqlite_master WHERE name = 'answers'").fetchone())
    return False


def _journal(path: Path, texts: Texts, dry_run: bool) -> int:
    """Erase answers about the texts, and delete their judgements.

    An answer stays as a payment: its text and key go, so accounts and budgets stay right.
    """
    judged = "FROM grades WHERE query IN (SELECT text FROM gone) OR document IN (SELECT text FROM gone)"
    with Journal(path) as journal:
        db, answers = journal.db, about(journal, texts)
        count = len(answers) + int(db.execute(f"SELECT count(*) {judged}").fetchone()[0])
        if dry_run:
            return count
        db.execute("PRAGMA secure_delete = ON")
        with journal.transaction():
            some = [(one,) for one in answers]
            db.executemany("UPDATE answers SET text = '', key = randomblob(16) WHERE id = ?", some)
            db.executemany("DELETE FROM shown WHERE answer = ?", some)
            db.execute(f"DELETE {judged}")
        db.execute("VACUUM")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return count


def about(journal: Journal, texts: Texts) -> list[int]:
    """Return the rows of the answers whose prompt showed one of the texts, or that hold one."""
    journal.db.execute("CREATE TEMP TABLE IF NOT EXISTS gone (text BLOB PRIMARY KEY)")
    journal.db.executemany("INSERT OR IGNORE INTO gone VALUES (?)", [(one,) for one in texts.digests])
    shown = journal.db.execute("SELECT answer FROM shown WHERE text IN (SELECT text FROM gone)")
    found = {row for (row,) in shown}
    every = journal.db.execute("SELECT id, text FROM answers WHERE text != ''")
    found.update(row for row, text in every if texts.holds(text))
    return sorted(found)


def _lines(path: Path, texts: Texts, dry_run: bool) -> int:
    """Remove rows of JSONL, CSV, TSV and lines of text; all other lines stay as they are."""
    if _is_array(path):
        return _json(path, texts, dry_run)
    opener: Any = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as stream:
        if stream.read(2) in _UTF16:
            return 0
    changes: dict[int, Row | None] = {}  # by the first line of a row
    following, last = set[int](), 0  # first lines of the rows after these
    for row in read_rows(path):
        line = int(row.place.rpartition(":")[2])
        if last in changes:
            following.add(line)
        kept, last = texts.cut(row.values), line
        if kept != row.values:
            changes[line] = kept
    if dry_run or not changes:
        return len(changes)
    with _rewritten(path) as part, opener(path, "rb") as stream, opener(part, "wb") as out:
        goes = False
        for number, line in enumerate(stream, 1):
            goes = number in changes or (goes and number not in following)
            if not goes:
                out.write(line)
            elif (kept := changes.get(number)) is not None:
                out.write(_json_line(kept, line))
    return len(changes)


def _is_array(path: Path) -> bool:
    return start_of(path).lstrip().startswith("[")


def _json_line(row: Row, like: bytes) -> bytes:
    """Return a row of JSONL, in ASCII if the line that it replaces is not UTF-8."""
    try:
        ascii_only = not like.decode()
    except UnicodeDecodeError:
        ascii_only = True
    return (json.dumps(row, ensure_ascii=ascii_only) + "\n").encode()


@contextmanager
def _rewritten(path: Path) -> Iterator[Path]:
    """Provide a temporary name to write a file to, which replaces the file and gets its permissions."""
    with finished(path) as part:
        yield part
        shutil.copymode(path, part)


def _table(path: Path, texts: Texts, dry_run: bool) -> int:
    """Remove rows of a Parquet file."""
    from pyarrow import Table, parquet  # lazy: pyarrow

    table = parquet.read_table(path)
    rows = table.to_pylist()
    kept = [texts.cut(row) for row in rows]
    count = len([row for new, row in zip(kept, rows, strict=True) if new != row])
    if count and not dry_run:
        left = Table.from_pylist([row for row in kept if row is not None], schema=table.schema)
        with _rewritten(path) as part:
            parquet.write_table(left, part)
    return count


def _json(path: Path, texts: Texts, dry_run: bool) -> int:
    """Remove entries of a JSON file that is no table, such as a run or scores by query."""
    if not _is_array(path):
        with suppress(MarError):
            return _lines(path, texts, dry_run)
    content = read_json(path)
    if isinstance(content, list):
        kept: Any = [texts.cut(one) if isinstance(one, dict) else one for one in content]
        kept = [one for one in kept if one is not None and not (isinstance(one, str) and texts.holds(one))]
    else:
        kept = texts.cut(content, root=True) if isinstance(content, dict) else content
    if kept == content:
        return 0
    if not dry_run:
        indent = 2 if b"\n " in path.read_bytes()[:200] else None
        with _rewritten(path) as part:
            part.write_text(json.dumps(kept, ensure_ascii=False, indent=indent) + "\n", encoding="utf-8")
    return 1


def _run(path: Path, texts: Texts, dry_run: bool) -> int:
    """Remove lines of TREC's runs and qrels."""

    def stays(line: bytes) -> bool:
        cells = line.decode("utf-8", "replace").split()
        return len(cells) not in _RUN_COLUMNS or not any(cells[one] in texts.ids for one in _ID_COLUMNS)

    with path.open("rb") as stream:
        count = sum(not stays(line) for line in stream)
    if count and not dry_run:
        with _rewritten(path) as part, path.open("rb") as stream, part.open("wb") as out:
            out.writelines(line for line in stream if stays(line))
    return count


def _page(path: Path, texts: Texts, dry_run: bool) -> int:
    """Delete a page that shows a text, or the page of a query, or a link to it."""
    content = path.read_text(encoding="utf-8", errors="replace")
    cells = re.split(r"<[^>]*>", content)
    named = any(f"--{name}.html" in content or path.name.endswith(f"--{name}.html") for name in texts.ids)
    found = named or any(texts.holds(html.unescape(cell)) for cell in cells)
    if found and not dry_run:
        path.unlink()
    return int(found)


def _suffixes(*suffixes: str) -> Callable[[Path], bool]:
    return lambda path: path.suffix.lower() in suffixes


#: Folders that one function handles as a whole, and files; the first kind that claims one has it.
FOLDERS = (Kind("index", _is_index, _index), Kind("vectors", _is_vectors, _vectors))
FILES = (
    Kind("journal", _is_journal, _journal),
    Kind("run", _suffixes(*_RUN_SUFFIXES), _run),
    Kind("page", _suffixes(".html", ".htm"), _page),
    Kind("table", _suffixes(".parquet"), _table),
    Kind("JSON", _suffixes(".json"), _json),
    Kind("rows", lambda path: is_rows(path) or path.suffix == ".txt", _lines),
)
