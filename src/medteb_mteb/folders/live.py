"""Live editions: a folder with one edition per month, and the log of what was added to it.

    LIVE/
        slices.json    the log
        2026-10/       an edition: corpus, queries, qrels, manifest
        2026-11/

The log only grows, and each entry holds the digest of the one before it. Whoever has noted the digest of one
entry can tell whether that entry, or one before it, was changed later.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError, model_validator

from mar_st.errors import MarError
from mar_st.files import JsonError, read_json, write_json
from mar_st.options import invalid
from medteb_mteb.editions import load_edition

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

#: The log of a live edition.
SLICES = "slices.json"

Month: TypeAlias = Annotated[str, Field(pattern="^[0-9]{4}-(0[1-9]|1[0-2])$")]
_Digest: TypeAlias = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Entry(BaseModel):
    """Entry of the log: a slice that was added, a commitment to one, or the removal of texts from one.

    Attributes:
        slice: Month of the slice, `2026-10`.
        added: Day on which the entry was made, `2026-11-02`.
        counts: Number of queries, documents and qrels.
        dropped: Number of queries that were left out, by reason.
        digest: Digest of the slice's edition; None for a commitment.
        commitment: SHA-256 of the nonce (32 bytes) followed by the digest (32 bytes), in hexadecimal digits.
        nonce: The nonce, for a slice that was committed to by an earlier entry.
        forgotten: Number of rows that `medteb forget` has removed from a slice that was added by an earlier
            entry; the digest is that of the rest.
        before: SHA-256 of the entry before; empty for the first one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    slice: Month
    added: str
    counts: dict[str, NonNegativeInt]
    dropped: dict[str, NonNegativeInt] = Field(default_factory=dict)
    digest: _Digest | None = None
    commitment: _Digest | None = None
    nonce: _Digest | None = None
    forgotten: dict[str, NonNegativeInt] | None = None
    before: Annotated[str, Field(pattern="^([0-9a-f]{64})?$")]

    @model_validator(mode="after")
    def _one_kind(self) -> Entry:
        if (self.digest is None) == (self.commitment is None) or (self.nonce and not self.digest):
            raise ValueError("must have a digest, with or without a nonce, or a commitment")
        return self

    def content(self) -> dict[str, Any]:
        """Return the entry as JSON values; what it lacks is left out."""
        return self.model_dump(exclude_none=True)

    def sha256(self) -> str:
        """Return the SHA-256 (64 hex digits) of the entry as JSON: sorted keys, no spaces, UTF-8."""
        text = json.dumps(self.content(), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def commitment_to(digest: str, nonce: str) -> str:
    """Return the SHA-256 (64 hex digits) of the bytes of a nonce followed by those of a digest."""
    return hashlib.sha256(bytes.fromhex(nonce) + bytes.fromhex(digest)).hexdigest()


@dataclass(frozen=True)
class Live:
    """A live edition.

    Attributes:
        path: The folder.
        log: The entries of its log, in their order.
    """

    path: Path
    log: tuple[Entry, ...] = ()

    @property
    def slices(self) -> dict[str, Entry]:
        """Return the entries of the slices whose texts are there, by month in ascending order."""
        return {one.slice: one for one in sorted(self.log, key=lambda one: one.slice) if one.digest}

    @property
    def sealed(self) -> dict[str, Entry]:
        """Return the commitments whose texts are not there yet, by month."""
        opened = self.slices
        return {one.slice: one for one in self.log if one.commitment and one.slice not in opened}

    @property
    def head(self) -> str:
        """Return the SHA-256 of the last entry, which stands for the whole log; empty without entries."""
        return self.log[-1].sha256() if self.log else ""

    def folder(self, month: str) -> Path:
        """Return the folder of a slice."""
        return self.path / month

    def added(self, **fields: Any) -> Live:
        """Write a further entry to the log, and return the live edition with it.

        Args:
            **fields: Fields of `Entry` but `added` and `before`.
        """
        today = datetime.now(UTC).date().isoformat()
        live = Live(self.path, (*self.log, Entry(added=today, before=self.head, **fields)))
        write_json(self.path / SLICES, {"schema_version": 1, "log": [one.content() for one in live.log]})
        return live


def is_live(folder: Path) -> bool:
    """Return True if a folder is a live edition."""
    return (folder / SLICES).is_file()


def read_live(folder: Path) -> Live:
    """Read the log of a live edition, and check it and the manifests of the slices.

    Raises:
        MarError: The log or a manifest is malformed, or does not fit the others.
    """
    path, live = folder / SLICES, Live(folder, read_log(folder))
    for number, entry in enumerate(live.log):
        if problem := _problem(live, number, entry):
            raise MarError(f"{path}: entry {number + 1} ({entry.slice}) {problem}. Get the folder again.")
    return live


def read_log(folder: Path) -> tuple[Entry, ...]:
    """Return the entries of a log; they are not compared with each other and with the slices.

    Raises:
        MarError: The log is malformed.
    """
    path = folder / SLICES
    try:
        return tuple(Entry.model_validate(one) for one in read_json(path)["log"])
    except ValidationError as error:
        raise MarError(f"{path}: {invalid(error)}") from None
    except (JsonError, OSError, KeyError, TypeError) as error:
        raise MarError(f"{path} is not the log of a live edition ({error!r}). Get it again.") from None


def _problem(live: Live, number: int, entry: Entry) -> str:
    """Return what is wrong with an entry, empty if nothing is."""
    earlier = live.log[:number]
    if entry.before != Live(live.path, earlier).head:
        return "does not follow the entry before it: the log was changed"
    same = [one for one in earlier if one.slice == entry.slice]
    if entry.nonce and entry.digest:
        promised = [one.commitment for one in same]
        if promised != [commitment_to(entry.digest, entry.nonce)]:
            return "is not the slice that was committed to"
    elif same and not (entry.forgotten and any(one.digest for one in same)):
        return "is of a month that the log has already"
    elif entry.forgotten and not same:
        return "removes texts from a slice that was never added"
    changed = any(one.slice == entry.slice and one.forgotten for one in live.log[number + 1 :])
    if entry.digest and not changed and load_edition(live.folder(entry.slice)).digest != entry.digest:
        return f"does not fit the manifest in {live.folder(entry.slice)}: the data were changed"
    return ""


def data_folders(folders: Iterable[Path], since: str | None = None, until: str | None = None) -> list[Path]:
    """Return data folders, with the slices of a live edition in its place.

    Args:
        folders: Data folders and live editions.
        since: First month of the slices.
        until: Last month of the slices.

    Raises:
        MarError: A log is malformed, or no folder has slices of these months.
    """
    found: list[Path] = []
    any_live = False
    for folder in folders:
        if not is_live(folder):
            found.append(folder)
            continue
        any_live, live = True, read_live(folder)
        months = [month for month in live.slices if (since or "") <= month <= (until or "9999-99")]
        if not months:
            raise MarError(
                f"{folder} has no slice of these months; it has {', '.join(live.slices) or 'none'}."
            )
        found += map(live.folder, months)
    if (since or until) and not any_live:
        raise MarError("--since and --until choose slices of a live edition; give one by --data.")
    return found
