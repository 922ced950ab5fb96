"""Reading an answer: one letter for each passage, and the treatment of invalid answers.

An answer grades all passages at once, so it is rejected as a whole if it shows that the judge mixed passages
up: by an unknown key, a repeated key, or a tag with another passage's number. A missing grade, or one that is
not on the scale, does not affect the others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.judge.claims import claims, letter, plain_key
from medteb_mteb.curation.labels.grades import GRADES

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Verdict", "answer_schema", "read_answer"]


_REFUSAL = re.compile(
    r"抱歉|对不起|(无法|不能|不便|拒绝)(提供|回答|协助|完成|评|处理|满足)|"
    r"\b(sorry|(can ?not|can't|unable to|won't) (help|assist|provide|comply|answer|rate|grade))\b",
    re.IGNORECASE,
)
_PASSAGE_KEY = re.compile(r"passage-(\d+)(?:-(\w+))?")
#: Maximum digits of the number in a key.
_MAX_KEY_DIGITS = 9


@dataclass(frozen=True, slots=True)
class Verdict:
    """Content of an answer.

    Attributes:
        grades: Grade by number of the passage.
        missing: Reason by number of a passage that has no grade.
        whole: Why the whole answer is rejected; empty if it is not.
    """

    grades: dict[int, str] = field(default_factory=dict)
    missing: dict[int, str] = field(default_factory=dict)
    whole: str = ""


def read_answer(
    content: str | None, keys: Sequence[str], *, refused: bool = False, cut: bool = False
) -> Verdict:
    """Return the grades of an answer.

    Args:
        content: The judge's answer.
        keys: Key of each passage, in the order of the passages.
        refused: Whether the endpoint marks the answer as a refusal.
        cut: Whether the endpoint marks the answer as cut at the maximum number of tokens.

    Returns:
        A grade or a reason for each passage. Reasons: `refused`, `empty`, `cut`, `not-json`, `not-an-object`,
        `duplicate`, `swapped`, `untagged`, `invented` (these apply to the whole answer), `missing`, `letter`.
    """
    if refused:
        return _distrusted("refused", keys)
    if not content or not content.strip():
        return _distrusted("empty", keys)
    plain_keys = [plain_key(key) for key in keys]
    answer_claims = claims(content, plain_keys, cut=cut)
    if isinstance(answer_claims, str):
        reason = "cut" if cut else "refused" if _REFUSAL.search(content) else answer_claims
        return _distrusted(reason, keys)
    numbers = {key: number for number, key in enumerate(plain_keys)}
    if len(keys) == 1:  # nothing to mix it up with
        numbers[plain_keys[0].rpartition("-")[0] if plain_keys[0].count("-") > 1 else plain_keys[0]] = 0
    reason = _mixed_up([key for key, _ in answer_claims], numbers, plain_keys)
    if reason:
        return _distrusted(reason, keys)
    grades: dict[int, str] = {}
    missing = dict.fromkeys(range(len(keys)), "missing")
    for key, value in answer_claims:
        grade = letter(value)
        if grade is None:
            missing[numbers[key]] = "letter"
        else:
            grades[numbers[key]] = grade
            del missing[numbers[key]]
    return Verdict(grades, missing)


def answer_schema(keys: Sequence[str]) -> dict[str, Any]:
    """Return the JSON schema of an answer: every key, one letter each, nothing else."""
    letter = {"type": "string", "enum": list(GRADES)}
    return {
        "type": "object",
        "properties": dict.fromkeys(keys, letter),
        "required": list(keys),
        "additionalProperties": False,
    }


def _distrusted(reason: str, keys: Sequence[str]) -> Verdict:
    return Verdict({}, dict.fromkeys(range(len(keys)), reason), reason)


def _mixed_up(claimed_keys: Sequence[str], numbers: dict[str, int], keys: Sequence[str]) -> str:
    """Return why the keys of an answer show that passages were mixed up; empty if they do not."""
    known = [numbers[key] for key in claimed_keys if key in numbers]
    if len(set(claimed_keys)) != len(claimed_keys) or len(set(known)) != len(known):
        return "duplicate"
    for key in claimed_keys:
        if key in numbers:
            continue
        match = _PASSAGE_KEY.fullmatch(key)
        # Python refuses to read a number of thousands of digits.
        number = int(match[1]) if match and len(match[1]) <= _MAX_KEY_DIGITS else len(keys)
        if match and number < len(keys) and keys[number] != f"passage-{match[1]}":
            tags = {known.rpartition("-")[2] for known in keys}
            return "untagged" if match[2] is None else "swapped" if match[2] in tags else "invented"
        return "invented"
    return ""
