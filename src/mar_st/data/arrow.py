"""Arrow tables in memory or in a mapped file.

A mapped file is one copy for all processes of a machine: the kernel shares its pages and may drop them at
any time. Pages that a pass over a whole file has read would still count as memory of the process, so such a
pass releases them (`forget_pages`).
"""

from __future__ import annotations

import mmap
import os
import weakref
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

#: Rows of a record batch.
ROWS_PER_READ = 8192

_mappings: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()


def write_table(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Write record batches as an Arrow stream and wait until they are on the disk."""
    with path.open("wb") as stream:
        with pa.ipc.new_stream(stream, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        stream.flush()
        os.fsync(stream.fileno())


def map_table(path: Path) -> pa.Table:
    """Return the table of an Arrow stream; its content stays in the file until it is read."""
    with path.open("rb") as stream:
        mapping = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    _mappings.add(mapping)
    with pa.ipc.open_stream(pa.py_buffer(mapping)) as reader:
        return reader.read_all()


def forget_pages() -> None:
    """Give the pages of all mapped files back; those needed again come from the page cache."""
    for mapping in list(_mappings):
        if hasattr(mmap, "MADV_DONTNEED"):
            mapping.madvise(mmap.MADV_DONTNEED)
