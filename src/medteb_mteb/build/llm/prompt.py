"""What an LLM is asked to write, and what a reader makes of its answers."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Prompt", "Rejected", "json_object", "unwrapped"]

_THOUGHT = re.compile(r"^\s*<think>.*?</think>", re.DOTALL)
_FENCE = re.compile(r"```(?:json)?\s*(.*?)```", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Prompt:
    """What an LLM is asked to write.

    Attributes:
        key: The caller's name for it, unique within a call.
        system: The system message.
        user: The user message.
        schema: JSON schema of the answer.
        answer_tokens: Estimated tokens of the answer.
        variant: Part of the answer's identity: asks the same words for another answer (`"0"`, `"1"`, ...).
            Two prompts of the same words and the same variant, whatever their keys, share one answer.
    """

    key: str
    system: str
    user: str
    schema: Mapping[str, Any]
    answer_tokens: int
    variant: str = ""


class Rejected(Exception):  # noqa: N818 - an outcome, not a mistake
    """An answer that is no good: `reason` is a short key that is counted, for instance `missing-key`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def json_object(content: str) -> dict[str, Any]:
    """The JSON object of an answer; words before and after it are left out, as `unwrapped` leaves them out.

    Raises:
        Rejected: `no-json`, there is not exactly one object.
    """
    text = unwrapped(content)
    try:
        # From the first brace to the last: the inner object of a cut answer is not taken for the answer.
        found = json.loads(text[text.index("{") : text.rindex("}") + 1])
    except (ValueError, RecursionError):
        raise Rejected("no-json") from None
    if not isinstance(found, dict):
        raise Rejected("no-json")
    return found


def unwrapped(content: str) -> str:
    """An answer without the model's thoughts in `<think>`, and without its code fence if it has just one."""
    text = _THOUGHT.sub("", content)
    fenced = _FENCE.findall(text)
    return fenced[0] if len(fenced) == 1 else text
