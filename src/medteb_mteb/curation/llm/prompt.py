"""Prompt of a generation, and the error by which a reader rejects an answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Prompt", "Rejected"]


@dataclass(frozen=True, slots=True)
class Prompt:
    """Prompt of a generation.

    Attributes:
        key: The caller's key of the prompt, unique within a call.
        system: The system message.
        user: The user message.
        schema: JSON schema of the answer.
        answer_tokens: Estimated tokens of the answer.
        variant: Part of the answer's identity: requests another answer to the same text (`"0"`, `"1"`, ...).
            Two prompts with the same text and variant share one answer, whatever their keys.
    """

    key: str
    system: str
    user: str
    schema: Mapping[str, Any]
    answer_tokens: int
    variant: str = ""


class Rejected(Exception):  # noqa: N818 - an outcome, not a mistake
    """An unusable answer: `reason` is a short key that is counted, for instance `missing-key`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
