"""Entries of the journal's log: a request, and the grades in its answer.

The log of a journal of judgements grows at its end: a request is written when it is planned, and its
grades are written into the space that its entry reserves. So an answer changes one page, regardless of
the digests of its judgements. An entry has a fixed layout and its own checksum, and begins with `MAGIC`, so
that it can be found and checked anywhere in a damaged file. All numbers are big-endian::

    4   MAGIC
    8   number of the entry, its row id
    8   digest of the judge's settings
    2   attempt, 1 control, as in `Request`
    1   1: answered, 0: not yet
    4   number of the origin, 0: none
    2   number of passages in the prompt, 0: the passages have no place
    2   n, number of judgements
    16n keys, n grades (a letter each, `-`: none), 2n places in the prompt
    4   CRC-32 of all before it
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Self

from medteb_mteb.curation.judge.entries import Place, Request
from medteb_mteb.curation.llm.database import KEY_BYTES

__all__ = ["MAGIC", "NO_GRADE", "LogEntry", "entry_size", "read_entry"]

MAGIC = b"\xa7MTJ"
#: Marks a judgement without a grade.
NO_GRADE = ord("-")

_HEAD_FORMAT = struct.Struct(">4sQ8sHBBIHH")
_CHECKSUM_BYTES = 4


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A request in the log.

    Attributes:
        number: Row id of the entry.
        settings: Digest of the judge's settings.
        request: The request.
        answered: True if the grades are final; False if the request is still unanswered.
        grades: A letter for each key, `NO_GRADE` where there is no grade.
        places: Place of each passage in the prompt, from 1; 0: none.
        shown: Number of passages in the prompt; 0: the passages have no place.
        origin: Number of the origin; 0: none.
    """

    number: int
    settings: bytes
    request: Request
    answered: bool
    grades: bytes
    places: tuple[int, ...]
    shown: int = 0
    origin: int = 0

    @classmethod
    def unanswered(cls, number: int, settings: bytes, request: Request) -> Self:
        """Return the entry of a request that was not answered yet."""
        count = len(request.keys)
        return cls(number, settings, request, False, bytes((NO_GRADE,)) * count, (0,) * count)

    def place(self, position: int) -> Place | None:
        """Return the place of a key's passage in its prompt; None if unknown."""
        return Place(self.places[position], self.shown) if self.shown and self.places[position] else None

    def packed(self) -> bytes:
        """Return its bytes in the log."""
        count = len(self.request.keys)
        head = _HEAD_FORMAT.pack(
            MAGIC,
            self.number,
            self.settings,
            self.request.attempt,
            self.request.control,
            self.answered,
            self.origin,
            self.shown,
            count,
        )
        content = b"".join((head, *self.request.keys, self.grades, struct.pack(f">{count}H", *self.places)))
        return content + zlib.crc32(content).to_bytes(_CHECKSUM_BYTES, "big")


def entry_size(content: bytes) -> int:
    """Return the size in bytes of the entry that begins here, from its first bytes; 0 if there is none."""
    if len(content) < _HEAD_FORMAT.size or not content.startswith(MAGIC):
        return 0
    return int(_HEAD_FORMAT.size + (KEY_BYTES + 3) * _HEAD_FORMAT.unpack_from(content)[-1] + _CHECKSUM_BYTES)


def read_entry(content: bytes) -> LogEntry | None:
    """Return the entry with these bytes; None if they do not match their checksum."""
    if not isinstance(content, bytes) or entry_size(content) != len(content):
        return None
    if (
        zlib.crc32(memoryview(content)[:-_CHECKSUM_BYTES]).to_bytes(_CHECKSUM_BYTES, "big")
        != content[-_CHECKSUM_BYTES:]
    ):
        return None
    _, number, settings, attempt, control, answered, origin, shown, count = _HEAD_FORMAT.unpack_from(content)
    start = _HEAD_FORMAT.size
    keys = tuple(content[i : i + KEY_BYTES] for i in range(start, start + KEY_BYTES * count, KEY_BYTES))
    grades_start = start + KEY_BYTES * count
    places = struct.unpack_from(f">{count}H", content, grades_start + count)
    request = Request(keys, attempt, control)
    return LogEntry(
        number,
        settings,
        request,
        bool(answered),
        content[grades_start : grades_start + count],
        places,
        shown,
        origin,
    )
