"""Account of an LLM's cost, as recorded in the journal."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Account"]


@dataclass(frozen=True, slots=True)
class Account:
    """Number of answers, tokens and cost of an LLM.

    Attributes:
        answers: Answers, good or bad.
        tokens_in: Tokens of their prompts.
        tokens_out: Tokens of the answers.
        cost: Their price, at the prices of the day.
        estimated: Answers that came without a count of tokens; theirs are estimated.
    """

    answers: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float = 0.0
    estimated: int = 0
