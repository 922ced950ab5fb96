"""What the journal holds: digests that name judgements, requests, failures, accounts."""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "ACCOUNT",
    "KEY",
    "SETTINGS",
    "Account",
    "Failure",
    "Request",
    "judgement_key",
    "proof",
    "settings_digest",
]

#: Bytes of a key and of a digest of settings.
KEY, SETTINGS = 16, 8


@dataclass(frozen=True, slots=True)
class Request:
    """A request, as far as the journal knows it.

    Attributes:
        keys: Keys of its judgements, in the order of its passages.
        attempt: 0 for the first time that these are asked for, counted up for each passage from there.
        control: Whether a control passage stands among them.
    """

    keys: tuple[bytes, ...]
    attempt: int = 0
    control: bool = False

    def id(self, settings: bytes) -> bytes:
        """16 bytes that name it under given settings."""
        head = b"request %d %d " % (self.attempt, self.control)
        return hashlib.sha256(head + settings + b"".join(self.keys)).digest()[:KEY]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no grade, and how often it was asked for beyond the first time."""

    reason: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Account:
    """What a judge was paid.

    Attributes:
        answers: Answers, good or bad.
        tokens_in: Tokens of their prompts.
        tokens_out: Tokens of the answers.
        cost: Their price, at the prices of the day.
        estimated: Answers that came without a count of tokens; theirs are estimated.
        controls: Control passages sent.
        controls_failed: Of these, those that were graded as if they had to do with the query.
    """

    answers: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float = 0.0
    estimated: int = 0
    controls: int = 0
    controls_failed: int = 0


ACCOUNT = tuple(field.name for field in fields(Account))


def settings_digest(settings: Mapping[str, Any]) -> bytes:
    """8 bytes for the settings of a judge."""
    text = json.dumps(dict(settings), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).digest()[:SETTINGS]


def judgement_key(settings: bytes, query: bytes, passage: bytes) -> bytes:
    """16 bytes for a judgement, from the digest of the settings and the sha256 of both texts."""
    return hashlib.sha256(settings + query + passage).digest()[:KEY]


def proof(key: bytes, settings: bytes, grade: str) -> bytes:
    """Checksum (4 bytes) of a row of `judgements`."""
    return zlib.crc32(key + settings + grade.encode()).to_bytes(4, "big")
