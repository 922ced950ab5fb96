"""Reading an answer: one letter for each passage, and what to make of one that is not that.

An answer is a claim about every passage at once, so what shows that the judge mixed passages up takes the
whole answer down: a key that was not asked for, a key twice, a tag at another passage's number. What is only
missing, or no letter of the scale, says nothing against the rest.
"""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, TypeAdapter, ValidationError

from medteb_mteb.build.llm.prompt import unwrapped

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Letter", "Verdict", "answer_schema", "read_answer"]


def _plain(value: Any) -> Any:
    """Letters come with blanks, in lower case or in full width, and mean the same."""
    return unicodedata.normalize("NFKC", value).strip().upper() if isinstance(value, str) else value


Letter = Annotated[Literal["S", "A", "B", "C", "D"], BeforeValidator(_plain)]
_LETTER: TypeAdapter[str] = TypeAdapter(Letter)

_REFUSAL = re.compile(
    r"抱歉|对不起|(无法|不能|不便|拒绝)(提供|回答|协助|完成|评|处理|满足)|"
    r"\b(sorry|(can ?not|can't|unable to|won't) (help|assist|provide|comply|answer|rate|grade))\b",
    re.IGNORECASE,
)
_KEY = re.compile(r"Passage-(\d+)(?:-(\w+))?")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an answer says.

    Attributes:
        grades: Grade by number of the passage.
        missing: Reason by number of a passage that has no grade.
        whole: Why nothing in the answer can be trusted; empty if something can.
    """

    grades: dict[int, str] = field(default_factory=dict)
    missing: dict[int, str] = field(default_factory=dict)
    whole: str = ""


def read_answer(
    content: str | None, keys: Sequence[str], *, refused: bool = False, cut: bool = False
) -> Verdict:
    """The grades of an answer.

    Args:
        content: What the judge said.
        keys: Key of each passage, in their order.
        refused: The endpoint says that it is a refusal.
        cut: The endpoint says that it ends where the tokens ended.

    Returns:
        A grade or a reason for each passage. Reasons: `refused`, `empty`, `cut`, `not-json`, `not-an-object`,
        `duplicate`, `swapped`, `untagged`, `invented` (all of the whole answer), `missing`, `letter`.
    """
    if refused:
        return _distrusted("refused", keys)
    if not content or not content.strip():
        return _distrusted("empty", keys)
    pairs = _object(content)
    if isinstance(pairs, str):
        if pairs == "not-json":
            pairs = "cut" if cut else "refused" if _REFUSAL.search(content) else pairs
        return _distrusted(pairs, keys)
    numbers = {key: number for number, key in enumerate(keys)}
    if len(keys) == 1:  # nothing to mix it up with
        numbers[keys[0].rpartition("-")[0] if keys[0].count("-") > 1 else keys[0]] = 0
    reason = _mixed_up([key for key, _ in pairs], numbers, keys)
    if reason:
        return _distrusted(reason, keys)
    grades: dict[int, str] = {}
    missing = dict.fromkeys(range(len(keys)), "missing")
    for key, value in pairs:
        try:
            grades[numbers[key]] = _LETTER.validate_python(value)
        except ValidationError:
            missing[numbers[key]] = "letter"
        else:
            del missing[numbers[key]]
    return Verdict(grades, missing)


def answer_schema(keys: Sequence[str]) -> dict[str, Any]:
    """The JSON schema of an answer: every key, one letter each, nothing else."""
    letter = {"type": "string", "enum": ["S", "A", "B", "C", "D"]}
    return {
        "type": "object",
        "properties": dict.fromkeys(keys, letter),
        "required": list(keys),
        "additionalProperties": False,
    }


def _distrusted(reason: str, keys: Sequence[str]) -> Verdict:
    return Verdict({}, dict.fromkeys(range(len(keys)), reason), reason)


def _object(content: str) -> list[tuple[str, Any]] | str:
    """Members of the one JSON object, in their order and with repetitions; a reason if there is none."""
    try:
        found = json.loads(unwrapped(content), object_pairs_hook=_Members)
    except (ValueError, RecursionError):
        return "not-json"
    return list(found) if isinstance(found, _Members) else "not-an-object"


class _Members(list[tuple[str, Any]]):
    """Members of an object; a dict would keep only the last of a repeated key."""


def _mixed_up(found: Sequence[str], numbers: dict[str, int], keys: Sequence[str]) -> str:
    """Why the keys of an answer show that it cannot be trusted; empty if they do not."""
    known = [numbers[key] for key in found if key in numbers]
    if len(set(found)) != len(found) or len(set(known)) != len(known):
        return "duplicate"
    for key in found:
        if key in numbers:
            continue
        match = _KEY.fullmatch(key)
        if match and int(match[1]) < len(keys) and keys[int(match[1])] != f"Passage-{match[1]}":
            tags = {known.rpartition("-")[2] for known in keys}
            return "untagged" if match[2] is None else "swapped" if match[2] in tags else "invented"
        return "invented"
    return ""
