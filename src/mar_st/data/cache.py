"""Cache of Arrow tables, mapped by all processes: training data that are too large to hold in memory.

Each table is a folder `KEY/` of the cache: `rows.arrow` and `manifest.json`. The key is a digest of the
table's sources and of all settings that change it, so nothing in the cache is ever out of date,
and every folder may be deleted while no run uses it. A table is moved into place when it is complete; of
several processes that need one, the first writes it and the others wait.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from filelock import FileLock, Timeout
from transformers.utils import logging

from mar_st.data.arrow import map_table, write_table
from mar_st.data.records import DataError
from mar_st.files import move_folder, one_line, write_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

logger = logging.get_logger(__name__)

#: Environment variable with the folder of the cache.
CACHE_VARIABLE = "MAR_DATA_CACHE"

#: Version of tables; raised by every change that makes the same content and settings give another table.
TABLE_VERSION = 1

#: Minimum age (ns) of a file whose digest is remembered. A younger file could change again with the same time
#: stamp if the clock of the file system is coarse.
MIN_AGE_NS = 2_000_000_000

ROWS_FILE, MANIFEST = "rows.arrow", "manifest.json"


def cache_root() -> Path:
    """Return the folder of the cache: `$MAR_DATA_CACHE`, else `mar` in the cache of `datasets`."""
    given = os.environ.get(CACHE_VARIABLE)
    if given:
        return Path(given).expanduser()
    from datasets import config  # lazy: datasets

    return Path(config.HF_DATASETS_CACHE) / "mar"


def cache_key(**content: Any) -> str:
    """Return the digest of the sources of a table."""
    text = json.dumps({"format": TABLE_VERSION, **content}, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def cached_table(
    key: str,
    schema: pa.Schema,
    make: Callable[[], Iterable[pa.RecordBatch]],
    about: Callable[[], dict[str, Any]],
) -> tuple[pa.Table, dict[str, Any]]:
    """Return a mapped table and the data kept about it; create it if it does not exist.

    Args:
        key: See `cache_key`.
        schema: Columns of the table.
        make: Returns the record batches of the table.
        about: Returns the data to keep about the table, as JSON; called after the last batch.

    Raises:
        DataError: The table in the cache is damaged.
    """
    folder = cache_root() / key
    if not _is_complete(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder.with_name(f"{key}.lock")):
            if not _is_complete(folder):  # another process may have made it by now
                _make(folder, schema, make, about)
    manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    try:
        return map_table(folder / ROWS_FILE), manifest["about"]
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(
            f"{folder / ROWS_FILE} is damaged ({one_line(error)}). Delete {folder}; the next run makes it "
            "again."
        ) from error


def file_digests(files: Sequence[Path]) -> list[str]:
    """Return the sha256 of files; the digest of a file with unchanged size and time is remembered."""
    return [_file_digest(file.resolve()) for file in files]


@contextmanager
def _locked(lock: Path) -> Iterator[None]:
    file_lock = FileLock(lock)
    try:
        file_lock.acquire(timeout=0)
    except Timeout:
        logger.info("another process converts the training data; waiting for it")
        file_lock.acquire()
    try:
        yield
    finally:
        file_lock.release()


def _is_complete(folder: Path) -> bool:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        complete = (folder / ROWS_FILE).stat().st_size == manifest["bytes"]
        return bool(complete) and isinstance(manifest["about"], dict)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _make(
    folder: Path,
    schema: pa.Schema,
    make: Callable[[], Iterable[pa.RecordBatch]],
    about: Callable[[], dict[str, Any]],
) -> None:
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)  # left over from a killed process
    part.mkdir()
    rows = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for batch in make():
            rows += batch.num_rows
            yield batch

    try:
        write_table(part / ROWS_FILE, schema, counted())
        manifest = {"rows": rows, "bytes": (part / ROWS_FILE).stat().st_size, "about": about()}
        (part / MANIFEST).write_text(json.dumps(manifest, ensure_ascii=False, indent=1), encoding="utf-8")
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)
    move_folder(part, folder)


def _file_digest(file: Path) -> str:
    status = file.stat()
    stamp = [str(file), status.st_size, status.st_mtime_ns]
    memory = cache_root() / "digests" / f"{cache_key(stamp=stamp)}.txt"
    if memory.is_file():
        remembered = memory.read_bytes()
        if re.fullmatch(rb"[0-9a-f]{64}", remembered):  # a damaged one would give other data this key
            return remembered.decode()
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if time.time_ns() - status.st_mtime_ns < MIN_AGE_NS:
        return digest
    memory.parent.mkdir(parents=True, exist_ok=True)
    write_text(memory, digest)
    return digest
