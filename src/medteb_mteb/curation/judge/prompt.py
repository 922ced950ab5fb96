"""The grading prompt: the published task and scale (MAR paper, Table 21), in our own words."""

from __future__ import annotations

import hashlib
import random
from typing import TYPE_CHECKING

from medteb_mteb.curation.judge.injection import defused, delimiter
from medteb_mteb.curation.labels.grades import GRADES
from medteb_mteb.curation.llm.client import Prompt, object_schema, prompt_text, version_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SYSTEM = prompt_text(__file__, "system").strip()
TEMPLATE = prompt_text(__file__, "user")
PASSAGE_TEMPLATE = prompt_text(__file__, "passage").strip()

#: Keys have a tag of their passage, so that mixed-up answers are recognised; the published keys have none.
KEY_RULE = "键为各段落的 id，连同末尾的校验码一字不差地照抄（形如 Passage-0-k7f）。"

#: Tokens that an answer has for a passage: its key, its letter, and the JSON around them.
TOKENS_PER_GRADE = 14

_TAG_ALPHABET = "bcdfghjkmnpqrstvwxz23456789"


def answer_tokens(passages: int) -> int:
    """Return the estimated tokens of an answer."""
    return 4 + TOKENS_PER_GRADE * passages


def prompt_version() -> str:
    """Return the digest (16 hex digits) of the prompt without its texts."""
    return version_of(SYSTEM, TEMPLATE, PASSAGE_TEMPLATE, KEY_RULE)


def render(query: str, passages: Sequence[str], *, request: bytes) -> tuple[Prompt, tuple[str, ...]]:
    """Return the prompt of a request, and the keys of its passages in their order.

    Args:
        query: The query.
        passages: The passages in the order of the prompt.
        request: Digest of the request; delimiters and tags are derived from it.
    """
    shown = (defused(query), *map(defused, passages))
    word = delimiter(request, shown)
    keys = tuple(f"Passage-{n}-{_tag(request, n)}" for n in range(len(passages)))
    user = TEMPLATE.format(
        count=len(passages),
        word=word,
        query=shown[0],
        passages="\n".join(
            PASSAGE_TEMPLATE.format(word=word, key=key, text=text)
            for key, text in zip(keys, shown[1:], strict=True)
        ),
        keys=KEY_RULE,
        # Concrete letters in an example bias the answers; these are placeholders.
        example="{" + ", ".join(f'"{key}": "<字母>"' for key in keys[:2]) + "}",
    )
    letter = {"type": "string", "enum": list(GRADES)}
    schema = object_schema(dict.fromkeys(keys, letter))
    tokens = answer_tokens(len(keys))
    return Prompt(request.hex(), SYSTEM, user, schema, tokens, texts=(query, *passages)), keys


def _tag(request: bytes, number: int) -> str:
    """Return three letters or digits without vowels; the tags of a prompt almost always differ."""
    digest = hashlib.sha256(b"tag %d " % number + request).digest()
    return "".join(_TAG_ALPHABET[byte % len(_TAG_ALPHABET)] for byte in digest[:3])


#: Kinds of control passages: one about something else entirely, and one that repeats the query.
OFF_TOPIC, ECHO = 1, 2

#: Passages that no medical query is about.
CONTROLS = tuple(prompt_text(__file__, "controls").splitlines())

#: Passages that repeat the query.
ECHOES = tuple(prompt_text(__file__, "echoes").splitlines())

#: Queries that no medical passage answers, about other things than `CONTROLS`.
CONTROL_TEXTS = tuple(prompt_text(__file__, "checks").splitlines())

#: Grades that a control passage may be given, by kind.
ALLOWED_GRADES: Mapping[int, str] = {OFF_TOPIC: "CD", ECHO: "SABC"}
#: Reasons for rejecting an answer, by kind of the control passage that was misgraded.
MISGRADED_REASONS: Mapping[int, str] = {OFF_TOPIC: "control", ECHO: "control-low"}


def with_controls(
    identity: bytes, texts: Sequence[str], query: str
) -> tuple[list[str], tuple[int, ...], dict[int, int]]:
    """Return the passages of a prompt, including its control passages.

    Args:
        identity: Digest of the request (16 bytes), which seeds the choice and places of control passages.
        texts: Passages to grade, in the order of the request.
        query: The query.

    Returns:
        The passages, the numbers of the request's own passages, and the kind of control passage by number.
    """
    draw = random.Random(identity)
    count = len(texts) + 2
    kinds = dict(zip(draw.sample(range(count), 2), (OFF_TOPIC, ECHO), strict=True))
    numbers = tuple(number for number in range(count) if number not in kinds)
    shown = [""] * count
    for number, text in zip(numbers, texts, strict=True):
        shown[number] = text
    choice = {OFF_TOPIC: CONTROLS, ECHO: [echo.replace("{query}", query) for echo in ECHOES]}
    for number, kind in sorted(kinds.items(), key=lambda item: item[1]):
        shown[number] = draw.choice(choice[kind])
    return shown, numbers, kinds


def misgraded(grades: Mapping[int, str], kinds: Mapping[int, int]) -> str:
    """Return why an answer is rejected because of its control passages; empty if it is not.

    Args:
        grades: Grade by number.
        kinds: Kind of control passage by number.
    """
    for number, kind in sorted(kinds.items(), key=lambda item: item[1]):
        grade = grades.get(number)
        if grade is None:
            return "control-missing"
        if grade not in ALLOWED_GRADES[kind]:
            return MISGRADED_REASONS[kind]
    return ""
