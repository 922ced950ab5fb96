"""The step `anonymize`: replaces identifiers of persons in texts, titles, replies and ids."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from medteb_mteb.curation.anonymize.find import Finder
from medteb_mteb.curation.anonymize.kinds import placeholder
from medteb_mteb.curation.anonymize.known import read_known, write_sheet
from medteb_mteb.curation.anonymize.surrogates import Surrogates, salt_for
from medteb_mteb.curation.files.step import TextsSettings, run_step
from medteb_mteb.curation.step import Counts, Input, Runtime, Step

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from medteb_mteb.curation.anonymize.kinds import Span
    from medteb_mteb.curation.anonymize.known import Known
    from medteb_mteb.curation.files.records import Text

__all__ = ["ANONYMIZE", "VERSION", "Anonymise", "AnonymizeSettings", "anonymize"]

#: Incremented with every change of recognition or replacement.
VERSION = 9
#: Ids that are digests or random; one in a few thousand contains digits that look like a phone number.
_DIGEST = re.compile(
    r"(?=[0-9-]*[a-f])(?:[0-9a-f]{16}|[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64}"
    r"|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:-\d+)?"
)

Mode = Literal["placeholder", "surrogate"]


class Anonymise:
    """The step: replaces identifiers of persons; every text is kept, and its other parts are unchanged.

    Args:
        mode: `placeholder` replaces a name by `[姓名]` (`[NAME]` in a text without Chinese), `surrogate` by
            another name, the same one for every occurrence.
        salt: The secret of the surrogates, needed for them only.
        id_label: Column of the ids, their label in the check. An id that is itself an identifier is
            replaced by a digest of the anonymised text; so is an id that `read_texts` derived from the
            content, since guesses of the replaced identifiers could be tested with it.
        known: Identifiers that are known beforehand.
        strict: Also replace doubtful identifiers and the kinds of strict mode, and keep only the month of a
            text's date.
        cleared: Kinds and values that are not identifiers; see `Finder`.
    """

    name = "anonymize"

    def __init__(
        self,
        *,
        mode: Mode = "placeholder",
        salt: bytes | None = None,
        id_label: str = "",
        known: Known | None = None,
        strict: bool = False,
        cleared: Collection[tuple[str, str]] = (),
    ) -> None:
        self.mode: Mode = mode
        self.strict = strict
        self.id_label = id_label
        self.known, self._cleared = known, cleared
        self._surrogates = Surrogates(salt or b"") if mode == "surrogate" else None
        self._taken: set[str] = set()
        self._numbers: dict[str, int] = {}

    @property
    def mark(self) -> str:
        """Return the value of `Text.anonymised`: name, version and options that decide what is replaced."""
        return f"{self.name}/{VERSION}:{self.mode}{'-strict' if self.strict else ''}"

    def restore(self, kept: Sequence[Text]) -> None:
        """Restore the ids already in use."""
        self._taken.update(text.id for text in kept)

    def __call__(self, texts: Sequence[Text]) -> Iterable[Text]:
        """Return the texts without identifiers, one for each input text."""
        return [self.process(text) for text in texts]

    def process(self, text: Text) -> Text:
        """Return a text without identifiers."""
        label = f"{self.id_label}：" if self.id_label else ""
        fields = text.fields
        keeps_id = text.id != _content_id(text.title, text.text)
        reads_id = keeps_id and not _DIGEST.fullmatch(text.id)
        found = self._finder.together([*fields, f"{label}{text.id}"] if reads_id else fields)
        if reads_id:
            found[-1] = [span for span in found[-1] if span.end > len(label)]
            keeps_id = not found[-1]
        title, body, *replies = map(self.replaced, fields, found)
        identity = text.id if keeps_id else self._new_id(title, body)
        self._taken.add(identity)
        counts = Counter(span.kind for spans in found for span in spans)
        return replace(
            text,
            id=identity,
            text=body,
            title=title,
            anonymised=self.mark,
            identifiers=dict(sorted(counts.items())),
            date=text.date[:7] if self.strict else text.date,
            replies=[{**old, "text": new} for old, new in zip(text.replies, replies, strict=True)],
        )

    @cached_property
    def _finder(self) -> Finder:
        return Finder(known=self.known, strict=self.strict, cleared=self._cleared)

    def replaced(self, text: str, spans: Sequence[Span]) -> str:
        """Replace the spans (sorted, without overlap) of a text; the rest is unchanged."""
        if not spans:
            return text
        chinese = any("\u4e00" <= char <= "\u9fff" for char in text)
        parts, position = [], 0
        for start, end, kind in spans:
            parts.append(text[position:start])
            value = text[start:end]
            parts.append(
                self._surrogates(kind, value) if self._surrogates else placeholder(kind, chinese=chinese)
            )
            position = end
        return "".join([*parts, text[position:]])

    def _new_id(self, title: str, body: str) -> str:
        identity = first = _content_id(title, body)
        number = self._numbers.get(first, 1)
        while identity in self._taken:
            number += 1
            identity = f"{first}-{number}"
        self._numbers[first] = number
        return identity


def _content_id(title: str, text: str) -> str:
    return hashlib.sha256(f"{title}\n{text}".encode()).hexdigest()[:16]


class AnonymizeSettings(TextsSettings):
    """Options of the step `anonymize`."""

    mode: Mode = Field("placeholder", description="Replace a name by [姓名], or by another name (surrogate).")
    known: Annotated[Path | None, Input("file")] = Field(
        None, description="File of known names, one per line, IDENTIFIER<tab>KIND, or a sheet of --review."
    )
    strict: bool = Field(False, description="Also replace doubtful identifiers and dates.")
    review: Annotated[Path | None, Runtime()] = Field(
        None, description="CSV file to write what only --strict replaces to, for a person to decide."
    )


def anonymize(settings: AnonymizeSettings) -> Counts:
    """Replace identifiers of persons in texts."""
    known, cleared = read_known(settings.known) if settings.known else (None, frozenset())
    work = Anonymise(
        mode=settings.mode,
        salt=salt_for(settings.out) if settings.mode == "surrogate" else None,
        id_label=settings.columns.get("id", ""),
        known=known,
        strict=settings.strict,
        cleared=cleared,
    )
    kept = settings.review is not None and settings.review.exists()  # it may hold answers
    if settings.review is not None and not kept:
        write_sheet(settings.source, settings.review, known=known, columns=settings.columns)
    counts = run_step(work, settings)
    found: Counter[str] = Counter()
    for records in settings.out.glob("records-*.jsonl"):
        with records.open(encoding="utf-8") as lines:
            for line in lines:
                found.update(json.loads(line).get("identifiers", {}))
    own = [{"version": VERSION, "strict": settings.strict}]
    details = {**counts.details, "identifiers": dict(sorted(found.items()))}
    notes = (*counts.notes, f"{settings.review} is kept as it is; delete it to have it written again.")
    return replace(
        counts,
        details=details,
        provenance={**counts.provenance, "anonymisers": own},
        notes=notes if kept else counts.notes,
    )


ANONYMIZE = Step("anonymize", AnonymizeSettings, anonymize, "texts", anonymises=True, version=str(VERSION))
