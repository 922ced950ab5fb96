"""Records passed between the steps of a build: texts, and texts that a step has dropped."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["BuildError", "Dropped", "Text"]


class BuildError(ValueError):
    """A build that cannot start or continue; the message says what was expected and found, and what to do."""


@dataclass(frozen=True, slots=True)
class Text:
    """A query or a document.

    Attributes:
        id: Id of the text, unique among the texts of a folder.
        text: The text; not empty.
        title: Title of a document, may be empty.
        anonymised: Anonymiser that was applied to the text; empty if none. Texts without one are sent to
            a judge or a rewriter only with `already_anonymous`.
        meta: Other fields of the text, such as source, department, date. JSON values.
    """

    id: str
    text: str
    title: str = ""
    anonymised: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def full(self) -> str:
        """Return title, newline and text, the form that is encoded, compared and judged."""
        return f"{self.title}\n{self.text}" if self.title else self.text

    def to_json(self) -> dict[str, Any]:
        """Return a row of `records-*.jsonl`; empty fields are left out."""
        row: dict[str, Any] = {"_id": self.id}
        if self.title:
            row["title"] = self.title
        row["text"] = self.text
        if self.anonymised:
            row["anonymised"] = self.anonymised
        if self.meta:
            row["meta"] = dict(self.meta)
        return row

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Self:
        """Return the text of a row that `to_json` made."""
        return cls(
            row["_id"], row["text"], row.get("title", ""), row.get("anonymised", ""), row.get("meta", {})
        )


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
