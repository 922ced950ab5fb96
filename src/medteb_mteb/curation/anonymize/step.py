"""The step `anonymize`: replaces identifiers of persons in texts, titles and kept keys of `meta`."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from medteb_mteb.curation.anonymize.find import Finder
from medteb_mteb.curation.anonymize.kinds import chosen, placeholder
from medteb_mteb.curation.anonymize.known import merged, read_known
from medteb_mteb.curation.anonymize.salt import salt_for, salt_id
from medteb_mteb.curation.anonymize.sheet import read_sheet
from medteb_mteb.curation.anonymize.surrogates import Surrogates
from medteb_mteb.curation.files.folder import write_json
from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.files.records import BuildError, Text
from medteb_mteb.curation.files.step import TEXTS_PER_SHARD, Counts, run_step

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from medteb_mteb.curation.anonymize.known import Known
    from medteb_mteb.curation.anonymize.sheet import Answers
    from medteb_mteb.curation.anonymize.spans import Span
    from medteb_mteb.curation.files.sources import TextSource

__all__ = [
    "ENTITIES_FILE",
    "IDENTIFIERS_KEY",
    "VERSION",
    "Anonymise",
    "Anonymised",
    "Ids",
    "Mode",
    "anonymize",
]

#: Incremented with every change of recognition or replacement.
VERSION = 6
#: Key of `meta` with the number of identifiers of each kind in a text.
IDENTIFIERS_KEY = "identifiers"
#: File next to the manifest with the counts over all texts.
ENTITIES_FILE = "entities.json"

#: Ids that are digests or random; one in a few thousand contains digits that look like a phone number.
_DIGEST = re.compile(
    r"(?=[0-9-]*[a-f])(?:[0-9a-f]{16}|[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64}"
    r"|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:-\d+)?"
)

Mode = Literal["placeholder", "surrogate"]
Ids = Literal["check", "keep", "digest"]


class Anonymise:
    """The step: replaces identifiers of persons; every text is kept, and its other parts are unchanged.

    Args:
        mode: `placeholder` replaces a name by `[姓名]` (`[NAME]` in a text without Chinese), `surrogate` by
            another name, the same one for every occurrence.
        kinds: Kinds to look for; default all of `IDENTIFIER_KINDS`.
        salt: The secret of the surrogates; needed for them, for `known` and for `answers`.
        keep_meta: Keys of `meta` to keep. Their values are anonymised too, with the key as their label; all
            other keys are left out, since a bare name or number in a column cannot be recognised.
        ids: Treatment of ids that came with the texts: `check` keeps them but raises an error if one is
            itself an identifier, `keep` keeps them unchecked, `digest` derives new ones from the anonymised
            text. An id that `read_texts` derived from the content is always replaced, since guesses of the
            replaced identifiers could be tested with it.
        id_label: Column of the ids; `check` uses it as their label.
        known: Identifiers that are known beforehand.
        strict: Also replace doubtful identifiers, and the kinds of strict mode.
        answers: A reviewer's decisions on doubtful identifiers.
    """

    name = "anonymize"
    reads_private = True

    def __init__(
        self,
        *,
        mode: Mode = "placeholder",
        kinds: Iterable[str] | None = None,
        salt: bytes | None = None,
        keep_meta: Iterable[str] = (),
        ids: Ids = "check",
        id_label: str = "",
        known: Known | None = None,
        strict: bool = False,
        answers: Answers | None = None,
    ) -> None:
        if mode not in {"placeholder", "surrogate"}:
            raise BuildError(f"mode must be placeholder or surrogate; got {mode!r}.")
        if ids not in {"check", "keep", "digest"}:
            raise BuildError(f"ids must be check, keep or digest; got {ids!r}.")
        if mode == "surrogate" and not salt:
            raise BuildError("Surrogates need a secret: give salt, for instance salt_for(out).")
        if (known is not None or answers is not None) and not salt:
            raise BuildError("Known identifiers need a secret: give salt, for instance salt_for(out).")
        self.mode: Mode = mode
        self.kinds = chosen(kinds, strict=strict)
        self.strict = strict
        self.keep_meta = tuple(sorted(set(keep_meta)))
        self.ids: Ids = ids
        self.id_label = id_label
        self._salt = salt if mode == "surrogate" else None
        self.known = known if answers is None else merged(known, answers.identifiers)
        self._answers = answers
        self._answers_digest = answers.digest(salt) if answers is not None and salt else ""
        self._known_digest = known.digest(salt) if known is not None and salt else ""
        self._surrogates = Surrogates(self._salt) if self._salt else None
        self._finder: Finder | None = None
        self._taken: set[str] = set()
        self._numbers: dict[str, int] = {}
        self._seen = 0

    def settings(self) -> Mapping[str, Any]:
        """Return everything the output depends on; the secret is represented by its fingerprint."""
        own: dict[str, Any] = {
            "version": VERSION,
            "mode": self.mode,
            "kinds": list(self.kinds),
            "keep_meta": list(self.keep_meta),
            "ids": self.ids,
        }
        if self._known_digest:
            own["known"] = self._known_digest
        if self.strict:
            own["strict"] = True
        if self._answers_digest:
            own["reviewed"] = self._answers_digest
        return {**own, "salt": salt_id(self._salt)} if self._salt else own

    @property
    def mark(self) -> str:
        """Return the value of `Text.anonymised`: name, version and a digest of the settings."""
        digest = hashlib.sha256(json.dumps(dict(self.settings()), sort_keys=True).encode()).hexdigest()
        return f"{self.name}/{VERSION}:{digest[:12]}"

    def restore(self, kept: Sequence[Text]) -> None:
        """Restore the ids already in use."""
        self._taken.update(text.id for text in kept)
        self._seen += len(kept)

    def __call__(self, texts: Sequence[Text]) -> Iterable[Text]:
        """Return the texts without identifiers, one for each input text."""
        mark = self.mark
        return [self.process(text, mark) for text in texts]

    def process(self, text: Text, mark: str = "") -> Text:
        """Return a text without identifiers."""
        self._seen += 1
        kept = {key: text.meta[key] for key in self.keep_meta if key in text.meta}
        leaves = [leaf for key, value in kept.items() for leaf in _leaves(value, key)]
        fields = [text.title, text.text, *(f"{_label(key)}{value}" for key, value in leaves)]
        has_own_id = self.ids != "digest" and text.id != _content_id(text.title, text.text)
        if checked := has_own_id and self.ids == "check" and not _DIGEST.fullmatch(text.id):
            fields.append(f"{_label(self.id_label)}{text.id}")
        finder = self._finder = self._finder or self.finder()
        identifiers = finder.together(fields)
        if checked:
            self._check_id([span for span in identifiers.pop() if span.end > len(_label(self.id_label))])
        for number, (key, _) in enumerate(leaves, start=2):
            identifiers[number] = [span for span in identifiers[number] if span.end > len(_label(key))]
        clean = {
            leaf: self.replaced(field, spans).removeprefix(_label(leaf[0]))
            for leaf, field, spans in zip(leaves, fields[2:], identifiers[2:], strict=False)
            if spans
        }
        meta = {key: _rebuilt(value, key, clean) for key, value in kept.items()}
        if counts := Counter(span.kind for spans in identifiers for span in spans):
            meta[IDENTIFIERS_KEY] = dict(sorted(counts.items()))
        title, body = self.replaced(text.title, identifiers[0]), self.replaced(text.text, identifiers[1])
        identity = text.id if has_own_id else self._new_id(title, body)
        self._taken.add(identity)
        return Text(identity, body, title, mark or self.mark, meta)

    def finder(self) -> Finder:
        """Return a finder with the options of the step."""
        cleared = self._answers.cleared if self._answers is not None else ()
        return Finder(self.kinds, self.known, strict=self.strict, cleared=cleared)

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

    def _check_id(self, spans: Sequence[Span]) -> None:
        if spans:
            raise BuildError(
                f"The id of text {self._seen} of the input is itself an identifier ({spans[0].kind}). "
                "--ids digest makes new ids from the anonymised texts; --ids keep keeps them all."
            )

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


def _label(key: str) -> str:
    """Return a key in the form of labels for the recognisers: `patient_name` becomes `patient name：`."""
    return f"{key.replace('_', ' ')}：" if key else ""


def _leaves(value: Any, label: str) -> Iterator[tuple[str, str]]:
    """Yield the strings and numbers in a JSON value, each with its key."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield "", str(key)
            yield from _leaves(inner, str(key))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _leaves(inner, label)
    elif value is not None and not isinstance(value, bool):
        yield label, str(value)


def _rebuilt(value: Any, label: str, clean: Mapping[tuple[str, str], str]) -> Any:
    """Return the JSON value with replaced leaves; a number that is an identifier becomes a string."""
    if isinstance(value, dict):
        rebuilt: dict[Any, Any] = {}
        for key, inner in value.items():
            name = first = clean.get(("", str(key)), key)
            number = 1
            while name in rebuilt:  # two keys with the same replacement
                number += 1
                name = f"{first}-{number}"
            rebuilt[name] = _rebuilt(inner, str(key), clean)
        return rebuilt
    if isinstance(value, (list, tuple)):
        return [_rebuilt(inner, label, clean) for inner in value]
    return value if value is None or isinstance(value, bool) else clean.get((label, str(value)), value)


@dataclass(frozen=True)
class Anonymised:
    """Result of the step.

    Attributes:
        report: Texts read and kept.
        identifiers: Number of identifiers replaced by kind.
        texts_with: Number of texts that had any.
        left_out: Keys of `meta` that were left out.
    """

    report: Counts
    identifiers: dict[str, int] = field(default_factory=dict)
    texts_with: int = 0
    left_out: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the content of `entities.json`."""
        return {
            "texts": self.report.kept,
            "texts_with": self.texts_with,
            "identifiers": self.identifiers,
            "left_out": list(self.left_out),
        }


def anonymize(
    source: str | Path,
    out: str | Path,
    *,
    mode: Mode = "placeholder",
    kinds: Iterable[str] | None = None,
    salt: str | Path | None = None,
    keep_meta: Iterable[str] = (),
    ids: Ids = "check",
    known: str | Path | None = None,
    strict: bool = False,
    reviewed: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    sources: Sequence[TextSource] = (),
    shard: int = TEXTS_PER_SHARD,
    show_progress: bool = True,
) -> Anonymised:
    """Run the step on a source, or resume an interrupted run, and count the replaced identifiers.

    Writes `entities.json` next to the manifest: counts by kind and the keys of `meta` that were left out,
    never the identifiers themselves.

    Args:
        source: See `read_texts`.
        out: Folder to write.
        mode: See `Anonymise`.
        kinds: See `Anonymise`.
        salt: File of the secret of surrogates, see `salt_for`.
        keep_meta: See `Anonymise`.
        ids: See `Anonymise`.
        known: File of identifiers that are known beforehand, see `read_known`.
        strict: See `Anonymise`.
        reviewed: Sheet of doubtful identifiers with answers, see `read_sheet`.
        columns: See `read_texts`.
        sources: See `run_step`.
        shard: Texts per shard.
        show_progress: Show a progress bar.

    Raises:
        BuildError: See `run_step`, `Anonymise` and `salt_for`.
    """
    listed = read_known(known) if known is not None else None
    answers = read_sheet(reviewed) if reviewed is not None else None
    private = mode == "surrogate" or listed is not None or answers is not None
    secret = salt_for(out, salt) if private else None
    step = Anonymise(
        mode=mode,
        kinds=kinds,
        salt=secret,
        keep_meta=keep_meta,
        ids=ids,
        id_label=(columns or {}).get("id", ""),
        known=listed,
        strict=strict,
        answers=answers,
    )
    report = run_step(
        step, source, out, columns=columns, sources=sources, shard=shard, show_progress=show_progress
    )
    path = Path(out) / ENTITIES_FILE
    if path.is_file():
        counts = json.loads(path.read_text(encoding="utf-8"))
        return Anonymised(report, counts["identifiers"], counts["texts_with"], tuple(counts["left_out"]))
    result = _counted(report, _left_out(source, columns, step))
    write_json(path, result.to_json())
    return result


def _counted(report: Counts, left_out: tuple[str, ...]) -> Anonymised:
    counts: Counter[str] = Counter()
    texts_with = 0
    for file in sorted(report.folder.glob("records-*.jsonl")):
        with file.open(encoding="utf-8") as lines:
            for line in lines:
                by_kind = json.loads(line).get("meta", {}).get(IDENTIFIERS_KEY, {})
                counts.update(by_kind)
                texts_with += bool(by_kind)
    return Anonymised(report, dict(sorted(counts.items())), texts_with, left_out)


def _left_out(source: str | Path, columns: Mapping[str, str] | None, step: Anonymise) -> tuple[str, ...]:
    """Return the keys of `meta` that the step did not keep; a key may hold an identifier too."""
    keys = {key for text in read_texts(source, columns) for key in text.meta} - {
        *step.keep_meta,
        IDENTIFIERS_KEY,
    }
    finder = step.finder()
    return tuple(sorted({step.replaced(key, finder(key)) for key in keys}))
