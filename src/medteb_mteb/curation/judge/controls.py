"""Control passages: texts whose grade is known beforehand, which show whether a judge graded or obeyed.

A prompt carries one negative and one positive control. The negative one is about something else entirely; if
it is graded better than C, some passage raised it. The positive one repeats the query; by the scale it is not
unrelated to it. If it is graded D, some passage lowered the others. LLMs are known to grade a passage that
repeats the query too high rather than too low (Alaofi et al., "LLMs can be fooled into labelling a document
as relevant", SIGIR-AP 2024).
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from medteb_mteb.curation.llm.client import prompt_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
