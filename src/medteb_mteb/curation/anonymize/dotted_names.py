"""Names with an interpunct: from other languages of China and from abroad."""

from __future__ import annotations

from typing import TYPE_CHECKING

import regex

from medteb_mteb.curation.anonymize.bare_names import is_common
from medteb_mteb.curation.anonymize.recogniser import LANGUAGE, Recogniser
from medteb_mteb.curation.anonymize.words import characters

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["DottedName"]

_SOUNDS = characters("foreign") | characters("transliteration")
_DOT = regex.compile(r"(?<=\p{Han})[·•・．‧∙⋅](?=\p{Han})")
#: Words after a person's name that make it an eponym (syndrome, test, ...); other parts may occur in between.
_EPONYM = regex.compile(
    r"(?:[·•・．‧∙⋅]?\p{Han}{0,3}[·•・．‧∙⋅]?\p{Han}{0,4}?(?:综合征|综合症)|[·•・．‧∙⋅]\p{Han}{1,4}?(?:病|征|症))"
    r"|\s?(?:氏|型|病(?![情人房区历程案床])|症|征|综合|试验|实验|反应|分[型级期类]|评分|量表|指数|体位|手法|染色|[疗分算方]?法|定律|公式|细胞|小体|线"
    r"|囊|管|结节|韧带|三角|间隙|切口|术|骨折|瘤|呼吸|曲线|标准|医院|医学|大学|基金|奖|机器人)"
)
#: Words of one character that may follow a name.
_FUNCTION_WORDS = frozenset("因和与及是由在已于将来")
#: Maximum characters of a part of such a name.
_MAX_PART_LENGTH = 6


class DottedName(Recogniser):
    """Names with an interpunct, recognised by their characters; eponyms are kept."""

    kind = "NAME"
    needs = r"[·•・．‧∙⋅]"

    def __init__(self, language: str = LANGUAGE) -> None:
        super().__init__(language)

    def spans(self, text: str) -> Iterator[tuple[int, int, float]]:
        """Yield start, end and score of each name."""
        done = 0
        for dot in _DOT.finditer(text):
            if dot.start() < done:
                continue
            start = _before(text, dot.start(), done)
            end = dot.start()
            parts = [text[start:end]]
            while end < len(text) and _DOT.match(text, end):
                last = _after(text, end + 1)
                parts.append(text[end + 1 : last])
                end = last
            if all(parts) and not all(map(is_common, parts)) and not _EPONYM.match(text, end):
                yield start, end, 0.7
                done = end


def _before(text: str, dot: int, least: int) -> int:
    """Return the start of the part before a dot."""
    start = dot
    while start > max(least, dot - _MAX_PART_LENGTH) and _sounds(text, start - 1):
        start -= 1
    # Skip the end of another word: 主任, 维族.
    while start < dot - 1 and any(
        is_common(text[start - back : start + 1]) for back in (1, 2) if start >= back
    ):
        start += 1
    return start


def _after(text: str, start: int) -> int:
    """Return the end of the part after a dot, where a character does not occur in names or a word begins."""
    end = start
    while end < min(len(text), start + _MAX_PART_LENGTH) and _sounds(text, end):
        if end > start + 1 and (text[end] in _FUNCTION_WORDS or is_common(text[end : end + 2])):
            break
        end += 1
    return end


def _sounds(text: str, place: int) -> bool:
    return text[place] in _SOUNDS or (text[place] == "不" and text[place - 1 : place] == "阿")
