"""Names of persons in English text, and names with an interpunct."""

from __future__ import annotations

from typing import TYPE_CHECKING

import regex

from medteb_mteb.curation.anonymize.bare_names import is_common
from medteb_mteb.curation.anonymize.recogniser import LANGUAGE, IdentifierPattern, Recogniser
from medteb_mteb.curation.anonymize.words import characters, words

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["DottedName", "EnglishName"]

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
