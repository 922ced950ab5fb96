"""Reading a judge's answer: one letter for each passage, in the forms that judges write.

    {KEY: GRADE, ...}                    also in a wrapper, with comments beside it, or in several objects
    [{"id": KEY, "grade": GRADE}, ...]   under the usual names
    {GRADE: [KEY, ...], ...}
    KEY: GRADE                           lines, lists, tables and damaged JSON

Only the key says which passage a grade is about; positions are never used. An answer grades all passages at
once, so it is rejected as a whole if it shows that the judge mixed passages up: by an unknown key, two grades
for one key, or another passage's tag. A missing grade, or one that is not on the scale, does not affect the
others.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.judge.prompt import misgraded
from medteb_mteb.curation.labels.grades import GRADES
from medteb_mteb.curation.llm.tolerant import Members, Rejected, json_values, spoken

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_REFUSAL = re.compile(
    r"抱歉|对不起|(无法|不能|不便|拒绝)(提供|回答|协助|完成|评|处理|满足)|"
    r"\b(sorry|(can ?not|can't|unable to|won't) (help|assist|provide|comply|answer|rate|grade))\b",
    re.IGNORECASE,
)
_PASSAGE_KEY = re.compile(r"passage-(\d{1,9})(?:-(\w+))?")
#: A key in a text, and what may occur between it and its grade.
_KEY_IN_TEXT = re.compile(r"passage[\W_]{1,2}\d+(?:[\u2010-\u2015_-]\w+)?", re.IGNORECASE)
_AROUND_GRADE = " \t\r*`\"'|:=>→-,{}[]"
#: Names under which an entry of a list has the key, and under which an object has a grade, plain.
_ID_NAMES = ("id", "key", "name", "passage", "passage-id", "passageid", "doc-id", "段落", "段落-id", "编号")
_GRADE_NAMES = ("grade", "label", "rating", "level", "relevance", "score", "letter", "等级", "评级",
           "级别", "评分", "相关性", "相关度", "相关程度", "字母")  # fmt: skip
_HYPHENS = re.compile(r"[\u2010-\u2015\u2212_\s\\-]+")
_KEY_MARKS = " \t\r\n*`_~\"'“”‘’「」『』《》<>[]【】()"
#: Runs of marks are possessive: a long one must not be tried at each of its lengths.
_GRADE_TEXT = re.compile(
    r"(?:[\"'“”]?(?i:grade|label|rating|level|relevance|score|等级|评级|级别|评分|相关性|相关度|相关程度)"
    r"[\s\"'“”*]*+(?:is|为|是)?[\s:=]*+)?"
    r"[*`\"'“”‘’「」『\[【(<\s]*+([SABCDsabcd])[*`\"'“”‘’」』\]】)>\s]*+(?:级别?|等级?|档)?[*`\"'”\s]*+"
    r"(?:$|[(:,.;。、!}]|[-–—|]+\s)(.*)",
    re.DOTALL,
)
#: A second grade after the first: "A or B", "A/B", "A (B级)", "S: complete, A: partial".
_SECOND_GRADE = re.compile(
    r"(?<![A-Za-z0-9])[SABCD](?:级|等|档|\s*[)\]】,.;。，:!?]|\s*$)|(?:或|到|至|介于|\bor\b|/)\s*[SABCD](?![A-Za-z0-9])"
)

#: Pairs of a key (as `_plain` writes it) and the grade of its passage, `None` if the value is not a grade.
Claims = list[tuple[str, str | None]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Grades by number of the passage, and for passages without a grade the reason."""

    grades: dict[int, str]
    missing: dict[int, str]


def read_answer(content: str, keys: Sequence[str], controls: Mapping[int, int]) -> Verdict:
    """Return the grades of an answer.

    Args:
        content: The judge's answer.
        keys: Key of each passage, in the order of the passages.
        controls: Kind of control passage by number.

    Returns:
        A grade or a reason for each passage: `missing` or `letter`.

    Raises:
        Rejected: All grades are: `refused`, `not-json`, `duplicate`, `swapped`, `untagged`, `invented`, or
            `control...` (a control passage got an impossible grade).
    """
    keys = [_plain(key) for key in keys]
    claims = _claims(spoken(content), keys)
    if not claims:
        raise Rejected("refused" if _REFUSAL.search(content) else "not-json")
    numbers = {key: number for number, key in enumerate(keys)}
    if len(keys) == 1:  # nothing to mix it up with
        numbers[re.sub(r"(passage-\d+)-\w+", r"\1", keys[0])] = 0
    grades = {numbers[key]: grade for key, grade in claims if grade and key in numbers}
    mixed_up = _mixed_up([key for key, _ in claims], numbers, keys)
    if reason := mixed_up or (misgraded(grades, controls) if grades else ""):
        raise Rejected(reason)
    missing = dict.fromkeys(range(len(keys)), "missing")
    missing |= {numbers[key]: "letter" for key, _ in claims}
    return Verdict(grades, {number: why for number, why in missing.items() if number not in grades})


def _claims(text: str, keys: Sequence[str]) -> Claims:
    values, whole = json_values(text)
    try:
        found = [claim for value in values for claim in _of_value(value)]
    except RecursionError:
        return []
    if not whole or not found:
        # An object that does not end was cut.
        closed = "{" not in text or text.rfind("}") > text.rfind("{")
        found = list(_of_text(text)) if closed else []
        if not {key for key, grade in found if grade} >= set(keys):
            found = []
    if not found and len(keys) == 1:
        alone = {letter(value) for value in values} or {letter(text)}
        return [(keys[0], grade) for grade in alone if grade] if len(alone) == 1 else []
    graded = {key for key, grade in found if grade}
    # The same claim twice, and placeholders of a copied example beside the grades, mean nothing.
    return list(dict.fromkeys((key, grade) for key, grade in found if grade or key not in graded))


def _of_value(value: Any) -> Iterator[tuple[str, str | None]]:
    """Yield the claims inside a JSON value."""
    if not isinstance(value, Members):
        for one in value if isinstance(value, list) else ():
            yield from _of_value(one)
        return
    named = [(_plain(key), one) for key, one in value]
    ids = [_plain(str(one)) for key, one in named if key in _ID_NAMES and isinstance(one, (str, int))]
    if ids and any(key in _GRADE_NAMES for key, _ in named):
        yield next((one for one in ids if _PASSAGE_KEY.fullmatch(one)), ids[0]), letter(value)
        return
    if named and all(key.upper() in GRADES for key, _ in named):  # the passages of each grade
        for key, one in named:
            names = one if isinstance(one, list) else [one]
            yield from ((_plain(str(name)), key.upper()) for name in names)
        return
    for key, one in named:
        if _PASSAGE_KEY.fullmatch(key) or (letter(one) and any(character.isdigit() for character in key)):
            yield key, letter(one)
        # An object under a key that is about another passage contradicts it.
        yield from (claim for claim in _of_value(one) if claim[0] != key)


def _of_text(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield the claims of lines, and of JSON that is not valid: what follows each key."""
    starts = [*_KEY_IN_TEXT.finditer(text)]
    ends = [*(start.start() for start in starts[1:]), len(text)]
    for start, end in zip(starts, ends, strict=False):
        following = unicodedata.normalize("NFKC", text[start.end() : end]).lstrip("\"'“”`* \t:,{")
        line = re.split(r"\||//|#", following.partition("\n")[0].strip(_AROUND_GRADE))[0]
        if grade := letter(line):
            yield _plain(start.group()), grade


def letter(value: Any) -> str | None:
    """Return the one grade that a value states, in any notation; `None` if it states none or several.

    Reads `A`, `"a"`, `Ａ`, `A级`, `**A**`, `等级：A`, `A（部分回答）`, `A: answers in part`, `["A"]`,
    `{"grade": "A", "reason": ...}`; not `A passage that ...`, `A/B`, `AB`, `4`, `相关`.
    """
    if isinstance(value, Members):
        named = {letter(one) for key, one in value if _plain(key) in _GRADE_NAMES}
        return named.pop() if len(named) == 1 else None
    if isinstance(value, list):
        read = [letter(one) for one in value]
        return read[0] if read and not any(read[1:]) else None
    if not isinstance(value, str):
        return None
    match = _GRADE_TEXT.fullmatch(unicodedata.normalize("NFKC", value).strip())
    if match is None or _SECOND_GRADE.search(match[2]):
        return None
    if match[1].islower() and match[2].strip():  # "a. first of all"
        return None
    return match[1].upper()


def _plain(key: str) -> str:
    """Return a key normalised for what judges change: case, kinds of hyphens, marks around it."""
    return _HYPHENS.sub("-", unicodedata.normalize("NFKC", key).strip(_KEY_MARKS)).casefold()


def _mixed_up(claimed: Sequence[str], numbers: Mapping[str, int], keys: Sequence[str]) -> str:
    """Return why the keys of an answer show that passages were mixed up; empty if they do not."""
    known = [numbers[key] for key in claimed if key in numbers]
    if len(set(known)) != len(known):
        return "duplicate"
    tags = {key.rpartition("-")[2] for key in keys}
    for key in claimed:
        if key not in numbers:
            match = _PASSAGE_KEY.fullmatch(key)
            if match is None or int(match[1]) >= len(keys):
                return "invented"
            return "untagged" if match[2] is None else "swapped" if match[2] in tags else "invented"
    return ""
