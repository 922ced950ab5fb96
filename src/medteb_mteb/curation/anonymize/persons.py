"""Names of persons with a label or a title, in English, and with an interpunct."""

from __future__ import annotations

from typing import TYPE_CHECKING

import regex

from medteb_mteb.curation.anonymize.bare_names import is_common
from medteb_mteb.curation.anonymize.medicine import is_medical
from medteb_mteb.curation.anonymize.recogniser import IdentifierPattern, Recogniser
from medteb_mteb.curation.anonymize.words import (
    COMPOUND,
    GIVEN,
    NEVER,
    NO_BEGINNING,
    PREPOSITIONS,
    RARE,
    SURNAMES,
    alternatives,
    characters,
    known_words,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["DottedName", "EnglishName", "PersonName"]

_FOREIGN = characters("foreign")

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

    def __init__(self) -> None:
        super().__init__()
        self.words = known_words()

    def spans(self, text: str) -> Iterator[tuple[int, int, float]]:
        """Yield start, end and score of each name."""
        for match in _LABEL.finditer(text):
            yield from self._after_label(text, match)
        for match in _ENTRY.finditer(text):
            sure = match["number"] is not None
            hard = match["bed"] is None and match["open"] is None
            end = self._name_at(text, match.end(), sure=sure, hard=hard)
            if end and not (match["open"] is None and is_medical(text, match.end(), end)):
                yield match.end(), end, 0.6
        for match in _TITLE.finditer(text):
            if length := self._before_title(text, match.start()):
                yield match.start() - length, match.start(), 0.7

    def _after_label(self, text: str, label: regex.Match[str]) -> Iterator[tuple[int, int, float]]:
        sure = label["form"] is not None and (bool(label["sep"]) or label.group().endswith(_CERTAIN_LABELS))
        hard = not sure and (bool(label["colon"]) or label.group().rstrip().endswith(_VAGUE_LABELS))
        start = label.end()
        while end := self._name_at(text, start, sure=sure, hard=hard):
            whole = label.start() if label.end() - label.start() == 1 else start  # 吃了妈富隆
            # A word across the end of the label: 医师傅
            if not sure and (self._inside_word(text, start, end - start) or is_medical(text, whole, end)):
                return
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
        if text[start : start + 2] in COMPOUND:
            surname, lengths = 2, (4, 3)
        elif text[start : start + 1] in SURNAMES:
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
                    sure and length < 5 and NEVER.isdisjoint(name) and not _LABEL.search(name)
                )
                return start + length if sounds and name not in self.words else 0
        return 0

    def _plausible(self, name: str, surname: int, *, sure: bool, closed: bool) -> bool:
        """Return True if `name`, whose surname has `surname` characters, is probably a name."""
        given = name[surname:]
        if "某" in given or "氏" in given or _TITLE.search(f"{given} "):
            return False
        if sure and closed and not (name[0] in PREPOSITIONS and given in self.words):
            return name not in words("no-names") and (
                surname > 1 or NEVER.isdisjoint(given) or name not in self.words
            )
        if name in self.words or name[:2] in NO_BEGINNING:
            return False
        if surname > 1:
            return NEVER.isdisjoint(given)
        if not closed and name[:2] in self.words:
            return False
        rare = name[0] in RARE
        if name[0] in PREPOSITIONS or (rare and (given in self.words or (len(given) == 1 and not closed))):
            return False
        return GIVEN.issuperset(given) or (closed and not rare and NEVER.isdisjoint(given))

    def _before_title(self, text: str, end: int) -> int:
        """Return the length of the name that ends before a title, 0 if there is none."""
        for length in (4, 3, 2, 1):
            start = end - length
            if start >= 0 and _is_han(text[start:end]) and self._titled(text, start, text[start:end]):
                return length
        return 0

    def _titled(self, text: str, start: int, name: str) -> bool:
        if name[:2] in COMPOUND:
            return len(name) == 2 or GIVEN.issuperset(name[2:])
        if len(name) == 4 or name[0] not in SURNAMES or self._inside_word(text, start, len(name)):
            return False
        before = text[max(0, start - 2) : start]
        if before.endswith(name[0]) or (len(name) == 1 and before[-1:].isdigit()):
            return False
        if len(name) == 1 and name in PREPOSITIONS:
            return before.endswith(_BEFORE_PREPOSITION_SURNAME)
        apart = not before or _BEFORE_RARE_SURNAME.search(before) is not None
        if name[0] in RARE and len(name) < 3 and not apart:
            return False
        return len(name) == 1 or self._plausible(name, 1, sure=False, closed=apart)

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


_WORD = r"(?:(?:[A-Z]['’]|Mc|Mac|De|Di|La|Le|Van|von|de|van)\s?)?[A-Z][a-z]+(?:-[A-Z][a-z]+)?"
_INITIAL = r"[A-Z]\."
_FULL_NAME = rf"{_WORD}(?:\s(?:{_WORD}|{_INITIAL})){{1,2}}"
_ANY_NAME = rf"(?:{_INITIAL}\s?)?{_WORD}(?:\s(?:{_WORD}|{_INITIAL})){{0,2}}"
_END = r"(?![A-Za-z]|-[A-Za-z])"
_DEGREE = r"(?:MD|M\.D\.|DO|RN|PhD|Ph\.D\.|NP|PA-C|PA|FACS|MBBS|DDS|PharmD|DOB|SSN|MRN)\b"
_COMMON = frozenset(words("english-words"))


class EnglishName(Recogniser):
    """Names with a title (Dr., Mrs.), a label (Patient, Name:) or a degree (MD, RN)."""

    kind = "NAME"
    needs = r"[A-Z][a-z]"
    rules = (
        IdentifierPattern(
            "title", rf"\b(?:Dr|Mr|Mrs|Ms|Miss|Prof|Professor|Doctor|Nurse|Sister)\b\.?\s\K{_ANY_NAME}{_END}"
        ),
        IdentifierPattern(
            "label",
            r"\b(?i:(?:patient(?:'s)?\s|full\s|last\s|first\s)?name|surgeon|an(?:a)?esthetist|anesthesiologist"
            r"|(?:attending|referring|treating|primary care)?\s?physician|PCP|provider|next of kin|pharmacist"
            r"|emergency contact|contact person|guarantor|spouse|caregiver|guardian"
            r"|(?:patient|pt)(?=:)|(?:signed(?: electronically)?|dictated|reviewed|reported|performed) by)"
            rf"\s?[:：]?\s?\K{_ANY_NAME}{_END}",
        ),
        IdentifierPattern(
            "role",
            r"\b(?:[Pp]atient|[Pp]t|[Gg]uarantor|[Ss]pouse|[Dd]aughter|[Ss]on|[Hh]usband|[Ww]ife|[Mm]other"
            r"|[Ff]ather|[Bb]rother|[Ss]ister|[Nn]amed|[Mm]y name is"
            rf"|(?:[Ss]ummary|[Rr]eport|[Ll]etter|[Nn]ote) for),?\s\K{_FULL_NAME}{_END}"
            r"(?!\s(?:[Dd]isease|[Ss]yndrome|[Ss]core|[Tt]est|[Hh]ospital|[Cc]linic|[Cc]enter))",
            0.6,
        ),
        IdentifierPattern("degree", rf"(?<![A-Za-z]|[A-Za-z] |\b[A-Z]\. ){_FULL_NAME}(?=,?\s\(?{_DEGREE})"),
        IdentifierPattern("with", rf"\b(?:by|with|for|from|per|to)\s\K{_FULL_NAME}(?=,?\s\(?{_DEGREE})"),
    )

    def check(self, match: regex.Match[str], rule: IdentifierPattern) -> float:
        """Reject a name that begins with an ordinary word; after a role, one that contains such a word."""
        parts = match.group().replace(".", "").split()
        if parts[0] in _COMMON or (rule.name == "role" and not _COMMON.isdisjoint(parts)):
            return 0
        return rule.score


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

    def spans(self, text: str) -> Iterator[tuple[int, int, float]]:
        """Yield start, end and score of each name."""
        done = 0
        for dot in _DOT.finditer(text):
            if dot.start() < done:
                continue
            start = _part_before(text, dot.start(), done)
            end = dot.start()
            parts = [text[start:end]]
            while end < len(text) and _DOT.match(text, end):
                last = _part_after(text, end + 1)
                parts.append(text[end + 1 : last])
                end = last
            if (
                all(parts)
                and max(map(len, parts)) > 1
                and not all(map(is_common, parts))
                and not _EPONYM.match(text, end)
            ):
                yield start, end, 0.7
                done = end


def _part_before(text: str, dot: int, least: int) -> int:
    """Return the start of the part before a dot."""
    start = dot
    while start > max(least, dot - _MAX_PART_LENGTH) and _is_sound(text, start - 1):
        start -= 1
    # Skip the end of another word: 主任, 维族.
    while start < dot - 1 and any(
        is_common(text[start - back : start + 1]) for back in (1, 2) if start >= back
    ):
        start += 1
    return start


def _part_after(text: str, start: int) -> int:
    """Return the end of the part after a dot, where a character does not occur in names or a word begins."""
    end = start
    while end < min(len(text), start + _MAX_PART_LENGTH) and _is_sound(text, end):
        if end > start + 1 and (text[end] in _FUNCTION_WORDS or is_common(text[end : end + 2])):
            break
        end += 1
    return end


def _is_sound(text: str, place: int) -> bool:
    return text[place] in _SOUNDS or (text[place] == "不" and text[place - 1 : place] == "阿")
