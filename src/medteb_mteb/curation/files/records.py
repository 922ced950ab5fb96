"""Records passed between the steps of a build: texts, and texts that a step has dropped."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Text:
    """A query or a document.

    Attributes:
        id: Id of the text, unique among the texts of a folder.
        text: The text; not empty.
        title: Title of a document, may be empty.
        anonymised: Anonymiser that was applied to the text; empty if none. Texts without one are sent to
            a judge or a rewriter only with `already_anonymous`.
        identifiers: Number of replaced identifiers by kind.
        date: Date (`2026-10-05`) or month (`2026-10`); empty if none is known.
        replies: Replies to a patient's post: `text`, and `verified`, true for a verified physician's.
    """

    id: str
    text: str
    title: str = ""
    anonymised: str = ""
    identifiers: Mapping[str, int] = field(default_factory=dict)
    date: str = ""
    replies: Sequence[Mapping[str, Any]] = ()

    @property
    def full(self) -> str:
        """Return title, newline and text, the form that is encoded, compared and judged."""
        return f"{self.title}\n{self.text}" if self.title else self.text

    @property
    def fields(self) -> list[str]:
        """Return title, text and the texts of all replies: everything in which persons may be named."""
        return [self.title, self.text, *(reply["text"] for reply in self.replies)]

    def to_json(self) -> dict[str, Any]:
        """Return a row of `records-*.jsonl`; empty fields are left out."""
        row = {
            "_id": self.id,
            "title": self.title,
            "text": self.text,
            "date": self.date,
            "anonymised": self.anonymised,
            "identifiers": dict(self.identifiers),
            "replies": list(self.replies),
        }
        return {key: value for key, value in row.items() if value}


@dataclass(frozen=True, slots=True)
class Dropped:
    """A text that a step leaves out.

    Attributes:
        text: The text as given to the step.
        reason: Short key that is counted, for instance `near-duplicate`.
        detail: More about this one text, for instance the id of its neighbour.
    """

    text: Text
    reason: str
    detail: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return a row of `dropped-*.jsonl`."""
        row = {**self.text.to_json(), "reason": self.reason}
        return {**row, "detail": self.detail} if self.detail else row
