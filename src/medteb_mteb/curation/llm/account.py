"""Account of an LLM's cost, as recorded in the journal."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Account"]


@dataclass(frozen=True, slots=True)
class Account:
    """Number of answers, tokens and cost of an LLM.

    Attributes:
        answers: Number of answers, valid or not.
        tokens_in: Tokens of their prompts.
        tokens_out: Tokens of the answers.
        cost: Cost at the prices of the day of the answers.
        estimated: Number of answers without a token count, for which tokens are estimated.
    """

    answers: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float = 0.0
    estimated: int = 0
