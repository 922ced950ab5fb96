"""Precision and recall on sentences with manually marked identifiers."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mar_st.errors import MarError
from medteb_mteb.curation.anonymize.kinds import IDENTIFIER_KINDS, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["MIN_OVERLAP", "Marked", "Quality", "parse_marked", "quality", "read_marked"]

#: Minimum characters that a found and a marked span have in common, as a share of the longer one.
MIN_OVERLAP = 0.5
_MARK = re.compile(r"\[\[([A-Za-z_]+):(.*?)\]\]")


@dataclass(frozen=True, slots=True)
class Marked:
    """A sentence with its manually marked identifiers.

    Attributes:
        text: Text without the marks.
        spans: The identifiers, sorted by start.
        line: Line number in the file.
    """

    text: str
    spans: tuple[Span, ...]
    line: int = 0


@dataclass
class Quality:
    """Precision and recall on labelled sentences.

    Attributes:
        sentences: Number of sentences.
        plain: Number of sentences without a mark.
        disturbed: Number of sentences without a mark in which something was found.
        marked: Number of marked identifiers by kind.
        found: Number of found identifiers by kind.
        exact: Number found with the same kind, start and end, by kind.
        near: Number found with the same kind and an overlap of at least `MIN_OVERLAP`, by kind.
        characters: Number of marked characters.
        covered: Number of marked characters found as any kind; the rest would be left in the text.
        errors: A line for each missed and each false identifier.
    """

    sentences: int = 0
    plain: int = 0
    disturbed: int = 0
    marked: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    exact: Counter[str] = field(default_factory=Counter)
    near: Counter[str] = field(default_factory=Counter)
    characters: int = 0
    covered: int = 0
    errors: list[str] = field(default_factory=list)

    def recall(self, kind: str | None = None, *, exact: bool = False) -> float:
        """Return the share of the marked identifiers that were found; 1 if none is marked."""
        return _share(self.exact if exact else self.near, self.marked, kind)

    def precision(self, kind: str | None = None, *, exact: bool = False) -> float:
        """Return the share of found identifiers that are marked; 1 if nothing was found."""
        return _share(self.exact if exact else self.near, self.found, kind)

    def to_json(self) -> dict[str, Any]:
        """Return everything except the errors, which contain identifiers."""
        return {
            "sentences": self.sentences,
            "plain": self.plain,
            "disturbed": self.disturbed,
            "overlap": MIN_OVERLAP,
            "covered": round(self.covered / self.characters, 4) if self.characters else 1.0,
            "all": self._row(None),
            "kinds": {
                kind: self._row(kind) for kind in IDENTIFIER_KINDS if self.marked[kind] or self.found[kind]
            },
        }

    def _row(self, kind: str | None) -> dict[str, Any]:
        return {
            "marked": self.marked[kind] if kind else self.marked.total(),
            "found": self.found[kind] if kind else self.found.total(),
            "precision": round(self.precision(kind), 4),
            "recall": round(self.recall(kind), 4),
            "precision_exact": round(self.precision(kind, exact=True), 4),
            "recall_exact": round(self.recall(kind, exact=True), 4),
        }


def _share(part: Counter[str], whole: Counter[str], kind: str | None) -> float:
    of = whole[kind] if kind else whole.total()
    return (part[kind] if kind else part.total()) / of if of else 1.0


def parse_marked(line: str, number: int = 0) -> Marked:
    """Return the sentence of a line with marks such as `电话[[PHONE:13800138000]]`.

    Raises:
        MarError: A kind is unknown, or a mark is empty or not closed.
    """
    text, spans, end = "", [], 0
    for mark in _MARK.finditer(line):
        kind, value = mark[1].upper(), mark[2]
        if kind not in IDENTIFIER_KINDS or not value:
            problem = f"unknown kind {mark[1]}" if value else "empty mark"
            raise MarError(
                f"line {number}: {problem}; write [[KIND:text]] with one of {', '.join(IDENTIFIER_KINDS)}."
            )
        text += line[end : mark.start()]
        spans.append(Span(len(text), len(text) + len(value), kind))
        text += value
        end = mark.end()
    text += line[end:]
    if "[[" in text or "]]" in text:
        raise MarError(f"line {number}: a label is not closed; write [[KIND:text]].")
    return Marked(text, tuple(spans), number)


def read_marked(path: str | Path) -> list[Marked]:
    """Return the sentences of a file, one per line; empty lines and lines that begin with # are skipped.

    Raises:
        MarError: The file cannot be read, has no sentences, or has invalid marks; the first five are named.
    """
    file = Path(path)
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise MarError(f"{file} cannot be read as UTF-8 text: {error}.") from error
    sentences, problems = [], []
    for number, line in enumerate(lines, start=1):
        if line.strip() and not line.startswith("#"):
            try:
                sentences.append(parse_marked(line, number))
            except MarError as error:
                problems.append(str(error))
    if problems:
        raise MarError(f"{file}: {' '.join(problems[:5])}")
    if not sentences:
        raise MarError(f"{file} holds no sentences.")
    return sentences


def quality(
    sentences: Iterable[Marked],
    find: Callable[[str], Sequence[Span]],
    *,
    kinds: Sequence[str] = tuple(IDENTIFIER_KINDS),
) -> Quality:
    """Compare found identifiers with the marked ones; each span matches at most one of the other side.

    Args:
        sentences: Marked sentences.
        find: Function to evaluate.
        kinds: Kinds that count; marks of other kinds are ignored.
    """
    result = Quality()
    for marked in sentences:
        sentence = replace(marked, spans=tuple(span for span in marked.spans if span.kind in kinds))
        predicted = list(find(sentence.text))
        result.sentences += 1
        result.plain += not sentence.spans
        result.disturbed += not sentence.spans and bool(predicted)
        result.marked.update(span.kind for span in sentence.spans)
        result.found.update(span.kind for span in predicted)
        covered = {place for span in predicted for place in range(span.start, span.end)}
        for span in sentence.spans:
            result.characters += span.end - span.start
            result.covered += sum(place in covered for place in range(span.start, span.end))
        _match(sentence, predicted, result)
    return result


def _match(sentence: Marked, predicted: Sequence[Span], result: Quality) -> None:
    unmatched = list(predicted)
    for span in sentence.spans:
        best = max(unmatched, key=lambda other: _overlap(span, other), default=None)
        if best is not None and _overlap(span, best) >= MIN_OVERLAP:
            unmatched.remove(best)
            result.near[span.kind] += 1
            result.exact[span.kind] += best == span
        else:
            result.errors.append(_error("missed", span, sentence))
    result.errors += [_error("false", span, sentence) for span in unmatched]


def _overlap(one: Span, other: Span) -> float:
    """Return the common characters as a share of the longer span; 0 if the kinds differ."""
    common = min(one.end, other.end) - max(one.start, other.start)
    return max(common, 0) / max(one.end - one.start, other.end - other.start) if one.kind == other.kind else 0


def _error(outcome: str, span: Span, sentence: Marked) -> str:
    value = sentence.text[span.start : span.end]
    return f"line {sentence.line}: {outcome} {span.kind} {value!r} in {sentence.text}"
