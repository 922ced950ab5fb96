"""Control passages: texts whose grade is known beforehand, which show whether a judge graded or obeyed.

A prompt carries one negative and one positive control. The negative one is about something else entirely; if
it is graded better than C, some passage raised it. The positive one is either gold, a passage that is known
to answer the query, or repeats the query; by the scale neither is unrelated to it. If it is graded too low,
some passage lowered the others. LLMs are known to grade a passage that repeats the query too high rather than
too low (Alaofi et al., "LLMs can be fooled into labelling a document as relevant", SIGIR-AP 2024).
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from medteb_mteb.curation.llm import prompt_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "ALLOWED_GRADES",
    "CONTROLS",
    "CONTROL_TEXTS",
    "ECHO",
    "ECHOES",
    "GOLD",
    "MISGRADED_REASONS",
    "OFF_TOPIC",
    "misgraded",
    "with_controls",
]

#: Kinds of control passages, whose sum is the `control` of a request: one about something else entirely, one
#: that repeats the query, and one that is known to answer it.
OFF_TOPIC, ECHO, GOLD = 1, 2, 4

#: Passages that no medical query is about.
CONTROLS = tuple(prompt_text(__file__, "controls").splitlines())

#: Passages that repeat the query.
ECHOES = tuple(prompt_text(__file__, "echoes").splitlines())

#: Queries that no medical passage answers, about other things than `CONTROLS`.
CONTROL_TEXTS = tuple(prompt_text(__file__, "checks").splitlines())

#: Grades that a control passage may be given, by kind.
ALLOWED_GRADES: Mapping[int, str] = {OFF_TOPIC: "CD", ECHO: "SABC", GOLD: "SAB"}
#: Reasons for rejecting an answer, by kind of the control passage that was misgraded.
MISGRADED_REASONS: Mapping[int, str] = {OFF_TOPIC: "control", ECHO: "control-low", GOLD: "control-low"}


def with_controls(
    control: int,
    identity: bytes,
    texts: Sequence[str],
    *,
    query: str,
    gold: Sequence[str],
) -> tuple[list[str], tuple[int, ...], dict[int, int]]:
    """Return the passages of a prompt, including its control passages.

    Args:
        control: Sum of the kinds of control passages.
        identity: Digest of the request (16 bytes), which seeds the choice and places of control passages.
        texts: Passages to grade, in the order of the request.
        query: The query.
        gold: Passages that are known to answer the query, none of them in `texts`.

    Returns:
        The passages, the numbers of the request's own passages, and the kind of control passage by number.
    """
    draw = random.Random(identity)
    chosen = [kind for kind in (OFF_TOPIC, ECHO, GOLD) if control & kind]
    count = len(texts) + len(chosen)
    kinds = dict(zip(draw.sample(range(count), len(chosen)), chosen, strict=True))
    numbers = tuple(number for number in range(count) if number not in kinds)
    shown = [""] * count
    for number, text in zip(numbers, texts, strict=True):
        shown[number] = text
    choice = {OFF_TOPIC: CONTROLS, ECHO: [echo.replace("{query}", query) for echo in ECHOES], GOLD: gold}
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
