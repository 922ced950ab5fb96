"""Records in the files of a damaged SQLite database, without SQLite.

A record too long for a page continues in a chain of overflow pages; the number of the first follows the part
stored in place (https://www.sqlite.org/fileformat2.html, sections 1.6 and 4.1).
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import TYPE_CHECKING

from medteb_mteb.curation.llm.database import PAGE_SIZES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import ExitStack
    from pathlib import Path

__all__ = ["Bytes", "Pages", "file_bytes", "views"]

Bytes = mmap.mmap | bytes

#: Sizes of a log's header and of the header of each page in it.
_LOG, _FRAME = 32, 24
#: Bytes of a log's header that every current page in it repeats.
_SALTS = slice(16, 24)


def file_bytes(stack: ExitStack, file: Path) -> Bytes:
    """Return the bytes of a file, mapped while `stack` is open; `b""` if the file is missing or empty."""
    if not file.is_file() or not file.stat().st_size:
        return b""
    stream = stack.enter_context(file.open("rb"))
    return stack.enter_context(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))


@dataclass(frozen=True, slots=True)
class Pages:
    """Pages of a database: the newer ones, by their places in the log, and all others."""

    size: int
    base: Bytes
    log: Bytes
    newer: Mapping[int, int]

    def page(self, number: int) -> bytes:
        """Return a page, counted from 1; fewer bytes if the files end before it does."""
        if number in self.newer:
            return self.log[self.newer[number] : self.newer[number] + self.size]
        return self.base[(number - 1) * self.size : number * self.size]

    def record(self, data: Bytes, start: int, size: int) -> bytes | None:
        """Return a record, put together from its overflow pages; None if one is missing.

        Args:
            data: The database or its log.
            start: Offset of the record in `data`.
            size: Bytes of the record, including its header.
        """
        local = size
        if size > self.size - 35:
            least = (self.size - 12) * 32 // 255 - 23
            local = least + (size - least) % (self.size - 4)
            local = local if local <= self.size - 35 else least
        content = bytearray(data[start : start + local])
        next_page = int.from_bytes(data[start + local : start + local + 4], "big")
        while len(content) < size:
            page = self.page(next_page) if next_page else b""
            if len(page) < self.size:
                return None
            next_page = int.from_bytes(page[:4], "big")
            content += page[4 : 4 + size - len(content)]
        return bytes(content)


def views(base: Bytes, log: Bytes) -> list[Pages]:
    """Return the possible layouts of a database's pages in its files, the likeliest first.

    The size of a page is one that journals have. Pages of the log whose salts are not those of its header are
    left from before it was restarted, and the database has newer ones. The other layouts are for a log whose
    header is damaged.
    """
    layouts = []
    for size in PAGE_SIZES:
        frames = range(_LOG, len(log) - _FRAME - size + 1, _FRAME + size)
        current = [place for place in frames if log[place + 8 : place + 16] == log[_SALTS]]
        for places in (current, frames, ()):
            newer = {int.from_bytes(log[place : place + 4], "big"): place + _FRAME for place in places}
            layouts.append(Pages(size, base, log, newer))
    return layouts
