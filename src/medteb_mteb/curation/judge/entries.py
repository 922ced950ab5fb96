"""Entries of the journal: requests, accounts, and the digests that identify judgements."""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from medteb_mteb.curation.llm.account import Account
from medteb_mteb.curation.llm.database import KEY_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "ECHO",
    "GOLD",
    "OFF_TOPIC",
    "JudgeAccount",
    "Place",
    "Request",
    "answer_text",
    "judgement_key",
    "packed_answer",
    "places_of",
    "proof",
]

#: Control passages of a request, bits of `Request.control`: one about something else entirely, one that
#: repeats the query, and one that is known to answer it.
OFF_TOPIC, ECHO, GOLD = 1, 2, 4


@dataclass(frozen=True, slots=True)
class Request:
    """A request as recorded in the journal.

    Attributes:
        keys: Keys of the judgements, in the order of the passages.
        attempt: 0 for the first request; incremented for each passage when it is requested again.
        control: The control passages among them, a sum of `OFF_TOPIC`, `ECHO` and `GOLD`.
    """

    keys: tuple[bytes, ...]
    attempt: int = 0
    control: int = 0

    @classmethod
    def of_row(cls, keys: bytes, attempt: int, control: int) -> Self:
        """Return the request of a row, whose keys are one after the other."""
        return cls(tuple(keys[i : i + KEY_BYTES] for i in range(0, len(keys), KEY_BYTES)), attempt, control)

    @property
    def controls(self) -> tuple[int, ...]:
        """Return the kinds of its control passages."""
        return tuple(kind for kind in (OFF_TOPIC, ECHO, GOLD) if self.control & kind)

    def id(self, settings: bytes) -> bytes:
        """Return 16 bytes that identify it under the given settings."""
        head = b"request %d %d " % (self.attempt, self.control)
        return hashlib.sha256(head + settings + b"".join(self.keys)).digest()[:KEY_BYTES]


@dataclass(frozen=True, slots=True)
class Place:
    """Position of a passage in its prompt.

    Attributes:
        place: Number of the passage, from 1.
        shown: Number of passages in the prompt, including control passages.
    """

    place: int
    shown: int


def places_of(request: Request, numbers: Sequence[int]) -> dict[bytes, Place]:
    """Return the positions of the passages of a request in its prompt, by key.

    Args:
        request: The request.
        numbers: Number of the passage of each key, from 0.
    """
    shown = len(numbers) + len(request.controls)
    return {key: Place(number + 1, shown) for key, number in zip(request.keys, numbers, strict=True)}


@dataclass(frozen=True, slots=True)
class JudgeAccount(Account):
    """Cost of a judge, and its results on control passages.

    Attributes:
        controls: Number of answers to prompts with control passages.
        controls_failed: Of these, number that misgraded one.
    """

    controls: int = 0
    controls_failed: int = 0


def judgement_key(settings: bytes, query: bytes, passage: bytes) -> bytes:
    """Return a judgement's key (16 bytes), from the settings' digest and the sha256 of both texts."""
    return hashlib.sha256(settings + query + passage).digest()[:KEY_BYTES]


def proof(key: bytes, settings: bytes, grade: str) -> bytes:
    """Return the checksum (4 bytes) of a row of `judgements`."""
    return zlib.crc32(key + settings + grade.encode()).to_bytes(4, "big")


def packed_answer(text: str) -> bytes:
    """Return the bytes that keep the text of an answer; what UTF-8 cannot hold becomes `?`."""
    return zlib.compress(text.encode("utf-8", "replace"), 9)


def answer_text(content: Any) -> str:
    """Return the text of a kept answer.

    Raises:
        ValueError: The bytes are damaged.
    """
    try:
        return zlib.decompress(content).decode()
    except (TypeError, UnicodeDecodeError, zlib.error) as error:
        raise ValueError(f"a stored answer is damaged: {error}") from error
