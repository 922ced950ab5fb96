"""Base class of the recognisers: rules are compiled once, and each match is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

import regex
from presidio_analyzer import LocalRecognizer, RecognizerResult

from medteb_mteb.curation.anonymize.checks import plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from presidio_analyzer.nlp_engine import NlpArtifacts

__all__ = ["IdentifierPattern", "Recogniser", "of_a_thing"]

_PRODUCT_LABEL = regex.compile(
    r"(?:批号|批次号?|货号|条形?码|追溯码|监管码|本位码|序列号|国药准字|注册证(?:编)?号|许可证号?|编码|型号|规格"
    r"|(?<![a-z])(?:ean|isbn|issn|lot|sn|s/n|ref|pmid|doi|lot\s(?:number|no\.?)|batch(?:\s(?:number|no\.?))?))"
    r"[\s:：#=.为是]{0,4}[a-z]{0,3}$",
    regex.IGNORECASE,
)


def of_a_thing(match: regex.Match[str]) -> bool:
    """Return True if the text before a number says that a thing has it: a lot, an article, a bar code."""
    start = match.start()
    return _PRODUCT_LABEL.search(match.string[max(0, start - 24) : start]) is not None


class IdentifierPattern(NamedTuple):
    r"""One pattern.

    Attributes:
        name: Name of the rule.
        pattern: Pattern of the `regex` library; the whole match is the identifier (`\K` drops what precedes).
        score: Confidence in a match, above 0 and at most 1.
    """

    name: str
    pattern: str
    score: float = 0.8


class Recogniser(LocalRecognizer):
    """A recogniser of presidio for one kind, by patterns and a check.

    Each handles Chinese and English. Presidio's own `PatternRecognizer` skips patterns that take too long,
    which would leave identifiers in the text; here every pattern runs to its end.
    """

    kind: ClassVar[str]
    #: Pattern that every text with such an identifier matches; empty: matches every text.
    needs: ClassVar[str] = ""
    rules: ClassVar[tuple[IdentifierPattern, ...]] = ()
    #: Its matches count only if they overlap no match of another recogniser.
    last_resort: ClassVar[bool] = False

    def __init__(self) -> None:
        self.needed = regex.compile(self.needs)
        self.compiled = [(rule, regex.compile(rule.pattern)) for rule in self.rules]
        super().__init__([self.kind], name=type(self).__name__, supported_language="zh")

    def load(self) -> None:
        """Do nothing: there is nothing to load."""

    def check(self, match: regex.Match[str], rule: IdentifierPattern) -> float:
        """Return the confidence in a match, 0 to reject it; the rule's score unless a checksum decides."""
        del match
        return rule.score

    def spans(self, text: str) -> Iterator[tuple[int, int, float]]:
        """Yield start, end and score of each match."""
        for rule, pattern in self.compiled:
            for match in pattern.finditer(text):
                start, end = match.span()
                if start < end and (score := self.check(match, rule)):
                    yield start, end, score

    def analyze(
        self, text: str, entities: list[str], nlp_artifacts: NlpArtifacts | None = None
    ) -> list[RecognizerResult]:
        """Return the identifiers in a text; the interface of presidio.

        Args:
            text: The text.
            entities: Requested kinds; empty: all.
            nlp_artifacts: Not used.
        """
        del nlp_artifacts
        text = plain(text)
        if (entities and self.kind not in entities) or not self.needed.search(text):
            return []
        return [RecognizerResult(self.kind, start, end, score) for start, end, score in self.spans(text)]
