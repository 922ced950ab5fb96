"""Claims of an answer: pairs of a passage's key and its grade as text, in the forms that judges write.

Of what `medteb_mteb.curation.llm.tolerant` reads, these forms are understood:

    {KEY: GRADE, ...}                    also in a wrapper, with comments beside it, or in several objects
    [{"id": KEY, "grade": GRADE}, ...]   under the usual names
    {GRADE: [KEY, ...], ...}
    KEY: GRADE                           lines, lists and tables without JSON, if every passage has one

Only the key says which passage a claim is about; positions are never used. A bare list of grades is refused.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.labels.grades import GRADES
from medteb_mteb.curation.llm.tolerant import Members, json_values, spoken

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Claims", "claims", "letter", "plain_key"]

#: Pairs of a key (as `plain_key` writes it) and the grade of its passage as text.
Claims = list[tuple[str, Any]]

#: A key of a passage, plain.
_PASSAGE_KEY = re.compile(r"passage-\d+(?:-\w+)?")
#: Names under which an entry of a list has the key, and under which an object has a grade, plain.
_ID_NAMES = ("id", "key", "name", "passage", "passage-id", "passageid", "doc-id", "段落", "段落-id", "编号")
_GRADE_NAMES = ("grade", "label", "rating", "level", "relevance", "score", "letter", "等级", "评级",
           "级别", "评分", "相关性", "相关度", "相关程度", "字母")  # fmt: skip
#: Depth of nested objects that is searched, and of values that are read at all.
_MAX_DEPTH, _MAX_READ_DEPTH = 4, 50

_HYPHENS = re.compile(r"[\u2010-\u2015\u2212_\s\\-]+")
_KEY_MARKS = " \t\r\n*`_~\"'“”‘’「」『』《》<>[]【】()"
#: A key in a text without JSON, and what may occur between it and its grade.
_KEY_IN_TEXT = re.compile(r"passage[\W_]{1,2}\d+(?:[\u2010-\u2015_-]\w+)?", re.IGNORECASE)
_AROUND_GRADE = " \t\r*`\"'|:=>→-"
#: Runs of marks are possessive: a long one must not be tried at each of its lengths.
_GRADE_TEXT = re.compile(
    r"(?:(?i:grade|label|rating|level|relevance|score|等级|评级|级别|评分|相关性|相关度|相关程度)"
    r"[\s\"'“”*]*+(?:is|为|是)?[\s:=]*+)?"
    r"[*`\"'“”‘’「」『』\[【(<\s]*+([SABCDsabcd])[*`\"'“”‘’」』\]】)>\s]*+(?:级别?|等级?|档)?[*`\"'”\s]*+"
    r"(?:$|[(:,.;。、!]|[-–—|]+\s)(.*)",
    re.DOTALL,
)
#: A second grade after the first: "A or B", "A/B", "A (B级)", "S: complete, A: partial".
_SECOND_GRADE = re.compile(
    r"(?<![A-Za-z0-9])[SABCD](?:级|等|档|\s*[)\]】,.;。，:!?]|\s*$)|(?:或|到|至|介于|\bor\b|/)\s*[SABCD](?![A-Za-z0-9])"
)


def letter(value: Any) -> str | None:
    """Return the one grade that a value states, in any notation; `None` if it states none or several.

    Reads `A`, `"a"`, `Ａ`, `A级`, `**A**`, `等级：A`, `A（部分回答）`, `A: answers in part`, `["A"]`,
    `{"grade": "A", "reason": ...}`; not `A passage that ...`, `A/B`, `AB`, `4`, `相关`.
    """
    if isinstance(value, Members):
        named = [letter(one) for key, one in value if plain_key(key) in _GRADE_NAMES]
        return named[0] if named and len(set(named)) == 1 else None
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


def plain_key(key: str) -> str:
    """Return a key normalised for what judges change: case, kinds of hyphens, marks around it."""
    return _HYPHENS.sub("-", unicodedata.normalize("NFKC", key).strip(_KEY_MARKS)).casefold()


def claims(content: str, keys: Sequence[str], *, cut: bool = False) -> Claims | str:
    """Return the claims of an answer, in its order; a key with two claims occurs twice.

    Args:
        content: Answer of the judge.
        keys: Requested keys, as written by `plain_key`.
        cut: Whether the answer was cut at the maximum number of tokens.

    Returns:
        The claims, or the reason why there are none: `not-json`, `not-an-object`.
    """
    text = spoken(content, cut=cut)
    values = json_values(text)
    if any(_too_deep(value.content) for value in values):
        return "not-json"
    sets: list[Claims] = []
    for value in values:
        value_claims = [one for one in _sets(value.content) if one]
        if value.repaired and not all(_borne_out(one, value.repaired) for one in value_claims):
            return "not-json"
        sets += value_claims
    if sets:
        return [claim for one in _distinct_sets(sets) for claim in one]
    if len(keys) == 1:
        objects = [value.content for value in values if isinstance(value.content, Members)]
        alone = {letter(one) for one in objects} or {letter(text)}
        if len(alone) == 1 and None not in alone:
            return [(keys[0], alone.pop())]
    if values:
        return "not-an-object"
    # An object that does not end was cut; its lines are not a list.
    return ([] if "{" in text else _lines(text, keys)) or "not-json"


def _too_deep(value: Any, depth: int = 0) -> bool:
    """Return True if a value is nested deeper than any answer is; reading it might exceed Python's stack."""
    if isinstance(value, Members):
        value = [one for _, one in value]
    if not isinstance(value, list):
        return False
    return depth == _MAX_READ_DEPTH or any(_too_deep(one, depth + 1) for one in value)


def _borne_out(repaired_claims: Claims, text: str) -> bool:
    """Return True if the original text has every grade of a repaired answer between its key and the next."""
    behind: dict[str, str] = {}
    for key, following in _stretches(text):
        behind[key] = f"{behind.get(key, '')} {following}"
    return all(
        re.search(rf"(?<![A-Za-z0-9]){grade}(?![A-Za-z0-9])", behind.get(key, ""), re.IGNORECASE)
        for key, value in repaired_claims
        if (grade := letter(value))
    )


def _stretches(text: str) -> Iterator[tuple[str, str]]:
    """Yield the passages' keys in a text, as `plain_key` writes them, each with the text up to the next."""
    starts = [*_KEY_IN_TEXT.finditer(text)]
    ends = [*(start.start() for start in starts[1:]), len(text)]
    for start, end in zip(starts, ends, strict=False):
        yield plain_key(start.group()), unicodedata.normalize("NFKC", text[start.end() : end])


def _distinct_sets(sets: list[Claims]) -> list[Claims]:
    """Return the distinct sets; if any has grades, without sets of placeholders or reasons."""
    known = [one for one in sets if any(letter(value) for _, value in one)]
    distinct: list[Claims] = []
    for one in known or sets:
        if one not in distinct:
            distinct.append(one)
    return distinct


def _sets(value: Any, depth: int = 0) -> Iterator[Claims]:
    """Yield the sets of claims inside a value."""
    if depth > _MAX_DEPTH:
        return
    if not isinstance(value, Members):
        for one in value if isinstance(value, list) else ():
            yield from _sets(one, depth + 1)
        return
    names = [(plain_key(key), one) for key, one in value]
    if any(key in _GRADE_NAMES for key, _ in names) and (entry_key := _entry(names)):
        yield [(entry_key, value)]
        return
    if names and all(key.upper() in GRADES for key, _ in names):
        yield _turned(names)
        return
    direct: Claims = []
    for key, one in names:
        inner = [*_sets(one, depth + 1)]
        if _PASSAGE_KEY.fullmatch(key):
            direct.append((key, one))
            # An object under a key that is about another passage contradicts it.
            yield from ([claim for claim in inner_claims if claim[0] != key] for inner_claims in inner)
        elif inner:
            yield from inner
        elif any(character.isdigit() for character in key):
            direct.append((key, one))
    if direct:
        yield direct


def _entry(names: Claims) -> str:
    """Return the key that an entry of a list names; empty if it names none."""
    ids = [plain_key(str(one)) for key, one in names if key in _ID_NAMES and isinstance(one, (str, int))]
    passage_ids = {one for one in ids if _PASSAGE_KEY.fullmatch(one)}
    return passage_ids.pop() if len(passage_ids) == 1 else ids[0] if ids else ""


def _turned(names: Sequence[tuple[str, Any]]) -> Claims:
    """Return the claims of an object that lists the passages of each grade."""
    turned: Claims = []
    for grade, listed in names:
        several = listed if isinstance(listed, list) else [listed]
        turned += [(plain_key(one), grade.upper()) for one in several if isinstance(one, str) and one.strip()]
    return turned


def _lines(text: str, keys: Sequence[str]) -> Claims:
    """Return claims of an answer without JSON, if every key has one; empty otherwise."""
    line_claims: Claims = []
    for key, following in _stretches(text):
        line = following.partition("\n")[0].strip(_AROUND_GRADE)
        claim = (key, letter(line.partition("|")[0]))
        if claim[1] and claim not in line_claims:
            line_claims.append(claim)
    return line_claims if {key for key, _ in line_claims} >= set(keys) else []
