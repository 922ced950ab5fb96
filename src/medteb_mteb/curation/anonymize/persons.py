"""Names of persons in Chinese texts: after a label (患者, 姓名, 联系人) or before a title (医生, 女士)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import regex

from medteb_mteb.curation.anonymize.recogniser import LANGUAGE, Recogniser
from medteb_mteb.curation.anonymize.words import alternatives, characters, known_words, words

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["PersonName"]

_SURNAMES, _COMPOUND = characters("surnames"), frozenset(words("compound"))
_PREPOSITIONS, _RARE = characters("prepositions"), characters("rare") | characters("prepositions")
_GIVEN, _NEVER = characters("given"), characters("never")
_FOREIGN = characters("foreign")
_NO_BEGINNING = frozenset(words("no-beginnings"))

_LABEL = regex.compile(
    rf"(?P<form>(?:(?i:(?:patient |full )?name(?=[\"”]?\s?[:：]))|{alternatives('form-labels')})"
    r"(?:姓名|签名|签字)?"
    r"(?:[（(][^（）()\n]{0,8}[)）])?(?P<sep>[\"”]?\s*[:：]\s*[\"“]?|\s+|))"
    rf"|(?P<role>(?:{alternatives('role-labels')})(?:姓名|签名|签字)?(?P<colon>[\"”]?\s*[:：]\s*|\s*)[“\"]?)"
)
_TITLE = regex.compile(alternatives("titles"))
_HARD_END = regex.compile(r"$|[，,。；;、：:（）()\[\]【】《》“”\"'！!？?…—\-/|\s\d\n~～<>＜＞]|[A-Za-z]")
_SOFT_END = regex.compile(alternatives("after-names"))
#: Places of a name without a label: after a bed or a long number; before sex, age, phone or another
#: identifier; or where an action names the person it concerns.
_ENTRY = regex.compile(
    r"(?<![\p{Han}A-Za-z])(?=\p{Han}{2,4}[，,、（(\s]{1,3}"
    r"(?:[男女](?:[性，,。、；;\s\d]|$)|\d{1,3}岁|性别|电话|手机|身份证|住院号|病[历案]号|微信|联系|1[3-9]\d{9}"
    r"|(?P<number>\d{15})|(?:19|20)\d{2}[年./-]))"
    r"|(?<=\d{9}[，,、；;\s]{1,2})(?=\p{Han}{3}(?:[，,。；;\s]|$))"
    r"|(?P<open>(?<=联系|通知|告知|致电|[系由经与向])(?=\p{Han}{2,3}本人)"
    r"|(?<=[给帮替为陪带])(?=\p{Han}{2,3}(?:挂号|看病|取药|缴费)))"
    r"|(?P<bed>(?<=\d号?床(?:[，,、：:\s]{0,2}|的))(?=\p{Han}))"
)
_OTHER_SCRIPT = regex.compile(
    r"[FOREIGN]{1,8}(?:[·•・．‧][FOREIGN]{1,8}){1,3}".replace("FOREIGN", "".join(words("foreign")))
)
_SPACED = regex.compile(r"\p{Han}[ 　]{1,3}\p{Han}(?!\p{Han})")
_LATIN = regex.compile(r"[A-Z][a-z]+(?: [A-Z][a-z]+){1,2}(?![A-Za-z-])")
_CONJUNCTION = regex.compile(r"[、/／]\s?|[和与及]")
#: Words that may precede a surname that is often another word.
_BEFORE_RARE_SURNAME = regex.compile(
    r"(?:\P{Han}|[找请问谢叫姓挂给见看的是了烦帮转听遵跟和与经在让过科生师位名士我您有]|问下|一下|今天|昨天)$"
)
#: Words that must precede a surname that is nearly always another word.
_BEFORE_PREPOSITION_SURNAME = ("找", "请", "问", "谢", "叫", "姓", "挂")
#: Labels that a name always follows, even without a colon.
_CERTAIN_LABELS = ("姓名", "户名")
#: Labels that a name very often follows.
_PATIENT_LABELS = ("患者", "病人", "病员", "患儿", "产妇", "孕妇", "伤者", "死者")
#: Labels that many other words follow: a name must end at a mark.
_VAGUE_LABELS = ("叫", "是", "主任", "院长", "教授", "麻醉")


class PersonName(Recogniser):
    """Names with a label or a title; the title itself, 王某 and 老王 are kept."""

    kind = "NAME"
    needs = r"\p{Han}|(?i:name)"

    def __init__(self, language: str = LANGUAGE) -> None:
        super().__init__(language)
        self.words = known_words()

    def spans(self, text: str) -> Iterator[tuple[int, int, float]]:
        """Yield start, end and score of each name."""
        for match in _LABEL.finditer(text):
            yield from self._after_label(text, match)
        for match in _ENTRY.finditer(text):
            sure = match["number"] is not None
            hard = match["bed"] is None and match["open"] is None
            if end := self._name_at(text, match.end(), sure=sure, hard=hard):
                yield match.end(), end, 0.6
        for match in _TITLE.finditer(text):
            if length := self._before_title(text, match.start()):
                yield match.start() - length, match.start(), 0.7

    def _after_label(self, text: str, label: regex.Match[str]) -> Iterator[tuple[int, int, float]]:
        sure = label["form"] is not None and (bool(label["sep"]) or label.group().endswith(_CERTAIN_LABELS))
        hard = not sure and (bool(label["colon"]) or label.group().rstrip().endswith(_VAGUE_LABELS))
        start = label.end()
        while end := self._name_at(text, start, sure=sure, hard=hard):
            yield start, end, 0.9 if sure or label.group().startswith(_PATIENT_LABELS) else 0.7
            more = _CONJUNCTION.match(text, end)
            if not more:
                return
            start, sure, hard = more.end(), False, True

    def _name_at(self, text: str, start: int, *, sure: bool, hard: bool) -> int:
        """Return the end of the name that begins at `start`, 0 if there is none.

        Args:
            text: The text.
            start: Offset after the label.
            sure: Whether only a name can follow the label.
            hard: Whether the name must end at a mark, not at a word that may follow a name.
        """
        if match := _OTHER_SCRIPT.match(text, start) or _LATIN.match(text, start):
            return int(match.end())
        if text[start : start + 2] in _COMPOUND:
            surname, lengths = 2, (4, 3)
        elif text[start : start + 1] in _SURNAMES:
            surname, lengths = 1, (3, 2)
        else:
            return self._foreign(text, start, sure=sure)
        for length in lengths:
            name, end = text[start : start + length], start + length
            if len(name) < length or not _is_han(name):
                continue
            closed = _HARD_END.match(text, end) is not None
            ends = closed or (not hard and self._ends(text, start, end))
            if ends and self._plausible(name, surname, sure=sure, closed=closed):
                return end
        if sure and (match := _SPACED.match(text, start)) and _HARD_END.match(text, match.end()):
            return int(match.end())
        # 阿, 马, 白 also begin foreign names.
        return self._foreign(text, start, sure=False)

    def _ends(self, text: str, start: int, end: int) -> bool:
        """Return True if a new word begins at `end` and no word spans it."""
        for first in range(start + 1, end):
            if any(text[first:last] in self.words for last in range(end + 1, first + 5)):
                return False
        return bool(_SOFT_END.match(text, end)) or any(
            text[end:last] in self.words for last in (end + 2, end + 3, end + 4)
        )

    def _foreign(self, text: str, start: int, *, sure: bool) -> int:
        """Return the end of a name of three to five characters without a known surname, 0 if there is none.

        Outside forms, all characters must be usual in foreign names.
        """
        for length in (5, 4, 3):
            name = text[start : start + length]
            if len(name) == length and _is_han(name) and _HARD_END.match(text, start + length):
                sounds = _FOREIGN.issuperset(name) or (
                    sure and length < 5 and _NEVER.isdisjoint(name) and not _LABEL.search(name)
                )
                return start + length if sounds and name not in self.words else 0
        return 0

    def _plausible(self, name: str, surname: int, *, sure: bool, closed: bool) -> bool:
        """Return True if `name`, whose surname has `surname` characters, is probably a name."""
        given = name[surname:]
        if "某" in given or "氏" in given or _TITLE.search(f"{given} "):
            return False
        if sure and closed and not (name[0] in _PREPOSITIONS and given in self.words):
            return name not in words("no-names") and (
                surname > 1 or _NEVER.isdisjoint(given) or name not in self.words
            )
        if name in self.words or name[:2] in _NO_BEGINNING:
            return False
        if surname > 1:
            return _NEVER.isdisjoint(given)
        if not closed and name[:2] in self.words:
            return False
        rare = name[0] in _RARE
        if name[0] in _PREPOSITIONS or (rare and (given in self.words or (len(given) == 1 and not closed))):
            return False
        return _GIVEN.issuperset(given) or (closed and not rare and _NEVER.isdisjoint(given))

    def _before_title(self, text: str, end: int) -> int:
        """Return the length of the name that ends before a title, 0 if there is none."""
        for length in (4, 3, 2, 1):
            start = end - length
            if start >= 0 and _is_han(text[start:end]) and self._titled(text, start, text[start:end]):
                return length
        return 0

    def _titled(self, text: str, start: int, name: str) -> bool:
        if name[:2] in _COMPOUND:
            return len(name) == 2 or _GIVEN.issuperset(name[2:])
        if len(name) == 4 or name[0] not in _SURNAMES or self._inside_word(text, start, len(name)):
            return False
        before = text[max(0, start - 2) : start]
        if before.endswith(name[0]) or (len(name) == 1 and before[-1:].isdigit()):
            return False
        if len(name) == 1 and name in _PREPOSITIONS:
            return before.endswith(_BEFORE_PREPOSITION_SURNAME)
        if name[0] in _RARE and len(name) < 3 and before and not _BEFORE_RARE_SURNAME.search(before):
            return False
        return len(name) == 1 or self._full_and_titled(name, apart=not before or not _is_han(before[-1]))

    def _full_and_titled(self, name: str, *, apart: bool) -> bool:
        given = name[1:]
        if name[:2] in _NO_BEGINNING or name[0] in _PREPOSITIONS or name in words("no-names"):
            return False
        if name in self.words and (not apart or name[0] in _RARE):
            return False
        if not _GIVEN.issuperset(given):
            return False
        return not (name[0] in _RARE and (given in self.words or (len(given) == 1 and given in _SURNAMES)))

    def _inside_word(self, text: str, start: int, length: int) -> bool:
        """Return True if a dictionary word that begins before `start` overlaps the name."""
        for back in (1, 2, 3):
            if start < back or not _is_han(text[start - back]):
                return False
            for reach in range(1, min(length, 4 - back) + 1):
                if text[start - back : start + reach] in self.words:
                    return True
        return False


def _is_han(text: str) -> bool:
    return all("\u4e00" <= char <= "\u9fff" for char in text)
